"""Streams to test with, made through the StreamStore interface alone, the same for every store and every run."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator, Sequence

from streamvault.streamstore.model import (
    EventPointer,
    KeyRange,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import SegmentAppender, StreamStore
from streamvault.streamstore.uri import OpenStream, parse_stream

BLOCK = 1024 * 1024
LARGEST_BLOCK = 4 * 1024 * 1024
_HEADER = struct.Struct(">ii")


def payloads(count: int, seed: int, *, largest: int = 1024 * 1024) -> Iterator[bytes]:
    """`count` payloads: mostly small, some empty, zeros, binary, duplicates, header look-alikes, a few large ones."""
    rng = random.Random(seed)
    last = b"first"
    for number in range(count):
        kind = rng.random()
        if kind < 0.03:
            payload = b""
        elif kind < 0.06:
            payload = bytes(rng.randrange(8, 200))
        elif kind < 0.10:
            payload = last
        elif kind < 0.12:
            payload = _HEADER.pack(0, rng.randrange(0, 64)) * rng.randrange(1, 8)
        elif kind < 0.20:
            payload = rng.randbytes(rng.randrange(1, 2000))
        elif kind < 0.999:
            payload = f'{{"n": {number}, "text": "ünïcode {rng.random()}"}}'.encode()
        else:
            payload = rng.randbytes(rng.randrange(1, largest + 1))
        last = payload
        yield payload


def frame(payload: bytes) -> bytes:
    return _HEADER.pack(0, len(payload)) + payload


def opened(store: StreamStore, stream: StreamName) -> OpenStream:
    """A stream in a store that is open."""
    return OpenStream(store, *parse_stream(f"{store.uri}/{stream}"))


def append_events(
    store: StreamStore, stream: StreamName, segment: SegmentId, events: Iterator[bytes] | Sequence[bytes]
) -> int:
    """Append events to one segment in blocks; returns its write offset."""
    with store.appender(stream, segment) as appender:
        block = bytearray()
        for payload in events:
            block += frame(payload)
            if len(block) >= BLOCK:
                append_block(appender, bytes(block))
                block.clear()
        append_block(appender, bytes(block))
        return appender.flush()


def append_more(stream: str) -> None:
    """Append a few events to each open segment of a stream, given its URI."""
    address, name = parse_stream(stream)
    with address.open() as store:
        for segment in store.describe(name).tail.offsets:
            append_events(store, name, segment, payloads(5, segment.number))


def append_block(appender: SegmentAppender, block: bytes) -> None:
    """Append in pieces that a store takes: one large event is more than that."""
    for start in range(0, len(block), LARGEST_BLOCK):
        appender.append(block[start : start + LARGEST_BLOCK])


def make_stream(
    store: StreamStore,
    stream: StreamName,
    *,
    events: int = 2000,
    seed: int = 7,
    largest: int = 1024 * 1024,
    truncate: bool = True,
) -> None:
    """Three segments, a split, a merge, a refresh, a truncation inside epoch 1, and `events` events in all."""
    store.create_scope(stream.scope)
    store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=3), tags=("made-for-a-test", "ünï")))
    share = events // 10

    def fill(segment: SegmentId, count: int) -> None:
        append_events(store, stream, segment, payloads(count, seed * 1000 + segment.value % 997, largest=largest))

    first = list(store.describe(stream).epochs[0].segments)
    for segment in first:
        fill(segment, share)
    a, b = (
        store.describe(stream).epochs[0].segments[first[0]].low,
        store.describe(stream).epochs[0].segments[first[0]].high,
    )
    split = store.scale(stream, [first[0]], [KeyRange(a, (a + b) / 2), KeyRange((a + b) / 2, b)])
    new = [segment for segment in split.segments if segment not in first]
    for segment in new:
        fill(segment, share)
    merged = store.scale(
        stream, [new[1], first[1]], [KeyRange(split.segments[new[1]].low, split.segments[first[1]].high)]
    )
    joined = next(segment for segment in merged.segments if segment not in split.segments)
    fill(joined, 2 * share)
    refreshed = store.scale(stream, [first[2]], [merged.segments[first[2]]])
    again = next(segment for segment in refreshed.segments if segment not in merged.segments)
    fill(again, events - 7 * share)
    append_events(store, stream, joined, payloads(0, seed))
    if truncate:
        # a cut inside epoch 1: the halves of the split, and the two old segments beside them
        offsets = {new[0]: boundary(store, stream, new[0], 0.5), new[1]: boundary(store, stream, new[1], 0.3)}
        offsets |= {segment: boundary(store, stream, segment, 0.4) for segment in first[1:]}
        store.truncate(StreamCut(stream, offsets))


def append_bytes(store: StreamStore, stream: StreamName, segment: SegmentId, data: bytes) -> None:
    """Append bytes as they are, as a writer of byte streams does."""
    with store.appender(stream, segment) as appender:
        append_block(appender, data)
        appender.flush()


def make_byte_stream(store: StreamStore, stream: StreamName, *, size: int = 10_001, truncate: bool = True) -> None:
    """Two segments, a split that leaves one half empty, a merge, and a truncation at odd offsets: no events."""
    rng = random.Random(size)
    store.create_scope(stream.scope)
    store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=2), tags=("bytes",)))
    first = list(store.describe(stream).epochs[0].segments)
    append_bytes(store, stream, first[0], rng.randbytes(size))
    append_bytes(store, stream, first[1], rng.randbytes(size // 3))
    halves = store.scale(stream, first[:1], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)]).segments
    new = [segment for segment in halves if segment not in first]
    append_bytes(store, stream, new[0], rng.randbytes(size + 2))
    merged = store.scale(stream, new, [KeyRange(0.0, 0.5)]).segments
    append_bytes(store, stream, max(merged), rng.randbytes(2 * size))
    if truncate:
        store.truncate(StreamCut(stream, {first[0]: size // 2 + 1, first[1]: 3}))


def bytes_of(store: StreamStore, stream: StreamName) -> dict[str, tuple[int, bytes]]:
    """Segment → the offset from which on it can be read, and its bytes from there on."""
    return {
        str(segment): (start, b"".join(bytes(block) for block in store.read(stream, segment, start, end)))
        for segment, start, end in live_segments(store.describe(stream), store)
    }


def boundary(store: StreamStore, stream: StreamName, segment: SegmentId, share: float) -> int:
    """The first event boundary after a share of the segment's bytes."""
    info = store.segment_info(stream, [segment])[0]
    wanted = int(info.write_offset * share)
    for pointer, _ in events_of_segment(store, stream, segment, info.start_offset, info.write_offset):
        if pointer.offset >= wanted:
            return pointer.offset
    return info.write_offset


def events_of_segment(
    store: StreamStore, stream: StreamName, segment: SegmentId, start: int, end: int
) -> Iterator[tuple[EventPointer, bytes]]:
    """Every event of a segment, read the plain way (no code of the product but the store's `read`)."""
    buffer, at = bytearray(), start
    for block in store.read(stream, segment, start, end):
        buffer += block
        done = 0
        while len(buffer) - done >= 8:
            kind, length = _HEADER.unpack_from(buffer, done)
            assert kind == 0
            if len(buffer) - done < 8 + length:
                break
            yield EventPointer(stream, segment, at, 8 + length), bytes(buffer[done + 8 : done + 8 + length])
            done += 8 + length
            at += 8 + length
        del buffer[:done]
    assert not buffer


def live_segments(description: StreamDescription, store: StreamStore) -> list[tuple[SegmentId, int, int]]:
    """(segment, start, end) of all that can be read, in order."""
    found = []
    head = set(description.head.offsets)
    ranges = description.ranges()
    for segment, held in ranges.items():
        if segment in head:
            start = description.head.offsets[segment]
        elif any(held.overlaps(ranges[h]) and h.epoch > segment.epoch for h in head):
            continue
        else:
            start = 0
        found.append((segment, start, store.segment_info(description.name, [segment])[0].write_offset))
    return found


def events_of(store: StreamStore, stream: StreamName) -> Iterator[tuple[EventPointer, bytes]]:
    """Every event that can be read, in the stream's order."""
    for segment, start, end in live_segments(store.describe(stream), store):
        yield from events_of_segment(store, stream, segment, start, end)


def digest_of(store: StreamStore, stream: StreamName) -> tuple[int, str]:
    """Number of events, and one digest over every (segment, offset, length, payload); the stream's name is left out."""
    count, digest = 0, hashlib.sha256()
    for pointer, payload in events_of(store, stream):
        digest.update(f"{pointer.segment}:{pointer.offset}-{pointer.length}\n".encode())
        digest.update(payload)
        count += 1
    return count, digest.hexdigest()


def shape_of(store: StreamStore, stream: StreamName) -> dict[str, object]:
    """What has to be equal besides the events: epochs, ranges, offsets, head, sealed, configuration."""
    described = store.describe(stream)
    return {
        "epochs": [
            [(str(segment), held.low, held.high) for segment, held in epoch.segments.items()]
            for epoch in described.epochs
        ],
        "head": {str(segment): offset for segment, offset in described.head.offsets.items()},
        "tail": {str(segment): offset for segment, offset in described.tail.offsets.items()},
        "live": [(str(segment), start, end) for segment, start, end in live_segments(described, store)],
        "sealed": described.sealed,
        "configuration": described.configuration,
    }
