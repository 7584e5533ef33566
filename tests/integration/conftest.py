"""Options of the integration tests, and what they share: clusters, buckets, the Java client."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamvault.streamstore.model import StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.availability import Unavailable
from testkit.servers.java_client import JavaClient
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN
from testkit.servers.s3 import S3Server
from testkit.small_archives import Vault
from testkit.streams import make_stream
from tests.conftest import absent


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


@pytest.fixture(scope="session")
def without_uv(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which no uv is found: the first of our scripts installs one into a cache that they share."""
    tools = tmp_path_factory.mktemp("tools")
    folders = [Path(entry) for entry in os.environ["PATH"].split(os.pathsep)]
    for number, folder in enumerate(folders):
        if (folder / "uv").exists():
            folders[number] = tools / str(number)
            folders[number].mkdir()
            for tool in folder.iterdir():
                if tool.name not in {"uv", "uvx"}:
                    (folders[number] / tool.name).symlink_to(tool)
    path = os.pathsep.join(map(str, folders))
    assert shutil.which("uv", path=path) is None
    cache = tmp_path_factory.mktemp("cache")
    return {**os.environ, "PATH": path, "STREAMVAULT_CACHE": str(cache)}


@pytest.fixture
def stream(tmp_path: Path) -> str:
    """A small stream in an embedded store."""
    uri = f"local://{tmp_path}/streams/scope/stream"
    address, name = parse_stream(uri)
    with address.open() as store:
        make_stream(store, name, events=200, largest=2000)
    return uri


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


@pytest.fixture
def store(here: Site) -> StreamStore:
    """The plain cluster, open."""
    return here.store


@pytest.fixture
def server(minio: S3Server) -> S3Server:
    """Where the bucket is; a file may have its own."""
    return minio


@pytest.fixture
def bucket(server: S3Server, use_s3: Callable[[S3Server], None], bucket_name: str) -> str:
    """A bucket, to which the environment points."""
    use_s3(server)
    return server.make_bucket(bucket_name)


@pytest.fixture
def root(bucket: str) -> str:
    """A root of archives in the bucket."""
    return f"s3://{bucket}/vault"


@dataclass(frozen=True)
class Place:
    """A scope on Pravega and a bucket for one test.

    Attributes:
        server, store: the cluster, open.
        source: the stream to archive; not made yet.
        minio, bucket: where archives are.
    """

    server: PravegaServer
    store: StreamStore
    source: StreamName
    minio: S3Server
    bucket: str

    @property
    def uri(self) -> str:
        """The URI of `source`."""
        return self.uri_of(self.source)

    @property
    def root(self) -> str:
        """The root of archives."""
        return f"s3://{self.bucket}/vault"

    @property
    def archive(self) -> str:
        """The archive of `source`."""
        return f"{self.root}/{self.source}"

    def uri_of(self, stream: StreamName) -> str:
        """Return a stream's URI."""
        return f"{self.server.uri}/{stream}"


@pytest.fixture
def place(here: Site, minio: S3Server, bucket: str) -> Place:
    source = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    return Place(here.server, here.store, source, minio, bucket)


@pytest.fixture
def vault_in_glue(
    tmp_path: Path,
    bucket_name: str,
    minio: S3Server,
    moto_s3: S3Server,
    use_s3: Callable[[S3Server], None],
    monkeypatch: pytest.MonkeyPatch,
) -> Vault:
    """A stream whose archive and tables are in a bucket of MinIO; the catalog ``glue`` is moto's, which Trino reads.

    The root's path is this test's own, too: Trino's cache knows files of Iceberg tables by their paths in the bucket.
    """
    use_s3(minio)
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", moto_s3.endpoint)
    vault = Vault(tmp_path, f"s3://{minio.make_bucket(bucket_name)}/{bucket_name}")
    vault.create()
    return vault
