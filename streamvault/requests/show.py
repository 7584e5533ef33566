"""The *request-restore* and *queue* commands: requests, waiting and failed ones; put failed ones back, or drop them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from streamvault.common.errors import Usage
from streamvault.common.options import verb
from streamvault.importer.reports import RestoreOptions
from streamvault.objectstore.uri import RootAddress
from streamvault.requests.queue import (
    NotARequest,
    RestoreRequest,
    check_queue,
    decode_failed,
    encode,
    open_queue,
    text_of,
)
from streamvault.requests.reports import (
    ForeignBytes,
    QueueReport,
    RequestOptions,
    RequestReport,
    SkipOptions,
    WaitingRequest,
)
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.queue import (
    Consumer,
    EntryTooLarge,
    NotAnEntry,
    Producer,
    QueueEntry,
    QueueSegment,
    outstanding,
)
from streamvault.streamstore.uri import parse_stream

SHOWN = 100


def show_queue(queue: str) -> QueueReport:
    """Return the waiting and the failed requests of a queue.

    Args:
        queue: the queue's URI.

    Raises:
        NoSuchScope, NoSuchStream: there is no such queue.
        NotAQueue: it is another stream (exit code 4).
    """
    with open_queue(queue) as place:
        return _report(queue, place.waiting(create=False), place.failed())


def retry_failed(queue: str) -> QueueReport:
    """Move the failed requests of a queue back to its end; return what the queue then holds, and how many moved.

    Args:
        queue: the queue's URI.

    Raises:
        NoSuchScope, NoSuchStream, NotAQueue: as for `show_queue`.
        BadEntry: there are foreign bytes among the failed requests (exit code 3).
    """
    with open_queue(queue) as place:
        waiting, failed = place.waiting(create=False), place.failed()
        moved = 0 if failed is None else _put_back(failed, waiting)
        return replace(_report(queue, waiting, failed), moved=moved)


def drop_failed(queue: str) -> QueueReport:
    """Remove the failed requests of a queue; return what the queue then holds, and how many were dropped.

    Args:
        queue: the queue's URI.

    Raises:
        NoSuchScope, NoSuchStream, NotAQueue: as for `show_queue`.
        BadEntry: there are foreign bytes among the failed requests (exit code 3).
    """
    with open_queue(queue) as place:
        waiting, failed, dropped = place.waiting(create=False), place.failed(), 0
        if failed is not None:
            with Consumer(failed) as consumer:
                dropped = consumer.run(lambda _: None, idle_seconds=0).entries
        return replace(_report(queue, waiting, failed), dropped=dropped)


@verb(SkipOptions)
def skip_foreign(queue: str, offset: int, options: SkipOptions) -> QueueReport:
    """Remove foreign bytes that stop a queue's worker. A late or repeated call removes nothing else.

    Args:
        queue: the queue's URI.
        offset: where they begin in the queue's segment (bytes), as `show_queue` and the worker's error say.
        failed: whether they are in the queue of failed requests.

    Raises:
        NoSuchScope, NoSuchStream: there is no such queue.
        NotAQueue: it is another stream (exit code 4).
        Conflict: a request begins there, or requests are outstanding before it; nothing is removed.
        ConsumerBusy: a worker is processing the queue (exit code 4).
    """
    if offset < 0:
        raise Usage("an offset must not be negative", where=str(offset))
    with open_queue(queue) as place:
        waiting, failed_queue = place.waiting(create=False), place.failed()
        chosen = failed_queue if options.failed else waiting
        if chosen is None:
            raise Usage("no request of this queue has ever failed", where=queue)
        with Consumer(chosen) as consumer:
            skipped = consumer.skip(offset)
        return replace(_report(queue, waiting, failed_queue), skipped_bytes=skipped)


def _report(queue: str, waiting: QueueSegment, failed: QueueSegment | None) -> QueueReport:
    there = _Contents(waiting, lambda content: (text_of(content), ""))
    gone = _Contents(failed, _failed)
    foreign = [
        ForeignBytes(offset=one.offset, bytes=one.end - one.offset, in_failed_queue=part is gone, reason=one.why)
        for part in (there, gone)
        for one in part.foreign
    ]
    return QueueReport(
        queue=queue,
        waiting=there.count,
        failed=gone.count,
        outstanding_bytes=there.size,
        failed_bytes=gone.size,
        first_waiting=tuple(there.shown),
        first_failed=tuple(gone.shown),
        foreign=tuple(foreign[:SHOWN]),
    )


def _put_back(failed_queue: QueueSegment, waiting: QueueSegment) -> int:
    """Move the failed requests back, and return how many. Ones this release cannot read move to the end of the failed.

    A request is put back even if it still waits: the worker that has just moved it here is about to remove it there.
    """
    moved = 0

    def put_back(batch: Sequence[QueueEntry]) -> None:
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


class _Contents:
    """What is outstanding in a queue: number of requests, their bytes, the first of them, and foreign bytes.

    Args:
        queue: the queue; None for one that does not exist.
        describe: returns the text of an entry, and why it failed; empty if it waits.
    """

    def __init__(self, queue: QueueSegment | None, describe: Callable[[bytes], tuple[str, str]]) -> None:
        self.count = self.size = 0
        self.shown: list[WaitingRequest] = []
        self.foreign: list[NotAnEntry] = []
        now = time.time()
        for one in outstanding(queue) if queue is not None else ():
            if isinstance(one, NotAnEntry):
                if len(self.foreign) < SHOWN:
                    self.foreign.append(one)
                continue
            self.count += 1
            self.size += one.end - one.offset
            if self.count <= SHOWN:
                text, reason = describe(one.content)
                self.shown.append(
                    WaitingRequest(
                        id=str(one.name),
                        text=text,
                        put=datetime.fromtimestamp(one.put_time, UTC).isoformat(timespec="seconds"),
                        age_seconds=round(max(now - one.put_time, 0.0), 1),
                        bytes=one.end - one.offset,
                        reason=reason,
                    )
                )


def _failed(content: bytes) -> tuple[str, str]:
    try:
        failed = decode_failed(content)
    except NotARequest as error:
        return "an invalid failed request", str(error)
    return str(failed), ": ".join(text for text in (failed.what, failed.where) if text)


@verb(RequestOptions)
def request_restore(archive: str, stream: str, options: RequestOptions) -> RequestReport:
    """Put a request for a restore in a queue; a worker of the queue processes it.

    Only the arguments are checked now; the worker checks whether the archive exists.

    Args:
        archive: as for `import_stream`; this and the other arguments must be valid on the worker.
        stream: the stream to create.
        queue: the queue's URI, in the form of a stream's; the queue is created if it does not exist.
        from_cut: as for `import_stream`.
        to_cut: likewise.
        generation: likewise.
        at: likewise.
        offsets: as for `import_stream`.
        filler_limit: likewise (bytes).
        numbers: likewise.
        retention: likewise.
        window: likewise (bytes).
        read_back: likewise.
        dry_run: only check the arguments.

    Raises:
        Usage: an argument is not valid.
        NotAQueue: ``queue`` is another stream (exit code 4).
        QueueFull: the queue is full.
    """
    _, scope, name = RootAddress.parse_archive(archive)
    StreamName(scope, name)
    parse_stream(stream)
    cuts = {
        name: StreamCut.from_json(cut, ends=True).to_json()
        for name, cut in (("from_cut", options.from_cut), ("to_cut", options.to_cut))
        if cut is not None
    }
    kept = options.shared_with(RestoreOptions).keywords()
    request = RestoreRequest(archive=archive, stream=stream, **{**kept, **cuts})
    check_queue(options.queue, create=False)
    report = RequestReport(
        queue=options.queue,
        request=request.model_dump(mode="json", exclude_none=True),
        text=str(request),
        dry_run=options.dry_run,
    )
    if options.dry_run:
        return report
    with open_queue(options.queue) as place:
        waiting = place.waiting(create=True)
        name = str(Producer(waiting).put(encode(request)))
        return replace(report, id=name, outstanding_bytes=waiting.outstanding())
