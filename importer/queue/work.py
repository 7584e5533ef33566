"""The verb *work*."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common.progress import Progress
from common.sizes import seconds_text
from importer.options import WorkOptions
from importer.queue.attempts import Attempts, as_problem
from importer.queue.handlers import Workshop
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
    """Work the requests of a queue off, one after the other, in the order in which they were put in.

    A request that trying again does not mend (`Usage`, `Conflict`, `Damaged`; anything else but an unreachable store
    at the third time) is moved to the queue of failed ones beside this one, whose name ends in ``-failed``. A store
    that does not answer is tried again with growing pauses. After a kill the same call goes on; a request that was
    done already is done again, which changes nothing.

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
        NoSuchScope, NoSuchStream: there is no such queue. NotAQueue (4): it is another stream.
        ConsumerBusy (4): another worker works this queue off.
        BadEntry (3): the queue holds something that is no entry; it is kept.
        Problem: the queue's store, or with ``tries`` another one, does not answer; nothing is lost.
        KeyboardInterrupt: it was interrupted; the progress was told what is unfinished.
    """
    began = time.monotonic()
    progress = progress or Progress()
    options = WorkOptions(idle_seconds=idle_seconds, for_seconds=for_seconds, wait_seconds=wait_seconds, tries=tries)
    Master.parse(master)
    workshop = Workshop(master, progress)
    with open_queue(queue) as place:
        waiting = place.waiting(make=False)
        place.failed()  # raises if the name is taken
        attempts = Attempts(workshop, place.make_failed, finished)

        def failing(error: BaseException, pause: float) -> None:
            progress.warn(f"{attempts.current}: {as_problem(error)} Tried again in {seconds_text(pause)}.")

        consumer = Consumer(
            waiting, wait_seconds=options.wait_seconds, batch_entries=1, tries=options.tries, failing=failing
        )
        try:
            with consumer, _stopped_after(consumer, options.for_seconds):
                metrics = consumer.run(attempts, idle_seconds=options.idle_seconds)
        except BaseException:
            if attempts.current:
                progress.warn(f"unfinished, and kept in {queue}: {attempts.current}")
            raise
        finally:
            workshop.close()
        failed = place.failed()
        failed_bytes = failed.outstanding() if failed else 0
    return _report(queue, attempts, metrics, failed_bytes, time.monotonic() - began)


@contextmanager
def _stopped_after(consumer: Consumer, seconds: float | None) -> Iterator[None]:
    """Stop the consumer when the time is over; what it is doing is done first."""
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


def _report(queue: str, attempts: Attempts, metrics: QueueMetrics, failed_bytes: int, seconds: float) -> WorkReport:
    return WorkReport(
        queue=queue,
        done=attempts.done,
        failed=attempts.failed,
        failed_exit_codes=tuple(sorted(attempts.exit_codes)),
        unfinished=": ".join(text for text in (attempts.current, attempts.trouble) if text),
        retries=metrics.retries,
        outstanding_bytes=metrics.outstanding_bytes,
        failed_bytes=failed_bytes,
        latency_seconds=round(metrics.latency_seconds, 3),
        seconds=round(seconds, 3),
        total_seconds=round(seconds, 3),
    )
