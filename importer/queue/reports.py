"""What the verbs of the queue return; the same for ``--json`` and users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.report import Report

__all__ = ["FinishedRequest", "QueueReport", "RequestReport", "WaitingRequest", "WorkReport"]


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
