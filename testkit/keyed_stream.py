"""Streams whose events have their key and its count as payload, for copies by events."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable

from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.routing import SegmentRouter
from streamvault.streamstore.store import StreamStore
from testkit.streams import events_of

SOURCE, TARGET = StreamName("scope", "source"), StreamName("scope", "target")
KEYS = [f"key-{number}" for number in range(40)]


class KeyedStream:
    """Writes events, each to the segment of its key, and scales in between."""

    def __init__(self, store: StreamStore, seed: int = 1, segments: int = 2, stream: StreamName = SOURCE) -> None:
        self.store = store
        self.stream = stream
        self._rng = random.Random(seed)
        self._counts: dict[str, int] = defaultdict(int)
        store.create_stream_and_scope(
            self.stream, StreamConfiguration(scaling=Scaling(min_segments=segments), tags=("a-users",))
        )

    def write(self, count: int = 60, keys: Iterable[str] = KEYS) -> None:
        """Append events of random keys; some of them twice, which must be kept."""
        pool, router = list(keys), SegmentRouter(self.store.describe(self.stream).epochs[-1].segments)
        blocks: dict[SegmentId, bytearray] = defaultdict(bytearray)
        for _ in range(count):
            key = self._rng.choice(pool)
            event = frame(
                json.dumps({"key": key, "n": self._counts[key], "pad": "x" * self._rng.randrange(60)}).encode()
            )
            self._counts[key] += 1
            blocks[router.segments[router.index_of(key)]] += event * self._rng.choice([1, 1, 1, 2])
        for segment, block in blocks.items():
            with self.store.appender(self.stream, segment) as appender:
                appender.append(block)

    def scale(self) -> None:
        """Split a segment, or merge two neighbours, at random."""
        current = list(self.store.describe(self.stream).epochs[-1].segments.items())
        index = self._rng.randrange(len(current))
        segment, held = current[index]
        if len(current) > 2 and index + 1 < len(current) and self._rng.random() < 0.5:
            after, beyond = current[index + 1]
            self.store.scale(self.stream, [segment, after], [KeyRange(held.low, beyond.high)])
        else:
            middle = (held.low + held.high) / 2
            self.store.scale(self.stream, [segment], [KeyRange(held.low, middle), KeyRange(middle, held.high)])


def by_key(store: StreamStore, stream: StreamName) -> dict[str, list[int]]:
    """The numbers of each key's events, in the stream's order."""
    found: dict[str, list[int]] = defaultdict(list)
    for _, payload in events_of(store, stream):
        event = json.loads(payload)
        found[event["key"]].append(event["n"])
    return found


def contents(store: StreamStore, stream: StreamName) -> dict[SegmentId, bytes]:
    """The bytes of each segment of an unscaled stream."""
    tail = store.describe(stream).tail.offsets
    return {segment: b"".join(map(bytes, store.read(stream, segment, 0, end))) for segment, end in tail.items()}
