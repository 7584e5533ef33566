"""Options of *copy*, *replicate*, *promote* and *move*."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Usage
from streamvault.common.options import DURATION, CommandLine, Rehearsed, command_line
from streamvault.importer.options import KeptRetention, NumbersOption, PartOptions, TargetOptions
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.options import RoundOptions, Window
from streamvault.sparkrun.options import Distributed
from streamvault.streamstore.arithmetic.cut_option import Ranges

REPLICATE_EVERY = 1.0
"""Seconds between two checks of a replicated stream."""

PromotedRetention = Annotated[
    KeptRetention,
    Field(
        description="Whether the promoted stream gets the source's retention policy, which may truncate what "
        "--keep-head has kept."
    ),
]


ReaderGroupsOption = Annotated[
    bool,
    Field(description="Also create the reader groups that read the source, with the same names and positions."),
]


class CopyOptions(PartOptions, Distributed, Rehearsed):
    """Options of *copy*."""

    scoped: ClassVar = {"source": "stream", "stream": "target"}

    ranges: Ranges = ()
    reader_groups: ReaderGroupsOption = False
    method: Annotated[
        Literal["bytes", "events"],
        Field(
            description="Copy the bytes into the same segments, or the events into as many segments as --segments says."
        ),
    ] = "bytes"
    segments: Annotated[
        int | None,
        CommandLine(metavar="N"),
        Field(ge=1, description="With --method events: segments of the copy; as many as the source has, if they fit."),
    ] = None
    key: Annotated[
        str,
        CommandLine(metavar="KEY"),
        Field(
            description="With --method events: where to find an event's routing key, as a JSON pointer into the "
            "payload "
            "(/customer/id) or as MODULE:FUNCTION. Not needed if no segment of the source must be divided."
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        if self.method == "bytes":
            if self.segments is not None or self.key:
                raise Usage("--segments and --key require --method events", todo="Add --method events.")
            return self
        others = {**PartOptions().model_dump(), "reader_groups": False}
        given = [name for name, value in others.items() if getattr(self, name) != value]
        if given:
            name = {"from_cut": "from", "to_cut": "to"}.get(given[0], given[0].replace("_", "-"))
            raise Usage(f"--{name} is not possible with --method events", todo="Leave it out.")
        return self

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        if not self.ranges:
            return self
        others = sorted({*PartOptions.model_fields, "reader_groups", "method"} - {"window"})
        given = next((name for name in others if getattr(self, name) != getattr(CopyOptions(), name)), None)
        if given is not None:
            option = command_line(CopyOptions.model_fields[given]).option(given)
            raise Usage(f"{option} is not possible with --range", todo="Leave it out.")
        return self


class ReplicateOptions(RoundOptions, TargetOptions, Distributed, Rehearsed):
    """Options of *replicate*."""

    scoped: ClassVar = {"source": "stream or archive", "stream": "target"}
    measured: ClassVar = True

    follow: Annotated[bool, Field(description="Keep replicating new events of the source.")] = False
    every: Annotated[
        float | None, Field(gt=0, description="How often to check for new events; 1s if not given."), DURATION
    ] = None
    keep_head: Annotated[bool, Field(description="Do not truncate the replica when the source is truncated.")] = False
    numbers: NumbersOption = "map"
    reader_groups: Annotated[
        bool,
        Field(description="Also record the positions of the source's reader groups, for 'promote --reader-groups'."),
    ] = False

    @property
    def follows(self) -> bool:
        """See the base class."""
        return self.follow

    @model_validator(mode="after")
    def _check_follow(self) -> Self:
        if not self.follow and not (self.every is self.idle is self.lasting is None):
            raise Usage("--every, --idle and --for require --follow", todo="Add --follow.")
        return self


class PromoteOptions(Distributed, Rehearsed):
    """Options of *promote*."""

    scoped: ClassVar = {"stream": "replica"}

    seal_source: Annotated[
        bool,
        Field(description="Seal the source first, and replicate everything written to it until then."),
        CommandLine().destroying(),
    ] = False
    retention: PromotedRetention = "keep"
    reader_groups: ReaderGroupsOption = False
    window: Window = WINDOW


class MoveOptions(TargetOptions, Distributed, Rehearsed):
    """Options of *move*."""

    scoped: ClassVar = {"source": "movable", "stream": "target"}
    deletes: ClassVar = True

    no_tombstone: Annotated[
        bool,
        Field(description="Leave no empty sealed stream under the old name; a writer may then create it again."),
    ] = False
    numbers: NumbersOption = "map"
    retention: PromotedRetention = "keep"
    reader_groups: ReaderGroupsOption = False
