"""Which form progress has on standard error, and the metrics of a running command, as Prometheus gets them."""

from __future__ import annotations

import io
import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from rich.console import Console

from streamvault import export_stream
from streamvault.cli import main
from streamvault.cli.measuring import METRICS, MeasuredProgress, RunFigures, answering
from streamvault.cli.options import parse_place
from streamvault.cli.output import print_stderr
from streamvault.cli.progress import (
    LINE_SECONDS,
    RATE_SECONDS,
    SETTLED_SECONDS,
    LineProgress,
    Phase,
    RecentRate,
    watching,
)
from streamvault.cli.progress_bars import BarProgress, _rate_text
from streamvault.common.errors import Failed
from streamvault.common.progress import Progress, RunningTasks, task_progress
from testkit.small_archives import Vault, a_root


def test_quiet_leaves_out_notes_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=True) as progress:
        progress.note("generation 3")
        progress.warn("a gap")
    assert capsys.readouterr().err == ""


def test_lots_reported_in_a_row_are_no_burst() -> None:
    now = 100.0
    rate = RecentRate(lambda: now)
    assert rate.per_second() == 0
    now += 20
    rate.add(1000)
    rate.add(1000)
    assert rate.per_second() == 100


def test_a_rate_is_that_of_the_last_seconds() -> None:
    now = 100.0
    rate = RecentRate(lambda: now)
    now += 10
    rate.add(1_000_000)
    now += RATE_SECONDS + 10
    rate.add(400)
    assert rate.per_second() == 10, "the lot counts from the report before it"
    now += RATE_SECONDS + 1
    assert rate.per_second() == 0, "a server that hangs is not as fast as it was"


def test_the_time_left_is_shown_once_bytes_have_come_for_a_while() -> None:
    now = 100.0
    phase = Phase("exporting", 10_000, clock=lambda: now)
    now += 60
    phase.advance(0, 600)
    assert phase.speed(600) == "10 B/s", "most of it was starting"
    now += SETTLED_SECONDS
    phase.advance(0, 700)
    assert phase.speed(1300) == "20 B/s, 7 min 15 s left"
    now += SETTLED_SECONDS
    phase.advance(0, 0)
    assert phase.speed(1300).endswith(" left"), "it does not go away again"


def test_each_stream_has_a_bar_while_its_phase_lasts() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=120, markup=False, highlight=False)
    progress = BarProgress(console)
    orders, carts = progress.part("orders"), progress.part("carts")
    orders.begin("exporting", 100)
    carts.begin("exporting", 200, 50)
    orders.advance(3, 60)
    bars = progress._bars
    assert bars is not None
    assert [(task.description, task.completed, task.total) for task in bars.tasks] == [
        ("orders: exporting", 60, 100),
        ("carts: exporting", 50, 200),
    ]
    orders.begin("verifying", 10)
    carts.end()
    carts.advance(1, 1)
    assert [task.description for task in bars.tasks] == ["orders: verifying"]
    orders.note("generation 1")
    carts.warn("a gap")
    carts.warn("a gap")
    progress.end()
    text = written.getvalue()
    assert "orders: generation 1" in text
    assert text.count("warning: carts: a gap") == 1


def test_a_bar_shows_rate_and_time_left_and_at_the_end_what_its_phase_took() -> None:
    progress = BarProgress(Console(file=io.StringIO(), force_terminal=True, width=120, markup=False, highlight=False))
    progress.begin("exporting", 2 * 1024**3, 1024**3)
    assert progress._bars is not None
    task = progress._bars.tasks[0]
    assert _rate_text(task) == "", "what an earlier run did is no rate"
    progress.advance(1, 1024**2)
    assert re.fullmatch(r"[\d.,]+ [KMGT]?i?B/s", _rate_text(task)), "so early, nothing is known of the rest"
    progress._phase.rate._first = 0.0
    assert re.fullmatch(r"[\d.,]+ [KMGT]?i?B/s, [\d.]+ (s|min|h).* left", _rate_text(task))
    progress.advance(1, 1023 * 1024**2)
    assert re.fullmatch(r"[\d.]+ s", _rate_text(task))
    progress.end()


@pytest.mark.parametrize("width", [80, 119, 120, 160])
@pytest.mark.parametrize("name", ["", "a-stream-with-a-long-name"])
def test_a_bar_stays_on_one_line(monkeypatch: pytest.MonkeyPatch, width: int, name: str) -> None:
    monkeypatch.setattr("streamvault.cli.progress._speed_text", lambda *_: "1,007 MiB/s, 16 min 25 s left")
    console = Console(file=io.StringIO(), force_terminal=True, width=width, markup=False, highlight=False)
    progress = BarProgress(console)
    part = progress.part(name) if name else progress
    part.begin("exporting", 999 * 1024**3)
    part.advance(100_000, 10 * 1024**3)
    assert progress._bars is not None
    [line] = console.render_lines(progress._bars.get_renderable())
    assert "16 min 25 s left" in "".join(segment.text for segment in line)
    progress.end()


def test_a_bar_shows_what_running_tasks_have_acknowledged() -> None:
    progress = BarProgress(Console(file=io.StringIO(), force_terminal=True, width=120, markup=False, highlight=False))
    progress.begin("exporting", 100, 10)
    part = progress.part("orders")
    part.begin("importing", 50)
    tasks, others = RunningTasks(), RunningTasks()
    with progress.watch(tasks), tasks.task(0), part.watch(others):
        task_progress().acknowledge(20)
        with others.task(0):
            task_progress().acknowledge(7)
        progress.tick()
        assert progress._bars is not None
        assert [task.completed for task in progress._bars.tasks] == [30, 7]
        tasks.taken(0)
        progress.advance(1, 25)
    assert [task.completed for task in progress._bars.tasks] == [35, 7]
    progress.end()


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


PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"


def values(figures: RunFigures) -> dict[str, float]:
    lines = [line for line in figures.metrics("follow").splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        match = re.fullmatch(r'streamvault_run_(\w+)\{verb="follow"(?:,server="(\w+)")?\} (\S+)', line)
        assert match is not None, line
        found[match[1] + (f" {match[2]}" if match[2] else "")] = float(match[3])
    return found


def test_bytes_are_counted_as_they_are_acknowledged_and_never_taken_back() -> None:
    measured = MeasuredProgress(Progress(), figures := RunFigures())
    assert values(figures)["bytes_total"] == 0
    measured.begin("exporting", 100, 10)
    tasks = RunningTasks()
    with measured.watch(tasks), tasks.task(0):
        task_progress().acknowledge(20)
        found = values(figures)
        assert (found["bytes_total"], found["phase_bytes"], found["phase_bytes_done"]) == (20, 100, 30)
        with tasks.task(0):  # it begins again
            assert values(figures)["bytes_total"] == 20
        tasks.taken(0)
        measured.advance(3, 50)
    part = measured.part("orders")
    part.begin("importing", 7)
    part.advance(1, 7)
    part.warn("a gap")
    found = values(figures)
    assert (found["bytes_total"], found["events_total"], found["warnings_total"]) == (57, 4, 1)
    assert (found["phase_bytes"], found["phase_bytes_done"]) == (107, 67)
    assert found["moved_timestamp_seconds"] >= found["started_timestamp_seconds"]
    assert found["silent_seconds S3"] == found["silent_seconds Pravega"] == 0
    part.end()
    measured.end()
    assert values(figures)["phase_bytes"] == 0


def test_prometheus_is_answered_while_the_command_runs(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=30, largest=1_000)
    measured = MeasuredProgress(Progress(), figures := RunFigures())
    with answering(("127.0.0.1", 0), lambda: figures.metrics("export")) as port:
        size = export_stream(vault.uri(), a_root(), master="inline[2]", progress=measured).bytes
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            text = answer.read().decode()
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=60)
        with pytest.raises(HTTPError, match="404"):  # of servers only
            urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=60)
        with pytest.raises(Failed, match="cannot listen there"), answering(("127.0.0.1", port), str):
            pass
    # it was exported, and then verified
    assert f'streamvault_run_bytes_total{{verb="export"}} {2 * size}\n' in text
    assert set(re.findall(r"^# TYPE streamvault_run_(\w+) (?:gauge|counter)$", text, re.MULTILINE)) == METRICS.keys()


def test_a_place_is_a_port_and_perhaps_a_host() -> None:
    assert parse_place("9464") == ("127.0.0.1", 9464)
    assert parse_place("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert parse_place("[::1]:0") == ("::1", 0)
    for wrong in ("", "a", "1:b", "65536"):
        with pytest.raises(ValueError, match="is not PORT or HOST:PORT"):
            parse_place(wrong)


def test_a_command_listens_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Vault(tmp_path)
    vault.make(events=30, largest=1_000)
    seen: list[str] = []

    @contextmanager
    def listening(place: tuple[str, int], metrics: Callable[[], str], *given: Any) -> Iterator[int]:
        with answering(place, metrics, *given) as port:
            yield port
            seen.append(metrics())

    monkeypatch.setattr("streamvault.cli.measuring.answering", listening)
    assert main(["rotate", vault.uri(), a_root(), "--master", "inline", "--metrics-port", "0", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)
    assert 'streamvault_run_bytes_total{verb="rotate"}' in seen[0]
    assert main(["rotate", vault.uri(), a_root(), "--metrics-port", "none"]) == 2
    assert "'none' is not PORT or HOST:PORT" in capfd.readouterr().err


def test_page_names_the_metrics_of_commands() -> None:
    assert set(re.findall(r"\bstreamvault_run_(\w+)", PAGE.read_text())) == METRICS.keys()
