"""Which runs go to Spark; Spark itself is replaced."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from streamvault.common.errors import Problem
from streamvault.common.progress import Progress
from streamvault.runner import opening, spark
from streamvault.runner.inline import InlineRunner
from streamvault.runner.opening import MAX_THREADS, SPARK_BYTES, AutoRunner, allowed_cores, open_runner
from streamvault.runner.runner import VARIABLE, InvalidMaster, Master, NoJava


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
