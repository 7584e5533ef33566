"""The metrics of a running command, as Prometheus gets them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from streamvault import export_stream
from streamvault.cli import main
from streamvault.cli.measuring import METRICS, MeasuredProgress, RunFigures, answering
from streamvault.cli.options import parse_place
from streamvault.common.errors import Failed
from streamvault.common.progress import Progress, RunningTasks, task_progress
from testkit.small_archives import Vault, a_root

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
