"""Reader groups come along with copies, promotions and moves: on a store whose groups are kept in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import export_stream, replicate_stream
from streamvault.common.errors import Problem, Usage
from streamvault.common.report import CarriedGroup
from streamvault.replication import replication
from streamvault.sources.sources import LiveState, StreamSource
from streamvault.streamstore.errors import UnreadableReaderGroup
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.store import ReaderGroup
from testkit.scenes import Streams
from testkit.small_archives import NAME
from tests.memory_groups import THERE, MemoryGroups
from tests.told import Ran

VERBS = ["copy", "replica", "promotion", "move"]
CUT_OVERS = ["promotion", "move"]


@pytest.fixture
def moving(streams: Streams) -> Streams:
    """The source, and a target in another scope."""
    return Streams(streams.folder, streams.source_name, THERE)


def carry(streams: Streams, verb: str) -> tuple[CarriedGroup, ...]:
    """Make the target, or go on with it, and take the reader groups along."""
    if verb == "copy":
        return streams.copy(reader_groups=True).reader_groups
    if verb == "move":
        return streams.move(reader_groups=True).reader_groups
    if verb == "replica":
        streams.replicate(reader_groups=True)
        return streams.promote(reader_groups=True).reader_groups
    streams.replicate()
    return streams.promote(reader_groups=True, seal_source=True).reader_groups


def last_events(streams: Streams) -> StreamCut:
    """The cut before the last event of each open segment."""
    tail = streams.described.tail
    begins = {pointer.segment: pointer.offset for pointer, _ in streams.events()}
    return replace(tail, offsets={segment: begins.get(segment, end) for segment, end in tail.offsets.items()})


def moved(cut: StreamCut, stream: StreamName = THERE) -> StreamCut:
    return StreamCut(stream, cut.offsets)


@pytest.mark.parametrize("verb", VERBS)
def test_a_group_goes_on_where_it_was(moving: Streams, groups: MemoryGroups, verb: str) -> None:
    at = last_events(moving)
    source = groups.add(at)
    (carried,) = carry(moving, verb)
    assert carried == CarriedGroup(name="app", outcome="created", position=moved(at).to_json())
    made, reached = groups.made[THERE.scope, "app"]
    assert reached == moved(at)
    assert made == replace(source, scope=THERE.scope, starts={THERE: None}, ends={THERE: None}, id=made.id)
    assert made.id != source.id
    if verb == "copy":
        groups.made[THERE.scope, "app"] = (made, moved(last_events(moving)))
        assert [one.outcome for one in carry(moving, verb)] == ["present"]


def test_segments_with_other_numbers_are_found(moving: Streams, groups: MemoryGroups) -> None:
    """The target's name was used before, so that its numbers go on."""
    moving.remake(THERE)
    moving.delete(THERE)
    at = last_events(moving)
    groups.add(at)
    (carried,) = carry(moving, "move")
    assert carried.position is not None
    found = StreamCut.from_json(carried.position, THERE)
    assert groups.reached() == found
    assert found.offsets.keys().isdisjoint(at.offsets)
    assert [(s.epoch, offset) for s, offset in found.offsets.items()] == [(s.epoch, o) for s, o in at.offsets.items()]


@pytest.mark.parametrize("verb", CUT_OVERS)
def test_a_group_that_reads_on_to_the_sealed_end(
    moving: Streams, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It forgets each segment at its end, so that in the end it has none; then it goes on at what is written next."""

    def seal(store: LocalStore, name: StreamName, **options: Any) -> None:
        real(store, name, **options)
        groups.add(StreamCut(NAME, {}))

    groups.add(last_events(moving))
    real = LocalStore.seal
    monkeypatch.setattr(LocalStore, "seal", seal)
    tail = moving.tail()
    (carried,) = carry(moving, verb)
    assert carried.outcome == "created"
    assert groups.reached() == StreamCut(THERE, tail)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("verb", VERBS)
def test_a_killed_run_is_repeated(moving: Streams, groups: MemoryGroups, verb: str) -> None:
    """Between the group and its state: the next run begins the state, and only then is a moved stream deleted."""
    at = last_events(moving)
    groups.add(at)
    groups.killed = True
    with pytest.raises(KeyboardInterrupt):
        carry(moving, verb)
    assert groups.reached() is None
    assert moving.exists()
    groups.killed = False
    if verb == "replica":
        again = moving.promote(reader_groups=True).reader_groups
    elif verb == "promotion":
        again = moving.promote(reader_groups=True, seal_source=True).reader_groups
    else:
        again = carry(moving, verb)
    assert [one.outcome for one in again] == ["created"]
    assert groups.reached() == moved(at)


@pytest.mark.parametrize("verb", VERBS)
def test_a_group_of_the_name_stays_as_it_is(moving: Streams, groups: MemoryGroups, verb: str) -> None:
    at = last_events(moving)
    groups.add(at)
    theirs = groups.add(StreamCut(THERE, {}))
    (carried,) = carry(moving, verb)
    assert carried.outcome == "left out"
    assert carried.position == moved(at).to_json()
    assert "already has a reader group of that name, which is left unchanged" in carried.reason
    assert groups.made[THERE.scope, "app"] == (theirs, StreamCut(THERE, {}))


def test_what_was_left_out_is_printed_with_its_position(moving: Streams, groups: MemoryGroups, ran: Ran) -> None:
    at = last_events(moving)
    groups.add(at)
    groups.add(at, StreamName(NAME.scope, "other"), name="two")
    lines = ran("copy", moving.source, moving.target, "--reader-groups", "--master", "inline").out.splitlines()
    assert "reader group app: created" in lines
    left = lines.index("reader group two: left out (the group reads other streams, too: scope/other)")
    assert json.loads(lines[left + 1].removeprefix("  continues at ")) == moved(at).to_json()


def test_a_group_that_is_created_at_the_same_time_stays_as_it_is(
    moving: Streams, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(self: MemoryGroups, scope: str, name: str) -> ReaderGroup | None:
        found = real(self, scope, name)
        if scope == THERE.scope:
            self.add(StreamCut(THERE, {}))
        return found

    groups.add(last_events(moving))
    real = MemoryGroups.find
    monkeypatch.setattr(MemoryGroups, "find", find)
    assert [one.outcome for one in carry(moving, "copy")] == ["left out"]
    assert groups.reached() == StreamCut(THERE, {})


@pytest.mark.parametrize("verb", VERBS)
def test_a_group_that_reads_other_streams_is_left_out_with_its_position(
    moving: Streams, groups: MemoryGroups, verb: str
) -> None:
    at = last_events(moving)
    groups.add(at, StreamName(NAME.scope, "other"))
    groups.add(StreamCut(StreamName(NAME.scope, "other"), {}), name="of-another-stream")
    (carried,) = carry(moving, verb)
    assert (carried.outcome, carried.position) == ("left out", moved(at).to_json())
    assert carried.reason == "the group reads other streams, too: scope/other"
    assert list(groups.names(THERE.scope)) == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_position_that_cannot_be_read_is_named(moving: Streams, groups: MemoryGroups, verb: str) -> None:
    """Where the source is sealed or deleted, nothing is done."""
    groups.add(last_events(moving))
    groups.unreadable = "written in another way"
    if verb not in CUT_OVERS:
        (carried,) = carry(moving, verb)
        assert (carried.outcome, carried.reason, carried.position) == ("left out", groups.unreadable, None)
        return
    with pytest.raises(UnreadableReaderGroup, match=groups.unreadable):
        carry(moving, verb)
    assert not moving.described.sealed


def test_a_group_is_read_before_the_tail(
    moving: Streams, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it reads after the tail was taken is not in the replica."""

    def look(source: StreamSource) -> LiveState:
        found = real(source)
        moving.add(b"later")
        groups.add(moving.described.tail)
        return found

    at = moving.described.tail
    groups.add(at)
    real = StreamSource.look
    moving.replicate()
    monkeypatch.setattr(replication, "RECORD_SECONDS", 0.0)
    monkeypatch.setattr(StreamSource, "look", look)
    (carried,) = moving.replicate(reader_groups=True).reader_groups
    assert carried.outcome == "noted"


def test_positions_are_recorded_while_nothing_is_written(
    moving: Streams, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    def goes_on() -> None:
        groups.add(at)

    at = last_events(moving)
    groups.add(StreamCut(NAME, moving.described.head.offsets))
    groups.after = goes_on
    monkeypatch.setattr(replication, "RECORD_SECONDS", 0.0)
    report = moving.replicate(reader_groups=True, follow=True, every=0.01, idle=0.1)
    assert [one.position for one in report.reader_groups] == [moved(at).to_json()]
    (carried,) = moving.promote(reader_groups=True, dry_run=True).reader_groups
    assert (carried.outcome, carried.position) == ("noted", moved(at).to_json())
    moving.delete()
    moving.promote(reader_groups=True)
    assert groups.reached() == moved(at)


def test_what_was_truncated_is_not_read_again(moving: Streams, groups: MemoryGroups) -> None:
    """A group that has not begun, on a stream whose head has moved on."""
    head = moving.described.head
    group = groups.add(StreamCut(NAME, dict.fromkeys(moving.described.epochs[0].segments, 0)))
    groups.made[NAME.scope, "app"] = (group, None)
    (carried,) = carry(moving, "copy")
    assert carried.position == moved(head).to_json()


def test_a_copy_that_ends_before_the_group_has_no_group(moving: Streams, groups: MemoryGroups) -> None:
    moving.copy()
    moving.add(b"later")
    groups.add(StreamCut(NAME, moving.tail()))
    (carried,) = carry(moving, "copy")
    assert carried.outcome == "left out"
    assert "lies beyond the end" in carried.reason


def test_rehearsals_create_nothing(moving: Streams, groups: MemoryGroups) -> None:
    groups.add(last_events(moving))
    for report in (
        moving.copy(reader_groups=True, dry_run=True),
        moving.move(reader_groups=True, dry_run=True),
    ):
        assert [(one.name, one.outcome) for one in report.reader_groups] == [("app", "noted")]
    assert list(groups.names(THERE.scope)) == []
    groups.add(StreamCut(THERE, {}))
    (planned,) = moving.copy(reader_groups=True, dry_run=True).reader_groups
    assert (planned.outcome, planned.position) == ("left out", None)
    assert "left unchanged" in planned.reason
    del groups.made[THERE.scope, "app"]
    moving.copy(reader_groups=True)
    (planned,) = moving.copy(reader_groups=True, dry_run=True).reader_groups
    assert planned.outcome == "noted"


def test_a_promotion_without_records_says_so(moving: Streams, groups: MemoryGroups) -> None:
    groups.add(last_events(moving))
    moving.replicate()
    report = moving.promote(reader_groups=True)
    assert report.reader_groups == ()
    assert "none were recorded" in report.warnings[0]


def test_a_promotion_without_the_option_reports_what_was_recorded(moving: Streams, groups: MemoryGroups) -> None:
    at = last_events(moving)
    groups.add(at)
    moving.replicate(reader_groups=True)
    report = moving.promote()
    (left,) = report.reader_groups
    assert (left.outcome, left.position) == ("left out", moved(at).to_json())
    assert "without --reader-groups" in report.warnings[0]
    assert list(groups.names(THERE.scope)) == []


@pytest.mark.parametrize("verb", ["copy", "replicate", "move"])
def test_groups_need_a_store_that_has_them_and_offsets(
    moving: Streams, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    call: Any = getattr(moving, verb)
    with pytest.raises(Usage, match="requires offsets='keep'"):
        call(reader_groups=True, offsets="shift")
    monkeypatch.undo()
    with pytest.raises(Usage, match="does not support reader groups"):
        call(reader_groups=True)
    assert not moving.exists(THERE)
    assert not moving.described.sealed


def test_groups_of_an_archive_are_not_replicated(moving: Streams, groups: MemoryGroups, tmp_path: Path) -> None:
    root = f"file://{tmp_path}/vault"
    export_stream(moving.source, root, master="inline")
    with pytest.raises(Problem, match="requires a stream as the source"):
        replicate_stream(f"{root}/{NAME}", moving.target, reader_groups=True, master="inline")
