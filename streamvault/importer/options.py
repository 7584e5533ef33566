"""Options of *import*, and those that it shares with requests and copies."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Usage
from streamvault.common.options import SIZE, TIME, CommandLine, Options, Rehearsed, moment
from streamvault.common.units import parse_moment
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.options import Fingerprints, Window
from streamvault.runner.opening import Distributed
from streamvault.streamstore.cuts import FromCut, ToCut

Numbers = Literal["keep", "map"]
Offsets = Literal["keep", "shift"]
KeptRetention = Literal["keep", "off"]

FILLER_LIMIT = 1024**3


NumbersOption = Annotated[
    Numbers,
    Field(
        description="What to do if the store will not assign the source's segment numbers again (for example under a "
        "reused name): fail, or use other numbers."
    ),
]


class TargetOptions(Options):
    """How a stream becomes a new stream."""

    offsets: Annotated[
        Offsets,
        Field(
            description="Segments whose beginning was truncated: keep their offsets (with filler), or start them at 0."
        ),
    ] = "keep"
    filler_limit: Annotated[int, Field(ge=0, description="Maximum filler per segment."), SIZE] = FILLER_LIMIT
    numbers: NumbersOption = "keep"
    window: Window = WINDOW


class PartOptions(TargetOptions):
    """Which part of a stream becomes a new stream, and how."""

    from_cut: FromCut = None
    to_cut: ToCut = None
    read_back: Annotated[
        bool, Field(description="Also read back and compare the data that this run itself appended.")
    ] = False


class RestoreOptions(PartOptions):
    """Which part of an archive is restored, and how: what a request in a queue holds too."""

    generation: Annotated[
        int | None,
        Field(ge=1, description="Restore up to this generation instead of the newest."),
        CommandLine(metavar="G"),
    ] = None
    at: Annotated[
        str | datetime | None,
        moment("--at"),
        Field(
            description="Restore up to the newest generation taken at or before this time, e.g. 2026-01-31T18:00:00Z."
        ),
        TIME,
    ] = None
    retention: Annotated[
        KeptRetention,
        Field(
            description="Whether the new stream gets the archived retention policy, which may delete events "
            "immediately."
        ),
    ] = "keep"

    @property
    def at_time(self) -> datetime | None:
        """The time `at`, in UTC."""
        return None if self.at is None else parse_moment(self.at, "--at")

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.at is not None and self.generation is not None:
            raise Usage("--at and --generation are mutually exclusive", todo="Give only one of them.")
        return self


class ImportOptions(RestoreOptions, Distributed, Rehearsed):
    """Options of *import*."""

    scoped: ClassVar = {"archive": "archive", "stream": "target"}

    fingerprints: Fingerprints = ()
    layout: Annotated[
        Literal["table"] | None,
        Field(description="Restore from the files of a table that `handoff` wrote."),
        CommandLine(environment=False),
    ] = None
    table: Annotated[
        str | None, Field(description="Name of the table, if there are several."), CommandLine(metavar="NAME")
    ] = None
    reader_groups: Annotated[
        bool,
        Field(description="Also create the reader groups that 'export --reader-groups' recorded, at those positions."),
    ] = False
    wait_for_warm: Annotated[
        bool, Field(description="Wait for objects that S3 is restoring from an archive class.")
    ] = False
    again: Annotated[
        bool,
        Field(description="Read back and verify a stream that was already restored from this archive."),
    ] = False
    skip_damaged: Annotated[
        bool,
        Field(description="Skip damaged ranges; exit with 3 if any were skipped."),
        CommandLine(environment=False),
    ] = False
