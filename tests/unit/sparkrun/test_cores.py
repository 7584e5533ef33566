"""How many cores a process may use, and how many idle."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamvault.sparkrun import cores
from streamvault.sparkrun.cores import IdleCores, allowed_cores


@pytest.mark.parametrize(
    ("quota", "allowed"), [("max 100000\n", 4.0), ("250000 100000\n", 2.5), ("800000 100000\n", 4.0), ("", 4.0)]
)
def test_cores_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, allowed: float) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    assert allowed_cores() == allowed


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine with four cores; a test sets its clock, its ticks, and the process's use (seconds)."""
    machine = SimpleNamespace(clock=0.0, own=0.0, stat=tmp_path / "stat")
    machine.stat.write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
    monkeypatch.setattr(cores, "_STAT", machine.stat)
    monkeypatch.setattr(cores, "allowed_cores", lambda: 4.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "times", lambda: SimpleNamespace(user=machine.own, system=0.0))
    monkeypatch.setattr(time, "monotonic", lambda: machine.clock)
    return machine


@pytest.mark.parametrize(
    ("stat", "own", "idle"),
    [
        ("cpu  300 100 100 1200 300 0 0 0 0 0\n", 5.0, 3.0),  # others use half a core
        ("cpu  1800 0 200 0 0 0 0 0 0 0\n", 5.0, 0.0),  # servers use what this process leaves
        ("cpu  0 0 0 2000 0 0 0 0 0 0\n", 25.0, 1.5),  # the ticks are of a machine outside
        ("", 10.0, 3.0),
    ],
)
def test_idle_cores(machine: SimpleNamespace, stat: str, own: float, idle: float) -> None:
    measured = IdleCores()
    machine.clock, machine.own = 10.0, own
    machine.stat.write_text(stat)
    assert measured.count() == pytest.approx(idle)


def test_this_machine() -> None:
    measured = IdleCores()
    assert 0 <= measured.count() <= (os.cpu_count() or 1)
