"""Options and reports of *export*, *convert* and *plan*, and of *rotate*, *follow* and *compact*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Usage
from streamvault.common.options import AGE, SIZE, TIME, CommandLine, Options, Rehearsed, moment
from streamvault.common.report import CarriedGroup, Cost, GapReport, RunReport, TimedReport
from streamvault.common.units import LONGEST_SECONDS, parse_moment
from streamvault.common.waiting import Ended
from streamvault.layouts.layout import WINDOW, LayoutName
from streamvault.manifests.expiry import ExpiryRule
from streamvault.manifests.options import (
    GRACE,
    TARGET,
    ArchivingOptions,
    CompressOption,
    Every,
    Grace,
    RangeSize,
    Restart,
    RoundOptions,
    StorageClass,
    TargetBytes,
    Window,
)
from streamvault.runner.opening import Distributed
from streamvault.streamstore.cuts import FromCut, ToCut
from streamvault.streamstore.model import ContentKind


class ExportOptions(ArchivingOptions, Distributed, Rehearsed):
    """Options of *export*."""

    scoped: ClassVar = {"stream": "stream"}

    from_cut: FromCut = None
    to_cut: ToCut = None
    restart: Restart = False


class ConvertOptions(Distributed, Rehearsed):
    """Options of *convert*."""

    layout: Annotated[LayoutName, Field(description="Layout of the copy."), CommandLine(environment=False)]
    compress: CompressOption = None
    window: Window = WINDOW
    restart: Restart = False


MOST_SEGMENTS = 1_000_000
MOST = 10**18
_NUMBER = CommandLine(metavar="N", environment=False)


class PlanOptions(Options):
    """Options of *plan*."""

    segments: Annotated[
        int | None,
        Field(ge=1, le=MOST_SEGMENTS, description="Number of segments of the planned stream, which need not exist."),
        _NUMBER,
    ] = None
    bytes: Annotated[
        int | None,
        Field(ge=0, le=MOST, description="Size of the planned stream, event headers included, e.g. 1PB."),
        CommandLine(metavar="SIZE", parse=SIZE.parse, text=SIZE.text, environment=False),
    ] = None
    events: Annotated[
        int | None,
        Field(ge=0, le=MOST, description="Number of events in the planned stream; 0 for a byte stream."),
        _NUMBER,
    ] = None
    content: Annotated[ContentKind | None, Field(description="What the stream holds. Default: events.")] = None
    layout: Annotated[
        LayoutName | None, Field(description="The archive's layout. Default: events; chunks for bytes.")
    ] = None
    compress: CompressOption = None
    range_size: RangeSize = None
    exports: Annotated[
        int, Field(ge=1, le=1_000_000, description="Number of exports that archive the bytes."), _NUMBER
    ] = 1
    cores: Annotated[int, Field(ge=1, description="Cores that run tasks."), _NUMBER] = 16
    network: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False, description="Bandwidth of their network in Gbit/s."),
        CommandLine(metavar="GBIT"),
    ] = 10.0
    prices: Annotated[
        str,
        Field(description="A file of prices to use instead of S3's list prices (US East)."),
        CommandLine(metavar="FILE", environment=False),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(RunReport):
    """Result of an export.

    Attributes:
        archive: the archive's URI.
        generation: the newest generation after the export.
        created: when that generation was planned, right after the stream's tail was taken, RFC 3339; empty in a dry
            run.
        unchanged: whether there was nothing new and nothing was written.
        resumed: whether an unfinished or concurrent run was joined, by its plan.
        resumes: the options of that plan; None if there was none.
        gave_up: the options of the unfinished plan that was given up (`restart`); None if there was none.
        events: number of events of this generation; 0 if unchanged.
        events_estimated: whether `events` and `ranges` are estimated from a sample of the stream, in a dry run.
        bytes: number of bytes of this generation, event headers included; 0 if unchanged.
        moved_bytes: the bytes moved by this run; the rest was moved by earlier runs.
        ranges: number of ranges of this generation.
        fingerprint: SHA-256 of the newest generation's manifest, hexadecimal; empty if it is still to be written.
        gaps: what was truncated before it could be archived.
        reader_groups: the reader groups that the newest generation has noted, each with its position in the stream.
        cost: the estimated cost, in a dry run.
    """

    archive: str
    generation: int
    created: str = ""
    unchanged: bool = False
    resumed: bool = False
    resumes: dict[str, Any] | None = None
    gave_up: dict[str, Any] | None = None
    events: int = 0
    events_estimated: bool = False
    bytes: int = 0
    moved_bytes: int = 0
    ranges: int = 0
    fingerprint: str = ""
    gaps: tuple[GapReport, ...] = ()
    reader_groups: tuple[CarriedGroup, ...] = ()
    cost: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport(TimedReport):
    """Result of a conversion.

    Attributes:
        archive: URI of the new archive.
        source: URI of the old archive.
        generations: the generations of the old archive.
        converted: the generations written by this run.
        unchanged: whether all of them already existed.
        resumes: the options of the unfinished plan that was resumed; None if there was none.
        gave_up: the options of the unfinished plan that was given up (`restart`); None if there was none.
        events: number of events in all generations.
        bytes: number of bytes in all generations, event headers included.
        moved_bytes: the bytes written by this run.
        ranges: number of ranges of the written generations.
        dry_run: whether nothing was written.
        cost: the estimated cost, in a dry run.
    """

    archive: str
    source: str
    generations: tuple[int, ...]
    converted: tuple[int, ...]
    unchanged: bool = False
    resumes: dict[str, Any] | None = None
    gave_up: dict[str, Any] | None = None
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    ranges: int = 0
    dry_run: bool = False
    cost: Cost | None = None


VerbName = Literal["export", "import", "check", "check --read-data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbForecast:
    """What a verb would do with a whole archive.

    Attributes:
        verb: the verb; ``check --read-data`` also reads all data.
        puts: PUT requests.
        lists: LIST requests.
        gets: GET and HEAD requests.
        usd: price of these requests in US dollars, in S3 Standard.
        least_requests: the least number of requests that is possible: one for each object, and for an export one for
            the row of each range; a listing of 1,000 keys a request; plan, manifest and index.
        processor_hours: hours of a core.
        hours: hours on the given cores and network: of the two, what takes longer.
        limit: which of them.
        prefixes: how many prefixes of S3 this needs, at 3,500 PUT and 5,500 GET or HEAD a second each.
        driver_bytes: memory of the command's process, beside its tasks.
    """

    verb: VerbName
    puts: int
    lists: int
    gets: int
    usd: float
    least_requests: int
    processor_hours: float
    hours: float
    limit: Literal["processor", "network"]
    prefixes: int
    driver_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageForecast:
    """What a storage class would cost for an archive's data objects.

    Attributes:
        storage_class: the class.
        usd_month: storage for a month.
        usd_write: the requests that write the objects.
        usd_read: what an import pays once: its requests and the retrieval of all data.
        least_days: days for which each object is billed at least.
    """

    storage_class: str
    usd_month: float
    usd_write: float
    usd_read: float
    least_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport(TimedReport):
    """What an archive of a stream would take.

    Attributes:
        stream: the stream that was read; empty if there is none.
        segments: segments that hold something.
        events: events.
        events_estimated: whether `events` is estimated from a sample of the stream.
        bytes: bytes of the segments, event headers included.
        layout: the archive's layout.
        compression: the archive's compression; sizes and storage are then upper bounds, as if nothing were saved.
        range_size: size of the ranges (bytes).
        exports: exports in which the bytes are archived.
        ranges: ranges.
        objects: data objects.
        work: what each verb would do.
        storage: what each storage class would cost.
        written_prefixes: folders of segments that the tasks of an export write to at the same time; S3 can make each a
            prefix of its own.
        manifest_bytes: size of the manifest of the last generation, with the stream's epochs; of a stream that exists,
            as if one export archived all of it.
        index_bytes: size of the index of ranges of the generation that has most of them.
        driver_bytes: memory of the process that exports it, beside its tasks, as in `work`.
        cores: cores that run tasks.
        network: bandwidth of their network in Gbit/s.
        prices: source of the prices.
        prices_date: their date.
        warnings: what the archive could not have: files larger than readers accept.
    """

    stream: str
    segments: int
    events: int
    events_estimated: bool
    bytes: int
    layout: str
    compression: str
    range_size: int
    exports: int
    ranges: int
    objects: int
    work: tuple[VerbForecast, ...]
    storage: tuple[StorageForecast, ...]
    written_prefixes: int
    manifest_bytes: int
    index_bytes: int
    driver_bytes: int
    cores: int
    network: float
    prices: str
    prices_date: str
    warnings: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedReport:
    """The generation that the policy lets expire, but that must stay, with all after it.

    Attributes:
        generation: its number.
        reason: what keeps it: a hold, the lock of an object, or a doubtful clock.
        until: until when it is locked, RFC 3339; empty if unknown.
    """

    generation: int
    reason: str
    until: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateReport(RunReport):
    """Result of a rotation.

    Attributes:
        archive: URI of the archive.
        export: report of the export.
        generation: the newest generation.
        first_generation: the oldest generation that has not expired.
        hold: name of the hold put on the newest generation, if one was requested.
        checked: generations whose data were read back by this run.
        ranges_read: number of ranges read back.
        ranges_compared: number of ranges that were read from the source once more, before it lost them, since this run
            had not archived or not read them back itself.
        expired: generations that expired in this run.
        stopped: the generation that had to stay although the policy lets it expire.
        objects_deleted: number of deleted data objects.
        requests: LIST, PUT and bulk DELETE requests of the deletion.
        resumed: True if an earlier run had left a deletion unfinished.
        queued: the newest expired generation, if the deletion of its data and of all before was queued.
        truncated: True if the source's head is now at `cut`, or was already beyond it.
        cut: the end of the archived and checked data, if truncating was requested.
    """

    archive: str
    export: ExportReport
    generation: int
    first_generation: int
    hold: str = ""
    checked: tuple[int, ...] = ()
    ranges_read: int = 0
    ranges_compared: int = 0
    expired: tuple[int, ...] = ()
    stopped: StoppedReport | None = None
    objects_deleted: int = 0
    requests: int = 0
    resumed: bool = False
    queued: tuple[int, ...] = ()
    truncated: bool = False
    cut: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedRun:
    """A run of adjacent generations that were merged into one.

    Attributes:
        first: the first original generation.
        generation: the last original generation, which is the merged one's number.
        merged: how many generations became one; merged ones count once.
        events: events of all of them.
        bytes: bytes of all of them, with event headers.
    """

    first: int
    generation: int
    merged: int
    events: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport(RunReport):
    """Result of a compaction.

    Attributes:
        archive: URI of the archive.
        runs: the merged runs.
        unchanged: True if nothing was merged.
        resumed_runs: how many of the runs an earlier call had begun.
        moved_bytes: segment bytes that were rewritten.
        joined: number of chunks written.
        generations_in_force: number of generations in force now; merged ones count once.
        objects_deleted: deleted data objects that earlier compactions had replaced.
        waits_until: when the next replaced objects may be deleted, RFC 3339; empty if there are none.
    """

    archive: str
    runs: tuple[CompactedRun, ...] = ()
    unchanged: bool = False
    resumed_runs: int = 0
    moved_bytes: int = 0
    joined: int = 0
    generations_in_force: int = 0
    objects_deleted: int = 0
    waits_until: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedGeneration:
    """A generation published by `follow`.

    Attributes:
        generation: its number.
        events: number of its events.
        bytes: its bytes, with event headers.
        seconds: from its plan to its commit.
    """

    generation: int
    events: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowReport(TimedReport):
    """Result of `follow`.

    Attributes:
        archive: URI of the archive.
        generation: the newest generation.
        ended: why it ended: no new events for a while (idle), the time is over, or the stream is sealed and archived.
        rounds: number of rounds.
        retries: number of retries because a server was unavailable.
        made: number of published generations.
        events: events of these generations.
        bytes: bytes of these generations, with event headers.
        newest: the last of these generations, at most 100.
        merges: number of merges.
        moved_bytes: segment bytes that merges rewrote.
        generations_in_force: number of generations in force now; merged ones count once.
        expired_count: number of generations that expired.
        objects_deleted: deleted data objects, of expired and of merged generations.
        cut: the stream cut to which the source was truncated, if that was requested.
        reader_groups: the reader groups that the newest generation has noted, each with its position in the stream.
        warnings: the last warnings, at most 100.
    """

    archive: str
    generation: int
    ended: Ended
    rounds: int = 0
    retries: int = 0
    made: int = 0
    events: int = 0
    bytes: int = 0
    newest: tuple[FollowedGeneration, ...] = ()
    merges: int = 0
    moved_bytes: int = 0
    generations_in_force: int = 0
    expired_count: int = 0
    objects_deleted: int = 0
    cut: Mapping[str, int] | None = None
    reader_groups: tuple[CarriedGroup, ...] = ()
    warnings: tuple[str, ...] = ()
