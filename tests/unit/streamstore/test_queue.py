"""The framing of a queue's entries: entries survive a round trip in any pieces, and invalid bytes are rejected.

A producer with a concurrent append: its entry is in the queue once, whatever the store answered.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.streamstore.errors import OffsetConflict, SegmentTruncated, StreamStoreUnavailable
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.queue import (
    OVERHEAD_BYTES,
    BadEntry,
    Consumer,
    Producer,
    QueueEntry,
    QueueSegment,
    decode_entry,
    encode_entry,
)
from streamvault.streamstore.store import SegmentAppender, StreamStore

CONTENTS = st.binary(max_size=300)
NAMES = st.uuids()
TIMES = st.floats(min_value=0, max_value=4e9)


@given(st.lists(st.tuples(CONTENTS, NAMES, TIMES), max_size=20), st.integers(0, 2**40))
def test_entries_round_trip(put: list[tuple[bytes, uuid.UUID, float]], base: int) -> None:
    buffer = b"".join(encode_entry(*one) for one in put)
    at, found = 0, []
    while (entry := decode_entry(buffer, at, base + at, "s")) is not None:
        assert entry.offset == base + at
        assert entry.end - entry.offset == OVERHEAD_BYTES + len(entry.content)
        found.append(entry)
        at = entry.end - base
    assert at == len(buffer)
    assert [(entry.content, entry.name) for entry in found] == [(content, name) for content, name, _ in put]
    assert all(abs(entry.put_time - when) < 2e-6 for entry, (_, _, when) in zip(found, put, strict=True))


@given(CONTENTS, st.data())
def test_incomplete_entry_is_waited_for(content: bytes, data: st.DataObject) -> None:
    whole = encode_entry(content)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert decode_entry(whole[:cut], 0, 0, "s") is None


@given(CONTENTS, st.data())
def test_any_changed_byte_is_found(content: bytes, data: st.DataObject) -> None:
    whole = bytearray(encode_entry(content))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with suppress(BadEntry):
        # a header that announces more bytes than there are waits for more; anything else is rejected
        assert decode_entry(whole, 0, 0, "s") is None
        assert place < 8


@given(st.binary(max_size=100))
def test_foreign_bytes_are_refused_or_cut(foreign: bytes) -> None:
    with suppress(BadEntry):
        assert decode_entry(foreign, 0, 0, "s") is None


def test_unknown_version_is_named_with_its_offset() -> None:
    later = bytearray(encode_entry(b"x"))
    later[8] = 2
    with pytest.raises(BadEntry, match="unknown entry version 2: s at offset 77"):
        decode_entry(later, 0, 77, "s")


Flush = Callable[[SegmentAppender], int]


class Told:
    """An appender that does one thing and may report another."""

    def __init__(self, real: SegmentAppender, flush: Flush) -> None:
        self._real = real
        self._flush = flush

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def flush(self) -> int:
        return self._flush(self._real)


class Store:
    """The embedded store, in which the flush of the first appender is replaced."""

    def __init__(self, real: StreamStore, flush: Flush) -> None:
        self._real = real
        self._flushes = [flush]

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def appender(self, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> object:
        real = self._real.appender(stream, segment, in_flight=in_flight)
        return Told(real, self._flushes.pop()) if self._flushes else real


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueSegment]:
    with LocalStore(tmp_path / "store") as store:
        yield QueueSegment.create(store, StreamName("scope", "queue"))


def contents(queue: QueueSegment) -> list[bytes]:
    found: list[QueueEntry] = []
    with Consumer(queue) as consumer:
        consumer.run(found.extend, idle_seconds=0)
    return [entry.content for entry in found]


def put(queue: QueueSegment, flush: Flush) -> None:
    store: Any = Store(queue.store, flush)
    told = QueueSegment.open(store, queue.name)
    Producer(told).put(b"mine")


def landed_behind_which_another_came(real: SegmentAppender) -> int:
    end = real.flush()
    raise OffsetConflict("another writer appended", write_offset=end + 100)


def somebody_was_faster(real: SegmentAppender) -> int:
    raise OffsetConflict("another writer appended", write_offset=real.offset + 100)


def landed_and_handled(real: SegmentAppender) -> int:
    end = real.flush()
    raise SegmentTruncated("truncated", start_offset=end)


def landed_and_unknown(real: SegmentAppender) -> int:
    real.flush()
    raise StreamStoreUnavailable("it does not answer")


@pytest.mark.parametrize("flush", [landed_behind_which_another_came, somebody_was_faster, landed_and_handled])
def test_put_whose_append_conflicts_lands_once(queue: QueueSegment, flush: Flush) -> None:
    put(queue, flush)
    assert contents(queue) == [b"mine"]


def test_put_raises_if_the_store_goes_away(queue: QueueSegment) -> None:
    """The caller decides; the entry may be in the queue."""
    with pytest.raises(StreamStoreUnavailable):
        put(queue, landed_and_unknown)
    assert contents(queue) == [b"mine"]
