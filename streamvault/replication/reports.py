"""Options and reports of *copy*, *replicate*, *promote*, *move* and *translate*."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Usage
from streamvault.common.options import DURATION, CommandLine, Rehearsed, command_line
from streamvault.common.report import CarriedGroup, Report, RunReport
from streamvault.common.waiting import Ended
from streamvault.importer.reports import KeptRetention, NumbersOption, PartOptions, TargetOptions
from streamvault.layouts.layout import WINDOW
from streamvault.manifests.options import RoundOptions, Window
from streamvault.runner.opening import Distributed
from streamvault.streamstore.cuts import CutRanges as Ranges

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
        Field(
            ge=1,
            description="With --method events: number of segments of the copy. Default: as many as the source has, if "
            "they fit.",
        ),
    ] = None
    key: Annotated[
        str,
        CommandLine(metavar="KEY"),
        Field(
            description="With --method events: where to find an event's routing key, as a JSON pointer into the "
            "payload "
            "(/customer/id) or as MODULE:FUNCTION. Not needed if no segment of the source has to be divided."
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        others = [*PartOptions.model_fields, "reader_groups"]
        if self.method == "events":
            self._check_without(others, "--method events")
        elif self.segments is not None or self.key:
            raise Usage("--segments and --key require --method events", todo="Add --method events.")
        if self.ranges:
            self._check_without(sorted({*others, "method"} - {"window"}), "--range")
        return self

    def _check_without(self, others: Iterable[str], given: str) -> None:
        for name in others:
            field = CopyOptions.model_fields[name]
            if getattr(self, name) != field.default:
                raise Usage(f"{command_line(field).option(name)} cannot be used with {given}", todo="Leave it out.")


class ReplicateOptions(RoundOptions, TargetOptions, Distributed, Rehearsed):
    """Options of *replicate*."""

    scoped: ClassVar = {"source": "stream or archive", "stream": "target"}
    measured: ClassVar = True

    follow: Annotated[bool, Field(description="Keep replicating new events of the source.")] = False
    every: Annotated[
        float | None, Field(gt=0, description="How often to check for new events. Default: 1s."), DURATION
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A position in the source and in the restored stream: a cut as a mapping, or an event pointer as text.

    Attributes:
        old: the position in the source.
        new: the position in the restored stream.
        reader_group: the name of the reader group whose position it is; empty for a position that was given.
    """

    old: str | Mapping[str, int]
    new: str | Mapping[str, int]
    reader_group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateReport(Report):
    """Result of translating positions.

    Attributes:
        source: what they belong to.
        stream: URI of the restored stream.
        positions: in the order given; those of reader groups follow.
    """

    source: str
    stream: str
    positions: tuple[Translation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateReport(RunReport):
    """Result of replicating a stream or an archive.

    Attributes:
        source: URI of the source.
        stream: URI of the replica.
        ended: why it ended: "caught up" without ``follow``; "idle", "time" or "sealed" with it; None in a dry run.
        rounds: rounds that found something new.
        retries: attempts that were repeated because a server did not answer.
        moved_bytes: bytes that were appended, with event headers, without filler.
        behind_bytes: bytes that the source had more than the replica: before the first round; in a dry run, now.
        behind_seconds: of a dry run, how old the replica's newest tail is if bytes are missing, else 0; None if there
            is no replica.
        lag_seconds: from taking the source's tail to having it, in the newest round that found something new.
        most_lag_seconds: the longest such time of this run.
        tail: the source's tail that the replica has reached; None if it has reached none.
        tail_time: when that tail was taken, RFC 3339.
        offsets: "keep" or "shift".
        numbers: "keep" or "map".
        renumbered: see `ImportReport`.
        reader_groups: the reader groups that read the source, if they were asked for.
    """

    source: str
    stream: str
    ended: Literal["caught up"] | Ended | None = None
    rounds: int = 0
    retries: int = 0
    moved_bytes: int = 0
    behind_bytes: int = 0
    behind_seconds: float | None = None
    lag_seconds: float = 0.0
    most_lag_seconds: float = 0.0
    tail: Mapping[str, int] | None = None
    tail_time: str = ""
    offsets: Literal["keep", "shift"] = "keep"
    numbers: Literal["keep", "map"] = "map"
    renumbered: Mapping[str, str] = field(default_factory=dict)
    reader_groups: tuple[CarriedGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteReport(Report):
    """Result of promoting a replica.

    Attributes:
        stream: URI of the promoted stream.
        source: URI of its source.
        unchanged: True if it had been promoted before.
        source_sealed: True if the source was sealed, and the replica has all of it.
        sealed: True if the promoted stream is sealed, as the source was.
        moved_bytes: bytes that this run appended.
        tail: the source's tail that the stream has at least; None if no round has ever finished.
        tail_time: when that tail was taken, RFC 3339.
        cutover_seconds: from sealing the source to the end; 0 if it was not sealed.
        renumbered: see `ImportReport`; empty if the source was not sealed.
        reader_groups: the reader groups that read the source, if they were asked for.
        warnings: what the user was warned of.
        total_seconds: duration of the call; of the whole command on the command line.
        dry_run: True if nothing was changed.
    """

    stream: str
    source: str
    unchanged: bool = False
    source_sealed: bool = False
    sealed: bool = False
    moved_bytes: int = 0
    tail: Mapping[str, int] | None = None
    tail_time: str = ""
    cutover_seconds: float = 0.0
    renumbered: Mapping[str, str] = field(default_factory=dict)
    reader_groups: tuple[CarriedGroup, ...] = ()
    warnings: tuple[str, ...] = ()
    total_seconds: float = 0.0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport(RunReport):
    """Result of moving a stream.

    Attributes:
        source: URI that the stream had.
        stream: URI that it has now.
        unchanged: True if it had been moved before.
        bytes: bytes of the stream, with event headers, without filler; each was read back and compared.
        moved_bytes: bytes that this run appended.
        rounds: rounds before the cut-over.
        cutover_seconds: from sealing the source until the new stream could be written to.
        tombstone: True if an empty sealed stream has the old name.
        renumbered: see `ImportReport`.
        reader_groups: the reader groups that read the source, if they were asked for.
    """

    source: str
    stream: str
    unchanged: bool = False
    bytes: int = 0
    moved_bytes: int = 0
    rounds: int = 0
    cutover_seconds: float = 0.0
    tombstone: bool = False
    renumbered: Mapping[str, str] = field(default_factory=dict)
    reader_groups: tuple[CarriedGroup, ...] = ()
