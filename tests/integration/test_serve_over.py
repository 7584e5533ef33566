"""An archive and its live stream on a real Pravega, read as one by Java's client."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamvault import export_stream
from streamvault.exporter.rotate import rotate_stream
from streamvault.serving.server import Certificate
from streamvault.streamstore.errors import AccessDenied
from streamvault.streamstore.model import KeyRange, StreamConfiguration, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import PravegaSettings
from streamvault.streamstore.pravega.store import PravegaStore
from testkit.servers.java_client import JavaClient
from testkit.servers.process import accepts, free_ports
from testkit.streams import append_events, digest_of, make_stream
from tests.integration.conftest import Site
from tests.serving import serving

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
