"""The demo's stream, of invented orders with all that makes archiving difficult; and comparing two streams."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

from streamvault.common.errors import Failed
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import frame_many
from streamvault.streamstore.model import EventPointer, KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore

LARGE = 1024 * 1024
CUSTOMERS = 500
_SEED = 2026


def fill(store: StreamStore, name: StreamName, events: int) -> None:
    """Create the stream: three segments, 60% of the events, a split of a segment, the other events."""
    store.create_scope(name.scope)
    configuration = StreamConfiguration(scaling=Scaling(min_segments=3), tags=("demo", "orders"))
    store.create_stream(name, configuration)
    orders = list(_orders(events))
    before_scale = events * 6 // 10
    _append(store, name, orders[:before_scale])
    _split(store, name, next(iter(store.describe(name).epochs[-1].segments)))
    # the number of segments open now; with another number, a real store would merge them again
    store.update_stream(name, replace(configuration, scaling=Scaling(min_segments=4)))
    _append(store, name, orders[before_scale:])


def _orders(events: int) -> Iterator[tuple[float, bytes]]:
    """Yield the place of the routing key and the payload of each event, the same in every run."""
    chance = random.Random(_SEED)  # noqa: S311  (test data, not a secret)
    payload = b""
    for number in range(events):
        customer = f"customer-{chance.randrange(CUSTOMERS)}"
        kind = number % 400  # fewer than 1% that are no JSON, or the table would come with a warning
        if kind == 7:
            payload = b""
        elif kind == 17:
            payload = chance.randbytes(chance.randrange(1, 4096))
        elif kind == 27:
            # zeros look like the headers of empty events
            payload = bytes(chance.randrange(8, 512))
        elif kind == 37:
            pass  # repeat the payload before
        elif number % 1000 == 999:
            payload = chance.randbytes(LARGE)
        else:
            city = chance.choice(("Zürich", "Łódź", "東京", "São Paulo", "Αθήνα", "Paris"))
            cents = chance.randrange(100, 100_000)
            payload = f'{{"order": {number}, "customer": "{customer}", "city": "{city}", "cents": {cents}}}'.encode()
        yield int.from_bytes(hashlib.sha256(customer.encode()).digest()[:6]) / 2**48, payload


def _append(store: StreamStore, name: StreamName, events: Iterable[tuple[float, bytes]]) -> None:
    """Write each event to the open segment that owns its place between 0 and 1."""
    segments = store.describe(name).epochs[-1].segments
    shares: dict[SegmentId, list[bytes]] = {segment: [] for segment in segments}
    for place, payload in events:
        shares[_owner(segments, place)].append(payload)
    for segment, payloads in shares.items():
        with store.appender(name, segment) as appender:
            for block in frame_many(payloads):
                appender.append(block)


def _owner(segments: Mapping[SegmentId, KeyRange], place: float) -> SegmentId:
    return next(segment for segment, keys in segments.items() if keys.low <= place < keys.high)


def _split(store: StreamStore, name: StreamName, segment: SegmentId) -> None:
    keys = store.describe(name).epochs[-1].segments[segment]
    middle = (keys.low + keys.high) / 2
    store.scale(name, [segment], [KeyRange(keys.low, middle), KeyRange(middle, keys.high)])


def events_of(store: StreamStore, name: StreamName) -> Iterator[tuple[EventPointer, bytes]]:
    """Yield every event of a stream in the stream's order, with its pointer."""
    segments = list(store.describe(name).ranges())
    for info in store.segment_info(name, segments):
        splitter = EventSplitter(info.start_offset, info.segment.in_stream(name))
        for block in store.read(name, info.segment, info.start_offset, info.write_offset):
            for offset, payload in splitter.events(block):
                yield EventPointer(name, info.segment, offset, len(payload) + 8), bytes(payload)
        splitter.finish()


def compare(store: StreamStore, one: StreamName, other: StreamName) -> int:
    """Compare two streams event by event: segment, offset, length and payload.

    Returns:
        The number of events of both.

    Raises:
        Failed: they differ; names the first difference.
    """
    count = 0
    for left, right in zip_longest(events_of(store, one), events_of(store, other)):
        if left is None or right is None:
            raise Failed(f"one stream ends after {count} events, the other does not", where=f"{one} and {other}")
        (a, payload), (b, again) = left, right
        if (a.segment, a.offset, a.length) != (b.segment, b.offset, b.length) or payload != again:
            raise Failed("an event differs", where=f"{a} and {b}")
        count += 1
    return count


CLICKS = StreamName("demo", "clicks")
ROUNDS = 12
EVENTS = 120
MOST_SEGMENTS = 9


def grow(store: StreamStore) -> Iterator[int]:
    """Create the stream, and yield each time that it has more events, the same in every run."""
    chance = random.Random(_SEED)  # noqa: S311  (test data, not a secret)
    store.create_stream_and_scope(CLICKS, StreamConfiguration(scaling=Scaling(min_segments=2), tags=("demo", "clicks")))
    for number in range(ROUNDS):
        busy = 0.06 + 0.88 * number / ROUNDS
        _append(store, CLICKS, (_click(chance, busy) for _ in range(EVENTS)))
        yield number
        segments = store.describe(CLICKS).epochs[-1].segments
        if len(segments) < MOST_SEGMENTS:
            _split(store, CLICKS, _owner(segments, busy))


def _click(chance: random.Random, busy: float) -> tuple[float, bytes]:
    place = busy + chance.uniform(-0.02, 0.02) if chance.random() < 0.6 else chance.random()
    return place, chance.randbytes(chance.randrange(40, 400))
