"""Common parts of the kill tests: the moments, one stream to move, and the result of an undisturbed export of it."""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from streamvault.streamstore.model import StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run
from testkit.servers.pravega import PravegaServer
from testkit.servers.s3 import S3Server
from testkit.streams import digest_of, make_stream, shape_of
from tests.faults.contents import Contents, contents_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KILLS = 4
MOMENTS = 5
"""How often a command is killed by default whose work has no ranges to count."""
EVENTS = 6_000
RANGE_SIZES = {"events": "128KiB", "chunks": "32KiB"}
"""Chunks are moved much faster: smaller ranges give as many moments to kill."""
CHUNKS = ("chunks", "chunks-zstd")
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
        layout: of the archive, and how it is compressed.
    """

    master: str
    share: float
    jitter: float
    layout: str = "events"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "moment" in metafunc.fixturenames:
        metafunc.parametrize("moment", range(kills_of(metafunc.config, MOMENTS)))
    if "kill" not in metafunc.fixturenames:
        return
    count = kills_of(metafunc.config)
    rng = random.Random(f"{seed_of(metafunc.config)} {metafunc.function.__name__}")
    found = [
        Kill("local[2]" if number % 5 == 1 else "inline", (number + rng.random()) / count, rng.random())
        for number in range(count)
    ]
    few = max(1, count // 2)
    if count == KILLS:
        found = found[: count - few]  # by default there are as many in total
    found += [
        Kill("inline", (number + rng.random()) / few, rng.random(), CHUNKS[number % len(CHUNKS)])
        for number in range(few)
    ]
    names = [f"{number}-{kill.master}-{kill.layout}" for number, kill in enumerate(found)]
    metafunc.parametrize("kill", found, ids=names)


def kills_of(config: pytest.Config, default: int = KILLS) -> int:
    """``--kills``, or the default of a test that has its own."""
    # pytest asks this file for its options only if its folder is named on the command line
    count = int(config.getoption("kills", default=KILLS))
    return default if count == KILLS else count


def seed_of(config: pytest.Config) -> int:
    """``--kill-seed``, or one for this run."""
    seed = config.getoption("kill_seed", default=None)
    return config.stash.setdefault(SEED, secrets.randbits(32) if seed is None else int(seed))


@pytest.fixture(autouse=True)
def _seed_is_told(request: pytest.FixtureRequest) -> None:
    """For the report of a failure."""
    print(f"--kill-seed {seed_of(request.config)}")


@pytest.fixture
def kill_rng(request: pytest.FixtureRequest) -> random.Random:
    """The chance of a test, the same for the same seed."""
    return random.Random(f"{seed_of(request.config)} {request.node.name}")


@pytest.fixture
def share(request: pytest.FixtureRequest, moment: int, kill_rng: random.Random) -> float:
    """How much of the way is done when the kill comes, from 0 to 1; a test is run for each moment."""
    return (moment + kill_rng.random()) / kills_of(request.config, MOMENTS)


@pytest.fixture(scope="module")
def store(pravega: PravegaServer) -> Iterator[StreamStore]:
    """The Pravega, open."""
    with parse_stream(f"{pravega.uri}/a/b")[0].open() as store:
        yield store


@dataclass(frozen=True)
class Ground:
    """A stream on a real Pravega, and the result of an undisturbed export of it to a real MinIO.

    Attributes:
        environment: for commands. client: for looking. bucket: of all archives.
        pravega: the controller's URI. store: open. name: the stream.
        digest, shape: of the stream (`testkit.streams`).
        prefix, contents: of the undisturbed archive. ranges: how many it has.
        seconds: what the undisturbed export took.
        layout: of the archive, and how it is compressed.
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
    layout: str = "events"

    @property
    def options(self) -> tuple[str, ...]:
        """The commands' options for the layout."""
        layout, _, compress = self.layout.partition("-")
        return ("--layout", layout, *(("--compress", compress) if compress else ()))

    @property
    def archive(self) -> str:
        """URI of the undisturbed archive."""
        return f"s3://{self.bucket}/{self.prefix}/{self.name}"

    def export(self, prefix: str, master: str) -> tuple[str, ...]:
        """The command that archives the stream below a prefix of the bucket."""
        uri, root = f"{self.pravega}/{self.name}", f"s3://{self.bucket}/{prefix}"
        size = RANGE_SIZES[self.layout.partition("-")[0]]
        return ("export", uri, root, *self.options, "--range-size", size, "--master", master, "--json")

    def convert(self, old: Ground, prefix: str, master: str) -> tuple[str, ...]:
        """The command that converts another archive to this layout."""
        root = f"s3://{self.bucket}/{prefix}"
        return ("convert", old.archive, root, *self.options, "--master", master, "--json")

    def restore(self, target: StreamName, master: str) -> tuple[str, ...]:
        """The command that restores the undisturbed archive."""
        return ("import", self.archive, f"{self.pravega}/{target}", "--master", master, "--json")

    def contents_below(self, prefix: str) -> Contents:
        """The current contents of an archive of the stream."""
        return contents_of(self.client, self.bucket, f"{prefix}/{self.name}/")


@pytest.fixture(scope="session")
def ground(pravega: PravegaServer, minio: S3Server) -> Iterator[Ground]:
    bucket = minio.make_bucket(f"faults-{uuid.uuid4().hex[:10]}")
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    uri = f"{pravega.uri}/{name}"
    with parse_stream(uri)[0].open() as store:
        make_stream(store, name, events=EVENTS, largest=256 * 1024)
        options = ("--range-size", RANGE_SIZES["events"], "--master", "inline", "--json")
        export = ("export", uri, f"s3://{bucket}/whole", *options)
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


@pytest.fixture(scope="session")
def ground_of(ground: Ground) -> Callable[[str], Ground]:
    """A function that returns the result of an undisturbed export in some layout; each is exported once."""

    @cache
    def of(layout: str) -> Ground:
        if layout == ground.layout:
            return ground
        prefix = f"whole-{layout}"
        other = replace(ground, layout=layout, prefix=prefix)
        report = run(*other.export(prefix, "inline"), environment=ground.environment).report
        whole = other.contents_below(prefix)
        assert whole.is_finished
        assert (len(whole.objects) - 1, whole.events) == (report["ranges"], [])  # all but the index of ranges
        assert report["events"] == ground.digest[0]
        return replace(other, contents=whole, ranges=report["ranges"], seconds=report["seconds"])

    return of
