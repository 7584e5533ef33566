"""Running tasks on a real Spark: on this machine, and on a standalone cluster whose workers do not have our code."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from streamvault.runner.opening import open_runner
from streamvault.runner.runner import Runner, SparkFailed, TaskFailed
from streamvault.streamstore.errors import SegmentTruncated
from testkit.servers.spark_cluster import SparkCluster
from tests.conftest import absent

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FOREVER = 3600.0
"""Seconds: longer than a test may take."""


# Functions that run in tasks. They get the folder in which to write their signs of life.
def square(number: int) -> int:
    return number * number


def sleep_then_answer(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail_at_first(folder: str) -> str:
    """A different error each time but the third."""
    attempts = Path(folder)
    (attempts / f"{time.time_ns()}").touch()
    count = len(list(attempts.iterdir()))
    if count < 3:
        raise RuntimeError(f"attempt {count}")
    return f"attempt {count}"


def raise_problem(folder: str) -> None:
    (Path(folder) / f"{time.time_ns()}").touch()
    raise SegmentTruncated("truncated", where="s/t/0.#epoch.0", todo="Go on.", start_offset=77)


def raise_error(number: int) -> int:
    if number == 3:
        raise ValueError(f"cannot do {number}\nreally")
    return number


def die(number: int) -> int:
    if number == 1:
        os._exit(9)
    return number


def answer_with_what_cannot_be_sent(number: int) -> object:
    return threading.Lock()


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with open_runner("local[2, 4]") as runner:
        yield runner


@pytest.fixture(scope="module")
def silent_master() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A program that starts Spark with a master that never answers: Spark waits for a minute.

    The first test starts it and the last one looks at what came of it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        script = f"""
from streamvault.common.errors import Problem
from streamvault.runner.opening import open_runner
try:
    with open_runner("{master}"):
        pass
except Problem as problem:
    print(type(problem).__name__, problem)
"""
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            yield master, program
            program.kill()


def test_waiting_for_a_master_does_not_block_other_work(silent_master: tuple[str, subprocess.Popen[str]]) -> None:
    assert silent_master[1].poll() is None


def test_every_result_is_returned_once(runner: Runner) -> None:
    assert sorted(runner.run(square, range(60))) == [(n, n * n) for n in range(60)]
    assert runner.start_seconds > 0
    assert list(runner.run(square, [])) == []


def test_results_are_returned_as_tasks_finish(runner: Runner) -> None:
    list(runner.run(square, range(4)))  # Python is warm
    run = runner.run(sleep_then_answer, [FOREVER, 0.0, 0.1])
    assert [next(run), next(run)] == [(1, 0.0), (2, 0.1)]
    run.close()


NAMELESS = """
import socket
from streamvault.runner.opening import open_runner

try:
    print(socket.getaddrinfo(socket.gethostname(), None))
except OSError:
    with open_runner("local[1]") as runner:
        print(*runner.run(abs, [-1]))
"""


def test_spark_on_this_machine_needs_no_name_that_can_be_resolved() -> None:
    """As in many containers. Spark looks the name up where there are AWS credentials."""
    in_a_host = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--uts")
    if subprocess.run([*in_a_host, "true"], capture_output=True, check=False).returncode:
        absent("unshare", "the system does not let this user name a machine")
    renamed = f'hostname name.invalid && exec {sys.executable} -c "$0"'
    shown = subprocess.run(
        [*in_a_host, "sh", "-c", renamed, NAMELESS],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "AWS_ACCESS_KEY_ID": "anyone", "AWS_SECRET_ACCESS_KEY": "anything"},
    )
    assert (shown.returncode, shown.stdout) == (0, "(0, 1)\n"), shown.stderr


def test_nested_runners_share_one_spark(runner: Runner) -> None:
    with open_runner("local[2, 4]") as inner:
        assert inner.start_seconds == 0
        assert list(inner.run(square, [3])) == [(0, 9)]
    assert list(runner.run(square, [4])) == [(0, 16)]
    with pytest.raises(SparkFailed, match="another master"), open_runner("local[1]"):
        pass


def test_problem_of_a_task_is_raised_and_not_retried(runner: Runner, tmp_path: Path) -> None:
    with pytest.raises(SegmentTruncated) as caught:
        list(runner.run(raise_problem, [str(tmp_path)]))
    problem = caught.value
    assert (problem.what, problem.where, problem.todo) == ("truncated", "s/t/0.#epoch.0", "Go on.")
    assert problem.start_offset == 77
    assert len(list(tmp_path.iterdir())) == 1


def test_failed_task_is_retried(runner: Runner, tmp_path: Path) -> None:
    assert list(runner.run(fail_at_first, [str(tmp_path)])) == [(0, "attempt 3")]


def test_permanent_error_is_one_line(runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "streamvault.runner.runner"), pytest.raises(TaskFailed) as caught:
        list(runner.run(raise_error, range(5)))
    assert str(caught.value).startswith("a task failed: ValueError: cannot do 3 really. ")
    assert "in raise_error" in caplog.text
    assert list(runner.run(square, [5])) == [(0, 25)]


def test_died_worker_is_a_failed_task(runner: Runner) -> None:
    with pytest.raises(TaskFailed) as caught:
        list(runner.run(die, range(3)))
    assert "\n" not in str(caught.value)
    assert "exited unexpectedly" in str(caught.value)


def test_unpicklable_result_is_a_failed_task(runner: Runner) -> None:
    with pytest.raises(TaskFailed, match=r"cannot pickle '_thread\.lock' object"):
        list(runner.run(answer_with_what_cannot_be_sent, [1]))


def test_early_exit_kills_the_tasks(runner: Runner) -> None:
    run = runner.run(sleep_then_answer, [0.0] + [FOREVER] * 5)
    assert next(run) == (0, 0.0)
    run.close()
    assert sorted(runner.run(square, [6, 7])) == [(0, 36), (1, 49)]


def test_concurrent_runs_return_their_own_results(runner: Runner) -> None:
    results: dict[int, list[tuple[int, int]]] = {}

    def run(number: int) -> None:
        results[number] = sorted(runner.run(square, range(number, number + 10)))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    slow = runner.run(sleep_then_answer, [0.0, 5.0])
    next(slow)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == {n: [(i, (n + i) ** 2) for i in range(10)] for n in range(4)}
    assert list(slow) == [(1, 5.0)]


# Separate programs, to be interrupted and killed.
PROGRAM = """
import json, logging, sys, time
from streamvault.runner.opening import open_runner

logging.basicConfig(level=logging.WARNING)

def work(seconds):
    time.sleep(seconds)
    print("noise of a task")
    return seconds

if __name__ == "__main__":
    try:
        with open_runner(sys.argv[1]) as runner:
            for index, _ in runner.run(work, [0.0] + [600.0] * 8 if sys.argv[2] == "long" else [0.0] * 4):
                print(json.dumps({"index": index}), flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


class Program:
    """A program with a Spark of its own, and its child processes."""

    def __init__(self, folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        script = folder / "program.py"
        script.write_text(PROGRAM)
        self.process = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(self.temporary)} | (environment or {}),
            start_new_session=True,
        )
        self.below: list[psutil.Process] = []

    def wait_for_a_result(self) -> None:
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline()) == {"index": 0}
        self.below = psutil.Process(self.process.pid).children(recursive=True)
        assert len([process for process in self.below if "java" in process.name()]) == 1

    def end(self, timeout: float) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def left_over(self, seconds: float) -> list[str]:
        """Its child processes that still run after so long."""
        _, alive = psutil.wait_procs(self.below, timeout=seconds)
        return [f"{process.pid} {process.name()}" for process in alive]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(*arguments: str, environment: dict[str, str] | None = None) -> Program:
        started.append(Program(tmp_path, *arguments, environment=environment))
        return started[-1]

    yield start
    for program in started:
        program.process.kill()
        program.process.wait()


def test_spark_writes_no_output(start: Callable[..., Program]) -> None:
    program = start("local[2]", "short")
    code, out, err = program.end(240)
    assert (code, err) == (0, "")
    assert sorted(json.loads(line)["index"] for line in out.splitlines()) == [0, 1, 2, 3]
    assert list(program.temporary.iterdir()) == []


def test_ctrl_c_ends_a_run(start: Callable[..., Program]) -> None:
    program = start("local[2]", "long")
    program.wait_for_a_result()
    program.process.send_signal(signal.SIGINT)
    assert program.end(60) == (130, "", "")
    assert program.left_over(10) == []
    assert list(program.temporary.iterdir()) == []


def test_ctrl_c_ends_the_start_of_spark(start: Callable[..., Program]) -> None:
    program = start("local[2]", "long")
    deadline = time.monotonic() + 120
    process = psutil.Process(program.process.pid)
    while not (below := process.children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    program.below = below
    time.sleep(0.3)
    program.process.send_signal(signal.SIGINT)
    assert program.end(60) == (130, "", "")
    assert program.left_over(20) == []


def test_kill_leaves_no_process_and_no_file(start: Callable[..., Program]) -> None:
    program = start("local[2]", "long")
    program.wait_for_a_result()
    program.process.kill()
    program.process.wait()
    assert program.left_over(30) == []
    assert list(program.temporary.iterdir()) == []


def test_killed_spark_process_is_one_line(tmp_path: Path) -> None:
    script = """
import os, signal, sys, threading, time
from streamvault.common.errors import Problem
from streamvault.runner.opening import open_runner
import psutil

if __name__ == "__main__":
    try:
        with open_runner("local[1]") as runner:
            java = [p for p in psutil.Process().children(recursive=True) if "java" in p.name()]
            for index, _ in runner.run(time.sleep, [0.0, 600.0]):
                for process in java:
                    process.kill()
    except Problem as problem:
        print(type(problem).__name__, problem)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SparkFailed Spark's process ended during the run")
    assert done.stdout.count("\n") == 1


LARGE_RUN = """
import json, os
from typing import NamedTuple
from streamvault.runner import opening
from streamvault.runner.opening import open_runner

opening.allowed_cores = lambda: 4.0

class Spec(NamedTuple):
    number: int
    size: int

def work(spec):
    return os.getpid()

if __name__ == "__main__":
    with open_runner("auto") as runner:
        runs = [[pid for _, pid in runner.run(work, [Spec(0, size)] * 2)] for size in (1, opening.SPARK_BYTES, 1)]
    print(json.dumps({"own": os.getpid(), "runs": runs}))
"""


def test_large_run_starts_spark(tmp_path: Path) -> None:
    """A small run before it stays in this process, one after it does not."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE_RUN],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path), "STREAMVAULT_MASTER": ""},
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert [report["own"] in pids for pids in report["runs"]] == [True, False, False]
    assert list(tmp_path.iterdir()) == []
    every = psutil.process_iter(["environ"])
    left = [one for one in every if (one.info["environ"] or {}).get("TMPDIR") == str(tmp_path)]
    assert psutil.wait_procs(left, timeout=10)[1] == []


# On a cluster. The code that runs there must not need this module, so it is part of a separate program.
ON_CLUSTER = """
import json, os, sys, time
from streamvault.runner.opening import open_runner

def where(number):
    import streamvault.manifests.manifest
    import streamvault.streamstore.pravega.controller_pb2
    time.sleep(0.5)
    return [sys.executable, streamvault.manifests.manifest.__file__, os.getppid()]

def damaged(number):
    from streamvault.objectstore.store import NoSuchObject
    raise NoSuchObject("no such object", where="events/x")

def kill_its_executor_once(folder):
    import psutil
    with open(os.path.join(folder, str(time.time_ns())), "w"):
        pass
    if len(os.listdir(folder)) == 1:
        executor = next(p for p in psutil.Process().parents() if "java" in p.name())
        executor.kill()
        time.sleep(60)
    return len(os.listdir(folder))

if __name__ == "__main__":
    from streamvault.common.errors import Problem
    with open_runner(sys.argv[1]) as runner:
        places = [place for _, place in runner.run(where, range(8))]
        try:
            list(runner.run(damaged, range(8)))
        except Problem as problem:
            said = [type(problem).__name__, str(problem)]
        retried = list(runner.run(kill_its_executor_once, [sys.argv[2]]))
    print(json.dumps({"places": places, "said": said, "retried": retried, "start": runner.start_seconds}))
"""


@pytest.mark.long
def test_workers_without_the_code_get_it_shipped(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    script, folder = tmp_path / "program.py", tmp_path / "attempts"
    script.write_text(ON_CLUSTER)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, script, spark_cluster.master_url, str(folder)],
        env=os.environ | spark_cluster.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    slow_start = f"waiting for an executor from {spark_cluster.master_url}\n"
    assert (done.returncode, done.stderr.replace(slow_start, "", 1)) == (0, "")
    answer = json.loads(done.stdout)
    pythons, files, daemons = (set(values) for values in zip(*answer["places"], strict=True))
    assert pythons == {str(spark_cluster.python)}
    assert all("streamvault-code-" in file for file in files)
    assert len(daemons) == 2  # one for each executor
    assert answer["said"] == ["NoSuchObject", "no such object: events/x"]
    assert answer["retried"] == [[0, 2]]
    assert answer["start"] > 0


def test_silent_master_is_one_line(silent_master: tuple[str, subprocess.Popen[str]]) -> None:
    """Spark gives up after a minute."""
    master, program = silent_master
    out, err = program.communicate(timeout=200)
    assert (program.returncode, err) == (0, "")
    # Which of the two depends on which is first: Spark's process exits, or we notice that it did not register.
    assert out.startswith(("SparkFailed the Spark master did not accept", "SparkFailed Spark did not start"))
    assert master in out
    assert out.count("\n") == 1
