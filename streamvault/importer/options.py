"""Options of *import*, *copy*, *replicate*, *promote*, *move*, *request-restore* and *work*."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Usage
from streamvault.common.options import DURATION, SIZE, TIME, CommandLine, Options, moment
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.options import Fingerprints, Generation, RoundOptions, Window
from streamvault.streamstore.arithmetic.cut_option import FromCut, ToCut

__all__ = [
    "FILLER_LIMIT",
    "REPLICATE_EVERY",
    "CopyOptions",
    "ImportOptions",
    "KeptRetention",
    "MirrorOptions",
    "MoveOptions",
    "Numbers",
    "Offsets",
    "PromoteOptions",
    "ReplicateOptions",
    "RestoreOptions",
    "WorkOptions",
]

Numbers = Literal["keep", "map"]
Offsets = Literal["keep", "shift"]
KeptRetention = Literal["keep", "off"]

FILLER_LIMIT = 1024**3

REPLICATE_EVERY = 1.0
"""Seconds between two checks of a replicated stream."""

NumbersOption = Annotated[
    Numbers,
    Field(
        description="What to do if the store will not assign the source's segment numbers again (for example under a "
        "reused name): fail, or use other numbers."
    ),
]


PromotedRetention = Annotated[
    KeptRetention,
    Field(
        description="Whether the promoted stream gets the source's retention policy, which may truncate what "
        "--keep-head has kept."
    ),
]


class MirrorOptions(Options):
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


class CopyOptions(MirrorOptions):
    """Options of *copy*: which part of a stream, and how it becomes a new stream."""

    from_cut: FromCut = None
    to_cut: ToCut = None
    read_back: Annotated[
        bool, Field(description="Also read back and compare the data that this run itself appended.")
    ] = False


class MoveOptions(MirrorOptions):
    """Options of *move*."""

    no_tombstone: Annotated[
        bool,
        Field(description="Leave no empty sealed stream under the old name; a writer may then create it again."),
    ] = False
    numbers: NumbersOption = "map"
    retention: PromotedRetention = "keep"


class PromoteOptions(Options):
    """Options of *promote*."""

    seal_source: Annotated[
        bool,
        Field(description="Seal the source first, and replicate what was written to it until then."),
        CommandLine().destroying(),
    ] = False
    retention: PromotedRetention = "keep"
    window: Window = WINDOW


class ReplicateOptions(RoundOptions, MirrorOptions):
    """Options of *replicate*."""

    follow: Annotated[bool, Field(description="Keep replicating what is written to the source.")] = False
    every: Annotated[
        float | None, Field(gt=0, description="How often to check for new events; 1s if not given."), DURATION
    ] = None
    keep_head: Annotated[bool, Field(description="Do not truncate the replica when the source is truncated.")] = False
    numbers: NumbersOption = "map"

    @model_validator(mode="after")
    def _check_follow(self) -> Self:
        if not self.follow and not (self.every is self.idle is self.lasting is None):
            raise Usage("--every, --idle and --for require --follow", todo="Add --follow.")
        return self


class RestoreOptions(CopyOptions):
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
            description="Whether the new stream gets the archived retention policy, which may delete events at once."
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
    skip_damaged: Annotated[
        bool,
        Field(description="Restore a damaged archive without its damaged ranges, and end with exit code 3 if any are."),
        CommandLine(environment=False),
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
