"""Common parts of the kill tests: the moments, one stream to move, and the result of an undisturbed export of it."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from streamvault.layouts.keys import parse_record, parse_row
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import Command, run, wait_until
from testkit.prove.mutants import EVERY_SCHEDULE
from testkit.servers.pravega import PravegaServer
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.streams import digest_of, make_stream, shape_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from testkit.explorer.explore import Outcome
    from testkit.explorer.schedule import Schedule

IS_WHOLE = EVERY_SCHEDULE in os.environ
FEW, EACH = 3, 16
"""How many schedules of a family tests run in any case; of the others they run every sixteenth."""

KILLS = 3
MOMENTS = 2
"""How often a command is killed by default whose work has no ranges to count; the explorer stops it at every call."""
EVENTS = 3_000
RANGE_SIZES = {"events": "64KiB", "chunks": "16KiB"}
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


def is_killed(running: Command, has_come_far: Callable[[], bool], later: float = 0.0) -> bool:
    """Kill a command so many seconds after it has come so far; False if it ended before."""
    if not wait_until(has_come_far, running):
        return False
    time.sleep(later)
    running.send(signal.SIGKILL)
    return running.ended().code == -signal.SIGKILL


def all_right(outcomes: Iterable[Outcome]) -> None:
    """Assert that nothing goes wrong in some schedules of the explorer, of which there must be one at least."""
    found = list(outcomes)
    wrong = [f"{one.schedule}: {one.wrong[0]}" for one in found if one.wrong]
    assert found
    assert not wrong, f"{len(wrong)} of {len(found)} schedules, the first: {wrong[0]}"


def thinned(schedules: Iterable[Schedule]) -> Iterator[Schedule]:
    """Yield the first schedules and every sixteenth of the others, for the tests' time; `bin/prove` draws from all."""
    all_of_them = iter(schedules)
    yield from islice(all_of_them, FEW)
    yield from islice(all_of_them, 0, None, 1 if IS_WHOLE else EACH)


@dataclass(frozen=True)
class Contents:
    """An archive in a bucket, as S3 itself lists it.

    Attributes:
        objects: key → (size, MD5 of its bytes), in the order of the listing; without manifests and unfinished work.
        manifests: generation → manifest without the moment it was made, and without its own digest.
        work: the keys of unfinished work.
    """

    objects: dict[str, tuple[int, str]]
    manifests: dict[int, dict[str, Any]]
    work: tuple[str, ...]

    @property
    def events(self) -> list[str]:
        """The keys of the events."""
        return [key for key in self.objects if key.startswith("events/")]

    @property
    def is_finished(self) -> bool:
        """Whether there is a manifest and no unfinished work."""
        return bool(self.manifests) and not self.work

    @property
    def is_unfinished(self) -> bool:
        """Whether there is a plan without its manifest."""
        return any(key.endswith("/plan.json") for key in self.work) and not self.manifests


def contents_of(client: S3Client, bucket: str, prefix: str) -> Contents:
    """List an archive; `prefix` ends with a slash."""
    objects: dict[str, tuple[int, str]] = {}
    manifests: dict[int, dict[str, Any]] = {}
    work = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            key = entry["Key"].removeprefix(prefix)
            record = parse_record(key)
            if record is not None and record.kind == "manifest" and not record.span.is_merged:
                manifest = json.loads(client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read())
                del manifest["created"], manifest["sha256"]
                manifests[record.span.last] = manifest
            elif key.startswith("_work/probe-"):
                pass  # a run was killed while it tried out what the server does; they are never read again
            elif key.startswith("_work/"):
                work.append(key)
            else:
                # each object is written in one piece, so its ETag is the MD5 of its bytes
                objects[key] = entry["Size"], entry["ETag"]
    return Contents(objects, manifests, tuple(work))


def rows_of(client: S3Client, bucket: str, prefix: str) -> tuple[bool, list[str]]:
    """Whether an archive has a plan, and the keys of the rows of finished ranges (at most 1,000)."""
    answer = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}_work/")
    keys = [entry["Key"].removeprefix(prefix) for entry in answer.get("Contents", [])]
    return any(key.endswith("/plan.json") for key in keys), [key for key in keys if parse_row(key) is not None]


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


@pytest.fixture
def proxy(minio: S3Server) -> Iterator[FaultProxy]:
    """A proxy before MinIO."""
    with FaultProxy(int(minio.endpoint.rpartition(":")[2])) as proxy:
        yield proxy


def through(proxy: FaultProxy, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command whose S3 is behind a proxy."""
    changed = {**environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    return {key: value for key, value in changed.items() if key != "AWS_ENDPOINT_URL_S3"}


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
        make_stream(store, name, events=EVENTS, largest=128 * 1024)
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
