"""Options and reports of *export*, *convert* and *plan*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from streamvault.common.options import SIZE, CommandLine, Options, Rehearsed
from streamvault.common.report import CarriedGroup, Cost, GapReport, RunReport, TimedReport
from streamvault.layouts.layout import LayoutName
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.options import ArchivingOptions, CompressOption, RangeSize, Restart, Window
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
        Field(ge=1, le=MOST_SEGMENTS, description="Number of segments of a stream that need not exist."),
        _NUMBER,
    ] = None
    bytes: Annotated[
        int | None,
        Field(ge=0, le=MOST, description="Its size, event headers included, e.g. 1PB."),
        CommandLine(metavar="SIZE", parse=SIZE.parse, text=SIZE.text, environment=False),
    ] = None
    events: Annotated[
        int | None, Field(ge=0, le=MOST, description="Its number of events; 0 for a byte stream."), _NUMBER
    ] = None
    content: Annotated[ContentKind | None, Field(description="What the stream holds. Default: events.")] = None
    layout: Annotated[
        LayoutName | None, Field(description="The archive's layout. Default: events; chunks for bytes.")
    ] = None
    compress: CompressOption = None
    range_size: RangeSize = None
    exports: Annotated[
        int, Field(ge=1, le=1_000_000, description="Number of exports in which the bytes are archived."), _NUMBER
    ] = 1
    cores: Annotated[int, Field(ge=1, description="Cores that run tasks."), _NUMBER] = 16
    network: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False, description="Their network's bandwidth in Gbit/s."),
        CommandLine(metavar="GBIT"),
    ] = 10.0
    prices: Annotated[
        str,
        Field(description="A file of prices instead of S3's list prices (US East)."),
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
        manifest_bytes: size of a generation's manifest.
        index_bytes: size of a generation's index of ranges.
        driver_bytes: memory of the process that exports a generation, beside its tasks.
        cores: cores that run tasks.
        network: Their network's bandwidth in Gbit/s.
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
