"""The *work* command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common.progress import Progress
from common.sizes import seconds_text
from importer.options import WorkOptions
from importer.queue.handlers import RequestContext
from importer.queue.processor import RequestProcessor, as_problem
from importer.queue.reports import FinishedRequest, WorkReport
from importer.queue.streams import open_queue
from sparkrun.masters import Master
from streamstore.fifo import Consumer, QueueMetrics

__all__ = ["work_queue"]


def work_queue(
    queue: str,
    *,
    idle_seconds: float | None = None,
    for_seconds: float | None = None,
    wait_seconds: float = 0.0,
    tries: int | None = None,
    master: str = "local[*]",
    finished: Callable[[FinishedRequest], None] = lambda _: None,
    progress: Progress | None = None,
) -> WorkReport:
    """Process the requests of a queue one by one, in the order in which they were put in.

    A request that fails for good is moved to the queue of failed requests beside this one, whose name ends in
    ``-failed``: at the first `Usage`, `Conflict` or `Damaged`, at the third other error. A store that does not answer
    is retried with growing pauses, and does not count. After a kill, repeat the call to resume; a request that was done
    already is done again, which changes nothing.

    Args:
        queue: the queue's URI.
        idle_seconds: return when nothing came for so long; 0 works off what waits; None goes on for ever.
        for_seconds: begin no request after so long.
        wait_seconds: for how long another worker of this queue is waited for.
        tries: give up when a store did not answer so often; None for no end.
        master: a Spark master, or ``"inline"`` for no Spark.
        finished: told each request as it is finished.
        progress: told how requests go on.

    Raises:
        NoSuchScope, NoSuchStream: there is no such queue.
        NotAQueue: it is another stream (exit code 4).
        ConsumerBusy: another worker is processing this queue (exit code 4).
        BadEntry: the queue contains bytes that are not an entry; they are kept (exit code 3).
        Problem: the queue's store, or with ``tries`` another one, does not answer; nothing is lost.
        KeyboardInterrupt: the call was interrupted; ``progress`` was told what is unfinished.
    """
    began = time.monotonic()
    progress = progress or Progress()
    options = WorkOptions(idle_seconds=idle_seconds, for_seconds=for_seconds, wait_seconds=wait_seconds, tries=tries)
    Master.parse(master)
    context = RequestContext(master, progress)
    with open_queue(queue) as place:
        waiting = place.waiting(make=False)
        place.failed()  # raises if the name is taken
        processor = RequestProcessor(context, place.make_failed, finished)

        def failing(error: BaseException, pause: float) -> None:
            progress.warn(f"{processor.current}: {as_problem(error)} Retry in {seconds_text(pause)}.")

        consumer = Consumer(
            waiting, wait_seconds=options.wait_seconds, batch_entries=1, tries=options.tries, failing=failing
        )
        try:
            with consumer, _stopped_after(consumer, options.for_seconds):
                metrics = consumer.run(processor, idle_seconds=options.idle_seconds)
        except BaseException:
            if processor.current:
                progress.warn(f"unfinished; stays in {queue}: {processor.current}")
            raise
        finally:
            context.close()
        failed = place.failed()
        failed_bytes = failed.outstanding() if failed else 0
    return _report(queue, processor, metrics, failed_bytes, time.monotonic() - began)


@contextmanager
def _stopped_after(consumer: Consumer, seconds: float | None) -> Iterator[None]:
    """Stop the consumer after some seconds; it finishes the current request first."""
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


def _report(
    queue: str, processor: RequestProcessor, metrics: QueueMetrics, failed_bytes: int, seconds: float
) -> WorkReport:
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
        seconds=round(seconds, 3),
        total_seconds=round(seconds, 3),
    )
