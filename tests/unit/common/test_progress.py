"""What tasks say of themselves while they run, and which servers are said not to answer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from streamvault.common import progress
from streamvault.common.progress import (
    PRAVEGA,
    S3,
    MappedTasks,
    RunningTasks,
    Server,
    mapped_task,
    silences,
    silent_seconds,
    task_progress,
)
from testkit.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_task_counts_until_its_result_is_taken() -> None:
    run = RunningTasks()
    with run.task(3):
        task_progress().read(10)
        task_progress().acknowledge(4)
        assert (run.acknowledged, run.read) == (4, 6)
    task_progress().acknowledge(100)  # of no task
    assert run.acknowledged == 4
    run.taken(3)
    assert (run.acknowledged, run.read) == (0, 0)


def test_what_a_task_only_reads_counts_as_acknowledged() -> None:
    run = RunningTasks()
    with run.task(0):
        task_progress().only_reads()
        task_progress().read(10)
    assert (run.acknowledged, run.read) == (10, 0)


def test_tasks_in_other_processes_write_to_a_file() -> None:
    run = MappedTasks(3)
    for index in (0, 2):
        with mapped_task(run.place, index):
            task_progress().acknowledge(5 + index)
    assert run.acknowledged == 12
    with mapped_task(run.place, 2):  # a second attempt
        task_progress().acknowledge(1)
    assert run.acknowledged == 6
    run.taken(0)
    with mapped_task(run.place, 0):  # one that is late
        task_progress().acknowledge(50)
    assert run.acknowledged == 1
    run.close()
    with mapped_task(run.place, 1):  # without the file, nothing is told
        task_progress().acknowledge(1)
    assert run.acknowledged == 1


def test_a_late_task_does_not_write_to_another_file(tmp_path: Path) -> None:
    run = MappedTasks(1)
    path, name = run.place
    run.close()
    other = tmp_path / "other"
    other.write_bytes(bytes(4096))
    with other.open("r+b") as file:
        assert path == f"/proc/{os.getpid()}/fd/{file.fileno()}", "the number is used again"
        with mapped_task((path, name), 0):
            task_progress().acknowledge(1)
    assert other.read_bytes() == bytes(4096)


def test_a_server_is_silent_while_it_answers_none_of_the_requests(clock: Clock) -> None:
    assert silences() == []
    with S3:
        clock.now += 4
        assert silences() == []
        clock.now += 8
        assert silences() == ["waiting for S3 for 12 s"]
        S3.failed()
        assert silences() == ["S3 has not answered for 12 s, retrying"]
        with S3:  # another request
            clock.now += 60
            assert silences() == ["S3 has not answered for 1 min 12 s, retrying"]
        assert silences() == [], "it has answered that one"
        clock.now += 5
        PRAVEGA.__enter__()
        clock.now += 5
        assert silences() == ["waiting for S3 for 10 s", "waiting for Pravega for 5 s"]
        PRAVEGA.answered()
        PRAVEGA.__exit__(None, None, None)
    assert silences() == []


def test_a_request_that_fails_is_no_answer(clock: Clock) -> None:
    with S3:
        clock.now += 10
        with pytest.raises(ValueError, match="lost"), S3:
            raise ValueError("lost")
        assert silences() == ["waiting for S3 for 10 s"]


def test_the_silence_that_a_task_in_another_process_meets_is_seen(clock: Clock) -> None:
    run = MappedTasks(2)
    with mapped_task(run.place, 1), S3:
        S3.failed()
        clock.now += 7
        told = silences([run])
        clock.now -= 7
    assert told == ["S3 has not answered for 7 s, retrying"]
    assert silences([run]) == []
    run.close()


def test_threads_share_a_server() -> None:
    server = Server("S3", S3.place)

    def ask() -> None:
        for _ in range(1000):
            with server:
                pass

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert silent_seconds(server) == 0
