"""A rotation that is killed at any moment and run again: readers see complete data, and too much is never truncated.

Each kill has a stream and an archive of its own: old generations that were never read back, and events that are not
archived yet. So a kill may hit the export, the reading back, the moment of dropping, the deletion or the truncation.
"""

from __future__ import annotations

import hashlib
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from streamvault import check_archive, export_stream, import_stream
from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests.archive import Archive
from streamvault.manifests.plan import find_plan
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.cuts import is_before
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run, started, wait_until
from testkit.servers.pravega import PravegaServer
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, payloads
from tests.faults.conftest import SEED

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(900)]

KILLS = 2
OLD = 3
EVENTS = 50
"""Of each old generation and segment."""
MANY = 5
"""Kills by default elsewhere; these take longer, so that only more than these are taken at their word."""
LONGEST_JITTER = {"plan": 0.3, "manifest": 0.15, "checked": 0.03, "dropped": 0.06, "deleted": 0.03}
"""Seconds between a visible sign of a rotation and the kill."""

stages: list[str] = []


@dataclass
class Case:
    """A stream and its archive, before a rotation."""

    environment: dict[str, str]
    client: S3Client
    store: StreamStore
    stream: str
    name: StreamName
    root: str

    @property
    def archive(self) -> Archive:
        return Archive(RootAddress.parse(self.root), self.name)

    @property
    def uri(self) -> str:
        return f"{self.root}/{self.name}"

    def command(self, master: str) -> tuple[str, ...]:
        options = ("--keep", "2", "--truncate-source", "--range-size", "16KiB", "--master", master, "--json")
        return ("rotate", self.stream, self.root, *options)

    def stage(self) -> str:
        """How far a rotation came."""
        listing = self.archive.listing()
        if listing.newest == OLD:
            return "exporting"
        if OLD + 1 not in listing.checked:
            return "reading back"
        if not listing.dropped:
            return "read back"
        if listing.unfinished:
            return "deleting"
        return "truncating" if self.store.describe(self.name).head != self.archive.manifest().to else "done"


Make = Callable[[str], Case]


@pytest.fixture
def make(pravega: PravegaServer, minio: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A function that creates a case with old generations in a layout."""
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    for variable, value in minio.environment().items():
        monkeypatch.setenv(variable, value)
    with ExitStack() as stores:
        yield lambda layout: made(pravega, minio, layout, stores)


def made(pravega: PravegaServer, minio: S3Server, layout: str, stores: ExitStack) -> Case:
    bucket = minio.make_bucket(f"rotated-{uuid.uuid4().hex[:10]}")
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    stream = f"{pravega.uri}/{name}"
    store = stores.enter_context(parse_stream(stream)[0].open())
    store.create_scope(name.scope)
    store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
    case = Case(minio.environment(), minio.client(), store, stream, name, f"s3://{bucket}/vault")
    for number in range(OLD):
        more(case, number)
        export_stream(stream, case.root, layout=layout, range_size=16 * 1024, master="inline")  # type: ignore[arg-type]
    more(case, OLD)
    return case


def more(case: Case, seed: int) -> None:
    for segment in sorted(case.store.describe(case.name).tail.offsets):
        append_events(case.store, case.name, segment, payloads(EVENTS, seed * 100 + segment.number, largest=20_000))


def head_of(case: Case, name: StreamName | None = None) -> StreamCut:
    return case.store.describe(name or case.name).head


def content_of(case: Case, name: StreamName, start: StreamCut, end: StreamCut) -> dict[str, str]:
    """The digest of each segment's bytes between two cuts of the same segments."""
    return {
        str(segment): hashlib.sha256(b"".join(case.store.read(name, segment, low, end.offsets[segment]))).hexdigest()
        for segment, low in start.offsets.items()
    }


SIGNS: dict[str, Callable[[Case], bool]] = {
    "plan": lambda case: find_plan(case.archive.place, GenerationSpan.of(OLD + 1)) is not None,
    "manifest": lambda case: case.archive.listing().newest > OLD,
    "dropped": lambda case: case.archive.listing().dropped > 0,
    "checked": lambda case: OLD + 1 in case.archive.listing().checked,
    "deleted": lambda case: case.archive.listing().decision.swept > 0,
}
"""The visible signs of a rotation; a kill follows."""


def assert_nothing_is_lost(case: Case, beginning: StreamCut) -> None:
    """Readers see complete data; the source was truncated at most up to the data archived and read back."""
    report = check_archive(case.uri, read_data=True, master="inline")
    assert report.ok, report.findings
    listing, described = case.archive.listing(), case.store.describe(case.name)
    checked = [number for number in listing.generations if number in listing.checked]
    if described.head != beginning:
        assert checked == list(listing.generations)
        assert is_before(described, described.head, case.archive.manifest(checked[-1]).to)
    if listing.dropped:
        assert listing.dropped == OLD + 1 - 2
        assert OLD + 1 in listing.checked, "nothing expires before the new one was read back"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "after" not in metafunc.fixturenames:
        return
    asked = int(metafunc.config.getoption("kills", default=KILLS))
    count = asked if asked > MANY else KILLS
    seed = metafunc.config.stash.setdefault(SEED, random.SystemRandom().getrandbits(32))
    rng = random.Random(f"{seed} rotate")
    metafunc.parametrize(
        ("after", "jitter", "layout", "master"),
        [
            (
                list(SIGNS)[number % len(SIGNS)],
                rng.random(),
                "chunks" if number % 3 == 1 else "events",
                "local[2]" if count > MANY and number % 6 == 3 else "inline",
            )
            for number in range(count)
        ],
    )


@pytest.mark.spark
def test_killed_rotation_is_resumed(make: Make, after: str, jitter: float, layout: str, master: str) -> None:
    """The kill comes up to `LONGEST_JITTER` seconds after a sign was seen."""
    case = make(layout)
    beginning, tail = head_of(case), case.store.describe(case.name).tail
    remaining = content_of(case, case.name, case.archive.manifest(OLD).from_, tail)
    command = case.command(master)
    with started(*command, environment=case.environment) as running:
        if wait_until(lambda: SIGNS[after](case), running):
            time.sleep(jitter * LONGEST_JITTER[after])
            running.send(signal.SIGKILL, everywhere=True)
        code = running.ended().code
        stages.append(case.stage() if code == -signal.SIGKILL else "too late")
        assert code in {0, -signal.SIGKILL}, running.ended().err
        while running.left():
            time.sleep(0.1)  # processes of Spark that have left the group end by themselves
    assert_nothing_is_lost(case, beginning)

    report = run(*command, environment=case.environment).report
    assert (report["generation"], report["first_generation"], report["stopped"]) == (OLD + 1, OLD, None)
    listing = case.archive.listing()
    assert (listing.generations, listing.unfinished, listing.remains) == ((OLD, OLD + 1), False, ())
    assert_nothing_is_lost(case, beginning)
    assert head_of(case) == tail

    restored = StreamName(case.name.scope, "restored")
    import_stream(case.uri, f"{case.stream.rpartition('/')[0]}/restored", master="inline")
    assert content_of(case, restored, head_of(case, restored), tail) == remaining


def test_kills_hit_unfinished_work() -> None:
    if not stages:
        pytest.skip("no kills were made")
    print(sorted(stages))
    assert sum(stage not in {"too late", "done"} for stage in stages) >= len(stages) / 2
