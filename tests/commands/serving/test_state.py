"""Reader groups below a root that servers share: they go on at another server, and after a server was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import pytest
from obstore.store import MemoryStore

from streamvault.common.errors import Failed, Usage
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.probe import ProbedServer
from streamvault.objectstore.store import NoSuchBucket, ObjectStoreUnavailable
from streamvault.serving.root import open_groups
from streamvault.serving.serve import serve_archives
from streamvault.serving.state import Groups
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import ConnectionLost
from streamvault.streamstore.pravega.controller_pb2_grpc import ControllerServiceStub
from streamvault.streamstore.pravega.reader_groups import PREFIX
from streamvault.streamstore.pravega.wire import WireCommand, encode
from streamvault.streamstore.store import ReaderGroup
from streamvault.streamstore.uri import parse_stream
from testkit.small_archives import NAME, Vault, a_vault
from tests.serving import Served, serving

ONE, OTHER = UUID(int=1), UUID(int=2)
GROUP = ReaderGroup(scope=NAME.scope, name="app", starts={NAME: None}, id=UUID(int=9))
STATE = f"{NAME.scope}/{PREFIX}app/1.#epoch.0"

vault = a_vault(b"one", exports=[("chunks", "")], on_disk=True)


@pytest.fixture
def two(vault: Vault, tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving(vault.archive, groups=open_groups(str(tmp_path / "readers"), 1 << 20, [])))
            for _ in range(2)
        ]
        yield servers[0], servers[1]


def make_group(served: Served) -> int:
    """Create the group; the end of its state."""
    served.store.reader_groups().create(GROUP, served.store.describe(NAME).head)
    found = served.ask(wire.GetStreamSegmentInfo(1, STATE, ""))
    assert isinstance(found, wire.StreamSegmentInfo)
    return found.write_offset


def append(served: Served, writer: UUID, number: int, data: bytes, expected: int) -> WireCommand:
    """What is answered to an append on a connection of its own."""
    connection = served.connect()
    connection.send(encode(wire.SetupAppend(1, writer, STATE, "")))
    assert isinstance(connection.receive(), wire.AppendSetup)
    connection.send(encode(wire.ConditionalAppend(writer, number, expected, 0, data, 2)))
    return connection.receive()


def last_event(served: Served, writer: UUID) -> int:
    found = served.ask(wire.SetupAppend(1, writer, STATE, ""))
    assert isinstance(found, wire.AppendSetup)
    return found.last_event_number


def test_a_group_goes_on_at_the_other_server(two: tuple[Served, Served]) -> None:
    here, there = two
    end = make_group(here)
    found = there.store.reader_groups().find(NAME.scope, "app")
    assert found is not None
    assert there.store.reader_groups().position(found, NAME) == here.store.reader_groups().position(found, NAME)
    done = append(here, ONE, 5, b"first", end)
    assert isinstance(done, wire.DataAppended)
    for served in (there, here):  # the answer was lost
        assert last_event(served, ONE) == 5
        again = append(served, ONE, 5, b"first", end)
        assert isinstance(again, wire.DataAppended)
        assert (again.previous_event_number, again.write_offset) == (5, done.write_offset)
        assert isinstance(append(served, OTHER, 1, b"late", end), wire.ConditionalCheckFailed)
    assert isinstance(append(there, OTHER, 1, b"second", done.write_offset), wire.DataAppended)
    read = here.ask(wire.ReadSegment(STATE, end, 1000, "", 3))
    assert isinstance(read, wire.SegmentRead)
    assert bytes(read.data) == b"\0\0\0\0\0\0\0\5first\0\0\0\0\0\0\0\6second"
    assert here.store.reader_groups().find(NAME.scope, "app") == found


def test_a_reader_that_waits_is_woken_by_the_other_servers_append(two: tuple[Served, Served]) -> None:
    here, there = two
    end = make_group(here)
    waiting = there.connect()
    waiting.send(encode(wire.ReadSegment(STATE, end, 1000, "", 3)))
    assert last_event(there, OTHER) < 0  # the read is under way
    append(here, ONE, 1, b"news", end)
    read = waiting.receive()
    assert isinstance(read, wire.SegmentRead)
    assert bytes(read.data[8:]) == b"news"
    waiting.send(encode(wire.ReadSegment(STATE, end + 12, 1000, "", 4)))
    append(there, OTHER, 1, b"more", end + 12)
    read = waiting.receive()
    assert isinstance(read, wire.SegmentRead)
    assert bytes(read.data[8:]) == b"more"
    waiting.send(encode(wire.ReadSegment(STATE, end + 24, 1000, "", 5)))
    there.ask(wire.TruncateSegment(1, STATE, end, ""))
    here.ask(wire.TruncateSegment(1, STATE, end + 12, ""))
    refused = there.ask(wire.ReadSegment(STATE, end, 1000, "", 6))
    assert isinstance(refused, wire.SegmentIsTruncated)
    assert refused.start_offset == end + 12
    waiting.close()
    while len(there.segments._changes):  # nobody waits any more, so nobody looks
        append(here, ONE, 1, b"news", end)


def test_a_killed_servers_group_goes_on_after_a_restart(vault: Vault, tmp_path: Path) -> None:
    state = str(tmp_path / "readers")
    command = [sys.executable, "-m", "streamvault", "serve", vault.archive, "--listen", "0", "--json", "--state", state]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as run:
        assert run.stdout is not None
        with parse_stream(f"{json.loads(run.stdout.readline())['uri']}/{NAME}")[0].open() as store:
            made = store.reader_groups().create(GROUP, store.describe(NAME).head)
            position = store.reader_groups().position(made, NAME)
        run.send_signal(signal.SIGKILL)
    with serving(vault.archive, groups=open_groups(state, 1 << 20, [])) as served:
        groups = served.store.reader_groups()
        assert groups.find(NAME.scope, "app") == made
        assert groups.position(made, NAME) == position


class Failing(ObstoreStore):
    """A store that fails while it is told to, before or after it has stored."""

    fails = ""

    def put(self, key: str, data: bytes | memoryview) -> None:
        if self.fails == "before":
            raise ObjectStoreUnavailable("the store of states is down", where=key)
        super().put(key, data)
        if self.fails == "after":
            raise NoSuchBucket("the store of states is gone", where=key)

    def list(self, prefix: str, after: str = "") -> Any:
        if self.fails == "list":
            raise NoSuchBucket("the store of states is gone", where=prefix)
        return super().list(prefix, after)


@pytest.mark.parametrize("fails", ["before", "after", "list"])
def test_a_store_that_fails_closes_the_connection_and_nothing_is_acknowledged(
    vault: Vault, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    store = Failing(MemoryStore(), bucket="memory://state")
    with serving(vault.archive, groups=Groups(store)) as served:
        end = make_group(served)
        connection = served.connect()
        connection.send(encode(wire.SetupAppend(1, ONE, STATE, "")))
        assert connection.receive()
        store.fails = fails
        connection.send(encode(wire.ConditionalAppend(ONE, 1, end, 0, b"data", 2)))
        with pytest.raises(ConnectionLost):
            connection.receive()
        assert "a client's connection is closed: the store of states is" in caplog.text
        if fails == "list":
            with pytest.raises(ConnectionLost):
                served.ask(wire.ReadSegment(STATE, 0, 1000, "", 3))
            with pytest.raises(ConnectionLost):
                served.ask(wire.GetStreamSegmentInfo(1, STATE, ""))
            with grpc.insecure_channel(served.uri.removeprefix("pravega://")) as channel:
                find = ControllerServiceStub(channel).getReaderGroupConfig
                with pytest.raises(grpc.RpcError) as caught:
                    find(pb.ReaderGroupInfo(scope=NAME.scope, readerGroup="app"))
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        store.fails = ""
        assert isinstance(append(served, ONE, 1, b"data", end), wire.DataAppended)
        assert isinstance(append(served, OTHER, 1, b"more", end + 12), wire.DataAppended)


def test_a_root_that_does_not_do_is_one_line(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for state in (vault.root, vault.archive, f"{vault.archive}/readers"):
        with pytest.raises(Usage, match="require a separate root"):
            serve_archives([vault.archive], listen="0", state=state, lasting=0.01)
    with pytest.raises(NoSuchBucket):
        serve_archives([vault.archive], listen="0", state=str(tmp_path / "none" / "none"), lasting=0.01)
    for probed, why in (
        (ProbedServer(creates_only=False, is_ordered=True, written=None, deletes=True), "only if there is none"),
        (ProbedServer(creates_only=True, is_ordered=False, written=None, deletes=True), "byte order"),
        (ProbedServer(creates_only=True, is_ordered=True, written=None, deletes=False), "may not delete"),
    ):
        monkeypatch.setattr("streamvault.serving.root.probe_server", lambda *_, found=probed: found)
        with pytest.raises(Failed, match=why):
            serve_archives([vault.archive], listen="0", state=str(tmp_path / "readers"), lasting=0.01)
