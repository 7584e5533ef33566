"""Options of *demo*."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from streamvault.common.options import FILE, FOLDER, CommandLine
from streamvault.sparkrun.options import Distributed


class DemoOptions(Distributed):
    """Options of *demo*."""

    keep: Annotated[
        Path | None,
        Field(description="Keep the streams and a copy of the archive in this folder."),
        FOLDER,
    ] = None
    report: Annotated[
        Path | None,
        Field(description="Also archive a growing stream, and write a report about it to this HTML file."),
        FILE,
    ] = None
    events: Annotated[
        int, Field(ge=10, le=1_000_000, description="Number of events to generate."), CommandLine(metavar="N")
    ] = 2_000
