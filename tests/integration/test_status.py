"""Status and report of a real stream, and of its archive on a real S3 server."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import certifi
import pytest

from streamvault import export_stream, replicate_stream, request_restore, show_status
from streamvault.cli import main
from streamvault.inspect import streams as looking
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.model import KeyRange, Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.own import TARGET_LEASE, stream_beside
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.minio import read_only
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, make_stream, payloads

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(300)]


@pytest.fixture
def source(pravega: PravegaServer) -> Iterator[tuple[StreamStore, StreamName, str]]:
    """A stream of two segments, one of which was split."""
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    uri = f"{pravega.uri}/{name}"
    with parse_stream(uri)[0].open() as store:
        store.create_scope(name.scope)
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
        add(store, name, 50)
        (segment, held), *_ = store.describe(name).epochs[-1].segments.items()
        middle = (held.low + held.high) / 2
        store.scale(name, [segment], [KeyRange(held.low, middle), KeyRange(middle, held.high)])
        add(store, name, 50)
        yield store, name, uri


def add(store: StreamStore, name: StreamName, events: int) -> int:
    """Append events to each open segment; return how many bytes that are."""
    written = [
        list(payloads(events, segment.value % 97, largest=5_000)) for segment in store.describe(name).tail.offsets
    ]
    for segment, events_of_it in zip(store.describe(name).tail.offsets, written, strict=True):
        append_events(store, name, segment, events_of_it)
    return sum(8 + len(event) for events_of_it in written for event in events_of_it)


def test_status_of_a_scope(
    source: tuple[StreamStore, StreamName, str],
    root: str,
    minio: S3Server,
    use_s3: Callable[[S3Server], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With a login that may only read on S3."""
    store, name, uri = source
    scope, replica, queue = (f"{uri.removesuffix('source')}{each}" for each in ("", "replica", "requests"))
    export_stream(uri, root, layout="chunks", master="inline[2]")
    replicate_stream(uri, replica, master="inline[2]")
    request_restore(f"{root}/{name}", f"{scope}restored", queue=queue)
    written = add(store, name, 20)
    store.create_stream(StreamName(name.scope, "new"), StreamConfiguration())
    lease_name = stream_beside(StreamName(name.scope, "new"), TARGET_LEASE)
    lease = Lease.take(store, lease_name, "work", held=LeaseHeld("held by a test"))
    before = set(store.list_streams(name.scope, own=True))
    use_s3(read_only(minio, root.removeprefix("s3://").partition("/")[0]))
    monkeypatch.setattr(looking, "PATIENCE_SECONDS", 120.0)
    report = show_status(scope, root=root)
    assert report.warnings == ()
    assert [(one.stream, one.archive, one.unarchived) for one in report.live_streams] == [
        (f"{scope}new", "", 0),
        (uri, f"{root}/{name}", written),
    ]
    assert [(one.archive, one.generation, one.unchecked_generations) for one in report.statuses] == [
        (f"{root}/{name}", 1, 1)
    ]
    assert [(one.replica, one.source, one.lag_bytes) for one in report.replicas] == [(replica, uri, written)]
    assert [(one.queue, one.waiting, one.failed) for one in report.queues] == [(queue, 1, 0)]
    assert [(one.stream, one.alive) for one in report.leases] == [(f"{scope}new", True)]
    assert set(store.list_streams(name.scope, own=True)) == before
    lease.release(remove=False)
    monkeypatch.setattr(looking, "PATIENCE_SECONDS", 0.5)
    capfd.readouterr()
    assert main(["status", scope, "--root", root]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.splitlines()[-1].split()[-1] == "dead"
    assert main(["status", root]) == 0
    assert re.search(rf"^{name} +1 ", capfd.readouterr().out, re.MULTILINE)


def test_server_that_cannot_be_read_leaves_the_others(
    source: tuple[StreamStore, StreamName, str],
    pravega_secure: PravegaServer,
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One line says why, and no figure of what it has: an absent one is not 0."""
    _, name, uri = source
    assert pravega_secure.certificates is not None
    right = {
        "PRAVEGA_CA_FILE": str(pravega_secure.certificates.authority),
        "PRAVEGA_USERNAME": ADMIN.user,
        "PRAVEGA_PASSWORD": ADMIN.password,
    }
    for variable, value in right.items():
        monkeypatch.setenv(variable, value)
    guarded = StreamName(f"{name.scope}-2", "guarded")
    with parse_stream(f"{pravega_secure.uri}/{guarded}")[0].open() as store:
        make_stream(store, guarded, events=20, largest=2000)
    for stream in (uri, f"{pravega_secure.uri}/{guarded}"):
        export_stream(stream, root, layout="chunks", master="inline[2]")
    file, prom = tmp_path / "streams.toml", tmp_path / "status.prom"

    def seen(server: str, **changed: str) -> tuple[str, list[str], dict[str, str]]:
        """Return what the command says, the last column of each row, and the metrics of the two streams."""
        file.write_text(f"root = '{root}'\nkeep = 3\n[[streams]]\nstream = '{uri}'\n[[streams]]\nstream = '{server}'\n")
        with monkeypatch.context() as patched:
            for variable, value in changed.items():
                patched.setenv(variable, value)
            assert main(["status", "--config", str(file), "--metrics", str(prom)]) == 0
        out, err = capfd.readouterr()
        found = re.findall(r'^streamvault_stream_(\w+)\{stream="[^"]*/(\w+)".* (\d)$', prom.read_text(), re.MULTILINE)
        columns = [line.split()[-1] for line in out.splitlines()[2:]]
        return err, columns, {f"{stream} {metric}": value for metric, stream, value in found}

    capfd.readouterr()
    tls = f"{pravega_secure.uri}/{guarded}"
    mine = {"source archived": "1", "source unarchived_bytes": "0", "source readable": "1"}
    fine = {"guarded archived": "1", "guarded unarchived_bytes": "0", "guarded readable": "1"}
    assert seen(tls) == ("", ["B", "B"], mine | fine)
    unknown = mine | {"guarded archived": "1", "guarded readable": "0"}
    for server, changed, why in (
        (tls, {"PRAVEGA_PASSWORD": "wrong"}, "Pravega rejected the login of admin"),
        (tls, {"PRAVEGA_CA_FILE": certifi.where()}, "the controller's certificate is not trusted"),
        (tls.replace("+tls", ""), {}, "the server speaks TLS"),
    ):
        err, *shown = seen(server, **changed)
        assert err.startswith(f"warning: {server.rpartition('/')[0]} and 1 more: {why}"), err
        assert (err.count("\n"), shown) == (1, [["B", "?"], unknown])
    err, *shown = seen(tls, AWS_SECRET_ACCESS_KEY="wrong")
    assert err.startswith(f"warning: {root} and 2 more: the secret access key is wrong"), err
    assert (err.count("\n"), shown) == (1, [["?", "?"], {"source readable": "0", "guarded readable": "0"}])
