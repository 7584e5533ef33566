"""What the tests of several packages' verbs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName
from testkit.scenes import BACK, Keyed, Place, Scopes, Streams
from testkit.small_archives import Vault
from tests.memory_groups import MemoryGroups
from tests.told import Printed, Ran, Restored


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> MemoryGroups:
    """The reader groups of embedded stores."""
    groups = MemoryGroups()
    monkeypatch.setattr(LocalStore, "reader_groups", lambda _: groups)
    return groups


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    """A source, and its target's name."""
    streams = Streams(tmp_path / "streams")
    streams.remake(events=120)
    return streams


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path / "streams")


@pytest.fixture
def scopes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Scopes:
    scopes = Scopes(tmp_path, capfd)
    scopes.make()
    return scopes


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead process is noticed at once."""
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr("streamvault.replication.promote.WAIT_SECONDS", 0.1)


@pytest.fixture
def ran(capfd: pytest.CaptureFixture[str]) -> Ran:
    def run(*words: str, code: int = 0) -> Printed:
        capfd.readouterr()
        assert main(list(words)) == code
        return Printed(*capfd.readouterr())

    return run


@pytest.fixture
def restored(ran: Ran) -> Restored:
    def run(vault: Vault, *options: str, to: StreamName = BACK, code: int = 0) -> Printed:
        line = ("import", vault.archive, vault.uri(to), "--master", "inline[2]", "--json")
        return ran(*line, *options, code=code)

    return run
