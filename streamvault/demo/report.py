"""Options and report of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from streamvault.common.options import FILE, FOLDER, CommandLine
from streamvault.common.report import Report
from streamvault.runner.opening import Distributed


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Verified result of one step.

    Attributes:
        step: the step.
        shown: the result, with its figures.
        seconds: duration of the step.
    """

    step: str
    shown: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport(Report):
    """Result of the demo, returned only if every check passed.

    Attributes:
        events: events of the stream.
        bytes: bytes of the stream, with event headers.
        segments: number of segments of the stream.
        epochs: number of epochs of the stream.
        archive: URI of the archive on the demo's S3 server, which no longer runs.
        first_keys: the first object keys below the archive, as S3 lists them.
        proofs: the result of each step, in order.
        kept: the folder with the streams and a copy of the archive; empty if nothing was kept.
        page: the page that shows an archive; empty if none was asked for.
        total_seconds: duration of the call; of the whole command on the command line.
    """

    events: int
    bytes: int
    segments: int
    epochs: int
    archive: str
    first_keys: tuple[str, ...]
    proofs: tuple[Proof, ...]
    kept: str = ""
    page: str = ""
    total_seconds: float = 0.0


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
