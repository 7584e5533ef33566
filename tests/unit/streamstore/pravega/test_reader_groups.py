"""A reader group's state: what Pravega's Java client 0.13.0 has written, and bytes that nobody has written.

The records of ``reader_group_states.json`` are those of groups on a real server: one that was only created, one whose
reader was killed after checkpoints and whose next reader left, one that waits for a predecessor of a merged segment,
the same after its reader was lost, one whose segments are shared by two readers, and the client's whole state in one
record for the third. The client's own state after them is what the tests expect.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.streamstore.errors import UnreadableReaderGroup
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName
from streamvault.streamstore.pravega import reader_groups
from streamvault.streamstore.pravega.reader_groups import (
    PREFIX,
    GroupState,
    JavaFields,
    PravegaReaderGroups,
    _StateStream,
    initial_record,
)
from streamvault.streamstore.store import GroupPosition, ReaderGroup
from testkit.pravega_script import ScriptedStore

RECORDED = {
    name: [bytes.fromhex(record) for record in records]
    for name, records in json.loads((Path(__file__).parent / "reader_group_states.json").read_text()).items()
}
FIRST, SECOND, THIRD = (StreamName("sc", name) for name in ("st", "st2", "st3"))
GROUP = ReaderGroup(
    scope="sc",
    name="g1",
    starts={FIRST: None},
    ends={FIRST: None},
    refresh_millis=200,
    checkpoint_millis=1000,
    id=UUID("95d73b6c-293b-4b0f-a299-1780d396a6d3"),
)


def state_of(records: list[bytes]) -> GroupState:
    state = GroupState()
    for record in records:
        state.apply(record)
    return state


def offsets(position: GroupPosition) -> dict[str, int]:
    return {str(segment): offset for segment, offset in position.offsets.items()}


def test_a_group_that_nobody_has_read_with_is_at_its_start() -> None:
    assert offsets(state_of(RECORDED["created"]).position(FIRST)) == {"0.#epoch.0": 0}


def test_a_killed_reader_is_at_its_last_checkpoint_and_one_that_left_where_it_left() -> None:
    assert offsets(state_of(RECORDED["closed"]).position(FIRST)) == {"1.#epoch.1": 540, "2.#epoch.1": 650}


def test_a_successor_waits_for_the_predecessor_that_is_still_being_read() -> None:
    position = state_of(RECORDED["waiting"]).position(SECOND)
    assert offsets(position) == {"2.#epoch.1": 1144}
    assert position.waiting == {SegmentId(2, 3): {SegmentId(1, 2)}}
    assert offsets(state_of(RECORDED["lost"]).position(SECOND)) == {"2.#epoch.1": 2249}


def test_segments_move_between_readers() -> None:
    state = state_of(RECORDED["released"])
    assert offsets(state.position(THIRD)) == {
        "0.#epoch.0": 243,
        "1.#epoch.0": 403,
        "2.#epoch.0": 611,
        "3.#epoch.0": 936,
    }


def test_a_whole_state_replaces_the_one_before() -> None:
    whole, updated = state_of(RECORDED["created"] + RECORDED["compacted"]), state_of(RECORDED["waiting"])
    assert whole == updated


def test_only_the_streams_own_segments_are_in_its_position() -> None:
    assert state_of(RECORDED["created"]).position(SECOND) == GroupPosition(SECOND, {})


def test_a_new_groups_record_is_the_java_clients() -> None:
    ours = initial_record(GROUP, StreamCut(FIRST, {SegmentId(0, 0): 0}))
    theirs = RECORDED["created"][0]
    assert ours == theirs[: len(ours)]
    assert not any(theirs[len(ours) :])


def test_a_new_group_begins_at_its_cut_and_has_its_bounds() -> None:
    cut = StreamCut(FIRST, {SegmentId(0, 1): 70_000, SegmentId(3, 2): 1 << 40})
    bounded = ReaderGroup(scope="sc", name="g", starts={FIRST: cut}, ends={FIRST: cut}, id=GROUP.id)
    state = state_of([initial_record(bounded, cut)])
    assert state.position(FIRST).offsets == cut.offsets


@pytest.mark.parametrize("at", range(len(RECORDED["waiting"])))
def test_a_record_that_is_missing_or_repeated_leaves_no_position_ahead_of_the_true_one(at: int) -> None:
    """What is left out can only be found out, or leave the group where it was before."""
    records = RECORDED["waiting"]
    true = state_of(records).position(SECOND).offsets
    for changed in (records[:at] + records[at + 1 :], records[: at + 1] + records[at:]):
        try:
            found = state_of(changed).position(SECOND).offsets
        except UnreadableReaderGroup:
            continue
        assert all(found[segment] <= offset for segment, offset in true.items() if segment in found)


@pytest.mark.parametrize("begun", [b"", b"the state that a client has begun"])
def test_a_state_is_begun_only_where_nothing_is(begun: bytes) -> None:
    """A client may have opened the group right after the controller has made it, and begun the state itself."""
    start = StreamCut(FIRST, {SegmentId(0, 0): 9})
    state = SegmentId(0, 0)
    name = state.in_stream(_StateStream(GROUP.scope, f"{PREFIX}{GROUP.name}"))

    class Made:
        """A controller that makes every group."""

        def create_reader_group(self, message: Any) -> Any:
            return message

        def current_segments(self, _stream: StreamName) -> Any:
            return {state: None}

    with ScriptedStore() as store:
        store.held[name] = store.segment  # the only one that it appends to
        store.segment.data += begun
        made = PravegaReaderGroups(Made(), store.stores).create(GROUP, start)  # type: ignore[arg-type]
        assert made.id == GROUP.id
        assert bytes(store.segment.data) == (begun or frame(initial_record(made, start)))


@pytest.mark.parametrize("at", [4, 6, 7, 8], ids=["format", "version", "revisions", "revision"])
def test_an_unknown_version_is_named(at: int) -> None:
    changed = bytearray(RECORDED["created"][0])
    changed[at] = 7
    with pytest.raises(UnreadableReaderGroup, match=r"unknown|not known|too early"):
        state_of([bytes(changed)])


def test_an_unknown_kind_of_update_is_named() -> None:
    unknown = reader_groups.int32(2) + reader_groups.int32(9) + reader_groups.value(b"", kind=14)
    with pytest.raises(UnreadableReaderGroup, match="unknown kind 14"):
        state_of([*RECORDED["created"], unknown])
    with pytest.raises(UnreadableReaderGroup, match="unknown kind 3"):
        state_of([reader_groups.int32(3)])


def test_a_revision_of_a_newer_client_is_named() -> None:
    newer = reader_groups.int32(2), reader_groups.value(reader_groups.text("r2"), b"new", kind=2)
    with pytest.raises(UnreadableReaderGroup, match="revision 1 of an update of kind 2"):
        state_of([*RECORDED["waiting"], newer[0] + reader_groups.int32(len(newer[1])) + newer[1]])


@pytest.mark.parametrize(("checkpoint", "offset"), [("x_SILENT_y", 1144), ("x", 2000)])
def test_a_silent_checkpoint_moves_no_position(checkpoint: str, offset: int) -> None:
    """The client makes one for a cut that a user has asked for; a lost reader's position is not that cut."""
    at = reader_groups.mapping({reader_groups.text(f"{SECOND}/2.#epoch.1"): reader_groups.int64(2000)})
    update = reader_groups.value(reader_groups.text(checkpoint) + reader_groups.text("r1") + at, kind=8)
    state = state_of([*RECORDED["waiting"], reader_groups.int32(2) + reader_groups.int32(len(update)) + update])
    assert offsets(state.position(SECOND)) == {"2.#epoch.1": offset}


def test_an_update_before_the_first_state_is_an_error() -> None:
    with pytest.raises(UnreadableReaderGroup, match="before the first state"):
        state_of(RECORDED["closed"][1:])


@pytest.mark.parametrize("kind", [5, 7])
def test_a_name_that_is_no_text_can_be_printed(kind: int) -> None:
    update = reader_groups.value(reader_groups.text("r1") + b"\x00\x02\xff\n", kind=kind)
    with pytest.raises(UnreadableReaderGroup, match=r"'\\udcff\\n'") as caught:
        state_of([*RECORDED["waiting"], reader_groups.int32(2) + reader_groups.int32(len(update)) + update])
    assert str(caught.value).encode().isascii()


@given(st.sampled_from(sorted(RECORDED)), st.data())
def test_changed_bytes_raise_only_our_error(name: str, data: st.DataObject) -> None:
    records = list(RECORDED[name])
    at = data.draw(st.integers(0, len(records) - 1))
    record = bytearray(records[at])
    begin = data.draw(st.integers(0, len(record)))
    record[begin : data.draw(st.integers(begin, len(record)))] = data.draw(st.binary(max_size=20))
    records[at] = bytes(record)
    try:
        state_of(records).position(FIRST)
    except UnreadableReaderGroup:
        return


@given(st.binary(max_size=300))
def test_garbage_raises_only_our_error(garbage: bytes) -> None:
    for head in (b"", b"\0\0\0\1", b"\0\0\0\1\0\0\0\3", b"\0\0\0\2"):
        try:
            state_of([*RECORDED["created"], head + garbage])
        except UnreadableReaderGroup:
            continue


@given(st.integers(0, (1 << 30) - 1), st.integers(0, (1 << 61) - 1))
def test_compact_numbers_have_their_length_in_their_first_bits(number: int, signed: int) -> None:
    fields = JavaFields(reader_groups.count(number))
    assert (fields.count(), fields.left) == (number, 0)
    for written, bits in ((reader_groups.compact(signed), 6), (reader_groups.compact_signed(signed), 5)):
        assert len(written) == next(n for n in (1, 2, 4, 8) if signed < 1 << bits + 8 * (n - 1))
        assert int.from_bytes(written, "big") & (1 << bits + 8 * (len(written) - 1)) - 1 == signed
        assert written[0] >> bits == (1, 2, 4, 8).index(len(written))
