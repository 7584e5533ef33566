"""The *queue* command: list waiting and failed requests; put failed ones back, or drop them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

from streamvault.common.errors import Usage
from streamvault.importer.queue.model import NotARequest, decode_failed, decode_request
from streamvault.importer.queue.reports import QueueReport, WaitingRequest
from streamvault.importer.queue.streams import open_queue
from streamvault.streamstore.fifo.backlog import outstanding_entries
from streamvault.streamstore.fifo.consumer import Consumer
from streamvault.streamstore.fifo.entry import Entry, EntryTooLarge
from streamvault.streamstore.fifo.place import QueueSegment
from streamvault.streamstore.fifo.producer import Producer

__all__ = ["show_queue"]

SHOWN = 100


def show_queue(queue: str, *, failed: Literal["keep", "retry", "drop"] = "keep") -> QueueReport:
    """Return the waiting and failed requests of a queue.

    Args:
        queue: the queue's URI.
        failed: what to do with the failed requests first: keep them, put them back at the queue's end, or drop them.

    Raises:
        NoSuchScope, NoSuchStream: there is no such queue.
        NotAQueue: it is another stream (exit code 4).
        BadEntry: the queue contains bytes that are not an entry (exit code 3).
    """
    if failed not in {"keep", "retry", "drop"}:
        raise Usage("failed requests are kept, retried or dropped", where=repr(failed))
    with open_queue(queue) as place:
        waiting = place.waiting(create=False)
        failed_queue = place.failed()
        moved = dropped = 0
        if failed_queue is not None and failed == "retry":
            moved = _put_back(failed_queue, waiting)
        elif failed_queue is not None and failed == "drop":
            with Consumer(failed_queue) as consumer:
                dropped = consumer.run(_drop, idle_seconds=0).entries
        count, size, shown = _contents(waiting, _waiting)
        failed_count, failed_size, failed_shown = (
            _contents(failed_queue, _failed) if failed_queue is not None else (0, 0, ())
        )
    return QueueReport(
        queue=queue,
        waiting=count,
        failed=failed_count,
        outstanding_bytes=size,
        failed_bytes=failed_size,
        first_waiting=shown,
        first_failed=failed_shown,
        moved=moved,
        dropped=dropped,
    )


def _put_back(failed_queue: QueueSegment, waiting: QueueSegment) -> int:
    """Move the failed requests back, and return how many. Ones this release cannot read move to the end of the failed.

    A request is put back even if it still waits: the worker that has just moved it here is about to remove it there.
    """
    moved = 0

    def put_back(batch: Sequence[Entry]) -> None:
        nonlocal moved
        (entry,) = batch
        try:
            Producer(waiting).put(decode_failed(entry.content).content, entry.name)
        except (NotARequest, EntryTooLarge):
            Producer(failed_queue).move(entry.content, entry.name)
        else:
            moved += 1

    with Consumer(failed_queue, batch_entries=1, tries=1) as consumer:
        consumer.run(put_back, idle_seconds=0, until=failed_queue.info().write_offset)
    return moved


def _drop(_batch: Sequence[Entry]) -> None:
    """Do nothing: the consumer removes the entries it handled."""


def _contents(
    queue: QueueSegment, describe: Callable[[Entry, float], WaitingRequest]
) -> tuple[int, int, tuple[WaitingRequest, ...]]:
    """Return the number of outstanding entries, their bytes, and the first of them."""
    now, count, size = time.time(), 0, 0
    shown: list[WaitingRequest] = []
    for entry in outstanding_entries(queue):
        count += 1
        size += entry.end - entry.offset
        if count <= SHOWN:
            shown.append(describe(entry, now))
    return count, size, tuple(shown)


def _waiting(entry: Entry, now: float) -> WaitingRequest:
    try:
        text = str(decode_request(entry.content))
    except NotARequest:
        text = "an invalid request"
    return _row(entry, now, text, "")


def _failed(entry: Entry, now: float) -> WaitingRequest:
    try:
        failed = decode_failed(entry.content)
    except NotARequest as error:
        return _row(entry, now, "an invalid failed request", str(error))
    why = ": ".join(text for text in (failed.what, failed.where) if text)
    return _row(entry, now, str(failed), why)


def _row(entry: Entry, now: float, text: str, error: str) -> WaitingRequest:
    return WaitingRequest(
        id=str(entry.name),
        text=text,
        put=datetime.fromtimestamp(entry.put_time, UTC).isoformat(timespec="seconds"),
        age_seconds=round(max(now - entry.put_time, 0.0), 1),
        bytes=entry.end - entry.offset,
        error=error,
    )
