"""What the tests of kills share: the moments, one stream to move, and what an undisturbed export of it leaves."""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from streamstore.model import StreamName
from streamstore.store import StreamStore
from streamstore.uri import parse_stream
from tests.faults.commands import run
from tests.faults.contents import Contents, contents_of
from tests.servers.pravega import PravegaServer
from tests.servers.s3 import S3Server
from tests.streams import digest_of, make_stream, shape_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KILLS = 5
EVENTS = 6_000
RANGE_SIZE = "128KiB"
SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills",
        type=int,
        default=KILLS,
        metavar="N",
        help=f"kill each command at N random moments (give tests/faults as an argument too; {KILLS} by default)",
    )
    parser.addoption("--kill-seed", type=int, metavar="S", help="the moments of the run that said it had the seed S")


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        master: what the command runs on.
        share: how much of the work is done when it comes, from 0 to 1.
        jitter: how far into the next range it comes, from 0 to 1.
    """

    master: str
    share: float
    jitter: float


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kill" not in metafunc.fixturenames:
        return
    # pytest asks this file for its options only if its folder is named on the command line
    count = int(metafunc.config.getoption("kills", default=KILLS))
    seed = metafunc.config.getoption("kill_seed", default=None)
    seed = metafunc.config.stash.setdefault(SEED, secrets.randbits(32) if seed is None else int(seed))
    rng = random.Random(f"{seed} {metafunc.function.__name__}")
    found = [
        Kill("local[2]" if number % 5 == 1 else "inline", (number + rng.random()) / count, rng.random())
        for number in range(count)
    ]
    metafunc.parametrize("kill", found, ids=[f"{number}-{kill.master}" for number, kill in enumerate(found)])


@pytest.fixture(autouse=True)
def _seed_is_told(request: pytest.FixtureRequest) -> None:
    """For the report of a failure."""
    print(f"--kill-seed {request.config.stash.get(SEED, None)}")


@dataclass(frozen=True)
class Ground:
    """A stream on a real Pravega, and what an undisturbed export of it leaves on a real MinIO.

    Attributes:
        environment: for commands. client: for looking. bucket: of all archives.
        pravega: the controller's URI. store: open. name: the stream.
        digest, shape: of the stream (`tests.streams`).
        prefix, contents: of the undisturbed archive. ranges: how many it has.
        seconds: what the undisturbed export took.
    """

    environment: dict[str, str]
    client: S3Client
    bucket: str
    pravega: str
    store: StreamStore
    name: StreamName
    digest: tuple[int, str]
    shape: dict[str, object]
    prefix: str
    contents: Contents
    ranges: int
    seconds: float

    @property
    def archive(self) -> str:
        """URI of the undisturbed archive."""
        return f"s3://{self.bucket}/{self.prefix}/{self.name}"

    def export(self, prefix: str, master: str) -> tuple[str, ...]:
        """The command that archives the stream below a prefix of the bucket."""
        uri, root = f"{self.pravega}/{self.name}", f"s3://{self.bucket}/{prefix}"
        return ("export", uri, root, "--range-size", RANGE_SIZE, "--master", master, "--json")

    def restore(self, target: StreamName, master: str) -> tuple[str, ...]:
        """The command that restores the undisturbed archive."""
        return ("import", self.archive, f"{self.pravega}/{target}", "--master", master, "--json")

    def contents_below(self, prefix: str) -> Contents:
        """What an archive of the stream holds now."""
        return contents_of(self.client, self.bucket, f"{prefix}/{self.name}/")


@pytest.fixture(scope="session")
def ground(pravega: PravegaServer, minio: S3Server) -> Iterator[Ground]:
    bucket = minio.make_bucket(f"faults-{uuid.uuid4().hex[:10]}")
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    uri = f"{pravega.uri}/{name}"
    with parse_stream(uri)[0].open() as store:
        make_stream(store, name, events=EVENTS, largest=256 * 1024)
        export = ("export", uri, f"s3://{bucket}/whole", "--range-size", RANGE_SIZE, "--master", "inline", "--json")
        report = run(*export, environment=minio.environment()).report
        client = minio.client()
        whole = contents_of(client, bucket, f"whole/{name}/")
        digest = digest_of(store, name)
        assert whole.is_finished
        assert (len(whole.events), report["events"]) == (digest[0], digest[0])
        yield Ground(
            environment=minio.environment(),
            client=client,
            bucket=bucket,
            pravega=pravega.uri,
            store=store,
            name=name,
            digest=digest,
            shape=shape_of(store, name),
            prefix="whole",
            contents=whole,
            ranges=report["ranges"],
            seconds=report["seconds"],
        )
