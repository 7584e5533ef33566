"""Running tasks without Spark: their results, their order, and how a run ends.

Verbs that run side by side share the threads of one runner.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamvault.objectstore.store import NoSuchObject
from streamvault.runner import inline
from streamvault.runner.inline import InlineRunner, sharing_threads
from streamvault.runner.opening import open_runner, sharing_runner
from streamvault.runner.runner import TaskFailed


def square(number: int) -> int:
    return number * number


def test_every_result_comes_once() -> None:
    with open_runner("inline[3]") as runner:
        results = list(runner.run(square, range(100)))
    assert sorted(results) == [(n, n * n) for n in range(100)]
    assert runner.start_seconds == 0


def test_no_tasks_give_no_results() -> None:
    assert list(InlineRunner(2).run(square, [])) == []


def test_results_come_in_the_order_they_finish() -> None:
    first_may_end = threading.Event()

    def wait_if_first(number: int) -> int:
        if number == 0:
            assert first_may_end.wait(20)
        return number

    results = InlineRunner(2).run(wait_if_first, [0, 1, 2])
    assert [next(results), next(results)] == [(1, 1), (2, 2)]
    first_may_end.set()
    assert list(results) == [(0, 0)]


def test_tasks_run_at_the_same_time_up_to_the_limit() -> None:
    barrier = threading.Barrier(3)
    assert len(list(InlineRunner(3).run(lambda _: barrier.wait(20), range(3)))) == 3
    alone = threading.Lock()

    def work(_: int) -> None:
        assert alone.acquire(blocking=False)
        time.sleep(0.01)
        alone.release()

    assert len(list(InlineRunner(1).run(work, range(5)))) == 5


def test_problem_is_raised_unchanged_and_ends_the_run() -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise NoSuchObject("no such object", where="events/x", todo="Check the archive.")

    with pytest.raises(NoSuchObject) as caught:
        list(InlineRunner(1).run(work, range(1000)))
    assert (caught.value.where, caught.value.todo) == ("events/x", "Check the archive.")
    assert len(begun) == 3


def test_other_error_becomes_a_failed_task_of_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def work(_: int) -> None:
        raise ValueError("first line\nsecond line")

    with caplog.at_level("DEBUG", "streamvault.runner"), pytest.raises(TaskFailed) as caught:
        list(InlineRunner(1).run(work, [1]))
    assert str(caught.value).startswith("a task failed: ValueError: first line second line.")
    assert "in work" in caplog.text


def test_run_left_early_starts_no_more_tasks() -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        time.sleep(0.005)

    run = InlineRunner(1).run(work, range(1000))
    next(run)
    run.close()
    seen = len(begun)
    time.sleep(0.05)
    assert len(begun) == seen < 1000


def test_runs_may_be_nested() -> None:
    runner = InlineRunner(2)
    outer = runner.run(square, range(10))
    first = next(outer)
    inner = list(runner.run(square, range(5)))
    assert len(inner) == 5
    assert len([first, *outer]) == 10


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
