"""Options of *import*, *copy*, *request-restore* and *work*."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from common.errors import Usage
from common.options import DURATION, SIZE, TIME, CommandLine, Options, moment
from layouts.windows import WINDOW
from manifests.options import Fingerprints, Generation, Window
from streamstore.cut_option import FromCut, ToCut
from streamstore.model import ContentKind

__all__ = [
    "FILLER_LIMIT",
    "CopyOptions",
    "ImportOptions",
    "KeptRetention",
    "NewStreamOptions",
    "Numbers",
    "Offsets",
    "RestoreOptions",
    "WorkOptions",
]

Numbers = Literal["keep", "map"]
Offsets = Literal["keep", "shift"]
KeptRetention = Literal["keep", "off"]

FILLER_LIMIT = 1024**3


class NewStreamOptions(Options):
    """Which part of a stream, and how it becomes a new stream."""

    from_cut: FromCut = None
    to_cut: ToCut = None
    offsets: Annotated[
        Offsets,
        Field(
            description="Segments whose beginning was truncated: keep their offsets (with filler), or start them at 0."
        ),
    ] = "keep"
    filler_limit: Annotated[int, Field(ge=0, description="Maximum filler per segment."), SIZE] = FILLER_LIMIT
    numbers: Annotated[
        Numbers,
        Field(
            description="Segments whose numbers the store cannot give again, as under a name that was used before: "
            "reject them, or restore them with other numbers."
        ),
    ] = "keep"
    window: Window = WINDOW
    read_back: Annotated[
        bool, Field(description="Also read back and compare the data that this run itself appended.")
    ] = False


class CopyOptions(NewStreamOptions):
    """Options of *copy*."""

    content: Annotated[
        ContentKind | None,
        Field(description="What the stream holds. Cuts of bytes (of a byte stream) may have any offsets."),
    ] = None


class RestoreOptions(NewStreamOptions):
    """Which part of an archive is restored, and how: what a request in a queue holds too."""

    generation: Generation = None
    at: Annotated[
        datetime | None,
        moment("--at"),
        Field(description="Restore up to the last generation taken by this time, e.g. 2026-01-31T18:00:00Z."),
        TIME,
    ] = None
    retention: Annotated[
        KeptRetention,
        Field(
            description="Retention policy of the new stream: the archived one, by which the store may soon delete "
            "events, or none."
        ),
    ] = "keep"

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.at is not None and self.generation is not None:
            raise Usage("--at and --generation are mutually exclusive", todo="Give only one of them.")
        return self


class ImportOptions(RestoreOptions):
    """Options of *import*."""

    fingerprints: Fingerprints = ()
    layout: Annotated[
        Literal["table"] | None,
        Field(description="Restore from the files of a table that `handoff` wrote."),
        CommandLine(environment=False),
    ] = None
    table: Annotated[
        str | None, Field(description="Name of the table, if there are several."), CommandLine(metavar="NAME")
    ] = None
    wait_for_warm: Annotated[
        bool, Field(description="Wait for objects that S3 is restoring from an archive class.")
    ] = False
    again: Annotated[
        bool,
        Field(description="Read back and verify a stream that was already restored from this archive."),
    ] = False


class WorkOptions(Options):
    """Options of *work*."""

    idle_seconds: Annotated[
        float | None,
        Field(ge=0, description="Stop after this long without new requests, e.g. 60s."),
        DURATION.named("--idle"),
    ] = None
    for_seconds: Annotated[
        float | None, Field(ge=0, description="Start no request after this long, e.g. 1h."), DURATION.named("--for")
    ] = None
    wait_seconds: Annotated[
        float,
        Field(ge=0, description="How long to wait for another worker of the queue to end."),
        CommandLine(name="--wait", metavar="TIME", parse=DURATION.parse, text=DURATION.text, environment=False),
    ] = 0.0
    tries: Annotated[
        int | None,
        Field(ge=1, description="Stop after N attempts if a store does not answer."),
        CommandLine(metavar="N"),
    ] = None
