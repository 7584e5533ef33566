"""Calls that run side by side take turns, and end together."""

from __future__ import annotations

import threading

import pytest

from streamvault.common.waiting import JointRun, pause


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
