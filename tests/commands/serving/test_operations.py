"""What operators need of a server: metrics, probes, and a stop that finishes answers.

Reader groups below a root that servers share: they go on at another server, and after a server was killed.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from uuid import UUID

import grpc
import pytest
from obstore.store import MemoryStore

from streamvault.cli import main
from streamvault.cli.measuring import answering
from streamvault.cli.running import Command
from streamvault.common.errors import Failed, Usage
from streamvault.common.units import now_utc, parse_moment
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.probe import ProbedServer
from streamvault.objectstore.store import NoSuchBucket, ObjectStoreUnavailable
from streamvault.serving import archived, segments
from streamvault.serving.archived import ServedArchive
from streamvault.serving.cache import LEAST_CACHE
from streamvault.serving.figures import METRICS, ServerFigures
from streamvault.serving.root import open_groups
from streamvault.serving.segments import REFUSALS, SegmentServer
from streamvault.serving.serve import OPEN_FILES, serve_archives
from streamvault.serving.state import Groups
from streamvault.streamstore.errors import RequestFailed
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Connection, ConnectionLost
from streamvault.streamstore.pravega.controller_pb2_grpc import ControllerServiceStub
from streamvault.streamstore.pravega.reader_groups import PREFIX
from streamvault.streamstore.pravega.wire import WireCommand, encode
from streamvault.streamstore.store import ReaderGroup
from streamvault.streamstore.uri import parse_stream
from testkit.small_archives import NAME, Vault, a_vault, data_keys, replace_object
from tests.pages import DOCS
from tests.serving import Served, serving

SEGMENT = SegmentId(0, 0)
PAGE = (DOCS / "reference" / "metrics.md").read_text()

small = a_vault(b"one", b"two", exports=[("chunks", "")])
on_disk = a_vault(b"one", exports=[("chunks", "")], on_disk=True)


def values(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.removesuffix("{}"): float(value) for name, _, value in lines}


def metrics_of(served: Served) -> dict[str, float]:
    found = ServerFigures(served.segments, served.segments.cache, [served.archive])()
    return {name.removeprefix("streamvault_serve_"): value for name, value in values(found).items()}


def test_metrics_count_what_was_read_and_refused(small: Vault) -> None:
    began = time.time()
    with serving(small.archive) as served:
        before = metrics_of(served)
        assert before["archives"] == 1
        assert before["sent_bytes_total"] == before["fetched_blocks_total"] == 0
        assert served.store.read_bytes(NAME, SEGMENT, 8, 11) == b"one"
        after = metrics_of(served)
        assert (after["sent_bytes_total"], after["fetched_blocks_total"]) == (3, 1)
        assert after["fetch_seconds_total"] > 0
        assert after["connections"] >= 1
        assert after['requests_total{request="ReadSegment"}'] == 1
        assert began <= after["oldest_look_timestamp_seconds"] <= time.time()
        assert not [name for name in after if name.startswith("refusals")]
        assert served.store.read_bytes(NAME, SEGMENT, 8, 11) == b"one"
        again = metrics_of(served)
        assert again["cache_hits_total"] > after["cache_hits_total"]
        assert (again["sent_bytes_total"], again["fetched_blocks_total"]) == (6, 1)
    with serving(small.archive, generation=1) as served:  # it never looks again
        assert "oldest_look_timestamp_seconds" not in metrics_of(served)


@pytest.mark.parametrize("generation", [None, 1])
def test_damage_is_counted(small: Vault, generation: int | None) -> None:
    replace_object(small.root, data_keys(small.root)[0], None)
    with serving(small.archive, generation=generation) as served:
        answer = served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 8, 3, "", 1))
        assert isinstance(answer, wire.ErrorMessage)
        assert "streamvault check" in answer.message
        assert metrics_of(served)['refusals_total{reason="damage"}'] >= 1


def status_of(served: Served) -> dict[str, Any]:
    status = ServerFigures(served.segments, served.segments.cache, [served.archive]).status()
    return dict(json.loads(json.dumps(status)))


def test_status_says_what_is_served_since_when_and_how_full_the_memory_is(small: Vault) -> None:
    began = now_utc()
    with serving(small.archive) as served:
        (first,) = status_of(served)["streams"]
        assert (first["stream"], first["archive"], first["generation"]) == (str(NAME), small.archive, 1)
        assert parse_moment(first["created"], "") <= began <= parse_moment(first["since"], "") <= now_utc()
        small.add(b"three")
        small.export("chunks")
        assert served.archive.renewed()
        found = status_of(served)
        (second,) = found["streams"]
        assert (second["generation"], second["problem"], second["over"]) == (2, "", None)
        assert parse_moment(second["since"], "") > parse_moment(first["since"], "")
        assert parse_moment(second["looked"], "") >= parse_moment(first["looked"], "")
        assert served.store.read_bytes(NAME, SEGMENT, 8, 11) == b"one"
        after = status_of(served)
        assert after["cache_bytes"] > found["cache_bytes"]
        assert after["cache_bytes"] < after["cache_limit_bytes"] == LEAST_CACHE * 7 // 8
        assert (after["sent_bytes"], after["refusals"]) == (3, {})


def test_status_says_why_an_archive_cannot_be_read_any_more(small: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(small.archive) as served:
        look = served.archive._look

        def fails(*, failed: bool) -> None:
            raise Failed("the archive was deleted")

        monkeypatch.setattr(served.archive, "_look", fails)
        served.archive.refresh()
        assert status_of(served)["streams"][0]["problem"] == "the archive was deleted"
        monkeypatch.setattr(served.archive, "_look", look)
        served.archive.refresh()
        assert status_of(served)["streams"][0]["problem"] == ""


def test_status_names_what_was_damaged_last_and_when(small: Vault) -> None:
    (key,) = data_keys(small.root)
    replace_object(small.root, key, None)
    began = now_utc()
    with serving(small.archive) as served:
        for count in (1, 2):
            with pytest.raises(RequestFailed):
                served.store.read_bytes(NAME, SEGMENT, 8, 11)
            found = status_of(served)["refusals"]["damage"]
            assert found["count"] == count
            assert began <= parse_moment(found["last"], "") <= now_utc()
            assert key.rpartition("/")[2] in found["why"]


def test_page_names_the_fields_of_the_status(small: Vault) -> None:
    with serving(small.archive) as served:
        found = status_of(served)
    _, _, section = PAGE.partition("## Status of `serve`")
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == {"ready", *found, *found["streams"][0]}


def test_page_names_the_metrics_and_the_reasons_of_refusals() -> None:
    assert set(re.findall(r"\bstreamvault_serve_(\w+)", PAGE)) == METRICS.keys()
    (row,) = re.findall(r"^\| `streamvault_serve_refusals_total` \|(.*)\|$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`([a-z ]+)`", row)) - {"reason"} == REFUSALS


def test_a_server_is_ready_while_it_answers(
    small: Vault, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[Any, ...]] = []
    ports: list[int] = []

    @contextmanager
    def listening(place: tuple[str, int], *given: Any) -> Iterator[int]:
        with answering(place, *given) as port:
            ports.append(port)
            yield port

    def watch(kind: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(kind, name)

        def watched(*given: Any, **more: Any) -> Any:
            seen.append((name, *(probe(ports[0], page) for page in ("ready", "health", "status"))))
            return real(*given, **more)

        monkeypatch.setattr(kind, name, watched)

    monkeypatch.setattr("streamvault.cli.measuring.answering", listening)
    watch(ServedArchive, "_look")
    watch(SegmentServer, "close")
    real = Command.write

    def write(self: Command, *given: Any) -> None:
        if self.is_ready:
            seen.append(("write", *(probe(ports[0], page) for page in ("ready", "health", "status"))))
        real(self, *given)

    monkeypatch.setattr(Command, "write", write)
    words = ["serve", small.archive, "--listen", "0", "--for", "1s", "--metrics-port", "0", "--json"]
    assert main(words) == 0, capfd.readouterr().err
    assert seen == [("_look", 503, 200, 503), ("write", 200, 200, 200), ("close", 503, 200, 200)]


def probe(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_process_that_is_told_to_stop_ends_well(on_disk: Vault) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamvault", "serve", on_disk.archive, "--listen", "0", "--json"]
    with subprocess.Popen(
        [*command, "--metrics-port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as run:
        try:
            assert run.stdout is not None
            address, _ = parse_stream(f"{json.loads(run.stdout.readline())['uri']}/{NAME}")
            assert probe(port, "ready") == 200
            with address.open() as store:
                assert store.read_bytes(NAME, SEGMENT, 8, 11) == b"one"
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                found = values(answer.read().decode())
            assert found["streamvault_serve_sent_bytes_total"] == 3
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=20) as answer:
                status = json.load(answer)
                assert answer.headers["Content-Type"] == "application/json"
            assert (status["ready"], status["sent_bytes"]) == (True, 3)
            assert [one["generation"] for one in status["streams"]] == [1]
            assert found['streamvault_run_warnings_total{verb="serve"}'] == 0
            run.send_signal(signal.SIGTERM)
            assert json.loads(run.stdout.readline())["sent_bytes"] == 3
            assert run.wait(20) == 0
        finally:
            run.kill()


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 1 << 19), (OPEN_FILES, 1 << 19)),
        ((1024, -1), (OPEN_FILES, -1)),
        ((1024, 2048), (2048, 2048)),
        ((OPEN_FILES, OPEN_FILES), None),
        ((-1, -1), None),
    ],
)
def test_a_server_may_open_a_file_for_each_connection(
    limits: tuple[int, int],
    raised: tuple[int, int] | None,
    small: Vault,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: given.append(both))
    serve_archives([small.archive], listen="0", lasting=0.01)
    assert given == ([] if raised is None else [raised])
    assert ("only 2048 files may be open" in caplog.text) == (limits[1] == 2048)


@pytest.mark.parametrize("ends", [True, False])
def test_a_stop_finishes_the_answers_that_are_under_way_but_not_for_ever(
    small: Vault, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    fetching, over = threading.Event(), threading.Event()
    real = archived.compared_block

    def slow(*given: Any) -> memoryview:
        fetching.set()
        while not (served.segments.stopping if ends else over.is_set()):
            time.sleep(0.01)
        return real(*given)

    monkeypatch.setattr(archived, "compared_block", slow)
    monkeypatch.setattr(segments, "STOP_SECONDS", 60.0 if ends else 0.1)
    with serving(small.archive) as served:
        waiting, reading = (Connection(served.endpoint, timeout=20) for _ in range(2))
        end = served.store.describe(NAME).tail.offsets[SEGMENT]
        waiting.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", end, 100, "", 1)))
        reading.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", 8, 3, "", 2)))
        assert fetching.wait(20)
    over.set()
    with closing(waiting), closing(reading):
        if ends:
            answer = reading.receive()
            assert isinstance(answer, wire.SegmentRead)
            assert answer.data == b"one"
        for connection in (waiting, reading):
            with pytest.raises(Exception, match=r"closed|lost|reset"):
                connection.receive()


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
