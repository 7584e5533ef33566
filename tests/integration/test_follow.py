"""A real stream that is written to while it is followed and compacted, and while others read the archive."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from streamvault import check_archive, follow_stream, import_stream
from streamvault.common.progress import Progress
from streamvault.exporter.compact import FACTOR
from streamvault.exporter.reports import FollowReport
from streamvault.manifests.archive import Archive
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run, started, wait_until
from testkit.servers.minio import MinioServer
from testkit.servers.pravega import PravegaServer
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault
from testkit.streams import append_events, digest_of, payloads, shape_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(300)]

ROUNDS = FACTOR + 3
RANGE_BYTES = 32 * 1024


class Turns(Progress):
    """Lets a writer continue once for each generation."""

    def __init__(self) -> None:
        self.made = threading.Semaphore(0)

    def note(self, text: str) -> None:  # noqa: ARG002  (of `Progress`)
        self.made.release()


@pytest.fixture
def source(pravega: PravegaServer) -> Iterator[tuple[StreamStore, StreamName, str]]:
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    uri = f"{pravega.uri}/{name}"
    with parse_stream(uri)[0].open() as store:
        store.create_scope(name.scope)
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
        for segment in store.describe(name).epochs[-1].segments:
            append_events(store, name, segment, payloads(50, segment.value, largest=20_000))
        yield store, name, uri


def write(store: StreamStore, name: StreamName, turns: Turns) -> None:
    """Append to every open segment, and scale once, whenever the previous events are archived; then seal."""
    for number in range(ROUNDS):
        assert turns.made.acquire(timeout=120)
        for segment in store.describe(name).epochs[-1].segments:
            append_events(store, name, segment, payloads(30, number * 100 + segment.value % 97, largest=5000))
        if number == FACTOR // 2:
            (segment, held), *_ = store.describe(name).epochs[-1].segments.items()
            store.scale(name, [segment], [held])
    store.seal(name)


def test_follow_archives_a_stream_during_writes_and_reads(
    source: tuple[StreamStore, StreamName, str], root: str
) -> None:
    store, name, uri = source
    turns, done = Turns(), threading.Event()
    archive = Archive(RootAddress.parse(root).resolve(), name)
    reports: list[FollowReport] = []
    errors: list[BaseException] = []
    looks: list[int] = []

    def follow() -> None:
        reports.append(
            follow_stream(
                uri,
                root,
                rotate=True,
                every=0.05,
                layout="chunks",
                range_size=RANGE_BYTES,
                master="inline[2]",
                progress=turns,
            )
        )

    def read() -> None:
        """Readers see the generations one after the other, whether they are being merged or not."""
        seen: dict[int, str] = {}
        while not done.is_set():
            newest = archive.listing().newest
            for number in range(1, newest + 1):
                fingerprint = archive.history(number).content_digest
                assert seen.setdefault(number, fingerprint) == fingerprint
            looks.append(newest)

    def catching(work: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  (raised below)
                errors.append(error)

        return call

    threads = [threading.Thread(target=catching(work)) for work in (follow, lambda: write(store, name, turns))]
    reader = threading.Thread(target=catching(read))
    for thread in (*threads, reader):
        thread.start()
    for thread in threads:
        thread.join(240)
    done.set()
    reader.join(60)
    assert not errors
    assert looks
    (report,) = reports
    assert (report.ended, report.made) == ("sealed", report.generation)
    assert report.made >= ROUNDS
    assert report.merges >= 1
    assert report.generations_in_force < report.made
    assert archive.history().events == report.events
    whole = check_archive(f"{root}/{name}", read_data=True, master="inline[2]")
    assert whole.ok, whole.findings
    target = StreamName(name.scope, "restored")
    import_stream(f"{root}/{name}", uri.replace(str(name), str(target)), master="inline[2]")
    assert digest_of(store, target) == digest_of(store, name)
    assert shape_of(store, target) == shape_of(store, name)


def test_interrupted_follow_is_resumed(source: tuple[StreamStore, StreamName, str], root: str, minio: S3Server) -> None:
    store, name, uri = source
    archive = Archive(RootAddress.parse(root).resolve(), name)
    command = ("follow", uri, root, "--every", "1s", "--master", "inline", "--json")
    environment = minio.environment()
    with started(*command, environment=environment) as running:
        assert wait_until(lambda: archive.generations() == [1], running)
        # one append: of several, the follower might archive some and be interrupted before the rest
        append_events(store, name, next(iter(store.describe(name).epochs[-1].segments)), [b"more"])
        # the line is printed after the manifest is written
        assert wait_until(lambda: running.has_said("generation 2:"), running)
        assert archive.generations() == [1, 2]
        running.send(signal.SIGTERM)
        ended = running.ended(60)
    assert ended.code == 130
    assert [line.partition(":")[0] for line in ended.lines[:-1]] == ["generation 1", "generation 2"]
    assert ended.lines[-1] == "streamvault: interrupted; run the same command again to resume"
    assert ended.error["exit_code"] == 130
    report = run(*command, "--idle", "1s", environment=environment).report
    assert (report["ended"], report["made"], report["generation"]) == ("idle", 0, 2)


@pytest.mark.long
@pytest.mark.usefixtures("minio")  # only to be skipped if there is none
def test_follow_continues_after_a_server_restart(tmp_path: Path) -> None:
    """Twice; the second time the follower is terminated while it waits."""
    vault = Vault(tmp_path)
    vault.make(events=40, largest=2000)
    stopping = MinioServer()
    with stopping as server:
        root = f"s3://{server.make_bucket('away')}/vault"
        seen = [0]

        def reached(number: int) -> bool:
            """Whether that generation exists; checked without retries."""
            with suppress(BotoCoreError, ClientError):
                found = server.client().list_objects_v2(
                    Bucket="away", Prefix=f"vault/{NAME}/_manifest/{number:010}.json"
                )
                seen[0] = max(seen[0], number if found["KeyCount"] else 0)
            return seen[0] == number

        command = (
            "follow",
            vault.uri(),
            root,
            "--keep",
            "5",
            "--every",
            "1s",
            "--master",
            "inline",
            "--json",
        )
        with started(*command, environment=server.environment()) as running:
            assert wait_until(lambda: reached(1), running), running.ended()
            stopping.kill()
            vault.add(b"while it is away")
            assert wait_until(lambda: running.has_said("retrying in "), running), running.ended()
            stopping.restart()
            assert wait_until(lambda: reached(2), running), running.ended()
            assert wait_until(lambda: running.has_said("recovered after "), running), running.ended()
            stopping.kill()
            assert wait_until(lambda: running.has_said("retrying in ", 2), running), running.ended()
            running.send(signal.SIGTERM)
            began = time.monotonic()
            ended = running.ended(60)
        assert ended.code == 130
        assert time.monotonic() - began < 10
        assert ended.lines[-1] == "streamvault: interrupted; run the same command again to resume"
        stopping.restart()
        report = run(*command, "--idle", "1s", environment=server.environment()).report
        assert (report["ended"], report["made"]) == ("idle", 0)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment().items():
                patch.setenv(name, value)
            whole = check_archive(f"{root}/{NAME}", read_data=True, master="inline[2]")
        assert whole.ok, whole.findings
