"""Calls that run side by side take turns, and end together.

Pauses: how long each is, when they end, and what a caller may replace.
"""

from __future__ import annotations

import math
import threading
from itertools import islice

import pytest

from streamvault.common.progress import Progress
from streamvault.common.waiting import JointRun, Retrier, pause, pauses
from streamvault.streamstore.errors import StreamStoreUnavailable
from streamvault.streamstore.pravega.calls import LONGEST_PAUSE, Patience
from testkit.clock import Clock


def test_a_call_that_pauses_leaves_its_turn_to_another() -> None:
    joint, done = JointRun(1), threading.Event()

    def other() -> None:
        with joint.turn():
            done.set()

    with joint.turn():
        thread = threading.Thread(target=other)
        thread.start()
        assert not done.wait(0.05)
        while not done.is_set():
            pause(0.01)
    thread.join()


def test_each_call_ends_at_its_next_pause() -> None:
    joint, ended = JointRun(1), []

    def call(number: int) -> None:
        try:
            with joint.turn():
                resting.release()
                pause(3600)
        except KeyboardInterrupt:
            ended.append(number)

    resting = threading.Semaphore(0)
    threads = [threading.Thread(target=call, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        resting.acquire()
    joint.stop()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [0, 1, 2]


def test_a_call_that_waits_for_its_turn_ends_too() -> None:
    joint = JointRun(1)
    with joint.turn():
        joint.stop()
        with pytest.raises(KeyboardInterrupt), joint.turn():
            pytest.fail("it was its turn")
        with pytest.raises(KeyboardInterrupt):
            joint.check()


def test_a_pause_elsewhere_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("streamvault.common.waiting.time.sleep", slept.append)
    pause(5)
    assert slept == [5]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("streamvault.common.waiting.time", made)
    return made


def test_pauses_double_up_to_the_longest_and_end_with_the_time(clock: Clock) -> None:
    assert list(pauses(20, first=1, longest=5)) == [0, 1, 3, 7, 12, 17, 20]
    assert clock.slept == [1, 2, 4, 5, 5, 3]


def test_pauses_are_alike_if_no_longest_is_given(clock: Clock) -> None:
    assert list(pauses(1, first=0.25, at_once=False)) == [0.25, 0.5, 0.75, 1.0]
    assert clock.slept == [0.25] * 4


@pytest.mark.parametrize("at_once", [True, False])
def test_no_time_means_no_pause(clock: Clock, at_once: bool) -> None:
    assert list(pauses(0, first=1, at_once=at_once)) == [0.0] * at_once
    assert not clock.slept


def test_time_between_the_pauses_counts_from_the_first_look(clock: Clock) -> None:
    looks = pauses(10, first=1)
    clock.now += 100
    assert next(looks) == 0
    clock.now += 8
    assert list(looks) == [9, 10]
    assert clock.slept == [1, 1]


def test_jitter_shortens_pauses_by_half_at_most(clock: Clock) -> None:
    list(islice(pauses(math.inf, first=1, longest=4, jitter=True), 200))
    assert all(longest / 2 <= slept <= longest for slept, longest in zip(clock.slept, [1, 2] + [4] * 197, strict=True))
    assert len(set(clock.slept)) > 100


def test_another_sleep_may_end_early(clock: Clock) -> None:
    asked: list[float] = []
    assert list(islice(pauses(10, first=1, longest=8, sleep=asked.append), 4)) == [0, 0, 0, 0]
    assert asked == [1, 2, 4]
    assert not clock.slept


def exhaust(patience: Patience) -> None:
    for _ in range(100):
        patience.pause("lost", "host:1")


def test_patience_ends_only_without_progress(clock: Clock) -> None:
    patience = Patience(5.0)
    for _ in range(100):
        patience.pause("lost", "host:1")
        patience.progress()
    assert max(clock.slept) < LONGEST_PAUSE
    clock.now += 50  # what was done since the progress; the count begins with the failure
    began = clock.now
    with pytest.raises(StreamStoreUnavailable, match="lost: host:1"):
        exhaust(patience)
    assert clock.now == pytest.approx(began + 5.0)


def test_retries_count_anew_after_progress(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.common.waiting.pause", clock.sleep)
    retrier = Retrier(20, Progress())
    tries = iter(range(4))

    def move() -> int:
        number = next(tries)
        clock.now += 15
        if number < 3:
            retrier.watched.advance(1, 1)
            raise StreamStoreUnavailable("away")
        return number

    assert retrier(move) == 3
    assert retrier.retries == 3
