"""The embedded store served as a cluster, and the fixture with which users test their own programs."""

from __future__ import annotations

import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamvault import export_stream
from streamvault.serving.embedded import EmbeddedPravega, embedded_pravega
from streamvault.serving.live import LOOK_SECONDS
from streamvault.serving.server import _Loop
from streamvault.streamstore.errors import InvalidName, NoSuchScope, NoSuchStream, StreamExists
from streamvault.streamstore.model import KeyRange, SegmentId, StreamCut, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Connection, PravegaSettings
from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.wire import encode
from streamvault.streamstore.store import ReaderGroup, StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.small_archives import NAME, a_root
from testkit.streams import digest_of, events_of, make_stream, shape_of
from tests.pages import DOCS, ROOT

SEGMENT = SegmentId(0, 0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPravega]:
    with embedded_pravega(tmp_path / "streams") as server:
        yield server


@pytest.fixture
def client(server: EmbeddedPravega) -> Iterator[StreamStore]:
    with parse_stream(f"{server.uri}/{NAME}")[0].open() as store:
        yield store


def test_a_client_reads_what_was_written_after_it_came(server: EmbeddedPravega, client: StreamStore) -> None:
    assert not client.exists(NAME)
    with pytest.raises((NoSuchScope, NoSuchStream)):
        client.describe(NAME)
    server.create(str(NAME), segments=2)
    server.write(str(NAME), [b"one", b"two"], key="a")
    server.write(str(NAME), [b"three"], key="b")
    assert sorted(payload for _, payload in events_of(client, NAME)) == [b"one", b"three", b"two"]
    assert shape_of(client, NAME) == shape_of(server.store, NAME)
    assert list(client.list_streams(NAME.scope)) == [NAME]
    server.store.seal(NAME)
    assert client.describe(NAME).sealed


def test_a_stream_that_was_scaled_and_truncated(server: EmbeddedPravega, client: StreamStore) -> None:
    make_stream(server.store, NAME, events=400, largest=2_000_000)
    assert shape_of(client, NAME) == shape_of(server.store, NAME)
    assert digest_of(client, NAME) == digest_of(server.store, NAME)


def test_a_reader_that_waits_gets_what_is_written(server: EmbeddedPravega, client: StreamStore) -> None:
    server.create(str(NAME))
    controller = Controller(PravegaSettings.from_environment(server.uri))
    connection = Connection(controller.endpoint(NAME, SEGMENT), timeout=20)
    connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", 1)))
    timer = threading.Timer(0.2, server.write, (str(NAME), [b"late"]))
    timer.start()
    answer = connection.receive()
    assert isinstance(answer, wire.SegmentRead)
    assert answer.data[8:] == b"late"
    timer.join()
    connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", 12, 100, "", 2)))
    server.store.scale(NAME, [SEGMENT], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
    answer = connection.receive()
    assert isinstance(answer, wire.SegmentRead)
    assert answer.end_of_segment
    server.store.truncate(StreamCut(NAME, {SegmentId(1, 1): 0, SegmentId(1, 2): 0}))
    connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", 3)))
    assert isinstance(connection.receive(), wire.NoSuchSegment | wire.SegmentIsTruncated)
    connection.close()
    controller.close()


def test_readers_of_a_stream_that_is_deleted_are_told_and_others_go_on(
    server: EmbeddedPravega, client: StreamStore, caplog: pytest.LogCaptureFixture
) -> None:
    other = StreamName("other", "stream")
    for name in (NAME, other):
        server.create(str(name))
    controller = Controller(PravegaSettings.from_environment(server.uri))
    connections = [Connection(controller.endpoint(name, SEGMENT), timeout=20) for name in (NAME, other)]
    for connection, name in zip(connections, (NAME, other), strict=True):
        connection.send(encode(wire.ReadSegment(f"{name}/{SEGMENT}", 0, 100, "", 1)))
    threading.Event().wait(3 * LOOK_SECONDS)  # both are known, and waited for
    server.store.seal(NAME)
    server.store.delete(NAME)
    server.store.delete_scope(NAME.scope)
    assert isinstance(connections[0].receive(), wire.NoSuchSegment | wire.SegmentRead)
    connections[0].send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", 2)))
    assert isinstance(connections[0].receive(), wire.NoSuchSegment)
    server.write(str(other), [b"late"])
    answer = connections[1].receive()
    assert isinstance(answer, wire.SegmentRead)
    assert answer.data[8:] == b"late"
    assert "Traceback" not in caplog.text
    for connection in connections:
        connection.close()
    controller.close()


def test_a_stream_that_goes_while_streams_are_listed_ends_nothing(
    server: EmbeddedPravega, client: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scope, too, so that the list cannot be read to its end."""
    server.create(str(NAME))
    missed, known = threading.Event(), server.store.list_streams

    def gone(scope: str) -> Iterator[StreamName]:
        monkeypatch.setattr(server.store, "list_streams", known)
        missed.set()
        raise NoSuchScope("no such scope")

    monkeypatch.setattr(server.store, "list_streams", gone)
    assert missed.wait(20)
    with closing(Controller(PravegaSettings.from_environment(server.uri))) as controller:
        connection = Connection(controller.endpoint(NAME, SEGMENT), timeout=20)
        connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", 1)))
        threading.Timer(0.2, server.write, (str(NAME), [b"late"])).start()
        assert isinstance(connection.receive(), wire.SegmentRead)
        connection.close()


def test_a_loop_that_has_ended_leaves_no_socket() -> None:
    loop = _Loop()
    loop.stop()
    assert loop._loop.is_closed()


def test_reader_groups_and_exports(server: EmbeddedPravega, client: StreamStore) -> None:
    server.create(str(NAME))
    server.write(str(NAME), [b"one"])
    made = client.reader_groups().create(
        ReaderGroup(scope=NAME.scope, name="app", starts={NAME: None}), client.describe(NAME).head
    )
    assert client.reader_groups().find(NAME.scope, "app") == made
    assert export_stream(f"{server.uri}/{NAME}", a_root(), master="inline").events == 1


def test_the_fixture_is_there_for_users_and_nothing_heavy_is_imported_without_it(tmp_path: Path) -> None:
    page = (DOCS / "guide" / "testing.md").read_text()
    shown = page.split("```python\n")[1].split("```")[0]
    (tmp_path / "test_shown.py").write_text(shown)
    (tmp_path / "test_light.py").write_text(
        "import sys\n\n\ndef test_light():\n    heavy = {'grpc', 'pyarrow', 'numpy', 'pydantic', 'obstore'}\n"
        "    assert 'streamvault.testing' in sys.modules\n    assert not heavy & sys.modules.keys()\n"
    )
    for file in ("test_light.py", "test_shown.py"):
        words = [sys.executable, "-m", "pytest", "-q", "-p", "streamvault.testing", "-c", "/dev/null", file]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"streamvault.testing": "streamvault.testing"}


def test_names_are_checked(server: EmbeddedPravega) -> None:
    server.create("shop/orders")
    with pytest.raises(StreamExists):
        server.create("shop/orders")
    with pytest.raises(NoSuchStream):
        server.write("shop/none", [b"one"])
    with pytest.raises(InvalidName):
        server.write("shop", [b"one"])
    assert server.controller.startswith("tcp://127.0.0.1:")
