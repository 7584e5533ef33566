"""What the benchmarks move: a stream of equal events, known without reading it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from benchmarks.measuring import Measured
from layouts.keys import archive_prefix, event_key
from streamstore.framing import frame_many
from streamstore.model import HEADER_BYTES, Scaling, SegmentId, StreamConfiguration, StreamName
from streamstore.store import StreamStore

__all__ = ["Workload"]

POOL_BYTES = 1024 * 1024
STRIDE = 7919
"""A prime, so that neighbouring payloads differ."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A stream of equal events over equal segments of one epoch.

    Attributes:
        events: in all segments together.
        size: bytes of a payload; payloads are incompressible.
        segments: how many; event ``i`` of a segment lies at offset ``i * length``.
    """

    events: int
    size: int
    segments: int

    @classmethod
    def parse(cls, text: str, segments: int) -> Self:
        """Read ``EVENTSxBYTES``."""
        events, size = map(int, text.split("x"))
        return cls(events, size, segments)

    def measured(self, events: int, size: int, seconds: float) -> Measured:
        """A run that moved so many events and bytes.

        Raises:
            RuntimeError: that is not all of it.
        """
        if (events, size) != (self.events, self.bytes):
            raise RuntimeError(f"{events} events of {size} bytes were moved instead of {self.events} of {self.bytes}")
        return Measured(events, size, seconds)

    @property
    def length(self) -> int:
        """Bytes of an event with its header."""
        return self.size + HEADER_BYTES

    @property
    def bytes(self) -> int:
        """Bytes of all segments, event headers included."""
        return self.events * self.length

    def share(self, segment: int) -> int:
        """How many events the segment of this number holds."""
        return self.events * (segment + 1) // self.segments - self.events * segment // self.segments

    def payloads(self, segment: int) -> Iterator[memoryview]:
        """A segment's payloads in order, as views that stay valid."""
        pool = memoryview(_pool(self.size))
        for index in range(self.share(segment)):
            start = (index * STRIDE + segment) % POOL_BYTES
            yield pool[start : start + self.size]

    def objects(self, stream: StreamName, segment: int) -> Iterator[tuple[str, memoryview]]:
        """A segment's events as an archive's objects: the same keys and the same bytes as an export writes."""
        prefix = archive_prefix(stream.scope, stream.stream)
        for index, payload in enumerate(self.payloads(segment)):
            yield prefix + event_key(SegmentId(0, segment), index * self.length, self.length), payload

    def fill(self, store: StreamStore, stream: StreamName) -> None:
        """Make the stream and append all events, as whole blocks."""
        store.create_scope(stream.scope)
        store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=self.segments)))
        for number in range(self.segments):
            with store.appender(stream, SegmentId(0, number)) as appender:
                for block in frame_many(self.payloads(number)):
                    appender.append(block)


@lru_cache(maxsize=2)
def _pool(size: int) -> bytes:
    return random.Random(size).randbytes(POOL_BYTES + size)
