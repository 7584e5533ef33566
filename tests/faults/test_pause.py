"""Commands that are stopped before one of their requests, and resumed after others have published and truncated.

A killed run does nothing afterwards; one that was paused (a stopped virtual machine, say) goes on as if nothing
had happened. The request before which it stops arrives when it is woken up.
"""

from __future__ import annotations

import signal
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import Ended, run, started, wait_until
from testkit.servers.pravega import PravegaServer
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault
from testkit.streams import append_events, digest_of, make_stream, payloads, shape_of
from tests.faults.conftest import is_killed, through

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
from random import Random

from streamvault.layouts.keys import chunk_key
from streamvault.streamstore.model import HEADER_BYTES, SegmentId

pytestmark = [pytest.mark.minio, pytest.mark.timeout(600)]


EVENTS = 40
"""Of each segment and round."""
MOST_SECONDS = 60.0


def more(store: StreamStore, name: StreamName, seed: int) -> None:
    for segment in sorted(store.describe(name).tail.offsets):
        append_events(store, name, segment, payloads(EVENTS, seed * 100 + segment.number, largest=10_000))


@pytest.mark.pravega
@pytest.mark.parametrize(
    ("share", "layout"),
    [
        (0.35, "events"),
        (0.7, "chunks"),
        *(
            pytest.param(*other, marks=pytest.mark.long)
            for other in [(0.35, "chunks"), (0.7, "events"), (0.95, "events"), (0.95, "chunks")]
        ),
    ],
)
def test_late_export_changes_nothing(
    pravega: PravegaServer, minio: S3Server, proxy: FaultProxy, layout: str, share: float
) -> None:
    bucket = minio.make_bucket(f"paused-{uuid.uuid4().hex[:10]}")
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    source, environment = f"{pravega.uri}/{name}", minio.environment()
    options = ("--layout", layout, "--range-size", "32KiB", "--master", "inline", "--json")
    with parse_stream(source)[0].open() as store:
        store.create_scope(name.scope)
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
        more(store, name, 1)
        export = ("export", source, f"s3://{bucket}/counted", *options)
        assert run(*export, environment=through(proxy, environment)).code == 0
        requests, root = proxy.requests, f"s3://{bucket}/vault"
        proxy.hold_at(requests + max(1, round(share * requests)))
        with started("export", source, root, *options, environment=through(proxy, environment)) as late:
            assert wait_until(proxy.held.is_set, late, MOST_SECONDS)
            late.send(signal.SIGSTOP)

            rotate = ("rotate", source, root, "--truncate-source", *options)
            assert run(*rotate, environment=environment).code == 0
            archived = digest_of(store, name)
            assert archived[0] == 0, "the archive is the only copy now"
            more(store, name, 2)

            late.send(signal.SIGCONT)
            proxy.resume()
            ended = late.ended()
        assert ended.code in {0, 4}, ended.err
        assert "Traceback" not in ended.err

        archive = f"{root}/{name}"
        checked = run(
            "check", archive, "--read-data", "--repair", "--master", "inline", "--json", environment=environment
        )
        assert checked.report["events"] >= 2 * EVENTS
        assert checked.report["ok"]
        assert run("rotate", source, root, *options, environment=environment).code == 0
        target = StreamName(name.scope, "restored")
        restore = ("import", archive, f"{pravega.uri}/{target}", "--master", "inline", "--json")
        assert run(*restore, environment=environment).report["events"] == 4 * EVENTS
        counted = run("check", f"s3://{bucket}/counted/{name}", "--json", environment=environment).report
        assert counted["events"] == 2 * EVENTS


# --- an import that is stopped before one of its requests, and resumed after another run of it has ended


IMPORTED = 400
OPTIONS = ("--master", "inline", "--json")


@pytest.mark.pravega
@pytest.mark.parametrize("share", [pytest.param(0.4, marks=pytest.mark.long), 0.9])
def test_late_import_changes_nothing(pravega: PravegaServer, minio: S3Server, proxy: FaultProxy, share: float) -> None:
    root = f"s3://{minio.make_bucket(f'paused-{uuid.uuid4().hex[:10]}')}"
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    target = StreamName(name.scope, "target")
    direct = minio.environment()
    held_up = through(proxy, direct)
    with parse_stream(f"{pravega.uri}/{name}")[0].open() as store:
        make_stream(store, name, events=IMPORTED, largest=10_000)
        export = ("export", f"{pravega.uri}/{name}", root, "--layout", "chunks", "--range-size", "4KiB", *OPTIONS)
        assert run(*export, environment=direct).code == 0
        restore = ("import", f"{root}/{name}", f"{pravega.uri}/{target}", *OPTIONS)
        counted = ("import", f"{root}/{name}", f"{pravega.uri}/{name.scope}/counted", *OPTIONS)
        assert run(*counted, environment=held_up).code == 0
        requests = proxy.requests
        proxy.hold_at(requests + max(1, round(share * requests)))
        with started(*restore, environment=held_up) as late:
            assert wait_until(proxy.held.is_set, late, MOST_SECONDS)
            late.send(signal.SIGSTOP)

            assert run(*restore, environment=direct).report["events"] == digest_of(store, name)[0]
            assert digest_of(store, target) == digest_of(store, name)
            assert shape_of(store, target) == shape_of(store, name)
            append_events(store, target, min(store.describe(target).tail.offsets), [b"of a user"])
            left = digest_of(store, target), shape_of(store, target)

            late.send(signal.SIGCONT)
            proxy.resume()
            ended = late.ended()
        assert ended.code in {0, 4}, ended.err
        assert "Traceback" not in ended.err
        assert (digest_of(store, target), shape_of(store, target)) == left


# --- a check that is stopped before its first mark, on a real S3 server, and goes on after others have changed much


GENERATIONS = 3
MARK = ".checked.json"


@dataclass
class Paused:
    """A stream with an archive of three generations, and a check of it that is stopped before its first mark."""

    server: S3Server
    client: S3Client
    bucket: str
    vault: Vault

    def keys(self, folder: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"vault/{NAME}/{folder}").get("Contents", [])
        return [entry["Key"] for entry in found]

    @property
    def marks(self) -> list[str]:
        return [key for key in self.keys() if key.endswith(MARK)]

    def delete(self, *keys: str) -> None:
        """Delete objects by other tools."""
        for key in keys:
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def run(self, *arguments: str) -> Ended:
        return run(*arguments, "--json", environment=self.server.environment())

    def rotate(self, *options: str) -> Ended:
        return self.run(
            "rotate", self.vault.uri(), self.vault.root, "--truncate-source", "--master", "inline", *options
        )


def grown(server: S3Server, vault: Vault, word: bytes) -> None:
    vault.create()
    for number in range(GENERATIONS):
        vault.add(b"%s %d" % (word, number), word * 1000)
        export = ("export", vault.uri(), vault.root, "--layout", "chunks", "--master", "inline")
        assert run(*export, environment=server.environment()).code == 0


@pytest.fixture
def paused(minio: S3Server, tmp_path: Path) -> Paused:
    bucket = minio.make_bucket(f"paused-{uuid.uuid4().hex[:10]}")
    vault = Vault(tmp_path / "mine", f"s3://{bucket}/vault")
    grown(minio, vault, b"mine")
    return Paused(minio, minio.client(), bucket, vault)


def late_marks(paused: Paused, proxy: FaultProxy, happens: Any) -> dict[str, Any]:
    """Check, stopped before the first mark while something happens; returns the check's report."""
    environment = through(proxy, paused.server.environment())
    check = ("check", paused.vault.archive, "--read-data", "--master", "inline", "--json")
    before = proxy.requests
    assert run(*check, environment=environment).report["marked"] == [1, 2, 3]
    needed = proxy.requests - before  # the marks are the last of them
    paused.delete(*paused.marks)
    proxy.hold_at(proxy.requests + needed - GENERATIONS + 1)
    with started(*check, environment=environment) as late:
        assert wait_until(proxy.held.is_set, late, MOST_SECONDS)
        late.send(signal.SIGSTOP)
        assert paused.marks == []
        happens()
        proxy.resume()
        late.send(signal.SIGCONT)
        return late.ended().report


def test_late_marks_of_expired_generations_go_with_the_next_rotation(paused: Paused, proxy: FaultProxy) -> None:
    late_marks(paused, proxy, lambda: paused.rotate("--keep", "1").report)
    assert len(paused.marks) == GENERATIONS
    paused.vault.add(b"more")
    assert paused.rotate("--keep", "2").report["truncated"]
    assert [key.rpartition("/")[2] for key in paused.marks] == [f"{number:010d}{MARK}" for number in (3, 4)]
    assert paused.run("check", paused.vault.archive, "--read-data", "--master", "inline").report["ok"]


def test_late_marks_in_a_deleted_archive_bring_nothing_back(paused: Paused, proxy: FaultProxy) -> None:
    late_marks(paused, proxy, lambda: paused.run("delete", paused.vault.archive, "--yes").report)
    assert len(paused.marks) == GENERATIONS
    assert paused.run("ls", paused.vault.root).report["archives"] == []
    for again in (paused.rotate(), paused.run("export", paused.vault.uri(), paused.vault.root, "--master", "inline")):
        assert again.code == 4
        assert "was deleted" in again.error["what"]
    assert paused.run("delete", paused.vault.archive, "--yes").report["objects"] == GENERATIONS
    assert all("/_manifest/decisions/" in key for key in paused.keys(""))


def test_late_marks_of_an_archive_that_was_removed_and_made_again_keep_the_source(
    paused: Paused, proxy: FaultProxy, tmp_path: Path
) -> None:
    other = Paused(paused.server, paused.client, paused.bucket, Vault(tmp_path / "other", paused.vault.root))

    def made_again() -> None:
        paused.delete(*paused.keys())
        grown(paused.server, other.vault, b"other")

    late_marks(paused, proxy, made_again)
    before = other.vault.events()
    refused = other.rotate()
    assert refused.code == 3
    assert "the mark belongs to a different manifest" in refused.error["what"]
    assert other.vault.events() == before


def test_object_that_is_gone_before_the_marks_come_keeps_the_source(paused: Paused, proxy: FaultProxy) -> None:
    first = min(paused.keys("chunks/"))
    late_marks(paused, proxy, lambda: paused.delete(first))
    before = paused.vault.events()
    refused = paused.rotate("--keep", "1")
    assert refused.code == 3
    assert (refused.error["what"], first in refused.error["where"]) == ("no such object", True)
    assert paused.vault.events() == before
    assert paused.run("timeline", paused.vault.archive).code == 0


# --- a deletion of an archive on a real S3 server that is stopped before a request, killed or late, beside a rotation


MORE = [pytest.param(share, marks=pytest.mark.long) for share in (0.12, 0.2, 0.26, 0.4, 0.9)]
"""Up to about 0.2, nothing is decided yet, and the rotation wins; then the deletion does."""


def archived(server: S3Server, folder: Path, root: str) -> Vault:
    """A stream with two generations at a root, the newest of which is not truncated yet."""
    vault = Vault(folder, root)
    vault.create()
    for payload in (b"one", b"two"):
        vault.add(payload, payload * 1000)
        export = ("export", vault.uri(), root, "--layout", "chunks", "--master", "inline")
        assert run(*export, environment=server.environment()).code == 0
    return vault


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "late"])
@pytest.mark.parametrize("share", [0.6, *MORE])
def test_deletion_takes_nothing_that_a_rotation_relies_on(
    minio: S3Server, proxy: FaultProxy, tmp_path: Path, share: float, is_killed: bool
) -> None:
    bucket, environment = minio.make_bucket(f"deleted-{uuid.uuid4().hex[:10]}"), minio.environment()
    slow = through(proxy, environment)
    counted = archived(minio, tmp_path / "counted", f"s3://{bucket}/counted")
    before = proxy.requests
    assert run("delete", counted.archive, "--yes", environment=slow).code == 0
    needed = proxy.requests - before

    vault = archived(minio, tmp_path / "mine", f"s3://{bucket}/vault")
    vault.add(b"three")
    events = vault.events()
    proxy.hold_at(proxy.requests + max(1, round(share * needed)))
    options = ("--truncate-source", "--layout", "chunks", "--master", "inline", "--json")
    rotate = ("rotate", vault.uri(), vault.root, *options)
    with started("delete", vault.archive, "--yes", "--json", environment=slow) as late:
        assert wait_until(proxy.held.is_set, late, MOST_SECONDS)
        late.send(signal.SIGKILL if is_killed else signal.SIGSTOP)
        rotated = run(*rotate, environment=environment)
        proxy.resume()  # what was held back arrives now
        if not is_killed:
            late.send(signal.SIGCONT)
        deleted = late.ended()
    assert rotated.code in {0, 4}, rotated.err
    if rotated.code == 0:
        assert rotated.report["truncated"]
        assert deleted.code == (-signal.SIGKILL if is_killed else 4)
        check = run("check", vault.archive, "--read-data", "--master", "inline", "--json", environment=environment)
        assert check.report["events"] == len(events)
    else:
        assert vault.events() == events
    assert run("delete", vault.archive, "--yes", environment=environment).code == 0
    left = minio.client().list_objects_v2(Bucket=bucket, Prefix=f"vault/{NAME}/")["Contents"]
    assert all("/decisions/" in entry["Key"] for entry in left)


# --- an export that is killed during the multipart upload of a large event, and run again


MIB = 1024 * 1024
LARGE = StreamName("shop", "orders")
PARTS = 8
IN_CHUNKS = ("--layout", "chunks", "--window", "16MiB", "--range-size", "16MiB", "--master", "inline", "--json")


@pytest.mark.parametrize("sent", [1, 3, 5], ids=lambda sent: f"{sent} of {PARTS} parts")
def test_export_killed_between_parts_is_resumed(minio: S3Server, tmp_path: Path, sent: int) -> None:
    bucket = minio.make_bucket(f"large-{uuid.uuid4().hex[:10]}")
    source, target = (f"local://{tmp_path}/cluster/{name}" for name in (LARGE, "shop/restored"))
    environment, client = minio.environment(), minio.client()
    with parse_stream(source)[0].open() as store, FaultProxy(int(minio.endpoint.rpartition(":")[2])) as proxy:
        store.create_scope(LARGE.scope)
        store.create_stream(LARGE, StreamConfiguration(scaling=Scaling(min_segments=1)))
        append_events(store, LARGE, SegmentId(0, 0), [b"before", Random(1).randbytes(PARTS * 5 * MIB), b"after"])
        expected = digest_of(store, LARGE)
        length = PARTS * 5 * MIB + HEADER_BYTES
        root, large = (
            f"s3://{bucket}/vault",
            f"vault/{LARGE}/{chunk_key(SegmentId(0, 0), len(b'before') + HEADER_BYTES, length)}",
        )

        def parts() -> int:
            uploads = client.list_multipart_uploads(Bucket=bucket, Prefix=large).get("Uploads", [])
            asked = [{"Bucket": bucket, "Key": one["Key"], "UploadId": one["UploadId"]} for one in uploads]
            return sum(len(client.list_parts(**one).get("Parts", [])) for one in asked)

        proxy.delay = 0.01  # for each 64 KiB, so that there is time between two parts
        with started("export", source, root, *IN_CHUNKS, environment=through(proxy, environment)) as running:
            assert is_killed(running, lambda: parts() >= sent)
        assert parts(), "what was sent is there, and nobody sees it"
        assert not client.list_objects_v2(Bucket=bucket, Prefix=large).get("Contents")

        again = run("export", source, root, *IN_CHUNKS, environment=environment)
        assert again.report["resumed"]
        archive = f"{root}/{LARGE}"
        checked = run("check", archive, "--read-data", "--master", "inline", "--json", environment=environment).report
        assert (checked["ok"], checked["strays"], checked["events"]) == (True, 0, 3)
        restored = run("import", archive, target, "--window", "16MiB", "--master", "inline", environment=environment)
        assert restored.code == 0, restored.err
        assert digest_of(store, StreamName(LARGE.scope, "restored")) == expected
