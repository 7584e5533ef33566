"""A stream whose busiest keys move, so that its segments are split one after the other."""

from __future__ import annotations

import random
from collections.abc import Iterator

from streamvault.streamstore.arithmetic.framing import frame_many
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore

CLICKS = StreamName("demo", "clicks")
ROUNDS = 12
EVENTS = 120
MOST_SEGMENTS = 9
_SEED = 2026


def grow(store: StreamStore) -> Iterator[int]:
    """Create the stream, and yield each time that it has more events, the same in every run."""
    chance = random.Random(_SEED)  # noqa: S311  (test data, not a secret)
    store.create_stream_and_scope(CLICKS, StreamConfiguration(scaling=Scaling(min_segments=2), tags=("demo", "clicks")))
    for number in range(ROUNDS):
        busy = 0.06 + 0.88 * number / ROUNDS
        segments = dict(store.describe(CLICKS).epochs[-1].segments)
        shares: dict[SegmentId, list[bytes]] = {segment: [] for segment in segments}
        for _ in range(EVENTS):
            place = busy + chance.uniform(-0.02, 0.02) if chance.random() < 0.6 else chance.random()
            shares[_owner(segments, place)].append(chance.randbytes(chance.randrange(40, 400)))
        for segment, payloads in shares.items():
            with store.appender(CLICKS, segment) as appender:
                for block in frame_many(payloads):
                    appender.append(block)
        yield number
        split = _owner(segments, busy)
        if len(segments) < MOST_SEGMENTS:
            keys = segments[split]
            middle = (keys.low + keys.high) / 2
            store.scale(CLICKS, [split], [KeyRange(keys.low, middle), KeyRange(middle, keys.high)])


def _owner(segments: dict[SegmentId, KeyRange], place: float) -> SegmentId:
    return next(segment for segment, keys in segments.items() if keys.low <= place < keys.high)
