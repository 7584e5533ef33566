"""Runs work in fresh processes that begin together, and times it."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import TypeVar

__all__ = ["run_together"]

START_SECONDS = 120.0

Job = TypeVar("Job")
Action = Callable[[], int]


def run_together(prepare: Callable[[Job], Action], jobs: Sequence[Job]) -> tuple[int, float]:
    """Run one process for each job.

    Args:
        prepare: a module's function. It is called in the process with the job, untimed (imports, connections), and
            returns the action that is timed. The actions begin together; each returns how many events it moved.
        jobs: values that can be pickled.

    Returns:
        Events of all, and seconds from the first action's start to the last one's end.

    Raises:
        RuntimeError: a process failed; with its traceback.
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
    begun, ended, counts = zip(*results, strict=True)
    return sum(counts), max(ended) - min(begun)


def _result(end: Connection) -> tuple[float, float, int]:
    try:
        result = end.recv()
    except EOFError:
        raise RuntimeError("a process of the benchmark was killed") from None
    if isinstance(result, str):
        raise RuntimeError(f"a process of the benchmark failed:\n{result}")  # noqa: TRY004  (not a caller's mistake)
    began, ended, count = result
    return began, ended, count


def _run(prepare: Callable[[Job], Action], job: Job, barrier: Barrier, end: Connection) -> None:
    try:
        action = prepare(job)
        barrier.wait(START_SECONDS)
        began = time.monotonic()  # one clock for all processes of the machine
        count = action()
        end.send((began, time.monotonic(), count))
    except BaseException:  # noqa: BLE001  (whatever it is, the parent shows it)
        barrier.abort()
        end.send(traceback.format_exc())
