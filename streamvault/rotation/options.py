"""Options of *rotate*, *follow* and *compact*."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Usage
from streamvault.common.options import AGE, TIME, CommandLine, Rehearsed, moment
from streamvault.common.times import LONGEST_SECONDS, parse_moment
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.archive.expiry_rule import ExpiryRule
from streamvault.manifests.options import (
    GRACE,
    TARGET,
    ArchivingOptions,
    Every,
    Grace,
    Restart,
    RoundOptions,
    StorageClass,
    TargetBytes,
    Window,
)
from streamvault.sparkrun.options import Distributed

EVERY = 10.0
"""Seconds between two checks for new events."""

Keep = Annotated[
    int | None,
    Field(ge=1, description="Expire all but the N newest generations with data."),
    CommandLine(metavar="N").destroying(),
]
KeepFor = Annotated[
    float | None,
    Field(
        ge=0,
        le=LONGEST_SECONDS,
        description="Expire generations that are older than the newest by more than this: 90d, 2w or 36h. If less than "
        "an hour, write it twice: '30m 30m'.",
    ),
    AGE.destroying(),
]
TruncateSource = Annotated[
    bool,
    Field(description="Truncate the stream up to the end of the archived and verified data."),
    CommandLine().destroying(),
]


class RotateOptions(ArchivingOptions, Distributed, Rehearsed):
    """Options of *rotate*."""

    scoped: ClassVar = {"stream": "stream"}
    measured: ClassVar = True

    keep: Keep = None
    keep_for: KeepFor = None
    until: Annotated[
        str | datetime | None,
        moment("--until"),
        Field(description="Expire generations taken at or before this time, e.g. 2026-01-31T18:00:00Z."),
        TIME.destroying(),
    ] = None
    truncate_source: TruncateSource = False
    hold: Annotated[str, Field(description="Place a hold on the newest generation."), CommandLine(metavar="NAME")] = ""
    queue: Annotated[
        str, Field(description="Queue deletions for a worker instead of deleting now."), CommandLine(metavar="QUEUE")
    ] = ""
    restart: Restart = False

    @property
    def rule(self) -> ExpiryRule:
        """By which generations expire."""
        until = None if self.until is None else parse_moment(self.until, "--until")
        return ExpiryRule(self.keep, self.keep_for, until)

    @model_validator(mode="after")
    def _check_expiry(self) -> Self:
        _check_one(self.keep, self.keep_for, self.until)
        return self


class FollowOptions(RoundOptions, ArchivingOptions, Distributed):
    """Options of *follow*."""

    scoped: ClassVar = {"stream": "stream"}
    measured: ClassVar = True

    rotate: Annotated[
        bool,
        Field(description="Rotate each time: read back new generations, expire old ones, truncate if requested."),
    ] = False
    keep: Keep = None
    keep_for: KeepFor = None
    truncate_source: TruncateSource = False
    every: Every = EVERY
    target: TargetBytes = TARGET
    grace: Grace = GRACE

    @model_validator(mode="after")
    def _check_expiry(self) -> Self:
        _check_one(self.keep, self.keep_for)
        return self

    @property
    def follows(self) -> bool:
        """See the base class."""
        return True

    @property
    def rotates(self) -> bool:
        """Whether each round rotates: `rotate` is given, or an option that only a rotation has."""
        return self.rotate or self.keep is not None or self.keep_for is not None or self.truncate_source


class CompactOptions(Distributed, Rehearsed):
    """Options of *compact*."""

    target: TargetBytes = TARGET
    at_least: Annotated[
        int, Field(ge=2, description="Merge runs of at least this many generations."), CommandLine(metavar="N")
    ] = 2
    grace: Grace = GRACE
    storage_class: StorageClass = ""
    window: Window = WINDOW


def _check_one(*given: object) -> None:
    if sum(value is not None for value in given) > 1:
        raise Usage("--keep, --keep-for and --until are mutually exclusive", todo="Give only one of them.")
