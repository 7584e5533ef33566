"""A producer with a concurrent append: its entry is in the queue once, whatever the store answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamvault.streamstore.errors import OffsetConflict, SegmentTruncated, StreamStoreUnavailable
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.queue import Consumer, Producer, QueueEntry, QueueSegment
from streamvault.streamstore.store import SegmentAppender, StreamStore

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
