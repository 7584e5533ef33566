"""Options and reports of *report*, *status* and *doctor*."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from streamvault.common.options import DURATION, FILE, FOLDER, CommandLine, Options
from streamvault.common.report import Report, html_of
from streamvault.manifests.verbs.reports import ArchiveSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReport(Report):
    """What *report* has written.

    Attributes:
        file: the HTML file; empty if none was asked for.
        charts: the SVG files.
        archives_found: number of archives and tables on the page.
        generations_read: number of generations in force whose manifests were read for charts.
        unarchived: bytes of the given stream that are not archived yet; None if no stream was given.
        warnings: what the page does not show, and why.
        total_seconds: duration of the call; of the whole command on the command line.
    """

    file: str = ""
    charts: tuple[str, ...] = ()
    archives_found: int = 0
    generations_read: int = 0
    unarchived: int | None = None
    warnings: tuple[str, ...] = ()
    total_seconds: float = 0.0

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the charts as well, as long as their files exist."""
        files = [file for file in map(Path, self.charts) if file.is_file()]
        return html_of(self.to_json(), [(file.stem, file.read_text(encoding="utf-8")) for file in files])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStatus(ArchiveSummary):
    """The status of an archive or a table.

    Attributes:
        newest_age: how long before the status the newest generation was taken, in seconds; None if there is none.
        spans_planned: number of spans of the unfinished generation.
        spans_done: number of these whose ranges are archived. If an event is larger than a span, some spans have no
            range, and not all get done.
    """

    newest_age: float | None = None
    spans_planned: int = 0
    spans_done: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus(Report):
    """The status of a stream of a scope.

    Attributes:
        stream: the stream's URI.
        archive: its archive's URI; empty if it has none, if that is not known, or if no root was given.
        is_archived: whether the archive has a generation; null if that is not known, or if no root was given.
        unarchived: bytes of the stream that are not archived yet; null if that is not known, or if no root was given.
        before_archive: bytes that the stream still has from before the archive's beginning, so that no generation has
            ever had them; null if that is not known, or if nothing is archived.
        problem: why it is not known; empty if it is, or if the archive's status says why.
    """

    stream: str
    archive: str = ""
    is_archived: bool | None = None
    unarchived: int | None = None
    before_archive: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus(Report):
    """A lease that a process holds, or held when it died.

    Attributes:
        lease: the lease's URI.
        stream: the stream that it is for; empty if that is gone.
        purpose: what for: "import or mirror", "queue", "ephemeral stream" or "append".
        host: the holder's machine.
        pid: the holder's process id on that machine.
        alive: whether the holder is alive. A process that is paused or cut off for 12 seconds counts as dead.
    """

    lease: str
    stream: str
    purpose: str
    host: str
    pid: int
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus(Report):
    """The status of a queue of requests.

    Attributes:
        queue: as in `RequestReport`.
        is_readable: whether it can be read; if not, the figures say nothing.
        waiting: number of waiting requests, with the one that is being done.
        failed: number of failed requests.
        outstanding_bytes: size of the waiting requests.
        failed_bytes: size of the failed requests.
        oldest_age: how long the first of them has waited, in seconds; null if none waits.
        worker: the machine of the process that works on it; empty if there is none.
        problem: why it cannot be read, or what stops its worker; empty if nothing does.
    """

    queue: str
    is_readable: bool = True
    waiting: int = 0
    failed: int = 0
    outstanding_bytes: int = 0
    failed_bytes: int = 0
    oldest_age: float | None = None
    worker: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus(Report):
    """The status of a replica.

    Attributes:
        replica: the replica's URI.
        source: URI of what it is a replica of; empty if that is not known.
        state: "replica", "promoting" once its promotion has begun, "promoted", or "unknown".
        reached: when the source's tail was taken that it has reached, RFC 3339; empty if it has reached none.
        lag_bytes: bytes of the source that it has not; null if that is not known, or if it gets nothing any more.
        problem: why it is not known; empty if it is.
    """

    replica: str
    source: str = ""
    state: Literal["replica", "promoting", "promoted", "unknown"] = "unknown"
    reached: str = ""
    lag_bytes: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceStatus(Report):
    """A scope or a root that was looked at.

    Attributes:
        place: its URI.
        problem: why it, or something in it, cannot be read; empty if it can.
    """

    place: str
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport(Report):
    """The status of the archives and tables below a root, or of the streams of a scope.

    Attributes:
        root: the root's URI; empty if none was given, or several by a file.
        scope: the scope, the pattern, the stream or the file, as given; empty for a root.
        seen: when it was read, RFC 3339.
        statuses: the archives and tables, in the order of their paths.
        live_streams: the streams of the scope.
        leases: the leases that are held in the scope.
        queues: the queues of the scope.
        replicas: the replicas in the scope, and the streams that were.
        watched_places: of a scope: the scopes and the roots, of which some may not be readable.
        metrics_file: the file with the metrics; empty if none was asked for.
        warnings: what cannot be read, and why.
    """

    root: str = ""
    scope: str = ""
    seen: str
    statuses: tuple[ArchiveStatus, ...] = ()
    live_streams: tuple[StreamStatus, ...] = ()
    leases: tuple[LeaseStatus, ...] = ()
    queues: tuple[QueueStatus, ...] = ()
    replicas: tuple[ReplicaStatus, ...] = ()
    watched_places: tuple[PlaceStatus, ...] = ()
    metrics_file: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupCheck:
    """One check of a set-up.

    Attributes:
        name: what was checked.
        verdict: `ok`, `failed` or `not checked`.
        found: what was found, or why it was not checked.
        todo: what to do about it; empty if there is nothing to do.
    """

    name: str
    verdict: Literal["ok", "failed", "not checked"]
    found: str
    todo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupReport(Report):
    """The checks of a set-up.

    Attributes:
        passed: whether no check failed.
        setup: the checks, in the order in which they depend on each other.
        warnings: where probe objects remain or may remain.
        total_seconds: duration of the call; of the whole command on the command line.
    """

    passed: bool
    setup: tuple[SetupCheck, ...]
    warnings: tuple[str, ...] = ()
    total_seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 if a check failed."""
        return 0 if self.passed else 1


class ReportOptions(Options):
    """Options of *report*."""

    output: Annotated[
        Path | None,
        Field(description="Write one HTML file that can be read offline. An existing file is replaced."),
        replace(FILE, short="-o"),
    ] = None
    svg: Annotated[
        Path | None,
        Field(description="Write each chart as an SVG file below this folder, which is created."),
        FOLDER,
    ] = None
    stream: Annotated[
        str,
        Field(description="The archived stream, to also report what is not archived yet."),
        CommandLine(metavar="STREAM", environment=False),
    ] = ""


class StatusOptions(Options):
    """Options of *status*."""

    root: Annotated[
        str | None,
        Field(description="Where the streams of a scope are archived."),
        CommandLine(metavar="ROOT", environment=False),
    ] = None
    config_file: Annotated[
        Path | None,
        Field(description="The file that declares the streams, as for follow, rotate or replicate."),
        FILE.named("--config"),
    ] = None
    metrics: Annotated[
        Path | None,
        Field(description="Also write the figures as metrics for Prometheus. An existing file is replaced."),
        FILE,
    ] = None


class DoctorOptions(Options):
    """Options of *doctor*."""

    time_limit: Annotated[
        float,
        Field(gt=0, description="Time limit for all checks together; a check that has not finished by then fails."),
        DURATION,
    ] = 5.0
