"""Lines that say how far a phase is."""

from __future__ import annotations

import re
import sys

import pytest

from streamvault.cli.output import print_stderr
from streamvault.cli.progress import LINE_SECONDS, LineProgress
from streamvault.common.progress import RunningTasks, task_progress


def test_without_a_terminal_a_log_line_says_from_time_to_time_how_far_a_phase_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 100.0
    progress = LineProgress(lambda: now, logs=True)
    caplog.set_level("INFO", "streamvault")
    progress.begin("exporting", 4 * 1024**2, 1024**2)
    progress.advance(1, 512 * 1024)
    now += LINE_SECONDS
    progress.advance(1, 512 * 1024)
    progress.advance(1, 512 * 1024)
    assert caplog.messages == [
        "exporting: 4.0 MiB, 1.0 MiB done before",
        "exporting: 2.0 MiB of 4.0 MiB, 102 KiB/s, 20.0 s left",
    ]


def test_a_line_says_how_far_running_tasks_are_and_what_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    progress = LineProgress(lambda: now)
    progress.begin("exporting", 4 * 1024**2)
    tasks = RunningTasks()
    with progress.watch(tasks), tasks.task(0):
        task_progress().read(2 * 1024**2)
        progress.tick()
        assert capsys.readouterr().err == "", "it is not time yet"
        now += LINE_SECONDS
        progress.tick()
        assert told(capsys) == ["exporting: 0 B of 4.0 MiB, 2.0 MiB more read"]
        now += LINE_SECONDS
        progress.tick()
        assert told(capsys) == [], "nothing has changed"
        task_progress().acknowledge(1024**2)
        progress.tick()
        assert told(capsys) == ["exporting: 1.0 MiB of 4.0 MiB, 51.2 KiB/s"]
    tasks.taken(0)
    progress.advance(3, 2 * 1024**2)
    now += LINE_SECONDS
    progress.tick()
    assert told(capsys) == ["exporting: 2.0 MiB of 4.0 MiB, 68.3 KiB/s, 30.0 s left"]
    progress.end()
    now += LINE_SECONDS
    progress.tick()
    assert told(capsys) == []


def test_a_line_says_which_server_does_not_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    progress = LineProgress(lambda: now, every=5)
    monkeypatch.setattr("streamvault.cli.progress.silences", lambda _: ["waiting for S3 for 12 s"])
    progress.tick()
    assert told(capsys) == []
    now += 5
    progress.tick()
    assert told(capsys) == ["waiting for S3 for 12 s"]
    progress.begin("exporting", 4)
    now += 5
    progress.tick()
    assert told(capsys) == ["exporting: 0 B of 4 B; waiting for S3 for 12 s"]


def test_never_means_never(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    progress = LineProgress(lambda: now, every=0)
    progress.begin("exporting", 100)
    now += 1000
    progress.advance(1, 10)
    assert capsys.readouterr().err == ""


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines, without their times."""
    lines = capsys.readouterr().err.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)
    return [line[9:] for line in lines]


def test_each_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of a scope warn from threads of their own."""
    written: list[str] = []
    monkeypatch.setattr(sys.stderr, "write", written.append)
    progress = LineProgress(every=0)
    progress.part("orders").warn("a gap")
    progress.part("clicks").note("done")
    print_stderr("text", time="12:00:00")
    assert written == ["warning: orders: a gap\n", "clicks: done\n", "12:00:00 text\n"]
