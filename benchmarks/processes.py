"""Runs work in new processes that start together, and times it."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import NamedTuple, TypeVar

START_SECONDS = 120.0

Job = TypeVar("Job")
Action = Callable[[], int]


class Moved(NamedTuple):
    """What processes have moved.

    Attributes:
        events: number of events.
        seconds: from the start of the first action to the end of the last.
        processor_seconds: CPU time of all actions.
    """

    events: int
    seconds: float
    processor_seconds: float


def run_together(prepare: Callable[[Job], Action], jobs: Sequence[Job]) -> Moved:
    """Run one process for each job.

    Args:
        prepare: a module-level function. The process calls it with the job, untimed (imports, connections). It returns
            the action to time. The actions start together; each returns the number of events it moved.
        jobs: picklable values.

    Raises:
        RuntimeError: a process failed; the message has its traceback.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(jobs))
    processes, ends = [], []
    for job in jobs:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(prepare, job, barrier, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        ends.append(ours)
    try:
        results = [_result(end) for end in ends]
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    begun, ended, used, counts = zip(*results, strict=True)
    return Moved(sum(counts), max(ended) - min(begun), sum(used))


def _result(end: Connection) -> tuple[float, float, float, int]:
    try:
        result = end.recv()
    except EOFError:
        raise RuntimeError("a process of the benchmark was killed") from None
    if isinstance(result, str):
        raise RuntimeError(f"a process of the benchmark failed:\n{result}")  # noqa: TRY004  (not the caller's error)
    began, ended, used, count = result
    return began, ended, used, count


def _run(prepare: Callable[[Job], Action], job: Job, barrier: Barrier, end: Connection) -> None:
    try:
        action = prepare(job)
        barrier.wait(START_SECONDS)
        began = time.monotonic()  # the monotonic clock is the same for all processes of a machine
        before = time.process_time()
        count = action()
        end.send((began, time.monotonic(), time.process_time() - before, count))
    except BaseException:  # noqa: BLE001  (the parent reports it)
        barrier.abort()
        end.send(traceback.format_exc())
