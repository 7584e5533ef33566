"""Tasks that start in this process before Spark is ready; the test decides when Spark becomes ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import pytest

from streamvault.common.errors import Problem
from streamvault.common.progress import Progress
from streamvault.common.underway import RunningTasks
from streamvault.sparkrun import head_start, spark
from streamvault.sparkrun.cores import IdleCores
from streamvault.sparkrun.errors import InvalidMaster, NoJava, SparkFailed
from streamvault.sparkrun.head_start import MAX_THREADS, START_SECONDS, HeadStartRunner, Rate, pays
from streamvault.sparkrun.inline import InlineRunner
from streamvault.sparkrun.masters import VARIABLE, Master
from streamvault.sparkrun.opening import open_runner

WAIT_SECONDS = 30.0


def answer_after(turn: tuple[threading.Event, int]) -> tuple[int, str]:
    event, number = turn
    assert event.wait(WAIT_SECONDS)
    return number, threading.current_thread().name


class ComingSpark:
    """Replaces the runner on Spark.

    Attributes:
        come: set by the test: its start ends. error: with what, if with any.
        handed: the specifications that it was given. given_up, left, cancelled: what was asked of it.
    """

    def __init__(self) -> None:
        self.come = threading.Event()
        self.error: Problem | None = None
        self.started = threading.Event()
        self.handed: list[Any] = []
        self.given_up = self.left = self.cancelled = False
        self.fails_at: Any = None

    def __call__(self, master: Master, preload: Sequence[str]) -> ComingSpark:
        assert (master.url, preload) == ("local[*]", ("math",))
        return self

    def __enter__(self) -> Self:
        self.started.set()
        assert self.come.wait(WAIT_SECONDS)
        if self.given_up:
            raise SparkFailed("given up")
        if self.error is not None:
            raise self.error
        return self

    def __exit__(self, *_: object) -> None:
        self.left = True

    def give_up(self) -> None:
        self.given_up = True
        self.come.set()

    def job(self, function: Callable[[Any], Any], specs: Sequence[Any]) -> Job:
        self.handed += specs
        return Job(self, function, specs)

    def run(
        self, function: Callable[[Any], Any], specs: Sequence[Any], *, progress: Progress
    ) -> Iterator[tuple[int, Any]]:
        assert isinstance(progress, Progress)
        return self.job(function, specs).results()


class Job:
    """A job of `ComingSpark`, run in the thread that takes its results."""

    def __init__(self, where: ComingSpark, function: Callable[[Any], Any], specs: Sequence[Any]) -> None:
        self.where, self.function, self.specs = where, function, specs
        self.under_way = RunningTasks()

    def results(self) -> Iterator[tuple[int, Any]]:
        for index, spec in reversed(list(enumerate(self.specs))):
            if self.where.fails_at == spec:
                raise SparkFailed("Spark's process ended")
            yield index, self.function(spec)

    def cancel(self) -> None:
        self.where.cancelled = True


@pytest.fixture
def coming(monkeypatch: pytest.MonkeyPatch) -> ComingSpark:
    """Spark, of which runs say at once that a start pays."""
    coming = ComingSpark()
    monkeypatch.setattr(spark, "SparkRunner", coming)
    monkeypatch.setattr(head_start, "pays", lambda *_: True)
    return coming


def new_runner() -> HeadStartRunner:
    return HeadStartRunner(replace(Master.parse("local[*]"), threads=2, is_auto=True), ("math",))


def opened() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def turns_of(begun: threading.Event, count: int) -> list[tuple[threading.Event, int]]:
    """Return tasks of which the first two wait for an event, in the two threads of this process."""
    return [(begun if number < 2 else opened(), number) for number in range(count)]


def test_short_work_never_needs_spark(coming: ComingSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_start, "pays", pays)
    with new_runner() as runner:
        results = dict(runner.run(answer_after, [(opened(), number) for number in range(50)]))
    assert {index: number for index, (number, _) in results.items()} == {n: n for n in range(50)}
    assert not coming.started.is_set()
    assert runner.start_seconds == 0


@pytest.mark.parametrize(
    ("seconds", "left", "idle", "expected"),
    [
        (START_SECONDS, 3 * START_SECONDS + 1, 1.0, True),
        (START_SECONDS - 1, 1000.0, 1.9, False),  # the work may end before Spark is there
        (START_SECONDS, 3 * START_SECONDS - 1, 1.0, False),
        (3600.0, 3600.0, 0.9, False),  # two busy cores
        (2.0, 1000.0, 2.0, True),  # one process cannot use sixteen cores
        (1.9, 1000.0, 14.0, False),
        (3600.0, 0.0, 14.0, False),  # nothing has ended, so the rate is not known
    ],
)
def test_spark_joins_where_it_pays(seconds: float, left: float, idle: float, expected: bool) -> None:
    assert pays(seconds, left, lambda: idle) == expected


def test_what_is_left_is_measured_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    clock = iter([100.0, 110.0, 110.0])
    monkeypatch.setattr(head_start, "pays", lambda _seconds, left, _idle: asked.append(left))
    monkeypatch.setattr(head_start, "monotonic", lambda: next(clock))
    rate = Rate([5, 5, 70, 20])
    rate.asks_for_spark(2)
    rate.add(0)
    rate.asks_for_spark(2)
    assert asked == [0.0, 90 / 5 * 10]


def test_many_cores_that_idle_bring_spark_in(coming: ComingSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen cores, of which the threads of one process use two, and hours of work."""
    monkeypatch.setattr(head_start, "pays", pays)
    monkeypatch.setattr(head_start, "EARLY_SECONDS", 0.0)
    monkeypatch.setattr(IdleCores, "count", lambda _: 14.0)
    begun, first = threading.Event(), opened()
    turns = [(first, 0), (begun, 1), (begun, 2), *((opened(), number) for number in range(3, 20))]
    coming.come.set()
    results = 0
    with new_runner() as runner:
        for _ in runner.run(answer_after, turns, lambda turn: 1 if turn[1] == 0 else 1_000_000):
            results += 1
            if results == 18:
                begun.set()
    assert results == 20
    assert coming.handed == turns[3:]


def test_spark_does_tasks_that_have_not_begun(coming: ComingSpark) -> None:
    begun = threading.Event()
    turns = turns_of(begun, 20)
    with new_runner() as runner:
        threading.Thread(target=lambda: coming.started.wait(WAIT_SECONDS) and coming.come.set()).start()
        results = {}
        for index, (number, thread) in runner.run(answer_after, turns):
            results[index] = number
            assert thread.startswith("task") == (number < 2)
            if len(results) == 18:
                begun.set()  # tasks started here are awaited while Spark works
        assert results == {n: n for n in range(20)}
        assert coming.handed == turns[2:]
        # and all later ones
        assert sorted(index for index, _ in runner.run(answer_after, turns[:3])) == [0, 1, 2]
        assert coming.handed == turns[2:] + turns[:3]
    assert coming.left


def test_nested_runners_share_one_spark(coming: ComingSpark) -> None:
    """As for the requests of a queue, whose worker keeps a runner open for all of them."""
    begun = threading.Event()
    turns = turns_of(begun, 6)
    coming.come.set()
    with new_runner():
        with new_runner() as first:
            run = first.run(answer_after, turns)
            assert next(run)[0] >= 2
            begun.set()
            assert len(list(run)) == 5
        assert not coming.left
        with new_runner() as second:
            assert len(list(second.run(answer_after, turns[:1]))) == 1
        assert coming.handed == [*turns[2:], turns[0]]
        assert not coming.left
    assert coming.left


def test_threads_do_all_tasks_if_spark_cannot_start(coming: ComingSpark, caplog: pytest.LogCaptureFixture) -> None:
    coming.error = NoJava("no Java runtime", todo="Install one.")
    first = threading.Event()
    coming.come.set()
    with new_runner() as runner:
        run = runner.run(answer_after, [(first, 0), (first, 1), (first, 2)])
        threading.Thread(target=lambda: coming.started.wait(WAIT_SECONDS) and (time.sleep(0.3), first.set())).start()
        assert sorted(number for _, (number, _) in run) == [0, 1, 2]
    assert caplog.messages == ["no Java runtime. Install one.; continuing without Spark"]
    assert not coming.given_up


def test_start_of_spark_is_given_up_when_the_work_is_done(coming: ComingSpark) -> None:
    first = threading.Event()
    with new_runner() as runner:
        threading.Thread(target=lambda: coming.started.wait(WAIT_SECONDS) and first.set()).start()
        assert len(list(runner.run(answer_after, [(first, 0), (first, 1), (first, 2)]))) == 3
    assert coming.given_up
    assert not coming.left
    assert not coming.handed


def test_failure_of_spark_ends_the_run(coming: ComingSpark) -> None:
    begun = threading.Event()
    turns = turns_of(begun, 20)
    coming.fails_at = turns[10]
    coming.come.set()
    with new_runner() as runner:
        run = runner.run(answer_after, turns)
        assert next(run)[0] >= 2
        begun.set()
        with pytest.raises(SparkFailed, match="ended"):
            list(run)
    assert coming.cancelled
    assert coming.left


def test_run_left_early_cancels_the_job(coming: ComingSpark) -> None:
    begun = threading.Event()
    turns = turns_of(begun, 20)
    coming.come.set()
    with new_runner() as runner:
        run = runner.run(answer_after, turns)
        assert next(run)[0] >= 2
        begun.set()
        run.close()  # type: ignore[attr-defined]
        assert coming.cancelled


def test_a_given_master_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with open_runner("inline[2]") as runner:
        assert isinstance(runner, InlineRunner)
    with open_runner() as runner:
        assert isinstance(runner, HeadStartRunner)
    monkeypatch.setattr(spark, "SparkRunner", ComingSpark)
    monkeypatch.setattr(ComingSpark, "__init__", lambda self, *_: setattr(self, "start_seconds", 0))
    monkeypatch.setattr(ComingSpark, "__enter__", lambda self: self)
    with open_runner("local[2]") as runner:
        assert isinstance(runner, ComingSpark)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # under spark-submit there is a session already
    with open_runner("auto") as runner:
        assert isinstance(runner, ComingSpark)


def test_the_environment_says_what_auto_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "inline[3]")
    assert Master.parse("auto") == Master.parse("inline[3]")
    monkeypatch.setenv(VARIABLE, "nowhere")
    with pytest.raises(InvalidMaster, match="nowhere"):
        Master.parse("auto")


def test_threads_are_limited() -> None:
    assert Master.parse("local[64]").threads == 64
    assert HeadStartRunner(Master.parse("local[64]"), ())._threads == MAX_THREADS
