"""Layout events beyond the contract of all layouts: every kind of damage, blocks, memory."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterable

import pytest
from obstore.store import MemoryStore

from streamvault.common.errors import Damaged
from streamvault.layouts import keys
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.chain import Finding
from streamvault.layouts.events import EventsLayout
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import SMALL, ObjectStore
from streamvault.streamstore.model import SegmentId
from tests.archives import runs
from tests.metered import MeteredStore
from tests.places import PREFIX, SEGMENT, memory, place_of

LAYOUT = EventsLayout()


def framed(payloads: list[bytes], start: int = 0) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return events as (offset, payload), and the segment's raw bytes."""
    events, raw = [], b""
    for payload in payloads:
        events.append((start + len(raw), payload))
        raw += struct.pack(">ii", 0, len(payload)) + payload
    return events, raw


def key_of(offset: int, payload_length: int) -> str:
    return PREFIX + keys.event_key(SEGMENT, offset, payload_length + 8)


def range_of(start: int, end: int) -> ArchivedRange:
    return ArchivedRange(SEGMENT, start, end, 0, "")


def put(store: ObjectStore, events: Iterable[tuple[int, bytes]]) -> None:
    LAYOUT.write_run(place_of(store), SEGMENT, runs(events))


PAYLOADS = [b"one", b"", b"three" * 10, bytes(range(256)), b"", b"six", b"seven" * 100, b"\0" * 8]
START = 1000
EVENTS, RAW = framed(PAYLOADS, START)
END = START + len(RAW)


@pytest.fixture
def store() -> ObjectStore:
    """Hold `EVENTS`, and neighbours in the same segment and in others."""
    store = memory()
    put(store, EVENTS)
    put(store, framed([b"before"], START - 14)[0])
    put(store, framed([b"after"], END)[0])
    LAYOUT.write_run(place_of(store), SegmentId(3, 8), runs(framed([b"another segment"], START)[0]))
    return store


def read(store: ObjectStore, start: int = START, end: int = END) -> bytes:
    return b"".join(LAYOUT.read_range(place_of(store), range_of(start, end), start, end))


def findings(store: ObjectStore, start: int = START, end: int = END) -> list[tuple[str, str]]:
    """Return the findings of the check, after comparing them with what reading raises."""
    report = LAYOUT.check_range(place_of(store), range_of(start, end))
    assert (report.damaged, report.stray) == (len(report.damage), len(report.strays))
    if report.damage:
        first = report.damage[0]
        for strict in (
            lambda: list(LAYOUT.list_range(place_of(store), range_of(start, end))),
            lambda: read(store, start, end),
        ):
            with pytest.raises(Damaged) as caught:
                strict()
            assert caught.value.what == first.what
            assert first.key in str(caught.value)
            assert caught.value.exit_code == 3
    return [*((finding.kind, finding.key) for finding in report.damage), *(("stray", key) for key in report.strays)]


def test_keys_are_those_of_the_format(store: ObjectStore) -> None:
    found = [entry.key for entry in store.list(f"{PREFIX}events/0000000003.0000000007/")]
    assert found[1:-1] == [key_of(offset, len(payload)) for offset, payload in EVENTS]
    assert found[1] == f"{PREFIX}events/0000000003.0000000007/0000000000000001000-0000000011"
    assert store.get(found[1]) == b"one"


def test_blocks_are_whole_events_and_grow_to_about_a_mebibyte() -> None:
    store = memory()
    random.seed(1)
    payloads = [random.randbytes(random.choice([0, 10, 1000, 100_000])) for _ in range(300)]
    payloads[100] = random.randbytes(8 * 1024 * 1024)
    events, raw = framed(payloads)
    put(store, events)
    blocks = list(LAYOUT.read_range(place_of(store), range_of(0, len(raw)), 0, len(raw)))
    assert b"".join(blocks) == raw
    ends = {offset for offset, _ in events} | {len(raw)}
    assert set(itertools.accumulate(map(len, blocks))) <= ends
    small = [len(block) for block in blocks[:-1] if len(block) < 8 * 2**20]
    assert small[0] <= 2**6 + 100_008
    assert all(2**20 <= size <= 2**20 + 100_008 for size in small[15:-1])


def test_range_is_listed_between_two_keys() -> None:
    inner = memory()
    put(inner, framed([b"x"] * 5000)[0])
    store = MeteredStore(inner)
    assert len(list(LAYOUT.list_range(place_of(store), range_of(9 * 2000, 9 * 2500)))) == 500
    assert (store.meter.lists, store.meter.requests) == (1, 1)
    assert read(store, 9 * 2000, 9 * 2500) == framed([b"x"] * 500)[1]
    assert store.meter.gets == 500
    assert list(LAYOUT.list_range(place_of(store), range_of(90, 90))) == []
    assert read(store, 90, 90) == b""


@pytest.mark.parametrize("gone", [(0,), (3,), (len(EVENTS) - 1,), (2, 3, 4), (0, 1, 7), tuple(range(len(EVENTS)))])
def test_each_run_of_missing_objects_is_one_finding(store: ObjectStore, gone: tuple[int, ...]) -> None:
    store.delete([key_of(EVENTS[index][0], len(EVENTS[index][1])) for index in gone])
    firsts = [index for index in gone if index - 1 not in gone]  # a run of missing events is one finding
    folder = f"{PREFIX}events/0000000003.0000000007/"
    assert findings(store) == [("missing", f"{folder}{EVENTS[index][0]:019d}-…") for index in firsts]


def test_nothing_after_two_objects_at_one_offset_is_off_the_chain(store: ObjectStore) -> None:
    """The listing does not show which of them is right, nor what follows from it."""
    for offset, length in ((EVENTS[2][0] + 1, 5), (EVENTS[3][0], 3), (EVENTS[6][0] + 1, 5)):
        store.put(key_of(offset, length), b"")
    assert list(LAYOUT.off_chain(place_of(store), SEGMENT, START, END, [(START, END)])) == [key_of(EVENTS[2][0] + 1, 5)]


def test_findings_beyond_the_maximum_are_counted() -> None:
    store = memory()
    events, raw = framed([b"x"] * 300)
    put(store, events[::2])
    report = LAYOUT.check_range(place_of(store), range_of(0, len(raw)))
    assert (report.events, report.damaged, len(report.damage)) == (150, 150, 100)


class Vanishing(ObstoreStore):
    """A store in which an object vanishes, or is truncated, between listing and reading."""

    victim = ""
    left: bytes | None = None

    def get(self, key: str, at_most: int = SMALL) -> bytes:
        if key == self.victim:
            self.victim = ""
            self.delete([key])
            if self.left is not None:
                self.put(key, self.left)
        return super().get(key, at_most)


@pytest.mark.parametrize(("left", "says"), [(None, "no such object"), (b"x", "the object has 1 bytes instead of 256")])
def test_object_that_vanishes_during_a_read_is_damage(left: bytes | None, says: str) -> None:
    store = Vanishing(MemoryStore(), bucket="memory://archive")
    put(store, EVENTS)
    store.victim, store.left = key_of(EVENTS[3][0], 256), left
    with pytest.raises(Damaged, match=says) as caught:
        read(store)
    assert caught.value.where == f"memory://archive/{key_of(EVENTS[3][0], 256)}"


def test_finding_becomes_an_error_of_one_line() -> None:
    problem = Finding("missing", "a/b", 0, 9, "something").problem("s3://bucket")
    assert str(problem) == "something: s3://bucket/a/b. Run 'streamvault check' on the archive."
