"""The *work* command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

from streamvault.common.errors import Conflict, Damaged, Failed, Problem, Usage
from streamvault.common.options import in_keywords, verb
from streamvault.common.progress import Progress
from streamvault.common.units import seconds_text
from streamvault.common.waiting import is_transient
from streamvault.importer.import_ import import_stream
from streamvault.importer.reports import ImportOptions
from streamvault.importer.run import RESTORE_TASKS
from streamvault.requests.queue import (
    FailedRequest,
    NotARequest,
    RestoreRequest,
    decode_failed,
    decode_request,
    delete,
    encode,
    open_queue,
)
from streamvault.requests.reports import FinishedRequest, WorkArguments, WorkReport
from streamvault.runner.opening import open_runner
from streamvault.streamstore.queue import Consumer, Producer, QueueEntry, QueueSegment


class RequestContext:
    """Resources that handlers share. Spark keeps running from one request to the next.

    Args:
        master: a Spark master, or ``"inline"``.
        progress: receives the progress of requests.
    """

    def __init__(self, master: str, progress: Progress) -> None:
        self.master = master
        self.progress = progress
        self._open = ExitStack()
        self._is_open = False

    def start_runner(self) -> None:
        """Start a runner, unless it runs; functions that open one with the same master share it."""
        if not self._is_open:
            self._open.enter_context(open_runner(self.master, RESTORE_TASKS))
            self._is_open = True

    def close(self) -> None:
        """Stop the runner."""
        self._is_open = False
        self._open.close()


def restore(request: RestoreRequest, context: RequestContext) -> dict[str, Any]:
    """Restore a stream; if the same request restored it already, only verify it."""
    options = request.shared_with(ImportOptions).model_copy(update={"again": True, "master": context.master})
    context.start_runner()
    with in_keywords(ImportOptions):
        report = import_stream.with_options(request.archive, request.stream, options, context.progress)
    context.progress.warn_all(report.warnings)
    return report.to_json()


HANDLERS: Mapping[str, Callable[[Any, RequestContext], dict[str, Any]]] = {
    "restore": restore,
    "delete": lambda request, _context: delete(request),
}
"""`kind` of a request → its handler, which returns plain values for the report and may be called again with a request
that it has done already."""


FINAL = (Usage, Conflict, Damaged)
"""Errors that a retry cannot fix."""

TRIES = 3
"""Attempts at a request that fails for any other reason (no permission, a full disk, a bug)."""

TEXT_CHARACTERS = 2000
"""Maximum length of each text recorded with a failed request."""


class RequestProcessor:
    """Processes the requests of a queue; a `streamstore.queue.Handler`.

    Args:
        context: passed to the handlers of requests.
        failed: returns the queue for failed requests; called when a request fails.
        finished: called with each request that was done or has failed.

    Attributes:
        current: the request in progress or to be retried, as text for users; empty if there is none.
        tried: number of attempts at the current request.
        trouble: why the last attempt failed; empty if it did not.
        done: number of requests done.
        failed: number of failed requests.
        exit_codes: exit codes of the failed requests.
    """

    def __init__(
        self,
        context: RequestContext,
        failed: Callable[[], QueueSegment],
        finished: Callable[[FinishedRequest], None],
    ) -> None:
        self._context = context
        self._failed_queue = failed
        self._finished = finished
        self.current = ""
        self.tried = 0
        self.trouble = ""
        self.done = 0
        self.failed = 0
        self.exit_codes: set[int] = set()

    def __call__(self, batch: Sequence[QueueEntry]) -> None:
        """Process one request.

        Raises:
            Exception: the request must be retried.
        """
        (entry,) = batch
        began = time.monotonic()
        self.tried += 1
        self.current, kind = f"an invalid request ({entry.name})", ""
        try:
            request = decode_request(entry.content)
            self.current, kind = f"{request} ({entry.name})", request.kind
            report = HANDLERS[kind](request, self._context)
        except Exception as error:
            self._context.close()
            self.trouble = str(as_problem(error))
            if is_transient(error) or not (isinstance(error, FINAL) or self.tried >= TRIES):
                raise
            self._move_to_failed(entry, kind, as_problem(error), began)
        else:
            self.done += 1
            self._tell(entry, began, kind=kind, text=str(request), ok=True, report=report)
        self.current, self.trouble, self.tried = "", "", 0

    def _move_to_failed(self, entry: QueueEntry, kind: str, error: Problem, began: float) -> None:
        """Move a request to the failed ones; for a moment it is in both queues, never in neither.

        A request that another worker has moved already is not moved again. Comparing names would not do: a request that
        was put back and fails again must be moved even if it was not yet removed from the failed ones.
        """
        failed = FailedRequest(
            content=entry.content,
            offset=entry.offset,
            time=datetime.now(UTC),
            what=_shortened(error.what),
            where=_shortened(error.where),
            todo=_shortened(error.todo),
            exit_code=error.exit_code,
            tries=self.tried,
        )

        def is_this(other: QueueEntry) -> bool:
            try:
                return other.name == entry.name and decode_failed(other.content).offset == entry.offset
            except NotARequest:
                return False

        Producer(self._failed_queue()).move(encode(failed), entry.name, unless=is_this)
        self.failed += 1
        self.exit_codes.add(error.exit_code)
        why = {"what": error.what, "where": error.where, "todo": error.todo, "exit_code": error.exit_code}
        self._tell(entry, began, kind=kind, text=str(failed), ok=False, error=why)

    def _tell(self, entry: QueueEntry, began: float, **result: Any) -> None:
        """Tell of a request that was done or has failed."""
        seconds, latency = time.monotonic() - began, max(time.time() - entry.put_time, 0.0)
        self._finished(
            FinishedRequest(
                id=str(entry.name),
                tries=self.tried,
                seconds=round(seconds, 3),
                latency_seconds=round(latency, 3),
                **result,
            )
        )


def as_problem(error: BaseException) -> Problem:
    """Return an error as a `Problem`."""
    if isinstance(error, Problem):
        return error
    return Failed(f"internal error: {type(error).__name__}", where=" ".join(str(error).split()))


def _shortened(text: str) -> str:
    """Shorten a text to be recorded with a failed request, so that three of them fit into `NOTE_BYTES`."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - 2]} …"


@verb(WorkArguments)
def work_queue(queue: str, options: WorkArguments, progress: Progress) -> WorkReport:
    """Process the requests of a queue one by one, in order.

    A request that fails permanently is moved to the queue of failed requests, whose name is this queue's with
    ``-failed`` appended: after the first `Usage`, `Conflict` or `Damaged`, or after the third other error. If a store
    does not answer, the request is retried with growing pauses, and the attempt does not count. After a kill, repeat
    the call to resume; a request that was already done is processed again, which changes nothing.

    Args:
        queue: the queue's URI.
        idle: return after this many seconds without a new request; 0: when the queue is empty; None: never.
        lasting: start no request after this many seconds.
        wait: how long to wait for another worker of this queue to end (seconds).
        tries: give up after this many attempts without an answer from a store; None: never.
        master: a Spark master, or ``"inline"`` for no Spark.
        finished: receives each finished request.
        progress: receives the progress of the requests.

    Raises:
        NoSuchScope, NoSuchStream: the queue does not exist.
        NotAQueue: ``queue`` is another stream (exit code 4).
        ConsumerBusy: another worker is processing this queue (exit code 4).
        BadEntry: the queue contains bytes that are not an entry; they are kept (exit code 3).
        Problem: the queue's store, or with ``tries`` another one, does not answer; nothing is lost.
        KeyboardInterrupt: the call was interrupted; ``progress`` has received the unfinished request.
    """
    context = RequestContext(options.master, progress)
    with open_queue(queue) as place:
        waiting = place.waiting(create=False)
        place.failed()  # raises if the name is taken
        processor = RequestProcessor(context, place.create_failed, options.finished)

        def failing(error: BaseException, pause: float) -> None:
            progress.warn(f"{processor.current}: {as_problem(error)} Retrying in {seconds_text(pause)}.")

        consumer = Consumer(waiting, wait_seconds=options.wait, batch_entries=1, tries=options.tries, failing=failing)
        try:
            with consumer, _stopped_after(consumer, options.lasting):
                metrics = consumer.run(processor, idle_seconds=options.idle)
        except BaseException:
            if processor.current:
                progress.warn(f"unfinished; stays in {queue}: {processor.current}")
            raise
        finally:
            context.close()
        failed = place.failed()
        failed_bytes = failed.outstanding() if failed else 0
    return WorkReport(
        queue=queue,
        done=processor.done,
        failed=processor.failed,
        failed_exit_codes=tuple(sorted(processor.exit_codes)),
        unfinished=": ".join(text for text in (processor.current, processor.trouble) if text),
        retries=metrics.retries,
        outstanding_bytes=metrics.outstanding_bytes,
        failed_bytes=failed_bytes,
        latency_seconds=round(metrics.latency_seconds, 3),
    )


@contextmanager
def _stopped_after(consumer: Consumer, seconds: float | None) -> Iterator[None]:
    """Stop the consumer after this many seconds; it finishes the current request first."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, consumer.stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
