"""Logins that lack a right are refused in one line, change nothing, and can go on with the right."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from streamvault.cli import main
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.pravega import PravegaSettings, PravegaStore
from streamvault.streamstore.store import StreamStore
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN, Account
from testkit.streams import digest_of, make_stream
from tests.integration.conftest import Site

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(300)]

SCOPE = "rights"
READER = Account("reader", "test-reader-password", "prn::*,READ")
WRITER = Account("writer", "test-writer-password", f"prn::/scope:{SCOPE}/stream:*,READ_UPDATE")
"""May do anything with the scope's streams, and create none."""


@pytest.fixture(scope="module")
def guarded(pravega: PravegaServer) -> Iterator[PravegaServer]:
    """A cluster whose users have different rights."""
    del pravega  # started before this one, not at the same time
    with PravegaServer(heap="512m", cache_mib=64, accounts=(ADMIN, READER, WRITER)) as server:
        yield server


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Account, str], None]:
    """Log in as somebody: ``use(account, "PRAVEGA_TARGET_")``."""

    def log_in(account: Account, prefix: str = "PRAVEGA_") -> None:
        monkeypatch.setenv(f"{prefix}USERNAME", account.user)
        monkeypatch.setenv(f"{prefix}PASSWORD", account.password)

    return log_in


@pytest.fixture
def store(guarded: PravegaServer) -> Iterator[StreamStore]:
    """The cluster as its administrator sees it."""
    login = {"PRAVEGA_USERNAME": ADMIN.user, "PRAVEGA_PASSWORD": ADMIN.password}
    with PravegaStore(PravegaSettings.from_environment(guarded.uri, login)) as opened:
        yield opened


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that is refused; return its one line."""
    capfd.readouterr()
    assert main([*arguments, "--master", "inline"]) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("verb", [pytest.param("copy", marks=pytest.mark.long), "replicate", "move"])
def test_target_that_may_not_be_written(
    guarded: PravegaServer,
    here: Site,
    store: StreamStore,
    use: Callable[..., None],
    unique_name: str,
    verb: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = StreamName(SCOPE, unique_name)
    make_stream(here.store, name, events=50, largest=2000)
    use(READER, "PRAVEGA_TARGET_")
    uris = (here.uri(name), f"{guarded.uri}/{name}")
    line = refused(capfd, verb, *uris)
    assert READER.user in line, line
    assert guarded.uri in line, line
    assert SCOPE not in store.list_scopes() or name not in list(store.list_streams(SCOPE, own=True))
    assert not here.store.describe(name).sealed
    use(ADMIN, "PRAVEGA_TARGET_")
    assert main([verb, *uris, "--master", "inline"]) == 0
    assert store.exists(name)


def test_source_that_may_not_be_sealed(
    guarded: PravegaServer,
    here: Site,
    store: StreamStore,
    use: Callable[..., None],
    unique_name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Pravega has one right for all that changes a stream, so this login cannot plan a move or a cut-over either."""
    name = StreamName(SCOPE, unique_name)
    make_stream(store, name, events=50, largest=2000)
    uris = (f"{guarded.uri}/{name}", here.uri(name))
    use(ADMIN)
    assert main(["replicate", *uris, "--master", "inline"]) == 0
    use(READER)
    for arguments in (("promote", uris[1], "--seal-source"), ("move", *uris)):
        line = refused(capfd, *arguments)
        assert READER.user in line, line
        assert guarded.uri in line, line
    assert not store.describe(name).sealed
    use(ADMIN)
    assert main(["promote", uris[1], "--seal-source", "--master", "inline"]) == 0
    assert store.describe(name).sealed
    assert digest_of(store, name) == digest_of(here.store, name)


def test_tombstone_that_may_not_be_created(
    guarded: PravegaServer,
    here: Site,
    store: StreamStore,
    use: Callable[..., None],
    unique_name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A login that may seal and delete the stream, and create none: only the last step is missing, and made up for."""
    name = StreamName(SCOPE, unique_name)
    make_stream(store, name, events=50, largest=2000)
    before = digest_of(store, name)
    uris = (f"{guarded.uri}/{name}", here.uri(name))
    use(WRITER)
    for _ in range(2):
        line = refused(capfd, "move", *uris)
        assert WRITER.user in line, line
        assert guarded.uri in line, line
        assert digest_of(here.store, name) == before
    use(ADMIN)
    assert main(["move", *uris, "--master", "inline"]) == 0
    assert store.describe(name).sealed
    assert not any(store.describe(name).tail.offsets.values())
    assert list(here.store.list_streams(SCOPE, own=True)).count(name) == 1
