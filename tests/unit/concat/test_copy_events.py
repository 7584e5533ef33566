"""Copies by events, in memory: any history, and a kill or another process before and after every call."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from streamvault.common.errors import Conflict, Failed, Problem, Usage
from streamvault.common.progress import Progress
from streamvault.concat import copy_events as event_keys
from streamvault.concat.copy_events import EventCopying
from streamvault.concat.reports import CopyReport
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.errors import NoSuchStream
from streamvault.streamstore.framing import NotAnEvent, frame
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import APPEND_LEDGER, OWN
from streamvault.streamstore.routing import SegmentRouter
from testkit.explorer.memory import Cluster, MemoryStreams
from testkit.keyed_stream import SOURCE, TARGET, KeyedStream, by_key, contents
from testkit.killed import Killed, killed
from testkit.streams import events_of, opened

URI = "local:///memory"


@dataclass
class World:
    """Streams in memory, and what happens at which call of a command."""

    cluster: Cluster = field(default_factory=Cluster)
    now: float = 0.0
    calls: int = 0
    at: int = -1
    before: Callable[[], object] = lambda: None
    after: BaseException | None = None

    @property
    def store(self) -> MemoryStreams:
        """A store at whose calls nothing happens."""
        return MemoryStreams(self.cluster, URI, clock=lambda: self.now)

    def copy(self, key: str = "/key", segments: int | None = 3) -> CopyReport:
        """Run the command."""
        self.calls = 0
        store = MemoryStreams(self.cluster, URI, self._gate, lambda: self.now)
        return EventCopying(opened(store, SOURCE), opened(store, TARGET), key, segments).run(Progress())

    def _gate(self, _call: str, _what: str) -> BaseException | None:
        number, self.calls = self.calls, self.calls + 1
        if number != self.at:
            return None
        self.before()
        return self.after

    def fork(self) -> World:
        return World(self.cluster.copy(), self.now)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_keys, "BATCH_BYTES", 1500)
    monkeypatch.setattr(event_keys, "LEAST_BYTES", 300)


def make(seed: int = 1, scales: int = 3, events: int = 60) -> World:
    world = World()
    source = KeyedStream(world.store, seed)
    for _ in range(scales):
        source.write(events)
        source.scale()
    source.write(events)
    return world


def is_equal(world: World) -> bool:
    """Whether the copy is finished, and has each key's events in order, duplicates included."""
    store = world.store
    assert store.describe(TARGET).configuration.tags[0] == "a-users"
    left = {name for name in store.list_streams("scope", own=True) if not name.stream.startswith(APPEND_LEDGER)}
    assert left == {SOURCE, TARGET}  # and the record of what it has
    return by_key(store, TARGET) == by_key(store, SOURCE)


@pytest.mark.parametrize("seed", range(12))
def test_copy_has_each_keys_events_in_order(seed: int) -> None:
    world = make(seed, scales=seed, events=80)
    report = world.copy(segments=1 + seed % 5)
    assert is_equal(world)
    router = SegmentRouter(world.store.describe(TARGET).epochs[0].segments)
    assert len(router.segments) == report.segments == 1 + seed % 5
    for segment, data in contents(world.store, TARGET).items():
        assert report.bytes == report.moved_bytes >= len(data)
        keys = {key for key in by_key(world.store, TARGET) if router.segments[router.index_of(key)] == segment}
        assert all(any(key.encode() in data for key in keys) for _ in data[:1])


@pytest.mark.parametrize("seed", range(6))
def test_without_a_key_the_segments_must_fit(seed: int) -> None:
    world = make(seed, scales=4)
    report = world.copy(key="", segments=None)
    assert is_equal(world)
    assert 1 <= report.segments <= len(world.store.describe(SOURCE).epochs[-1].segments)


def test_target_that_splits_a_segment_is_refused() -> None:
    world = World()
    KeyedStream(world.store).write()
    with pytest.raises(Usage, match=r"lie in several of 3 segments.* Give --key, or --segments 2\.") as caught:
        world.copy(key="", segments=3)
    assert "scope/source/0.#epoch.0" in str(caught.value)
    assert not world.store.exists(TARGET)
    assert world.copy(key="", segments=2).segments == 2


def test_batch_has_no_segment_and_its_successor() -> None:
    """A segment that was empty is passed, too; two neighbours that were scaled are independent of each other."""
    world = World()
    source = KeyedStream(world.store, segments=2)
    source.write(20, ["key-1", "key-2"])
    for _ in range(8):
        source.scale()
    source.write()
    assert world.copy(key="", segments=1).segments == 1
    assert is_equal(world)


def make_four() -> World:
    """A source of four segments, which may be merged."""
    world = World()
    KeyedStream(world.store, segments=4).write(100)
    world.store.update_stream(SOURCE, StreamConfiguration(Scaling(min_segments=1), tags=("a-users",)))
    return world


def test_copy_of_a_source_that_is_merged_meanwhile_ends_before_that() -> None:
    """Wherever it was killed, it can be finished with the same options, and has what was there when it was begun."""
    origin = make_four()
    undisturbed, expected = origin.fork(), by_key(origin.store, SOURCE)
    tail = origin.store.describe(SOURCE).tail
    undisturbed.copy("", None)
    ended: set[int] = set()
    for at in range(1, undisturbed.calls):
        world = origin.fork()
        world.at, world.before = at, killed
        with suppress(Killed):
            world.copy("", None)
        world.at = -1
        is_begun = world.store.exists(TARGET)
        is_finished = is_begun and OWN not in world.store.describe(TARGET).configuration.tags
        is_complete = is_begun and by_key(world.store, TARGET) == expected
        world.store.scale(SOURCE, list(tail.offsets), [KeyRange(0.0, 1.0)])
        append(world, SOURCE, SegmentId(1, 4), frame(b'{"key": "key-1", "n": -1}'))
        report = world.copy("", None)
        ended.add(len(report.warnings))
        if is_begun and not is_finished and is_complete and not report.warnings:
            assert (report.tail, report.behind_bytes, report.resumed) == (tail.to_json(), 33, True), (
                "it only had to be finished"
            )
        elif is_begun and not is_finished:
            assert report.warnings[0].startswith(
                "the source has been scaled since the copy was started, and 33 bytes do not"
            )
            assert report.warnings[0].endswith("copy again with --key, or with --segments 1")
            assert (report.segments, report.tail) == (4, tail.to_json())
        elif not is_begun:
            assert (report.segments, report.warnings) == (1, ())
        assert by_key(world.store, TARGET) == (expected if is_begun else by_key(world.store, SOURCE))
        assert world.copy("", None).unchanged
    assert ended == {0, 1}


def test_nothing_that_fits_says_what_to_do() -> None:
    """A copy was begun, and what it would have copied was truncated after a merge."""
    world = make_four()
    world.at, world.before = 12, killed
    with pytest.raises(Killed):
        world.copy("", None)
    world.at = -1
    world.store.scale(SOURCE, list(world.store.describe(SOURCE).tail.offsets), [KeyRange(0.0, 1.0)])
    world.store.truncate(world.store.describe(SOURCE).tail)
    append(world, SOURCE, SegmentId(1, 4), frame(b"late"))
    assert not any(contents(world.store, TARGET).values())
    with pytest.raises(Conflict, match=r"12 bytes do not fit.* start over with --key, or with --segments 1\."):
        world.copy("", None)
    world.store.delete(TARGET)
    assert world.copy("", 1).bytes == 12


@pytest.mark.parametrize("key", ["", "/key"])
def test_large_events_are_copied(key: str) -> None:
    """They are read in pieces, and end a batch, unless their key is to be found."""
    world = World()
    world.store.create_stream_and_scope(SOURCE, StreamConfiguration(tags=("a-users",)))
    sizes = (10, 9 << 20, 10, 8 << 20, 9 << 20, 20 << 20, 10)
    events = [b'{"key": "k", "n": %d, "pad": "%s"}' % (n, b"x" * size) for n, size in enumerate(sizes)]
    data = b"".join(struct.pack(">q", len(event)) + event for event in events)
    for at in range(0, len(data), 1 << 20):
        append(world, SOURCE, SegmentId(0, 0), data[at : at + (1 << 20)])
    report = world.copy(key, 1)
    assert (report.bytes, contents(world.store, TARGET)) == (len(data), {SegmentId(0, 0): data})


def test_kill_before_or_after_any_call_changes_nothing_in_the_end() -> None:
    origin = make(scales=2, events=30)
    undisturbed = origin.fork()
    undisturbed.copy()
    expected, calls = contents(undisturbed.store, TARGET), undisturbed.calls
    assert calls > 60
    for at in range(calls):
        for after in (False, True):
            world = origin.fork()
            world.at = at
            world.before, world.after = (lambda: None, Killed()) if after else (killed, None)
            with suppress(Killed):  # not if the call fails, as a look at a target that is not there yet
                world.copy()
            world.at = -1
            if at % 3 == 0:
                world.now += 1000  # the lease has run out
            world.copy()
            assert is_equal(world)
            assert contents(world.store, TARGET) == expected
            assert world.copy().unchanged


def test_another_process_at_any_call_changes_nothing_in_the_end() -> None:
    """The first one is paused while another one copies everything, or is killed after a few batches."""
    origin = make(scales=2, events=20)
    undisturbed = origin.fork()
    undisturbed.copy()
    expected, calls = contents(undisturbed.store, TARGET), undisturbed.calls
    said: set[str] = set()
    for at in range(calls):
        for share in (None, 3):
            world = origin.fork()
            other = World(world.cluster, now=1000.0 * (at % 2))  # the lease of the paused one has run out, or not
            if share is not None:
                other.at, other.before = calls // share, killed

            def meanwhile(world: World = world, other: World = other) -> None:
                world.now = other.now
                with suppress(Killed, Problem):
                    other.copy()

            world.at, world.before = at, meanwhile
            try:
                world.copy()
            except Problem as problem:
                said.add(problem.what)
            world.at = -1
            world.copy()
            assert is_equal(world)
            assert contents(world.store, TARGET) == expected
    assert said == {
        "a transaction does not hold the data written to it (did its lease expire before the commit?)",
        "another process is copying into this stream",
        "another process has finished the copy, or another stream has its name now",
        "the unfinished copy was changed by another process",
    }


def test_late_run_harms_no_copy_that_was_begun_again() -> None:
    """At any call the first one is paused, while its target is deleted, and another process begins again."""
    origin = make(scales=1, events=10)
    undisturbed = origin.fork()
    undisturbed.copy()
    calls = undisturbed.calls
    for at in range(4, calls):
        for share in (2, 3):
            world = origin.fork()
            other = World(world.cluster, at=calls // share, before=killed)

            def meanwhile(world: World = world, other: World = other) -> None:
                with suppress(NoSuchStream):
                    world.store.delete(TARGET)
                with suppress(Killed):
                    other.copy()

            world.at, world.before = at, meanwhile
            with suppress(Problem):
                world.copy()
            world.at = -1
            world.copy()
            assert is_equal(world)


def test_batch_whose_lease_runs_out_before_the_commit_is_copied_again() -> None:
    world = make(scales=1, events=10)

    def gate(call: str, _what: str) -> None:
        if call == "commit transaction":
            world.now += 1000

    store = MemoryStreams(world.cluster, URI, gate, lambda: world.now)
    with pytest.raises(
        Failed, match=r"a batch was not committed: its transaction is aborted: .*Run the same command again\."
    ):
        EventCopying(opened(store, SOURCE), opened(store, TARGET), "/key", 3).run(Progress())
    assert world.copy().resumed
    assert is_equal(world)


def test_forgotten_transaction_is_told_by_the_targets_length() -> None:
    origin = make()
    for after in (False, True):
        world = origin.fork()
        commits = []

        def gate(
            call: str, what: str, world: World = world, commits: list[str] = commits, after: bool = after
        ) -> object:
            if call == "commit transaction":
                commits.append(what)
                if len(commits) == 3:
                    if after:
                        return Killed()
                    raise Killed
            return None

        store = MemoryStreams(world.cluster, URI, gate)  # type: ignore[arg-type]
        with pytest.raises(Killed):
            EventCopying(opened(store, SOURCE), opened(store, TARGET), "/key", 3).run(Progress())
        state = world.cluster.find(TARGET)
        forgotten = replace(
            state, record=replace(state.record, transactions=type(state.record.transactions)()), parts={}
        )
        world.cluster.keep(TARGET, forgotten)
        assert world.copy().resumed
        assert is_equal(world)


def unfinished(world: World, calls: int = 60) -> None:
    world.at, world.before = calls, killed
    with pytest.raises(Killed):
        world.copy()
    world.at = -1


def append(world: World, stream: StreamName, segment: SegmentId, data: bytes) -> None:
    with world.store.appender(stream, segment) as appender:
        appender.append(data)


def test_changed_target_is_refused() -> None:
    changes: list[Callable[[World], object]] = [
        lambda world: append(world, TARGET, SegmentId(0, 0), frame(b"foreign")),
        lambda world: world.store.scale(TARGET, [SegmentId(0, 0)], [KeyRange(0.0, 1 / 3)]),
        lambda world: world.store.seal(TARGET),
        other_bytes,
    ]
    for change in changes:
        world = make()
        unfinished(world)
        change(world)
        before = world.cluster.find(TARGET)
        with pytest.raises(Conflict, match="was changed by another process"):
            world.copy()
        assert world.cluster.find(TARGET).data == before.data


def other_bytes(world: World) -> None:
    """As long as the copy, but other events."""
    state = world.cluster.find(TARGET)
    world.cluster.keep(TARGET, replace(state, data={s: bytes(len(data)) for s, data in state.data.items()}))


def test_other_streams_are_left_alone() -> None:
    for name, tags in (("the stream exists", ()), ("an internal stream", (OWN,))):
        world = make()
        world.store.create_stream(TARGET, StreamConfiguration(tags=tags))
        with pytest.raises(Conflict, match=name):
            world.copy()
    world = make()
    unfinished(world)
    with pytest.raises(Conflict, match="unfinished target of another"):
        world.copy(segments=5)
    world.copy()
    with pytest.raises(Conflict, match="the stream exists"):
        world.copy(segments=5)


def test_other_source_of_the_same_name_is_refused() -> None:
    """A stream of another cluster has the same name, and so have its segments."""
    world, other = make(), make(seed=2)
    unfinished(world)
    for uri, cluster, said in (
        ("local:///other", world.cluster, "unfinished target of another"),
        (URI, other.cluster, "the source is not the one that was read before"),
    ):
        source = MemoryStreams(cluster, uri)
        with pytest.raises(Conflict, match=said):
            EventCopying(opened(source, SOURCE), opened(world.store, TARGET), "/key", 3).run(Progress())
    world.copy()
    assert is_equal(world)


def test_source_that_grows_and_is_truncated_between_runs() -> None:
    world = make()
    unfinished(world)
    source = world.store.describe(SOURCE)
    append(world, SOURCE, min(source.tail.offsets), frame(b'{"key": "key-1", "n": 1000, "pad": ""}'))
    world.store.truncate(StreamCut(SOURCE, dict.fromkeys(source.epochs[1].segments, 0)))
    report = world.copy()
    assert report.resumed
    assert by_key(world.store, TARGET)["key-1"][-1] == 1000


def test_source_that_is_truncated_while_it_is_read() -> None:
    world = make(scales=0, events=200)
    tail = world.store.describe(SOURCE).tail
    world.at, world.before = 45, lambda: world.store.truncate(tail)
    with pytest.raises(SourceTruncated, match=r"was truncated while it was read.*Run the same command again"):
        world.copy()
    world.at = -1
    assert world.copy().truncated


def test_large_events_are_batches_of_their_own() -> None:
    world = World()
    world.store.create_stream_and_scope(SOURCE, StreamConfiguration())
    for number in range(3):
        append(world, SOURCE, SegmentId(0, 0), frame(b"%d" % number * 100_000))
    world.copy(key="", segments=1)
    assert [payload[:1] for _, payload in events_of(world.store, TARGET)] == [b"0", b"1", b"2"]


def test_what_is_no_event_is_named() -> None:
    world = World()
    world.store.create_stream_and_scope(SOURCE, StreamConfiguration(scaling=Scaling(min_segments=1)))
    append(world, SOURCE, SegmentId(0, 0), frame(b"whole") + frame(b"half")[:9])
    with pytest.raises(NotAnEvent, match=r"0\.#epoch\.0"):
        world.copy(key="", segments=1)


def test_event_without_a_key_is_named() -> None:
    world = World()
    world.store.create_stream_and_scope(SOURCE, StreamConfiguration())
    append(world, SOURCE, SegmentId(0, 0), frame(b'{"key": "a"}') + frame(b'{"other": "a"}'))
    with pytest.raises(Usage, match=r"KeyError: 'key'.*scope/source/0\.#epoch\.0:20-22"):
        world.copy()
    assert contents(world.store, TARGET) == dict.fromkeys((SegmentId(0, n) for n in range(3)), b"")
