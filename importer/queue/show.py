"""The verb *queue*: what waits and what has failed; and putting failed requests back, or dropping them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

from common.errors import Usage
from importer.queue.model import NotARequest, decode_failed, decode_request
from importer.queue.reports import QueueReport, WaitingRequest
from importer.queue.streams import open_queue
from streamstore.fifo import Consumer, Entry, EntryTooLarge, Producer, QueueSegment
from streamstore.fifo.backlog import outstanding_entries

__all__ = ["show_queue"]

SHOWN = 100


def show_queue(queue: str, *, failed: Literal["keep", "retry", "drop"] = "keep") -> QueueReport:
    """What lies in a queue of requests, and beside it what has failed.

    Args:
        queue: the queue's URI.
        failed: what to do with the failed requests first: keep them, put them back at the queue's end, or drop them.

    Raises:
        NoSuchScope, NoSuchStream: there is no such queue. NotAQueue (4): it is another stream.
        BadEntry (3): it holds something that is no entry.
    """
    if failed not in {"keep", "retry", "drop"}:
        raise Usage("failed requests are kept, retried or dropped", where=repr(failed))
    with open_queue(queue) as place:
        waiting = place.waiting(make=False)
        aside = place.failed()
        moved = dropped = 0
        if aside is not None and failed == "retry":
            moved = _put_back(aside, waiting)
        elif aside is not None and failed == "drop":
            with Consumer(aside) as consumer:
                dropped = consumer.run(_drop, idle_seconds=0).entries
        count, size, shown = _contents(waiting, _waiting)
        failed_count, failed_size, failed_shown = _contents(aside, _failed) if aside is not None else (0, 0, ())
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


def _put_back(aside: QueueSegment, waiting: QueueSegment) -> int:
    """Move the failed requests back; how many. What this release cannot read goes to the end of the failed ones.

    A request is always put in, also if it still waits: the worker that has just put it aside is about to drop it there.
    """
    moved = 0

    def put_back(batch: Sequence[Entry]) -> None:
        nonlocal moved
        (entry,) = batch
        try:
            Producer(waiting).put(decode_failed(entry.content).content, entry.name)
        except (NotARequest, EntryTooLarge):
            Producer(aside).move(entry.content, entry.name)
        else:
            moved += 1

    with Consumer(aside, batch_entries=1, tries=1) as consumer:
        consumer.run(put_back, idle_seconds=0, until=aside.info().write_offset)
    return moved


def _drop(_batch: Sequence[Entry]) -> None:
    """Being handled is being dropped."""


def _contents(
    queue: QueueSegment, describe: Callable[[Entry, float], WaitingRequest]
) -> tuple[int, int, tuple[WaitingRequest, ...]]:
    """How many entries are outstanding, their bytes, and the first of them."""
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
        text = "an entry that is no request"
    return _row(entry, now, text, "")


def _failed(entry: Entry, now: float) -> WaitingRequest:
    try:
        failed = decode_failed(entry.content)
    except NotARequest as error:
        return _row(entry, now, "an entry that is no failed request", str(error))
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
