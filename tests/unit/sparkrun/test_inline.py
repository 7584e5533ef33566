"""Running tasks without Spark: the inline runner, master URLs, what is said of failures."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from common.errors import Damaged, Usage
from objectstore.errors import NoSuchObject
from sparkrun.code import PACKAGES, import_folders, zip_code
from sparkrun.errors import InvalidMaster, SparkFailed, TaskFailed
from sparkrun.failures import last_line
from sparkrun.inline import InlineRunner
from sparkrun.masters import Master
from sparkrun.opening import open_runner


def square(number: int) -> int:
    return number * number


def test_every_result_comes_once() -> None:
    with open_runner("inline[3]") as runner:
        results = list(runner.run(square, range(100)))
    assert sorted(results) == [(n, n * n) for n in range(100)]
    assert runner.start_seconds == 0


def test_nothing_to_do_is_no_result() -> None:
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


def test_a_problem_arrives_as_it_was_raised_and_ends_the_run() -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise NoSuchObject("no such object", where="events/x", todo="Check the archive.")

    with pytest.raises(NoSuchObject) as caught:
        list(InlineRunner(1).run(work, range(1000)))
    assert (caught.value.where, caught.value.todo) == ("events/x", "Check the archive.")
    assert len(begun) == 3


def test_any_other_error_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def work(_: int) -> None:
        raise ValueError("first line\nsecond line")

    with caplog.at_level("DEBUG", "sparkrun"), pytest.raises(TaskFailed) as caught:
        list(InlineRunner(1).run(work, [1]))
    assert str(caught.value).startswith("a task failed: ValueError: first line second line.")
    assert "in work" in caplog.text


def test_a_run_that_is_left_early_starts_no_more_tasks() -> None:
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


def test_several_runs_at_once() -> None:
    runner = InlineRunner(2)
    outer = runner.run(square, range(10))
    first = next(outer)
    inner = list(runner.run(square, range(5)))
    assert len(inner) == 5
    assert len([first, *outer]) == 10


@pytest.mark.parametrize(
    ("url", "kind", "on_loopback"),
    [
        ("inline", "inline", False),
        ("inline[4]", "inline", False),
        ("local", "local", True),
        ("local[2]", "local", True),
        ("local[*]", "local", True),
        ("local[*, 3]", "local", True),
        ("local-cluster[2,1,512]", "cluster", True),
        ("spark://127.0.0.1:7077", "cluster", True),
        ("spark://[::1]:7077", "cluster", True),
        ("spark://127.0.0.1:7077,spark.example:7077", "cluster", False),
        ("spark://spark.example:7077", "cluster", False),
        ("yarn", "cluster", False),
        ("k8s://https://cluster.example:6443", "cluster", False),
    ],
)
def test_masters(url: str, kind: str, on_loopback: bool) -> None:
    master = Master.parse(url)
    assert (master.kind, master.on_loopback or kind == "inline") == (kind, on_loopback or kind == "inline")


@pytest.mark.parametrize(
    "url",
    ["", "lokal", "local[0]", "local[x]", "inline[0]", "spark://", "spark://host", "spark://host:0", "spark://h:99999",
     "spark://h:٣", "http://host:7077", "mesos://host:5050", "local\n", "yarn-client"],
)  # fmt: skip
def test_a_master_that_is_none_is_wrong_usage(url: str) -> None:
    with pytest.raises(InvalidMaster) as caught, open_runner(url):
        pass
    assert isinstance(caught.value, Usage)
    assert "\n" not in str(caught.value)


def test_a_master_that_is_down_is_known_at_once() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"spark://127.0.0.1:{held.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(SparkFailed, match=r"the Spark master does not answer .*refused") as caught:
            Master.parse(url).check_reachable()
    assert time.monotonic() - began < 6
    assert url in str(caught.value)


PYTHON_ERROR = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 1.0 failed 1 times, most recent \
failure: Lost task 3.0 in stage 1.0 (TID 5) (localhost executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "worker.py", line 2044, in main
    process()
  File "sizes.py", line 5, in work
    raise ValueError(
    ^^^^^^^^^^^^^^^^^
ValueError: the first line
and the second

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2898)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 2044, in main
    process()
KeyError: 'of another attempt'
"""
LOST_EXECUTOR = """org.apache.spark.SparkException: Job aborted due to stage failure: \
Task 0 in stage 0.0 failed 4 times, \
most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited \
caused by one of the running tasks) Reason: worker lost
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.x(DAGScheduler.scala:1)"""


def test_one_line_of_a_failure() -> None:
    assert last_line(PYTHON_ERROR) == "ValueError: the first line and the second"
    assert last_line(LOST_EXECUTOR).startswith("ExecutorLostFailure (executor 1 exited caused by")
    assert last_line("org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat org.a.B(C.scala:1)") == (
        "Could not parse Master URL: 'x'"
    )
    assert last_line("") == "without saying why"


def test_the_code_for_executors_is_all_of_ours_and_can_be_imported(tmp_path: Path) -> None:
    code, again = tmp_path / "code.zip", tmp_path / "again.zip"
    zip_code(code)
    zip_code(again)
    assert code.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(code) as file:
        names = file.namelist()
    assert {name.partition("/")[0] for name in names} == set(PACKAGES)
    assert "streamstore/pravega/controller_pb2.py" in names
    script = "import common.errors, manifests.model, streamstore.pravega.controller_pb2 as stub; print(stub.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(code)!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(code) in done.stdout


def test_our_packages_lie_in_the_folders_named() -> None:
    assert all(any((folder / package).is_dir() for folder in import_folders()) for package in PACKAGES)


def test_problems_are_still_problems() -> None:
    def work(_: int) -> None:
        raise Damaged("an object is missing", where="events/x")

    with pytest.raises(Damaged) as caught:
        list(InlineRunner(4).run(work, range(8)))
    assert caught.value.exit_code == 3
