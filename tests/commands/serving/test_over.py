"""An archive and its live stream as one: what is read across the seam, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest

from streamvault import delete_archive, export_stream
from streamvault.common.errors import Conflict, Failed, Problem, Usage
from streamvault.serving import live
from streamvault.serving.connection import ClientConnection
from streamvault.serving.embedded import EmbeddedPravega, embedded_pravega
from streamvault.serving.figures import ServerFigures
from streamvault.serving.live import LiveStream
from streamvault.serving.serve import serve_archives
from streamvault.streamstore.errors import InvalidName, NoSuchSegment, RequestFailed, SegmentTruncated
from streamvault.streamstore.model import KeyRange, SegmentId, SegmentInfo, StreamCut, StreamName
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import ConnectionLost
from streamvault.streamstore.pravega.store import PravegaStore
from streamvault.streamstore.pravega.wire import encode
from streamvault.streamstore.store import ReaderGroup, StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.pravega_script import wait_for
from testkit.small_archives import NAME, a_root
from testkit.streams import digest_of, make_stream, shape_of
from tests.serving import serving

SEGMENT = SegmentId(0, 0)


@dataclass
class Site:
    """A cluster with a stream, and a root for its archive."""

    cluster: EmbeddedPravega
    root: str

    @property
    def stream(self) -> str:
        return f"{self.cluster.uri}/{NAME}"

    @property
    def archive(self) -> str:
        return f"{self.root}/{NAME}"

    @property
    def store(self) -> StreamStore:
        return self.cluster.store

    def export(self) -> None:
        export_stream(self.stream, self.root, master="inline", layout="chunks")

    def truncate(self, offsets: dict[SegmentId, int] | None = None) -> None:
        """Truncate the stream, at its tail if nothing else is said."""
        tail = self.store.describe(NAME).tail.offsets
        self.store.truncate(StreamCut(NAME, tail if offsets is None else offsets))

    @contextmanager
    def over(self) -> Iterator[StreamStore]:
        """Serve both as one; return a client."""
        with serving(self.archive, over=self.stream) as served:
            yield served.store


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with embedded_pravega(tmp_path / "streams") as cluster:
        yield Site(cluster, a_root())


@pytest.fixture
def begun(site: Site) -> Site:
    """A stream of one segment, of which ``one`` and ``two`` are archived."""
    site.cluster.create(str(NAME))
    site.cluster.write(str(NAME), [b"one", b"two"])
    site.export()
    return site


def payloads(client: StreamStore) -> list[bytes]:
    end = client.describe(NAME).tail.offsets[SEGMENT]
    data, found = client.read_bytes(NAME, SEGMENT, client.describe(NAME).head.offsets[SEGMENT], end), []
    while data:
        size = int.from_bytes(data[4:8], "big")
        found.append(data[8 : 8 + size])
        data = data[8 + size :]
    return found


def test_a_truncated_stream_reads_as_before(site: Site) -> None:
    make_stream(site.store, NAME, events=600)
    whole, shape = digest_of(site.store, NAME), shape_of(site.store, NAME)
    site.export()
    with site.over() as client:
        assert digest_of(client, NAME) == whole
        site.truncate()
        assert digest_of(site.store, NAME) != whole
        assert digest_of(client, NAME) == whole
        assert shape_of(client, NAME) == shape


def test_head_and_tail_are_one_segment(begun: Site) -> None:
    end = begun.store.describe(NAME).tail.offsets[SEGMENT]
    with begun.over() as client:
        begun.truncate()
        begun.cluster.write(str(NAME), [b"three"])
        assert payloads(client) == [b"one", b"two", b"three"]
        # a request that begins in the archive may end in the live stream, at any byte
        whole = client.read_bytes(NAME, SEGMENT, 0, end + 13)
        for at in range(len(whole)):
            assert client.read_bytes(NAME, SEGMENT, at, len(whole)) == whole[at:]


def test_what_is_truncated_while_it_is_served_is_archived_first(begun: Site) -> None:
    with begun.over() as client:
        for number in range(5):
            begun.cluster.write(str(NAME), [f"more-{number}".encode()])
            begun.export()
            begun.truncate()
            assert payloads(client)[-1] == f"more-{number}".encode()
            assert len(payloads(client)) == 3 + number


def test_a_reader_at_the_tail_gets_what_is_appended(begun: Site) -> None:
    end = begun.store.describe(NAME).tail.offsets[SEGMENT]
    with serving(begun.archive, over=begun.stream) as served:
        connection = served.connect()
        connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", end, 100, "", 7)))
        assert served.ask(wire.GetStreamSegmentInfo(8, f"{NAME}/{SEGMENT}", ""))  # so it waits
        begun.cluster.write(str(NAME), [b"late"])
        answer = connection.receive()
        assert isinstance(answer, wire.SegmentRead)
        assert (answer.offset, answer.data) == (end, frame(b"late"))
        begun.store.scale(NAME, [SEGMENT], [KeyRange(0.0, 1.0)])
        begun.export()
        begun.truncate()
        connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", end + len(answer.data), 100, "", 9)))
        at_end = connection.receive()
        assert isinstance(at_end, wire.SegmentRead)
        assert (at_end.end_of_segment, at_end.data) == (True, b"")


def test_bytes_that_nobody_has_are_an_error_and_not_truncated(begun: Site) -> None:
    archived = begun.store.describe(NAME).tail.offsets[SEGMENT]
    with begun.over() as client:
        begun.cluster.write(str(NAME), [b"lost", b"kept"])
        begun.truncate({SEGMENT: archived + 12})  # and nothing has archived it
        assert payloads_from(client, 0, archived) == b"".join([frame(b"one"), frame(b"two")])
        with pytest.raises(RequestFailed, match=rf"truncated byte {archived} of .*the archive does not have it"):
            client.read_bytes(NAME, SEGMENT, archived, archived + 24)
        assert payloads_from(client, archived + 12, archived + 24) == frame(b"kept")


def test_a_segment_whose_end_nobody_has_does_not_seem_to_end(begun: Site) -> None:
    archived = begun.store.describe(NAME).tail.offsets[SEGMENT]
    with serving(begun.archive, over=begun.stream) as served:
        begun.cluster.write(str(NAME), [b"lost"])
        begun.store.scale(NAME, [SEGMENT], [KeyRange(0.0, 1.0)])
        begun.truncate()
        answer = served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", archived, 100, "", 7))
        assert isinstance(answer, wire.ErrorMessage)
        assert f"truncated byte {archived}" in answer.message
        answer = served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", 7))
        assert isinstance(answer, wire.SegmentRead)
        assert (answer.data, answer.end_of_segment) == (frame(b"one") + frame(b"two"), False)


def test_a_segment_whose_end_was_lost_before_an_export_does_not_seem_to_end(begun: Site) -> None:
    archived = begun.store.describe(NAME).tail.offsets[SEGMENT]
    with serving(begun.archive, over=begun.stream) as served:
        begun.cluster.write(str(NAME), [b"lost"])
        begun.store.scale(NAME, [SEGMENT], [KeyRange(0.0, 1.0)])
        begun.cluster.write(str(NAME), [b"kept"])
        begun.truncate(dict.fromkeys(begun.store.describe(NAME).tail.offsets, 0))
        export_stream(begun.stream, begun.root, master="inline", layout="chunks", same_stream=True)
        served.archive.renewed()
        for offset, kind in ((0, wire.SegmentRead), (archived, wire.ErrorMessage)):
            answer = served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", offset, 100, "", 7))
            assert isinstance(answer, kind)
            assert not getattr(answer, "end_of_segment", False)


@pytest.mark.parametrize("whole", [False, True])
def test_a_segment_that_was_truncated_and_never_archived_does_not_seem_truncated(begun: Site, whole: bool) -> None:
    with serving(begun.archive, over=begun.stream) as served:
        begun.store.scale(NAME, [SEGMENT], [KeyRange(0.0, 1.0)])
        [second] = begun.store.describe(NAME).tail.offsets
        begun.cluster.write(str(NAME), [b"lost", b"kept"])
        if whole:
            begun.store.scale(NAME, [second], [KeyRange(0.0, 1.0)])
        begun.truncate(None if whole else {second: 12})
        answer = served.ask(wire.ReadSegment(f"{NAME}/{second}", 0, 100, "", 7))  # a reader would go on behind it
        assert isinstance(answer, wire.ErrorMessage)
        assert f"truncated byte 0 of {second}" in answer.message


def test_readers_go_on_behind_a_segment_that_both_have_given_up(begun: Site) -> None:
    begun.store.scale(NAME, [SEGMENT], [KeyRange(0.0, 1.0)])
    begun.truncate()
    begun.root = a_root()
    begun.export()
    asked = pb.SegmentId(streamInfo=pb.StreamInfo(scope=NAME.scope, stream=NAME.stream), segmentId=SEGMENT.value)

    def following(uri: str) -> Any:
        method = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/getSegmentsImmediatelyFollowing"
        with grpc.insecure_channel(uri.removeprefix("pravega://")) as channel:
            return channel.unary_unary(method, None, None)(asked.SerializeToString())

    with serving(begun.archive, over=begun.stream) as served:
        answer = served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", 7))
        assert isinstance(answer, wire.NoSuchSegment)
        assert following(served.uri) == following(begun.cluster.uri) != b""


@pytest.mark.parametrize("sealed", [False, True])
def test_a_deleted_archive_does_not_seem_truncated(begun: Site, sealed: bool) -> None:
    with serving(begun.archive, over=begun.stream) as served:
        if sealed:
            begun.store.scale(NAME, [SEGMENT], [KeyRange(0.0, 1.0)])
        begun.truncate()
        delete_archive(begun.archive, yes=True)
        answer = served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", 7))
        assert isinstance(answer, wire.ErrorMessage)


def test_a_deleted_stream_does_not_seem_truncated(begun: Site) -> None:
    with serving(begun.archive, over=begun.stream) as served:
        begun.store.seal(NAME)
        begun.store.delete(NAME)
        answer = served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", 7))
        assert isinstance(answer, wire.ErrorMessage)
        assert "no such" in answer.message


def frame(payload: bytes) -> bytes:
    return b"\0\0\0\0" + len(payload).to_bytes(4, "big") + payload


def payloads_from(client: StreamStore, start: int, end: int) -> bytes:
    return client.read_bytes(NAME, SEGMENT, start, end)


def test_what_both_have_given_up_is_truncated(begun: Site) -> None:
    end = begun.store.describe(NAME).tail.offsets[SEGMENT]
    begun.truncate()
    begun.root = a_root()  # an archive that begins at the truncation
    begun.cluster.write(str(NAME), [b"three"])
    begun.export()
    begun.truncate()
    with begun.over() as client, pytest.raises(SegmentTruncated) as caught:
        client.read_bytes(NAME, SEGMENT, 0, end)
    assert caught.value.start_offset == end


def test_an_archive_that_ends_before_the_stream_begins_is_refused(begun: Site) -> None:
    begun.cluster.write(str(NAME), [b"lost"])
    begun.truncate()
    with pytest.raises(Conflict, match="ends before the live stream begins"), begun.over():
        pass


def test_an_archive_of_another_stream_is_refused(begun: Site) -> None:
    begun.store.seal(NAME)
    begun.store.delete(NAME)
    begun.cluster.create(str(NAME))
    begun.cluster.write(str(NAME), [b"six", b"ten"])
    with pytest.raises(Conflict, match="not the"), begun.over():
        pass


def test_a_stream_that_is_replaced_while_it_is_served_is_read_no_more(begun: Site) -> None:
    with begun.over() as client:
        begun.truncate()
        assert payloads(client) == [b"one", b"two"]
        begun.store.seal(NAME)
        begun.store.delete(NAME)
        begun.cluster.create(str(NAME))
        begun.cluster.write(str(NAME), [b"six"])
        with pytest.raises(Problem, match="is not the one"):
            client.describe(NAME)
        # not what is in the archive, either: which of them the reader wants cannot be told
        with pytest.raises(Problem, match="is not the one"):
            client.read_bytes(NAME, SEGMENT, 0, 5)


@pytest.mark.parametrize("found", [(0, 22), (11, 33)], ids=["shorter", "truncated less"])
def test_a_segment_that_is_not_as_it_was_is_of_another_stream(
    begun: Site, monkeypatch: pytest.MonkeyPatch, found: tuple[int, int]
) -> None:
    with serving(begun.archive, over=begun.stream) as served:
        begun.cluster.write(str(NAME), [b"six"])
        begun.truncate({SEGMENT: 22})
        ask = wire.GetStreamSegmentInfo(7, f"{NAME}/{SEGMENT}", "")
        assert served.ask(ask) == wire.StreamSegmentInfo(7, f"{NAME}/{SEGMENT}", True, False, False, 0, 33, 0)
        other = SegmentInfo(SEGMENT, *found, sealed=False)
        monkeypatch.setattr(PravegaStore, "segment_info", lambda *_: [other])
        for request in (ask, wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 8, "", 7)):
            answer = served.ask(request)
            assert isinstance(answer, wire.ErrorMessage)
            assert "is not the one" in answer.message
        figures = ServerFigures(served.segments, served.segments.cache, [served.archive], served.segments._live)
        (stream,) = figures.status()["streams"]
        assert stream["over"] == begun.stream
        assert "is not the one" in stream["problem"]


def test_a_segment_that_seemed_to_be_gone_is_read_again(begun: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster says so once, and the stream's head does not lie behind the segment."""
    monkeypatch.setattr(live, "CHECK_SECONDS", 0.0)
    begun.cluster.write(str(NAME), [b"three"])
    ask = wire.GetStreamSegmentInfo(7, f"{NAME}/{SEGMENT}", "")

    def gone(*_: Any) -> NoReturn:
        raise NoSuchSegment("no such segment", where=str(SEGMENT))

    with serving(begun.archive, over=begun.stream) as served:
        with monkeypatch.context() as wrong:
            wrong.setattr(PravegaStore, "segment_info", gone)
            answer = served.ask(ask)
        assert isinstance(answer, wire.ErrorMessage)
        assert "does not have it" in answer.message
        wanted = wire.StreamSegmentInfo(7, f"{NAME}/{SEGMENT}", True, False, False, 0, 35, 0)
        assert wait_for(lambda: served.ask(ask) == wanted)
        assert payloads(served.store) == [b"one", b"two", b"three"]


def test_the_cluster_has_the_reader_groups_and_other_streams(begun: Site) -> None:
    other = StreamName(NAME.scope, "other")
    begun.cluster.create(str(other))
    with begun.over() as client:
        assert sorted(client.list_streams(NAME.scope)) == [other, NAME]
        assert client.exists(other)
        group = ReaderGroup(scope=NAME.scope, name="app", starts={NAME: None})
        made = client.reader_groups().create(group, client.describe(NAME).head)
        with parse_stream(begun.stream)[0].open() as store:
            assert store.reader_groups().find(NAME.scope, "app") == made


def test_writers_are_told_where_to_write(begun: Site) -> None:
    def write() -> None:
        with begun.over() as client, client.appender(NAME, SEGMENT) as appender:
            appender.append(frame(b"three"))
            appender.flush()

    with pytest.raises(Problem, match="write to pravega://") as caught:
        write()
    with begun.over() as client, pytest.raises(Problem, match="write to pravega://"):
        client.transactions().begin(NAME, 30.0)
    assert "sealed" not in str(caught.value)


def test_a_token_that_the_cluster_refuses_reads_no_archived_byte(begun: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def judge(_: PravegaStore, stream: StreamName, segment: SegmentId, token: str) -> int | None:
        assert (stream, segment) == (NAME, SEGMENT)
        asked.append(token)
        return None if token == "good" else 0

    monkeypatch.setattr(PravegaStore, "token_refusal", judge)
    for name in ("JUDGED_SECONDS", "REFUSED_SECONDS"):
        monkeypatch.setattr(live, name, 3600.0)
    with serving(begun.archive, over=begun.stream) as served:
        begun.truncate()
        for token, expected in (("good", wire.SegmentRead), ("", wire.AuthTokenCheckFailed)):
            for _ in range(2):
                assert isinstance(served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 8, token, 1)), expected)
        assert served.segments.refused["invalid token"][1] == "the token is not valid"
        monkeypatch.setattr(live, "REFUSED_SECONDS", 0.0)
        for _ in range(2):
            assert isinstance(
                served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 8, "bad", 1)), wire.AuthTokenCheckFailed
            )
    assert asked == ["good", "", "bad", "bad"]


def test_a_token_that_the_cluster_does_not_judge_reads_nothing(begun: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ClientConnection._found

    async def failing(self: ClientConnection, request: Any, number: int, name: str) -> Any:
        if getattr(request, "token", "") == "odd":
            raise Failed("boom")
        return await found(self, request, number, name)

    monkeypatch.setattr(ClientConnection, "_found", failing)  # the cluster's, too
    with serving(begun.archive, over=begun.stream) as served:
        begun.truncate()
        assert isinstance(served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 8, "fine", 1)), wire.SegmentRead)
        with pytest.raises(ConnectionLost):
            served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 8, "odd", 1))


def test_what_is_no_message_is_refused_in_one_line(begun: Site, caplog: pytest.LogCaptureFixture) -> None:
    with serving(begun.archive, over=begun.stream) as served:
        with grpc.insecure_channel(served.uri.removeprefix("pravega://")) as channel:
            call = channel.unary_unary("/io.pravega.controller.stream.api.grpc.v1.ControllerService/createTransaction")
            with pytest.raises(grpc.RpcError) as caught:
                call(b"\xff\xff\xff")
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert not any(record.exc_info for record in caplog.records)


def test_a_segment_that_does_not_answer_delays_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.cluster.create(str(NAME), segments=2)
    site.cluster.write(str(NAME), [b"one"])
    site.export()
    ends, look, answers = site.store.describe(NAME).tail.offsets, LiveStream._live, threading.Event()
    slow, quick = sorted(ends)

    def waiting(self: LiveStream, segment: SegmentId) -> SegmentInfo | None:
        if segment == slow and threading.current_thread().name.startswith("poll"):
            answers.wait(60)
        return look(self, segment)

    monkeypatch.setattr(LiveStream, "_live", waiting)
    with serving(site.archive, over=site.stream) as served:
        try:
            connections = [served.connect() for _ in range(2)]
            for each, segment in zip(connections, (slow, quick), strict=True):
                each.send(encode(wire.ReadSegment(f"{NAME}/{segment}", ends[segment], 100, "", 7)))
                assert served.ask(wire.GetStreamSegmentInfo(8, f"{NAME}/{segment}", ""))  # so it waits
            for _ in range(2):
                with site.store.appender(NAME, quick) as appender:
                    appender.append(frame(b"late"))
                    appender.flush()
                answer = connections[1].receive()
                assert isinstance(answer, wire.SegmentRead)
                end = answer.offset + len(answer.data)
                connections[1].send(encode(wire.ReadSegment(f"{NAME}/{quick}", end, 100, "", 9)))
        finally:
            answers.set()


@pytest.mark.parametrize("option", [{"state": "memory://state"}, {"generation": 1}, {"login": Path("login")}])
def test_options_that_are_not_for_a_live_stream(begun: Site, option: dict[str, Any], tmp_path: Path) -> None:
    if "login" in option:
        option = {"login": tmp_path / "login"}
        option["login"].write_text("user:password")
    with pytest.raises(Usage, match="over cannot be used with"):
        serve_archives([begun.archive], over=begun.stream, listen="0", **option)


def test_over_needs_one_archive_and_a_cluster(begun: Site, tmp_path: Path) -> None:
    for over, expected in ((f"local://{tmp_path}/streams/{NAME}", "a stream on a Pravega cluster"), ("x", "not a")):
        with pytest.raises((Usage, InvalidName), match=expected):
            serve_archives([begun.archive], over=over, listen="0")
