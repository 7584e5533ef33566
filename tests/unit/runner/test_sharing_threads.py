"""Verbs that run side by side share the threads of one runner."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamvault.runner import inline
from streamvault.runner.inline import InlineRunner, sharing_threads
from streamvault.runner.opening import sharing_runner


def test_all_runs_together_have_so_many_tasks_at_once() -> None:
    lock, running, most = threading.Lock(), 0, 0
    both = threading.Barrier(2, timeout=60)

    def task(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait()
        with lock:
            running -= 1

    def run() -> int:
        return len(list(InlineRunner(4).run(task, range(4))))

    with sharing_threads(2), ThreadPoolExecutor(3) as pool:
        assert [done.result() for done in [pool.submit(run) for _ in range(3)]] == [4, 4, 4]
    assert most == 2
    assert inline._slots is None


@pytest.mark.parametrize("master", ["inline[3]", "local[3]"])
def test_a_shared_runner_says_how_many(master: str) -> None:
    with sharing_runner(master):
        assert inline._slots is not None
        assert inline._slots._value == 3
    assert inline._slots is None
