"""What each verb returns: small frozen values, the same for the command line's ``--json``, the DAGs and users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

__all__ = [
    "ArchiveSummary",
    "CheckReport",
    "ConvertReport",
    "Cost",
    "ExportReport",
    "FinishedRequest",
    "GapReport",
    "ImportReport",
    "MovedBoundary",
    "QueueReport",
    "Report",
    "RequestReport",
    "WaitingRequest",
    "WorkReport",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base of the reports."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, keys as the attributes are called."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run asks of S3, from its plan.

    Attributes:
        objects: how many objects are written or read.
        objects_estimated: whether `objects` is an estimate from a sample of the stream.
        puts: PUT and LIST requests; gets: GET requests; deletes: bulk deletes are free.
        usd: list price of those requests, US dollars (S3 Standard, us-east-1: 0.005 per 1,000 PUT or LIST, 0.0004 per
            1,000 GET).
    """

    objects: int
    objects_estimated: bool
    puts: int
    gets: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """Bytes that were truncated away before they could be archived."""

    segment: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedBoundary:
    """A key-range boundary that had to move so that the store numbers the segments as the source did.

    Attributes:
        epoch: in which the boundary appears.
        source: where the source has it. target: where the target has it. ulps: by how many steps of a double it moved.
    """

    epoch: int
    source: float
    target: float
    ulps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(Report):
    """What an export did.

    Attributes:
        archive: URI of the archive.
        generation: the generation that now is the newest.
        unchanged: True if there was nothing new and nothing was written.
        adopted: True if the plan of an unfinished or concurrent run was taken up.
        events, bytes: of this generation (bytes with event headers); 0 if unchanged.
        moved_bytes: of those, moved by this run; the rest was there from an earlier one.
        ranges: how many ranges the generation has.
        gaps: what was truncated away meanwhile.
        seconds: from the plan to the commit, without Spark's start.
        total_seconds: the whole call (the command line puts in the whole command).
        dry_run: True if nothing was written. cost: only then.
    """

    archive: str
    generation: int
    unchanged: bool = False
    adopted: bool = False
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    ranges: int = 0
    gaps: tuple[GapReport, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
    cost: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(Report):
    """What an import did.

    Attributes:
        stream: URI of the restored stream.
        archive: URI of the archive.
        generation: the newest generation that was restored.
        resumed: True if an unfinished import was gone on with.
        unchanged: True if the stream had been restored before and was only verified (see `import_stream`, ``again``).
        events, bytes: in the restored stream (bytes with event headers, filler not counted).
        moved_bytes: of those, appended by this run.
        segments, epochs: how many the restored stream has.
        offsets: "keep" or "shift". shifts: segment name → bytes that every offset moved down by.
        moved_boundaries: see `MovedBoundary`.
        gaps: bytes the archive does not have; filler of the same length stands there.
        seconds, total_seconds, dry_run, cost: as for an export.
    """

    stream: str
    archive: str
    generation: int
    resumed: bool = False
    unchanged: bool = False
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    segments: int = 0
    epochs: int = 0
    offsets: Literal["keep", "shift"] = "keep"
    shifts: Mapping[str, int] = field(default_factory=dict)
    moved_boundaries: tuple[MovedBoundary, ...] = ()
    gaps: tuple[GapReport, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
    cost: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport(Report):
    """What a conversion did.

    Attributes:
        archive: URI of the new archive. source: of the old one.
        generations: that the old one has. converted: those of them that this run wrote.
        unchanged: True if all were there already.
        events, bytes: over all generations (bytes with event headers). moved_bytes: written by this run.
        ranges: of the generations that were written.
        seconds, total_seconds, dry_run, cost: as for an export.
    """

    archive: str
    source: str
    generations: tuple[int, ...]
    converted: tuple[int, ...]
    unchanged: bool = False
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    ranges: int = 0
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
    cost: Cost | None = None

    def timed(self, total: float, start: float, moved_bytes: int = 0) -> ConvertReport:
        """The same with its times (seconds): in all, and of that the start of Spark; and what was written."""
        return replace(self, seconds=round(total - start, 3), total_seconds=round(total, 3), moved_bytes=moved_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary(Report):
    """One line of `ls`: an archive and its newest generation.

    Attributes:
        archive: URI. stream: ``scope/stream``. generations: how many there are. generation: the newest.
        created: of the newest, RFC 3339. events, bytes: over all generations. layout: of the newest.
        problem: why the archive cannot be read; empty if it can.
    """

    archive: str
    stream: str
    generations: int = 0
    generation: int = 0
    created: str = ""
    events: int = 0
    bytes: int = 0
    layout: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Report):
    """What a check found.

    Attributes:
        archive: URI. generations: the generations checked.
        ok: True if nothing is missing, changed or extra.
        ranges: how many ranges there are. ranges_read: of how many the data was read and compared.
        events, bytes: what the manifests promise.
        findings: one line for each damage found, at most 1,000. more_findings: how many more there are.
        notes: what is not damage but good to know (an unfinished run's objects).
        seed: of the sample, with ``--read-data-subset``.
    """

    archive: str
    generations: tuple[int, ...]
    ok: bool
    ranges: int = 0
    ranges_read: int = 0
    events: int = 0
    bytes: int = 0
    findings: tuple[str, ...] = ()
    more_findings: int = 0
    notes: tuple[str, ...] = ()
    seed: int | None = None
    seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport(Report):
    """A request that was put into a queue.

    Attributes:
        id: of the request; empty after a dry run. queue: URI.
        text: the request, for a person. request: the same as it lies in the queue, without what is not set.
        outstanding_bytes: in the queue, with this request. dry_run: True if nothing was put in.
    """

    queue: str
    text: str
    request: Mapping[str, Any]
    id: str = ""
    outstanding_bytes: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest(Report):
    """A request that was worked off.

    Attributes:
        id, text: as in `RequestReport`. kind: ``restore`` or ``delete``; empty if it could not be read.
        ok: whether it was done; else it was moved to the queue of failed requests.
        tries: how often it was tried. seconds: what the last try took.
        latency_seconds: from the put to the end.
        report: what the verb reported. error: why it failed: ``what``, ``where``, ``todo``, ``exit_code``.
    """

    id: str
    kind: str
    text: str
    ok: bool
    tries: int
    seconds: float
    latency_seconds: float
    report: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport(Report):
    """What a run of `work` did.

    Attributes:
        queue: URI. done, failed: how many requests. failed_exit_codes: of those that failed, sorted, each once.
        unfinished: the request that could not be done in time and is kept, and why; empty if there is none.
        retries: how often a request was tried again.
        outstanding_bytes: that still wait. failed_bytes: in the queue of failed requests, also from before.
        latency_seconds: from a request's put to its end, on average.
        seconds, total_seconds: as for an export.
    """

    queue: str
    done: int
    failed: int
    failed_exit_codes: tuple[int, ...] = ()
    unfinished: str = ""
    retries: int = 0
    outstanding_bytes: int = 0
    failed_bytes: int = 0
    latency_seconds: float = 0.0
    seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest(Report):
    """A request in a queue.

    Attributes:
        id, text: as in `RequestReport`. put: when (RFC 3339). age_seconds: since then; of a failed one since it failed.
        bytes: that it takes. error: why it failed, in one line; empty if it waits.
    """

    id: str
    text: str
    put: str
    age_seconds: float
    bytes: int
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport(Report):
    """What lies in a queue.

    Attributes:
        queue: URI. waiting, failed: how many requests. outstanding_bytes, failed_bytes: what they take.
        first_waiting, first_failed: the first 100 of each.
        moved: how many failed requests were put back. dropped: how many were dropped.
    """

    queue: str
    waiting: int
    failed: int
    outstanding_bytes: int
    failed_bytes: int
    first_waiting: tuple[WaitingRequest, ...] = ()
    first_failed: tuple[WaitingRequest, ...] = ()
    moved: int = 0
    dropped: int = 0
