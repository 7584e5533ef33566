"""Data of the benchmarks: a stream of equally long events, known without reading it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from benchmarks.measuring import Measured
from benchmarks.processes import Moved
from streamvault.layouts.keys import event_key
from streamvault.streamstore.framing import frame_many
from streamvault.streamstore.model import HEADER_BYTES, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore

POOL_BYTES = 1024 * 1024
STRIDE = 7919
"""A prime, so that neighbouring payloads differ."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A stream of equally long events over equally long segments of one epoch.

    Attributes:
        events: number of events in all segments.
        size: payload size (bytes); payloads are incompressible.
        segments: number of segments; event ``i`` of a segment is at offset ``i * length``.
    """

    events: int
    size: int
    segments: int

    @classmethod
    def parse(cls, text: str, segments: int) -> Self:
        """Read ``EVENTSxBYTES``."""
        events, size = map(int, text.split("x"))
        return cls(events, size, segments)

    def moved(self, moved: Moved) -> Measured:
        """Return a run of processes that moved these events."""
        size = moved.events * self.length
        return self.measured(moved.events, size, moved.seconds, moved.processor_seconds)

    def measured(self, events: int, size: int, seconds: float, processor_seconds: float = 0.0) -> Measured:
        """Return a run that moved these events and bytes.

        Raises:
            RuntimeError: the run did not move the whole workload.
        """
        if (events, size) != (self.events, self.bytes):
            raise RuntimeError(f"{events} events of {size} bytes were moved instead of {self.events} of {self.bytes}")
        return Measured(events, size, seconds, processor_seconds)

    @property
    def length(self) -> int:
        """Size of an event with its header (bytes)."""
        return self.size + HEADER_BYTES

    @property
    def bytes(self) -> int:
        """Size of all segments, event headers included (bytes)."""
        return self.events * self.length

    def share(self, segment: int) -> int:
        """Return the number of events in the segment with this number."""
        return self.events * (segment + 1) // self.segments - self.events * segment // self.segments

    def payloads(self, segment: int) -> Iterator[memoryview]:
        """Yield a segment's payloads in order, as views that stay valid."""
        pool = memoryview(_pool(self.size))
        for index in range(self.share(segment)):
            start = (index * STRIDE + segment) % POOL_BYTES
            yield pool[start : start + self.size]

    def objects(self, stream: StreamName, segment: int) -> Iterator[tuple[str, memoryview]]:
        """Yield a segment's events as objects with the keys and bytes that an export writes."""
        prefix = f"{stream}/"
        for index, payload in enumerate(self.payloads(segment)):
            yield prefix + event_key(SegmentId(0, segment), index * self.length, self.length), payload

    def fill(self, store: StreamStore, stream: StreamName) -> None:
        """Create the stream and append all events in whole blocks."""
        store.create_scope(stream.scope)
        store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=self.segments)))
        for number in range(self.segments):
            with store.appender(stream, SegmentId(0, number)) as appender:
                for block in frame_many(self.payloads(number)):
                    appender.append(block)


@lru_cache(maxsize=2)
def _pool(size: int) -> bytes:
    return random.Random(size).randbytes(POOL_BYTES + size)
