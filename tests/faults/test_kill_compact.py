"""A compaction that is killed at any moment leaves a complete archive, and the same command resumes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from streamvault import check_archive, compact_archive, export_stream, import_stream
from streamvault.common.units import now_utc
from streamvault.exporter import compact as compacting
from streamvault.manifests import decisions
from streamvault.manifests.archive import Archive
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run, started
from testkit.servers.pravega import PravegaServer
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, digest_of, payloads, shape_of
from tests.faults.conftest import is_killed, rows_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(900)]

KILLS = 2
GENERATIONS = 6
SEGMENTS = 24
RANGE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Ground:
    """A stream on a real Pravega, archived in small generations on a real MinIO."""

    store: StreamStore
    name: StreamName
    pravega: str
    server: S3Server
    bucket: str

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def archive(self) -> str:
        return f"{self.root}/{self.name}"

    def opened(self) -> Archive:
        return Archive(RootAddress.parse(self.root).resolve(), self.name)

    def rows(self) -> tuple[bool, int]:
        planned, rows = rows_of(self.server.client(), self.bucket, f"{self.name}/")
        return planned, len(rows)

    def objects(self) -> int:
        """How many objects are listed beside unfinished work; reads none, for a compaction may be deleting them."""
        prefix = f"{self.name}/"
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return sum(not key.startswith(f"{prefix}_work/") for key in keys)


@pytest.fixture
def ground(
    pravega: PravegaServer, minio: S3Server, use_s3: Callable[[S3Server], None], bucket_name: str
) -> Iterator[Ground]:
    use_s3(minio)
    minio.make_bucket(bucket_name)
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    uri = f"{pravega.uri}/{name}"
    with parse_stream(uri)[0].open() as store:
        store.create_scope(name.scope)
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=SEGMENTS)))
        ground = Ground(store, name, uri, minio, bucket_name)
        for number in range(GENERATIONS):
            for segment in store.describe(name).epochs[-1].segments:
                append_events(store, name, segment, payloads(8, number * 100 + segment.value % 97, largest=6000))
            export_stream(uri, ground.root, layout="chunks", range_size=RANGE_BYTES, master="inline[2]")
            if number == 2:
                (first, *_) = store.describe(name).epochs[-1].segments
                store.scale(name, [first], [store.describe(name).epochs[-1].segments[first]])
        yield ground


def is_the_stream(ground: Ground, folder: str) -> None:
    """All data is there, and an import equals the source."""
    report = check_archive(ground.archive, read_data=True, master="inline[2]")
    assert report.ok, report.findings
    target = StreamName("scope", f"t-{uuid.uuid4().hex[:10]}")
    import_stream(ground.archive, f"local://{folder}/{target}", master="inline[2]")
    with LocalStore(folder) as there:  # type: ignore[arg-type]
        assert digest_of(there, target) == digest_of(ground.store, ground.name)
        assert shape_of(there, target) == shape_of(ground.store, ground.name)


def test_killed_compaction_is_resumed(
    ground: Ground,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kills = int(request.config.getoption("kills", default=KILLS))
    folder = tmp_path_factory.mktemp("restored")
    environment = ground.server.environment()
    command = ("compact", ground.archive, "--master", "inline[1]", "--json")
    joined = compact_archive(ground.archive, dry_run=True).joined
    assert joined > kills
    rng = random.Random(ground.bucket)
    in_work = max(1, kills * 3 // 4)
    hit = 0
    with FaultProxy(int(ground.server.endpoint.rpartition(":")[2])) as proxy:
        proxy.delay = 0.01  # the run is not over before this process has seen how far it is
        slow = replace(ground.server, endpoint=f"http://127.0.0.1:{proxy.port}").environment()
        for number in range(in_work):
            have = ground.rows()[1]
            want = max(have, round(joined * (number + rng.random()) / in_work) - 1)

            def has_come_far(want: int = want) -> bool:
                planned, rows = ground.rows()
                return planned and rows >= want

            with started(*command, environment=slow) as running:
                hit += is_killed(running, has_come_far, rng.random() * 0.05)
            is_the_stream(ground, str(folder))
    assert hit >= in_work / 2
    # published as if two hours ago, so that the replaced objects may be deleted
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "now_utc", lambda: now_utc() - timedelta(hours=2))
        if ground.opened().listing().spans != ((1, GENERATIONS),):
            patch.setattr(compacting.Compaction, "clear", lambda _: None)
            compact_archive(ground.archive, master="inline[2]")
    assert ground.opened().listing().spans == ((1, GENERATIONS),)
    before = ground.objects()
    for _ in range(max(1, kills - in_work)):
        with started(*command, environment=environment) as running:
            is_killed(running, lambda: ground.objects() < before, rng.random() * 0.02)
            running.ended()
        is_the_stream(ground, str(folder))
    run(*command, environment=environment)
    is_the_stream(ground, str(folder))
