"""The *work* command."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streamvault.common.progress import Progress
from streamvault.common.sizes import seconds_text
from streamvault.common.verb import verb
from streamvault.requests.handlers import RequestContext
from streamvault.requests.options import WorkArguments
from streamvault.requests.processor import RequestProcessor, as_problem
from streamvault.requests.reports import WorkReport
from streamvault.requests.streams import open_queue
from streamvault.streamstore.services.fifo.consumer import Consumer, QueueMetrics


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
    return _report(queue, processor, metrics, failed_bytes)


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


def _report(queue: str, processor: RequestProcessor, metrics: QueueMetrics, failed_bytes: int) -> WorkReport:
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
