"""Options and reports of *request-restore*, *work* and *queue*."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from streamvault.common.options import DURATION, CommandLine, Options, Rehearsed
from streamvault.common.report import Report, TimedReport
from streamvault.importer.reports import RestoreOptions
from streamvault.runner.opening import Distributed


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport(Report):
    """A request that was put into a queue.

    Attributes:
        queue: URI of the queue.
        text: the request, as text for users.
        request: the request as stored in the queue, without unset fields.
        id: the request's id; empty after a dry run.
        outstanding_bytes: bytes of the queue's unprocessed entries, this one included.
        dry_run: True if nothing was put in.
    """

    queue: str
    text: str
    request: Mapping[str, Any]
    id: str = ""
    outstanding_bytes: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest(Report):
    """A request that was done or has failed.

    Attributes:
        id: as in `RequestReport`.
        kind: ``restore`` or ``delete``; empty if the entry is not a request.
        text: as in `RequestReport`.
        ok: whether it was done; if not, it was moved to the queue of failed requests.
        tries: number of attempts.
        seconds: duration of the last attempt.
        latency_seconds: time from the put to the end.
        report: the report of the restore or deletion.
        error: why it failed: ``what``, ``where``, ``todo``, ``exit_code``.
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
class WorkReport(TimedReport):
    """Result of `work`.

    Attributes:
        queue: URI of the queue.
        done: number of requests done.
        failed: number of failed requests.
        failed_exit_codes: exit codes of the failed requests, sorted, without duplicates.
        unfinished: the request that was not done in time and stays in the queue, and why; empty if there is none.
        retries: number of retries.
        outstanding_bytes: bytes of the queue's unprocessed entries.
        failed_bytes: bytes of the queue of failed requests, earlier ones included.
        latency_seconds: average time from a request's put to its end.
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

    @property
    def exit_code(self) -> int:
        """The exit code that all failed requests share, else 1; also 1 if time ran out before a request was done."""
        codes = set(self.failed_exit_codes) | ({1} if self.unfinished else set())
        return codes.pop() if len(codes) == 1 else 1 if codes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest(Report):
    """A waiting or failed request.

    Attributes:
        id: as in `RequestReport`.
        text: as in `RequestReport`.
        put: when it was put in (RFC 3339).
        age_seconds: time since then; for a failed request, since it failed.
        bytes: its size.
        reason: why it failed, in one line; empty if it waits.
    """

    id: str
    text: str
    put: str
    age_seconds: float
    bytes: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignBytes(Report):
    """Bytes that something else wrote to a queue. They stop its worker.

    Attributes:
        offset: where they begin in the queue's segment (bytes).
        bytes: how many.
        in_failed_queue: whether they are in the queue of failed requests.
        reason: why they are not a request.
    """

    offset: int
    bytes: int
    in_failed_queue: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport(Report):
    """Content of a queue.

    Attributes:
        queue: URI of the queue.
        waiting: number of waiting requests.
        failed: number of failed requests.
        outstanding_bytes: size of the waiting requests.
        failed_bytes: size of the failed requests.
        first_waiting: the first 100 waiting requests.
        first_failed: the first 100 failed requests.
        foreign: the first 100 runs of foreign bytes.
        moved: number of failed requests put back.
        dropped: number of failed requests dropped.
        skipped_bytes: foreign bytes removed.
    """

    queue: str
    waiting: int
    failed: int
    outstanding_bytes: int
    failed_bytes: int
    first_waiting: tuple[WaitingRequest, ...] = ()
    first_failed: tuple[WaitingRequest, ...] = ()
    foreign: tuple[ForeignBytes, ...] = ()
    moved: int = 0
    dropped: int = 0
    skipped_bytes: int = 0


class RequestOptions(RestoreOptions, Rehearsed):
    """Options of *request-restore*."""

    queue: Annotated[
        str,
        Field(description="The queue, as a stream's URI; created if it does not exist."),
        CommandLine(metavar="QUEUE"),
    ]
    dry_run: Annotated[bool, Field(description="Only check the arguments; queue nothing.")] = False


class SkipOptions(Options):
    """Options of *queue skip*."""

    failed: Annotated[
        bool, Field(description="Skip bytes in the queue of failed requests."), CommandLine(environment=False)
    ] = False


class WorkOptions(Distributed):
    """Options of *work*."""

    measured: ClassVar = True

    idle: Annotated[
        float | None,
        Field(ge=0, description="Stop after this long without new requests, e.g. 60s."),
        DURATION.named("--idle"),
    ] = None
    lasting: Annotated[
        float | None, Field(ge=0, description="Start no request after this long, e.g. 1h."), DURATION.named("--for")
    ] = None
    wait: Annotated[
        float,
        Field(ge=0, description="How long to wait for another worker of the queue to end."),
        CommandLine(name="--wait", metavar="TIME", parse=DURATION.parse, text=DURATION.text, environment=False),
    ] = 0.0
    tries: Annotated[
        int | None,
        Field(ge=1, description="Stop after N attempts if a store does not answer."),
        CommandLine(metavar="N"),
    ] = None


class WorkArguments(WorkOptions):
    """Keyword arguments of `work_queue`, some of which no command line can give."""

    finished: Annotated[Callable[[FinishedRequest], None], Field(description="Receives each finished request.")] = (
        lambda _: None
    )
