"""Report of the *plan* command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamvault.common.report import TimedReport

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
