"""Options of *report*, *status* and *doctor*."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from streamvault.common.options import DURATION, FILE, FOLDER, CommandLine, Options


class ReportOptions(Options):
    """Options of *report*."""

    output: Annotated[
        Path | None,
        Field(description="Write one HTML file that can be read offline. An existing file is replaced."),
        replace(FILE, short="-o"),
    ] = None
    svg: Annotated[
        Path | None,
        Field(description="Write each chart as an SVG file below this folder, which is created."),
        FOLDER,
    ] = None
    stream: Annotated[
        str,
        Field(description="The archived stream, to also report what is not archived yet."),
        CommandLine(metavar="STREAM", environment=False),
    ] = ""


class StatusOptions(Options):
    """Options of *status*."""

    root: Annotated[
        str | None,
        Field(description="Where the streams of a scope are archived."),
        CommandLine(metavar="ROOT", environment=False),
    ] = None
    config_file: Annotated[
        Path | None,
        Field(description="The file that declares the streams, as for follow, rotate or replicate."),
        FILE.named("--config"),
    ] = None
    metrics: Annotated[
        Path | None,
        Field(description="Also write the figures as metrics for Prometheus. An existing file is replaced."),
        FILE,
    ] = None


class DoctorOptions(Options):
    """Options of *doctor*."""

    time_limit: Annotated[
        float,
        Field(gt=0, description="Time limit for all checks together; a check that has not finished by then fails."),
        DURATION,
    ] = 5.0
