"""The contract of layouts, tested on each of them and on compressed chunks."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from streamvault.common.errors import Conflict, Damaged, Failed
from streamvault.layouts.archived_range import ArchivedRange, BlockChecksums
from streamvault.layouts.keys import Place
from streamvault.layouts.layout import Layout, WrittenRange, open_layout
from streamvault.objectstore.folder import FolderStore
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import NoSuchObject, ObjectStore, WrongSize, crc64nvme
from streamvault.streamstore.events import EventBlock
from streamvault.streamstore.model import SegmentId
from testkit.streams import frame
from tests.archives import runs
from tests.metered import MeteredStore
from tests.places import PREFIX, SEGMENT, memory, place_of

MIB = 1024 * 1024
OTHER = SegmentId(3, 8)
START = 1000
PAYLOADS = [b"one", b"", b"three" * 10, bytes(range(256)), b"", b"six", b"seven" * 100, bytes(8)]
NEXT = [b"after", b"", b"last"]


@pytest.fixture(
    scope="module",
    params=[("events", ""), ("chunks", ""), ("chunks", "zstd")],
    ids=lambda which: "-".join(filter(None, which)),
)
def layout(request: pytest.FixtureRequest) -> Layout:
    return open_layout(*request.param)


@dataclass(frozen=True)
class Range:
    """A written range, its events (offset, payload) and its bytes."""

    stored: ArchivedRange
    events: list[tuple[int, bytes]]
    raw: bytes

    @property
    def bounds(self) -> tuple[int, int]:
        return self.stored.start, self.stored.end


def events_at(start: int, payloads: Sequence[bytes]) -> list[tuple[int, bytes]]:
    events = []
    for payload in payloads:
        events.append((start, payload))
        start += len(payload) + 8
    return events


def write(
    layout: Layout,
    store: ObjectStore,
    start: int,
    payloads: Sequence[bytes],
    *,
    segment: SegmentId = SEGMENT,
    prefix: str = PREFIX,
) -> Range:
    events, raw = events_at(start, payloads), b"".join(map(frame, payloads))
    frames = layout.write_run(Place(store, prefix), segment, runs(events)).frames
    return Range(ArchivedRange(segment, start, start + len(raw), 0, "", frames), events, raw)


@dataclass(frozen=True)
class Case:
    """An archive of two neighbouring ranges of a segment, and one event of another segment."""

    layout: Layout
    store: ObjectStore
    first: Range
    second: Range

    def read(self, held: Range, start: int | None = None, end: int | None = None) -> bytes:
        low = held.stored.start if start is None else start
        high = held.stored.end if end is None else end
        return b"".join(self.layout.read_range(place_of(self.store), held.stored, low, high))

    def keys(self, held: Range) -> list[str]:
        """Return the keys of a range's objects, as listed."""
        parse = self.layout.keys.parse
        found = [(entry.key, parse(entry.key.removeprefix(PREFIX))) for entry in self.store.list(self.folder)]
        return [key for key, parsed in found if parsed and held.stored.start <= parsed.offset < held.stored.end]

    @property
    def folder(self) -> str:
        return f"{PREFIX}{self.layout.name}/0000000003.0000000007/"

    def findings(self, held: Range) -> list[tuple[str, str]]:
        report = self.layout.check_range(place_of(self.store), held.stored)
        assert (report.damaged, report.stray) == (len(report.damage), len(report.strays))
        return [*((finding.kind, finding.key) for finding in report.damage), *(("stray", key) for key in report.strays)]

    def off_chain(self, start: int, end: int, *ranges: tuple[int, int]) -> list[str]:
        return list(self.layout.off_chain(place_of(self.store), SEGMENT, start, end, ranges))

    def key(self, offset: int, length: int) -> str:
        """Return a well-formed key of the segment, which need not exist."""
        width = 10 if self.layout.name == "events" else 19
        return f"{self.folder}{offset:019d}-{length:0{width}d}"


@pytest.fixture
def case(layout: Layout) -> Case:
    store = memory()
    first = write(layout, store, START, PAYLOADS)
    second = write(layout, store, first.stored.end, NEXT)
    write(layout, store, START, [b"another segment"], segment=OTHER)
    return Case(layout, store, first, second)


def is_damage(reading: Iterator[object] | object) -> str:
    assert isinstance(reading, Iterator)
    with pytest.raises(Damaged) as caught:
        list(reading)
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 3
    return str(caught.value)


@settings(max_examples=30)
@given(payloads=st.lists(st.binary(max_size=300), max_size=40), start=st.integers(0, 2**62), data=st.data())
def test_any_part_between_events_is_read(
    layout: Layout, payloads: list[bytes], start: int, data: st.DataObject
) -> None:
    store = memory()
    held = write(layout, store, start, payloads)
    assert len(list(store.list(""))) == (len(payloads) if layout.name == "events" else bool(payloads))
    cuts = [offset for offset, _ in held.events] + [held.stored.end]
    low, high = sorted([data.draw(st.sampled_from(cuts)), data.draw(st.sampled_from(cuts))])
    blocks = list(layout.read_range(place_of(store), held.stored, low, high))
    assert b"".join(blocks) == held.raw[low - start : high - start]
    if payloads:
        report = layout.check_range(place_of(store), held.stored)
        assert (report.damage, report.strays) == ((), ())
        assert report.events in {None, len(payloads)}


def test_ranges_are_checked_together_as_each_alone(case: Case) -> None:
    held, layout = [case.first.stored, case.second.stored], case.layout
    third = ArchivedRange(SEGMENT, held[-1].end + 100, held[-1].end + 200, 0, "")  # behind a hole, and missing
    case.store.put(case.key(held[0].start, 9999), b"a stray in the first")
    case.store.put(case.key(held[1].end + 10, 20), b"between the ranges")
    case.store.put(case.key(third.start + 10, 20), b"a stray in the third")
    ranges, store = [*held, third], MeteredStore(case.store)
    found = list(layout.check_ranges(place_of(store), ranges))
    assert found == [layout.check_range(place_of(case.store), one) for one in ranges]
    assert [bool(one.damaged) for one in found] == [False, False, True]
    assert found[0].stray == 1
    assert store.meter.lists == (3 if layout.one_object_per_event else 1)
    assert list(layout.check_ranges(place_of(store), [])) == []


def test_every_event_is_read_by_its_pointer_in_one_request(case: Case) -> None:
    for held in (case.first, case.second):
        for offset, payload in held.events:
            store = MeteredStore(case.store)
            found = case.layout.read_event(place_of(store), held.stored, offset, len(payload) + 8)
            assert bytes(found) == frame(payload)
            assert (store.meter.gets, store.meter.requests) == (1, 1)


def test_reading_a_pointer_of_no_event_fails(case: Case) -> None:
    held = case.first.stored
    offset, payload = case.first.events[2]
    for at, length in ((offset, len(payload) + 9), (offset, len(payload) + 7), (offset + 1, 20), (offset - 8, 40)):
        with pytest.raises((NoSuchObject, WrongSize)):
            case.layout.read_event(place_of(case.store), held, at, length)


def test_event_around_a_stray_is_found(case: Case) -> None:
    if case.layout.name == "events":
        at, payload = case.first.events[2]
        case.store.put(case.key(at + 8, 13), payload[:5])
        assert case.layout.find_event(place_of(case.store), case.first.stored, at + 8) == (at, len(payload) + 8)


def test_event_that_holds_a_byte_is_found(case: Case) -> None:
    for offset, payload in case.first.events:
        length = len(payload) + 8
        for byte in {offset, offset + 1, offset + length // 2, offset + length - 1}:
            assert case.layout.find_event(place_of(case.store), case.first.stored, byte) == (offset, length)


def test_rewriting_changes_nothing_and_returns_the_same(case: Case) -> None:
    before = [(entry, case.store.get(entry.key)) for entry in case.store.list("")]
    assert write(case.layout, case.store, START, PAYLOADS) == case.first
    assert [(entry, case.store.get(entry.key)) for entry in case.store.list("")] == before


def test_different_bytes_under_the_same_key_are_a_conflict(case: Case) -> None:
    before = [(entry, case.store.get(entry.key)) for entry in case.store.list("")]
    with pytest.raises(Conflict, match="a different object already exists") as caught:
        write(case.layout, case.store, START, [b"eno", *PAYLOADS[1:]])
    assert case.keys(case.first)[0] in str(caught.value)
    assert [(entry, case.store.get(entry.key)) for entry in case.store.list("")] == before


def test_block_needs_to_be_valid_only_until_the_next(layout: Layout) -> None:
    buffer, store = bytearray(12), memory()

    def blocks() -> Iterator[EventBlock]:
        for number in range(200):
            buffer[:] = frame(number.to_bytes(4, "big"))
            yield EventBlock(number * 12, memoryview(buffer), 1)
            buffer[:] = b"overwritten!"

    frames = layout.write_run(place_of(store), SEGMENT, blocks()).frames
    raw = b"".join(frame(number.to_bytes(4, "big")) for number in range(200))
    held = ArchivedRange(SEGMENT, 0, 2400, 0, "", frames)
    assert b"".join(layout.read_range(place_of(store), held, 0, 2400)) == raw


def test_no_events_write_no_objects(layout: Layout) -> None:
    store = memory()
    assert layout.write_run(place_of(store), SEGMENT, iter(())) == WrittenRange()
    assert list(store.list("")) == []


def test_missing_objects_are_reported_and_reading_fails(case: Case) -> None:
    keys = case.keys(case.first)
    case.store.delete(keys[-1:])
    assert [kind for kind, _ in case.findings(case.first)] == ["missing"]
    is_damage(case.layout.read_range(place_of(case.store), case.first.stored, *case.first.bounds))
    case.store.delete(keys)
    assert [kind for kind, _ in case.findings(case.first)] == ["missing"]
    assert case.findings(case.second) == []
    assert case.read(case.second) == case.second.raw


def test_objects_of_the_wrong_size_are_reported_and_reading_fails(case: Case) -> None:
    key = case.keys(case.first)[-1]
    whole = case.store.get(key)
    for other in (whole[:-1], b""):
        case.store.delete([key])
        case.store.put(key, other)
        assert case.findings(case.first) == [("changed", key)]
        assert key in is_damage(case.layout.read_range(place_of(case.store), case.first.stored, *case.first.bounds))
        offset, payload = case.first.events[-1]
        with pytest.raises(Damaged):
            case.layout.read_event(place_of(case.store), case.first.stored, offset, len(payload) + 8)
    case.store.delete([key])
    case.store.put(key, whole + b"x")
    assert case.findings(case.first) == [("changed", key)]


def test_strays_are_reported_and_skipped(case: Case) -> None:
    third = case.first.events[2][0]
    proved = [case.key(third + 1, 13), case.key(third + 20, 8)]
    # foreign, or at the offset of an archived object: the listing alone does not show which is right
    last = case.key(case.first.events[-1][0], 400)
    unknown = [case.key(START, 10), case.folder + f"{third:019d}.txt", last]
    for key in (*proved, *unknown):
        case.store.put(key, b"")
    assert sorted(case.findings(case.first)) == sorted(("stray", key) for key in (*proved, *unknown))
    assert case.findings(case.second) == []
    assert (case.read(case.first), case.read(case.second)) == (case.first.raw, case.second.raw)
    found = case.off_chain(START, case.second.stored.end, case.first.bounds, case.second.bounds)
    # after two objects at one offset, nothing is proved
    assert set(proved) <= set(found) or (case.layout.name == "events" and found == [])
    assert not {*case.keys(case.second), unknown[1]} & set(found)
    assert not set(found) - {*proved, *unknown}
    case.store.delete(found)
    assert (case.read(case.first), case.read(case.second)) == (case.first.raw, case.second.raw)


def test_framed_records_in_payloads_do_not_mislead_a_reader(layout: Layout) -> None:
    """A run that mistook records inside payloads for events has written strays."""
    store = memory()
    payload = b"".join(frame(b"record %d" % number) for number in range(20))
    held = write(layout, store, 0, [payload] * 5)
    write(layout, store, 8, [b"record %d" % number for number in range(20)])
    write(layout, store, held.events[3][0] + 8 + 16, [b"record %d" % number for number in range(1, 20)])
    assert b"".join(layout.read_range(place_of(store), held.stored, *held.bounds)) == held.raw
    assert layout.check_range(place_of(store), held.stored).damage == ()
    strays = list(layout.off_chain(place_of(store), SEGMENT, 0, held.stored.end, [held.bounds]))
    assert strays
    store.delete(strays)
    assert layout.check_range(place_of(store), held.stored).strays == ()
    assert b"".join(layout.read_range(place_of(store), held.stored, *held.bounds)) == held.raw


def test_nothing_after_a_missing_object_is_off_the_chain(case: Case) -> None:
    extra = case.key(case.second.stored.start + 1, 9)
    case.store.put(extra, b"x")
    case.store.delete(case.keys(case.first)[:1])
    with pytest.raises(Damaged, match=r"missing|no object holds"):
        case.off_chain(START, case.second.stored.end, case.first.bounds, case.second.bounds)


def test_objects_that_begin_in_a_gap_are_off_the_chain(case: Case) -> None:
    start, end = case.first.stored.start, case.second.stored.end
    assert case.off_chain(start, end, case.second.bounds) == case.keys(case.first)
    assert case.off_chain(start, end, case.first.bounds) == case.keys(case.second)
    assert case.off_chain(*case.first.bounds) == case.keys(case.first)
    assert case.off_chain(start, end, case.first.bounds, case.second.bounds) == []


def test_objects_outside_all_ranges_are_strays(case: Case) -> None:
    for name in (".first", "zlast"):
        case.store.put(case.folder + name, b"")
    ends = [case.folder + ".first", case.folder + "zlast"]
    first, second = case.keys(case.first), case.keys(case.second)

    def strays(*ranges: tuple[int, int]) -> list[str]:
        return list(case.layout.strays(place_of(case.store), SEGMENT, ranges))

    assert strays(case.first.bounds, case.second.bounds) == ends
    assert strays(case.first.bounds) == [ends[0], *second, ends[1]]
    assert strays(case.second.bounds) == [ends[0], *first, ends[1]]
    assert strays() == [ends[0], *first, *second, ends[1]]


def test_segments_and_foreign_keys_are_listed(case: Case) -> None:
    root = f"{PREFIX}{case.layout.name}/"
    [other] = [entry.key for entry in case.store.list(f"{root}0000000003.0000000008/")]
    assert case.layout.segments(place_of(case.store)) == [SEGMENT, OTHER]
    assert list(case.layout.foreign(place_of(case.store), [SEGMENT, OTHER])) == []
    assert list(case.layout.foreign(place_of(case.store), [SEGMENT])) == [other]
    foreign = [
        f"{root}0000000003.0000000007-x",
        f"{root}0000000003.00000000070",
        f"{root}0000000003.0000000007x/y",
        f"{root}2147483648.0000000000/0",
        f"{root}readme.txt",
    ]
    for key in foreign:
        case.store.put(key, b"")
    case.store.put(f"{case.folder}zlast", b"")  # a stray of its segment
    assert list(case.layout.foreign(place_of(case.store), [SEGMENT, OTHER])) == foreign
    assert case.layout.segments(place_of(case.store)) == [SEGMENT, OTHER]
    assert case.layout.segments(Place(case.store, "nobody/")) == []


def test_archive_at_the_root_of_the_store_is_read(layout: Layout) -> None:
    store = memory()
    held = write(layout, store, START, PAYLOADS, prefix="")
    assert b"".join(layout.read_range(Place(store, ""), held.stored, *held.bounds)) == held.raw
    assert layout.segments(Place(store, "")) == [SEGMENT]
    assert list(layout.foreign(Place(store, ""), [SEGMENT])) == []
    assert layout.check_range(Place(store, ""), held.stored).damage == ()


def test_headers_inside_a_payload_are_not_events(layout: Layout) -> None:
    store = memory()
    payload = struct.pack(">q", 0) * 4
    held = write(layout, store, 0, [payload, payload])
    assert layout.find_event(place_of(store), held.stored, 16) == (0, 40)
    assert layout.find_event(place_of(store), held.stored, 40) == (40, 40)


LARGE = random.Random(5).randbytes(3 * MIB) * 3 + bytes(2 * MIB) + b"end"
LARGE_EVENT = struct.pack(">ii", 0, len(LARGE)) + LARGE


def in_blocks(raw: bytes, size: int = 300_000) -> Iterator[memoryview]:
    """Yield blocks, each valid until the next one is requested."""
    buffer = bytearray(size)
    for low in range(0, len(raw), size):
        some = raw[low : low + size]
        buffer[: len(some)] = some
        yield memoryview(buffer)[: len(some)]


def checksum_of(store: ObjectStore, layout: Layout) -> str:
    """The checksum that is recorded of a range that is the only one in the store."""
    if layout.one_object_per_event:
        return ""
    [entry] = store.list(PREFIX)
    return crc64nvme(store.get(entry.key))


def blocks_of(layout: Layout, raw: bytes) -> str:
    """The checksums of blocks that are recorded of a range."""
    found = BlockChecksums()
    found.update(raw)
    return "" if layout.one_object_per_event else found.finish()[1]


def test_checksums_of_a_range_are_recorded(layout: Layout) -> None:
    store, raw = memory(), b"".join(map(frame, [b"one", b"", b"three"]))
    for _ in range(2):  # the second writer finds the object
        written = layout.write_run(place_of(store), SEGMENT, runs(events_at(START, [b"one", b"", b"three"])))
        assert written.crc64nvme == checksum_of(store, layout)
        assert written.block_checksums == blocks_of(layout, raw)


@pytest.mark.parametrize("window", [MIB, 64 * MIB], ids=["in parts", "whole"])
def test_large_event_is_a_separate_object(layout: Layout, window: int) -> None:
    store, length = memory(), len(LARGE_EVENT)
    event = ArchivedRange(SEGMENT, START, START + length, 0, "")
    written = layout.write_large(place_of(store), event, in_blocks(LARGE_EVENT), window)
    held = replace(event, frames=written.frames)
    assert written.crc64nvme == checksum_of(store, layout)
    assert written.block_checksums == blocks_of(layout, LARGE_EVENT)
    check = layout.check_range(place_of(store), held)
    assert (check.damaged, check.stray) == (0, 0)
    assert len(list(store.list(PREFIX))) == 1
    for low in (0, 1, 8, 9, 5 * MIB, length - 1):  # as by an import that resumes in the middle of it
        found = b"".join(layout.read_range(place_of(store), held, START + low, START + length, MIB))
        assert found == LARGE_EVENT[low:]
    assert layout.read_event(place_of(store), held, START, length) == LARGE_EVENT
    assert layout.find_event(place_of(store), held, START + 7 * MIB) == (START, length)
    # the second writer compares, whether or not it holds the event
    for again in (MIB, 64 * MIB):
        assert layout.write_large(place_of(store), event, in_blocks(LARGE_EVENT), again) == written
        other = bytearray(LARGE_EVENT)
        other[-1] ^= 1
        with pytest.raises(Conflict, match="a different object already exists"):
            layout.write_large(place_of(store), event, in_blocks(bytes(other)), again)


def test_second_concurrent_writer_of_a_large_event_compares(layout: Layout) -> None:
    """The key is created by another writer after the first check, when all parts are being uploaded."""
    store, event = memory(), ArchivedRange(SEGMENT, START, START + len(LARGE_EVENT), 0, "")

    def blocks() -> Iterator[memoryview]:
        yield from in_blocks(LARGE_EVENT[:MIB])
        first = layout.write_large(place_of(store), event, in_blocks(LARGE_EVENT), MIB)
        written.append(first)
        yield from in_blocks(LARGE_EVENT[MIB:])

    written: list[WrittenRange] = []
    assert [layout.write_large(place_of(store), event, blocks(), MIB)] == written
    assert written[0].crc64nvme == checksum_of(store, layout)


def test_server_that_overwrites_by_multipart_uploads_gets_none(layout: Layout) -> None:
    class Overwriting(ObstoreStore):
        def put_blocks(self, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
            self._backend.put(self._base + key, b"".join(blocks), mode="overwrite")

    store = Overwriting(MemoryStore(), bucket="memory://archive")
    event = ArchivedRange(SEGMENT, START, START + len(LARGE_EVENT), 0, "")
    with pytest.raises(Failed, match=r"exceeds the window.*Use --window 12MiB"):
        layout.write_large(place_of(store), event, in_blocks(LARGE_EVENT), MIB)
    assert list(store.list(PREFIX)) == []
    layout.write_large(place_of(store), event, in_blocks(LARGE_EVENT), 12 * MIB)
    assert len(list(store.list(PREFIX))) == 1


def test_large_event_is_moved_in_bounded_memory(layout: Layout, tmp_path: Path) -> None:
    store, size = FolderStore(tmp_path), 200 * MIB

    def blocks() -> Iterator[bytes]:
        yield struct.pack(">ii", 0, size)
        for number in range(size // MIB):
            yield bytes([number]) * MIB

    tracemalloc.start()
    held = ArchivedRange(SEGMENT, START, START + size + 8, 0, "")
    held = replace(held, frames=layout.write_large(place_of(store), held, blocks(), 16 * MIB).frames)
    read = sum(map(len, layout.read_range(place_of(store), held, held.start, held.end, 16 * MIB)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read == size + 8
    assert peak < 48 * MIB
