"""The fixtures of the tests of copies, replicas, promotions and moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.replication.streams import Streams


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    streams = Streams(tmp_path / "streams")
    streams.remake(events=120)
    return streams


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead process is noticed at once."""
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr("streamvault.replication.promote.WAIT_SECONDS", 0.1)
