"""Options of the integration tests, and the two clusters of those that copy between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from streamvault.streamstore.model import StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from tests.conftest import absent
from tests.servers.availability import Unavailable
from tests.servers.java_client import JavaClient
from tests.servers.pravega import PravegaServer
from tests.servers.pravega_security import ADMIN


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--dropped-objects",
        type=int,
        default=2_100,
        metavar="N",
        help="let a generation of N objects expire (give tests/integration as an argument too; 2,100 by default)",
    )


@pytest.fixture(scope="session")
def java_client(tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    try:
        return JavaClient.compile(tmp_path_factory.mktemp("java"))
    except Unavailable as error:
        absent("jdk", str(error))


@pytest.fixture
def login(pravega_secure: PravegaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's cluster asks for a login, the source's does not."""
    assert pravega_secure.certificates is not None
    monkeypatch.setenv("PRAVEGA_TARGET_CA_FILE", str(pravega_secure.certificates.authority))
    monkeypatch.setenv("PRAVEGA_TARGET_USERNAME", ADMIN.user)
    monkeypatch.setenv("PRAVEGA_TARGET_PASSWORD", ADMIN.password)


@dataclass(frozen=True)
class Site:
    """A cluster."""

    server: PravegaServer
    store: StreamStore

    def uri(self, name: StreamName) -> str:
        """Return a stream's URI."""
        return f"{self.server.uri}/{name}"


@pytest.fixture
def here(pravega: PravegaServer) -> Iterator[Site]:
    """The cluster of sources."""
    with parse_stream(f"{pravega.uri}/a/b")[0].open() as store:
        yield Site(pravega, store)


@pytest.fixture
def there(pravega_secure: PravegaServer, login: None) -> Iterator[Site]:
    """The cluster of targets, with TLS and a login."""
    with parse_stream(f"{pravega_secure.uri}/a/b", target=True)[0].open() as store:
        yield Site(pravega_secure, store)
