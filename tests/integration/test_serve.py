"""Archives served to Pravega's Java client: what it reads is what it reads from a real Pravega.

An archive and its live stream on a real Pravega, read as one by Java's client.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamvault import export_stream
from streamvault.exporter.rotate import rotate_stream
from streamvault.serving.archived import ServedArchive
from streamvault.serving.cache import LEAST_CACHE, BlockCache
from streamvault.serving.embedded import embedded_pravega
from streamvault.serving.root import open_groups
from streamvault.serving.server import Certificate, Listening, listening
from streamvault.streamstore.errors import AccessDenied
from streamvault.streamstore.model import KeyRange, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import PravegaSettings
from streamvault.streamstore.pravega.store import PravegaStore
from testkit.servers.java_client import JavaClient, server_at
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_java import pravega_jars
from testkit.servers.process import accepts, free_ports
from testkit.small_archives import NAME, Vault, archive_of, data_keys, objects_of, replace_object
from testkit.streams import append_events, digest_of, make_stream
from tests.integration.conftest import Site
from tests.serving import serving

LAYOUTS: list[dict[str, Any]] = [{"layout": "events"}, {"layout": "chunks"}, {"layout": "chunks", "compress": "zstd"}]

SEGMENT = SegmentId(0, 0)
MIB = 1024 * 1024

FETCHED = 50
"""Events that are read once more, each by its pointer."""

AT_ONCE = 4
"""Java clients that run at the same time; each waits for most of its seconds."""


@pytest.mark.pravega
def test_java_reads_an_archive_as_it_reads_the_stream(
    here: Site, java_client: JavaClient, scope_name: str, tmp_path: Any
) -> None:
    name = StreamName(scope_name, "orders")
    make_stream(here.store, name, events=1_000, largest=300_000)
    count = digest_of(here.store, name)[0]
    with ExitStack() as stack:
        run = stack.enter_context(ThreadPoolExecutor(AT_ONCE)).submit
        groups = [run(java_client.digest, here.server, name, count)]
        fetched = []
        batches = [run(java_client.run, "BatchDigest", here.server, name)]
        for number, layout in enumerate(LAYOUTS):
            root = tmp_path / str(number)
            root.mkdir()
            export_stream(here.uri(name), str(root), master="inline", **layout)
            cache = BlockCache(LEAST_CACHE)
            stack.callback(cache.close)
            archive = ServedArchive(f"{root}/{name}", cache)
            server = stack.enter_context(listening({archive.name: archive}, cache))
            served = server_at(server.uri, here.server.classpath)
            groups.append(run(java_client.digest, served, name, count))
            batches.append(run(java_client.run, "BatchDigest", served, name))
            fetched.append(run(java_client.run, "FetchEvents", served, name, FETCHED))
        written = java_client.run("Refused", served, name)
        assert len({one.result() for one in groups}) == 1
        assert len({one.result()[-1] for one in batches}) == 1
        assert batches[0].result()[-1].startswith(f"{count} ")
        assert {one.result()[-1] for one in fetched} == {f"{FETCHED} {FETCHED}"}
    assert "read-only" in written[-1]
    assert "sealed" not in written[-1]


@pytest.mark.pravega
def test_java_reads_byte_streams_and_large_events(
    here: Site, java_client: JavaClient, scope_name: str, tmp_path: Path
) -> None:
    octets, large = (StreamName(scope_name, name) for name in ("bytes", "large"))
    for name in (octets, large):
        here.store.create_stream_and_scope(name, StreamConfiguration())
    java_client.byte_stream(here.server, octets, append=3 * MIB + 5)
    append_events(here.store, large, SEGMENT, [b"small", bytes(range(256)) * 4 * 1024 * 20, b"last"])
    export_stream(here.uri(octets), str(tmp_path), content="bytes", master="inline")
    export_stream(here.uri(large), str(tmp_path), layout="chunks", master="inline")
    cache = BlockCache(LEAST_CACHE)
    archives = [ServedArchive(f"{tmp_path}/{name}", cache) for name in (octets, large)]
    with closing(cache), listening({one.name: one for one in archives}, cache) as server:
        served = server_at(server.uri, here.server.classpath)
        assert java_client.byte_stream(served, octets) == java_client.byte_stream(here.server, octets)
        assert java_client.digest(served, large, 3) == java_client.digest(here.server, large, 3)


@pytest.mark.pravega
def test_java_reads_a_stream_of_the_embedded_store_as_one_of_pravega(
    here: Site, java_client: JavaClient, scope_name: str, tmp_path: Any
) -> None:
    name = StreamName(scope_name, "orders")
    with embedded_pravega(tmp_path / "streams") as server:
        served = server_at(server.uri, here.server.classpath)
        for store in (here.store, server.store):
            make_stream(store, name, events=500, largest=300_000)
        count = digest_of(here.store, name)[0]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            groups = [pool.submit(java_client.digest, where, name, count) for where in (here.server, served)]
            batches = [pool.submit(java_client.run, "BatchDigest", where, name) for where in (here.server, served)]
        assert groups[0].result() == groups[1].result()
        assert batches[0].result()[-1] == batches[1].result()[-1]
        assert batches[0].result()[-1].startswith(f"{count} ")


@pytest.mark.pravega
@pytest.mark.minio
def test_a_java_reader_group_goes_on_at_another_server(
    pravega: PravegaServer, java_client: JavaClient, bucket: str, tmp_path: Any
) -> None:
    vault = Vault(tmp_path, f"s3://{bucket}/vault")
    vault.create(segments=2)
    vault.add(*(f"text-{number}".encode() for number in range(150)))
    vault.export("chunks")
    read: list[str] = []
    for steps in (["create", "read:one:100", "close:one"], ["create", "read:two:200", "close:two", "delete"]):
        cache = BlockCache(LEAST_CACHE)
        archive = ServedArchive(vault.archive, cache)
        groups = open_groups(f"s3://{bucket}/readers", cache.state_bytes, [vault.archive])
        with listening({archive.name: archive}, cache, groups=groups) as server:  # at another port
            served = server_at(server.uri, pravega.classpath)
            read += [line for line in java_client.run("ReaderGroups", served, NAME, "app", *steps) if "text-" in line]
        cache.close()
    assert len(read) == 300
    assert sorted(line.rpartition(" ")[2] for line in read) == sorted(f"text-{n}" for n in range(150) for _ in "ab")
    assert len(set(read)) == 300  # each line begins with the event's pointer
    assert len(list(groups._store.list(""))) == 1  # what is left of a group


TEXTS = [f"text-{number:03} ".encode() * 50 for number in range(100)]


def spoil(vault: Vault, key: str, damage: str) -> int:
    """Change a byte of an object, or remove it; return where the range that it is of begins."""
    data = bytearray(objects_of(vault.root).get(key))
    data[len(data) // 2] ^= 1
    replace_object(vault.root, key, bytes(data) if damage == "changed" else None)
    at = int(key.rpartition("/")[2].partition("-")[0])
    return next(row.start for _, row in archive_of(vault.root).history().ranges(SEGMENT) if at < row.end)


@pytest.mark.pravega
@pytest.mark.waits
def test_java_is_not_handed_what_is_damaged_and_its_error_says_what_to_do(
    java_client: JavaClient, tmp_path: Path
) -> None:
    """It tries again for about two minutes; the readers do so beside each other."""
    with ThreadPoolExecutor(AT_ONCE) as pool, ExitStack() as stack:

        def begin(layout: Any, compress: Any, damage: str) -> tuple[Vault, ServedArchive, Listening, int, Any]:
            vault = Vault(tmp_path / f"{layout}{compress}{damage}")
            vault.create()
            vault.add(*TEXTS)
            vault.export(layout, compress)
            keys = data_keys(vault.root)
            end = spoil(vault, keys[len(keys) // 2], damage) if damage else vault.tail()[SEGMENT]
            cache = BlockCache(LEAST_CACHE)
            stack.callback(cache.close)
            archive = ServedArchive(vault.archive, cache)
            server = stack.enter_context(listening({archive.name: archive}, cache, every=0.2))
            at = server_at(server.uri, f"{pravega_jars()}/*")
            return vault, archive, server, end, pool.submit(java_client.run, "Damaged", at, NAME, timeout=800)

        begun = [begin("events", "", "missing"), begin("chunks", "zstd", "changed"), begin("chunks", "", "")]
        vault, archive, server, end, run = begun[-1]
        while server.segments.sent < 2 * end:  # two readers; the group's then waits at the end
            assert not run.done(), run.result()
            time.sleep(0.1)
        with archive._looking:  # what comes is damaged before the server sees it
            before = set(data_keys(vault.root))
            vault.add(*TEXTS)
            vault.export("chunks")
            assert spoil(vault, min(set(data_keys(vault.root)) - before), "changed") == end
        for vault, _, _, end, run in begun:
            printed = run.result()
            intact = [text.decode() for at, text in vault.events() if at.offset < end]
            assert 10 < len(intact) <= len(TEXTS)
            for who in ("group", "batch"):
                *texts, raised = [line.partition(" ")[2] for line in printed if line.startswith(who)]
                assert texts == intact
                if who == "batch" and len(texts) == len(TEXTS):  # it reads to where the end was when it began
                    assert raised == "raised nothing"
                else:
                    assert "Run 'streamvault check --read-data' on the archive" in raised


KILLS = 3
"""How often the server is killed in CI."""


def as_server(site: Site, uri: str) -> Any:
    """What `JavaClient` is told of a server that stands before a cluster."""
    server = site.server
    return SimpleNamespace(
        uri=uri, certificates=server.certificates, accounts=server.accounts, classpath=server.classpath
    )


@pytest.mark.pravega
def test_java_reads_the_same_before_and_after_a_truncation(
    here: Site, java_client: JavaClient, scope_name: str, tmp_path: Path
) -> None:
    name = StreamName(scope_name, "orders")
    make_stream(here.store, name, events=600, largest=300_000)
    export_stream(here.uri(name), str(tmp_path), master="inline", layout="chunks")
    archived = here.store.describe(name).tail
    for number, segment in enumerate(archived.offsets):
        append_events(here.store, name, segment, [f"live-{number}-{n}".encode() for n in range(50)])
    first = next(iter(archived.offsets))
    here.store.scale(name, [first], [here.store.describe(name).epochs[-1].segments[first]])
    count = digest_of(here.store, name)[0]

    def digests(server: Any) -> tuple[str, str]:
        with ThreadPoolExecutor(2) as pool:
            group = pool.submit(java_client.digest, server, name, count)
            batch = pool.submit(java_client.run, "BatchDigest", server, name)
            return group.result(), batch.result()[-1]

    before = digests(here.server)
    with serving(f"{tmp_path}/{name}", over=here.uri(name)) as served:
        assert digests(as_server(here, served.uri)) == before
        here.store.truncate(archived)
        assert digests(as_server(here, served.uri)) == before
        written = java_client.run("Refused", as_server(here, served.uri), name)
    assert "write to pravega://" in written[-1]
    assert "sealed" not in written[-1]


@pytest.mark.pravega
def test_the_cluster_says_who_may_read(
    there: Site, java_client: JavaClient, scope_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = there.server.certificates
    assert certificates is not None
    for variable in ("USERNAME", "PASSWORD", "CA_FILE"):
        monkeypatch.setenv(f"PRAVEGA_{variable}", os.environ[f"PRAVEGA_TARGET_{variable}"])
    name = StreamName(scope_name, "orders")
    make_stream(there.store, name, events=200, largest=3000)
    count = digest_of(there.store, name)[0]
    before = java_client.digest(there.server, name, count)
    export_stream(there.uri(name), str(tmp_path), master="inline", layout="chunks")
    there.store.truncate(there.store.describe(name).tail)
    certificate = Certificate(certificates.certificate, certificates.key)
    with serving(f"{tmp_path}/{name}", over=there.uri(name), certificate=certificate) as served:
        assert java_client.digest(as_server(there, served.uri), name, count) == before
        segment, start = next(iter(served.archive.now.described.head.offsets.items()))
        settings = PravegaSettings.from_environment(served.uri)
        with PravegaStore(replace(settings, password="wrong")) as stranger, pytest.raises(AccessDenied):
            stranger.describe(name)
        with PravegaStore(settings) as store:
            token = store._stores.tokens.get(name, write=False)
            for given, expected in ((token, wire.SegmentRead), ("", wire.AuthTokenCheckFailed)):
                with store._stores.borrowed(served.endpoint) as connection:
                    connection.send(wire.encode(wire.ReadSegment(f"{name}/{segment}", start, 8, given, 1)))
                    assert isinstance(connection.receive(), expected)


@contextmanager
def server_that_is_killed(archive: str, stream: str) -> Iterator[tuple[str, Any]]:
    """Serve in a process of its own; return the controller's URI, and what kills it and starts another."""
    port = next(port for port in free_ports(20) if not accepts(port + 1))
    command = [sys.executable, "-m", "streamvault", "serve", archive, "--over", stream, "--every", "1s"]
    running: list[subprocess.Popen[str]] = []

    def start() -> None:
        if running:
            running[-1].kill()
            running[-1].wait(30)
        listen = ["--listen", f"127.0.0.1:{port}"]
        running.append(subprocess.Popen([*command, *listen], stdout=subprocess.PIPE, text=True))
        assert running[-1].stdout is not None
        assert running[-1].stdout.readline().startswith("serving")

    start()
    try:
        yield f"pravega://127.0.0.1:{port}", start
    finally:
        running[-1].kill()
        running[-1].wait(30)


@pytest.mark.pravega
def test_rotations_scales_and_kills_under_a_reader(
    here: Site, java_client: JavaClient, scope_name: str, tmp_path: Path
) -> None:
    name = StreamName(scope_name, "orders")
    here.store.create_stream_and_scope(name, StreamConfiguration())
    written: list[str] = []

    def write(number: int) -> None:
        [segment] = here.store.describe(name).epochs[-1].segments
        some = [f"event-{number}-{n}" for n in range(200)]
        append_events(here.store, name, segment, [one.encode() for one in some])
        written.extend(some)
        if number % 2:
            here.store.scale(name, [segment], [KeyRange(0.0, 1.0)])
        rotate_stream(here.uri(name), str(tmp_path), truncate_source=True, master="inline", layout="chunks")

    write(0)
    with server_that_is_killed(f"{tmp_path}/{name}", here.uri(name)) as (uri, start):
        steps = ("create", f"await:one:{200 * (2 * KILLS + 1)}", "delete")
        read: list[str] = []
        run = threading.Thread(
            target=lambda: read.extend(java_client.run("ReaderGroups", as_server(here, uri), name, "app", *steps))
        )
        run.start()
        for kill in range(KILLS):
            write(2 * kill + 1)
            start()
            write(2 * kill + 2)
        run.join(240)
    events = [line.rpartition(" ")[2] for line in read if "event-" in line]
    by_segment = defaultdict[str, list[int]](list)
    for line in read:
        if "event-" in line:
            segment, _, at = line.partition(" ")[0].rpartition(":")
            by_segment[segment].append(int(at.partition("-")[0]))
    assert sorted(events) == sorted(written)
    assert all(offsets == sorted(set(offsets)) for offsets in by_segment.values())
    assert events == written  # one key, so one order
