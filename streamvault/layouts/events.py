"""The layout ``events``: one object per event, which holds only the payload."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice, pairwise
from struct import Struct
from typing import TYPE_CHECKING

from streamvault.common.errors import Damaged
from streamvault.common.neighbours import joined
from streamvault.common.progress import task_progress
from streamvault.layouts.archived_range import ArchivedRange, digest_of
from streamvault.layouts.chain import (
    MAX_CHAINS,
    ChainedObject,
    Chains,
    Finding,
    ProvedChain,
    RangeCheck,
    check,
    strict,
    walk,
)
from streamvault.layouts.keys import EVENT_KEYS, Place, RangeKey
from streamvault.layouts.layout import Layout, WrittenRange
from streamvault.objectstore.bulk import HELD_TWICE, WINDOW_BYTES, get_all, get_parts, parts_of, put_all, put_same_large
from streamvault.objectstore.store import NoSuchObject, ObjectStore, WrongSize
from streamvault.streamstore.model import HEADER_BYTES, Range, SegmentId

if TYPE_CHECKING:
    from streamvault.streamstore.events import (
        EventBlock,  # imports numpy, which read-only commands do not need
    )


FIRST_BYTES = 64
"""Minimum size (bytes) of the first yielded block; each further one's is twice as large."""

BLOCK_BYTES = 1024 * 1024
"""The largest minimum size (bytes) of a yielded block."""

LARGE_BYTES = 8 * 1024 * 1024
"""Larger objects (bytes) are read in parts."""

_HEADER = Struct(">ii")
_EVENT_TYPE = 0


class EventsLayout(Layout):
    """See the base class. Memory: the window, and two blocks."""

    name = "events"
    keys = EVENT_KEYS
    one_object_per_event = True
    joinable = False

    def write_run(
        self,
        place: Place,
        segment: SegmentId,
        blocks: Iterable[EventBlock],
        window_bytes: int = WINDOW_BYTES,
    ) -> WrittenRange:
        """See `Layout.write_run`."""
        objects = (
            (place.prefix + self.keys.key(segment, offset, len(payload) + HEADER_BYTES), bytes(payload))
            for block in blocks
            for offset, payload in block.events()
        )
        done = task_progress()  # of this thread

        def count(payload: int) -> None:
            done.acknowledge(payload + HEADER_BYTES)

        put_all(place.store, objects, window_bytes=window_bytes // HELD_TWICE, done=count)
        return WrittenRange()

    def write_large(
        self,
        place: Place,
        event: Range,
        blocks: Iterable[bytes | bytearray | memoryview],
        window_bytes: int = WINDOW_BYTES,
    ) -> WrittenRange:
        """See `Layout.write_large`."""
        (store, prefix), length = place, event.end - event.start
        key = prefix + self.keys.key(event.segment, event.start, length)
        payload = _cut_bytes(blocks, HEADER_BYTES)
        put_same_large(store, prefix, key, length - HEADER_BYTES, payload, window_bytes=window_bytes)
        return WrittenRange()

    def read_range(
        self, place: Place, stored: ArchivedRange, start: int, end: int, window_bytes: int = WINDOW_BYTES
    ) -> Iterator[bytes | memoryview]:
        """See `Layout.read_range`."""
        entries = self._overlapping(place, stored, start, end)
        first = next(entries, None)
        if first is not None:
            blocks = _with_headers(place.store, chain([first], entries), window_bytes)
            yield from _cut_bytes(blocks, start - first.offset, end - first.offset)

    def read_chain(
        self, place: Place, segment: SegmentId, edges: Sequence[int], start: int, end: int, window_bytes: int
    ) -> Iterator[bytes | memoryview]:
        """Yield the bytes ``[start, end)`` of objects whose boundaries are known, without a listing.

        Raises:
            Damaged: an object is missing or has the wrong size.
        """
        blocks = _with_headers(place.store, self._along(place, segment, edges), window_bytes)
        yield from _cut_bytes(blocks, start - edges[0], end - edges[0])

    def _along(self, place: Place, segment: SegmentId, edges: Sequence[int]) -> Iterator[ChainedObject]:
        for low, high in pairwise(edges):
            key = place.prefix + self.keys.key(segment, low, high - low)
            yield ChainedObject(key, low, high - low, high - low - HEADER_BYTES)

    def _overlapping(self, place: Place, stored: ArchivedRange, start: int, end: int) -> Iterator[ChainedObject]:
        """Yield the objects with a byte in ``[start, end)``. The listing from the range's start proves them."""
        if start >= end:
            return
        for one in self.list_range(place, stored):
            if one.offset + one.length > start:
                yield one
            if one.offset + one.length >= end:
                return

    def read_event(self, place: Place, stored: ArchivedRange, offset: int, length: int) -> bytes:
        """See `Layout.read_event`. A stray is returned if the pointer is its own, and not an event's."""
        key = place.prefix + self.keys.key(stored.segment, offset, length)
        payload = place.store.get(key, length)
        if len(payload) != length - HEADER_BYTES:
            what = f"the object has {len(payload)} bytes instead of {length - HEADER_BYTES}"
            raise Damaged(what, where=place.at(key))
        return _HEADER.pack(_EVENT_TYPE, len(payload)) + payload

    def find_event(self, place: Place, stored: ArchivedRange, offset: int) -> tuple[int, int]:
        """See `Layout.find_event`. Lists the range up to the event: an object at an offset alone proves no event."""
        for found in self.list_range(place, stored):
            if found.offset <= offset < found.offset + found.length:
                return found.offset, found.length
        raise ValueError(f"{offset} is not in {stored}")

    def list_range(self, place: Place, stored: ArchivedRange) -> Iterator[ChainedObject]:
        """Yield the range's objects in order, from the listing alone.

        Raises:
            Damaged: an object is missing or has the wrong size.
        """
        return strict(self._proved(place, stored), place.store.uri)

    def check_range(
        self,
        place: Place,
        stored: ArchivedRange,
        known: Container[str] = (),  # noqa: ARG002  (events are never joined)
    ) -> RangeCheck:
        """See `Layout.check_range`."""
        return check(self._proved(place, stored), event_each=True)

    def off_chain(
        self,
        place: Place,
        segment: SegmentId,
        start: int,
        end: int,
        ranges: Sequence[tuple[int, int]],
    ) -> Iterator[str]:
        """See `Layout.off_chain`."""
        at = start
        starts = [low for low, _ in ranges]
        is_proved = True

        def decide(offset: int) -> ProvedChain:
            nonlocal is_proved
            is_proved = False  # without a digest, the walk may follow a wrong chain
            return self._decide(place, Range(segment, *ranges[bisect_right(starts, offset) - 1]))

        for low, high in joined(ranges, _join):  # one listing each
            yield from self._in_gap(place, segment, at, low)
            is_proved = True
            for step in self._walk(place, Range(segment, low, high), decide):
                if not isinstance(step, Finding):
                    continue
                if step.is_damage:
                    raise step.problem(place.store.uri)
                if is_proved and step.kind == "stray":
                    yield step.key
            at = high
        yield from self._in_gap(place, segment, at, end)

    def _proved(self, place: Place, stored: ArchivedRange) -> Iterator[ChainedObject | Finding]:
        return self._walk(place, stored, lambda _: self._decide(place, stored, stored.digest))

    def _walk(
        self, place: Place, stored: Range, decide: Callable[[int], ProvedChain]
    ) -> Iterator[ChainedObject | Finding]:
        prefix = place.prefix
        skip = len(prefix)

        def parse(key: str) -> RangeKey | None:
            return self.keys.parse(key[skip:])

        return walk(
            self.between(place, stored.segment, stored.start, stored.end),
            start=stored.start,
            end=stored.end,
            parse=parse,
            bound=lambda offset: prefix + self.keys.after(stored.segment, offset),
            decide=decide,
        )

    def _decide(self, place: Place, stored: Range, digest: str = "") -> ProvedChain:
        """Find the chain of a range that has a digest, for which each is read; without one, any."""
        found = (
            (key.offset, key.end)
            for entry in self.between(place, stored.segment, stored.start, stored.end)
            if (key := self.keys.parse(entry.key.removeprefix(place.prefix))) is not None
            and entry.size == key.length - HEADER_BYTES
        )
        chains = iter(Chains(found, stored.start, stored.end))
        for edges in islice(chains, MAX_CHAINS):
            if not digest or self._digest_along(place, stored, edges) == digest:
                return ProvedChain(edges, stored.end)
        why = "several objects begin at the same offset, and no chain of them has the range's digest"
        if next(chains, None) is not None:
            why = (
                f"the objects form more than {MAX_CHAINS} chains, and the first of them do not have the range's digest"
            )
        return ProvedChain((), stored.end, why)

    def _digest_along(self, place: Place, stored: Range, edges: Sequence[int]) -> str:
        try:
            return digest_of(_with_headers(place.store, self._along(place, stored.segment, edges), WINDOW_BYTES))
        except Damaged:  # an object was lost or changed since it was listed
            return ""


def _with_headers(store: ObjectStore, entries: Iterable[ChainedObject], window_bytes: int) -> Iterator[memoryview]:
    """Yield the events with their headers. An object that vanished or changed after the listing is damage too."""
    window = window_bytes // HELD_TWICE
    try:
        for is_large, some in groupby(entries, key=lambda entry: entry.size > LARGE_BYTES):
            if not is_large:
                yield from _blocks(get_all(store, ((entry.key, entry.size) for entry in some), window_bytes=window))
                continue
            for entry in some:
                yield memoryview(_HEADER.pack(_EVENT_TYPE, entry.size))
                yield from get_parts(store, entry.key, parts_of(entry.size), window_bytes=window)
    except (NoSuchObject, WrongSize) as error:
        raise Damaged(error.what, where=error.where) from None


def _blocks(payloads: Iterable[tuple[str, bytes]]) -> Iterator[memoryview]:
    """Join events into blocks, with their headers; the first blocks are small, for a reader that stops early."""
    parts: list[bytes] = []
    held, full = 0, FIRST_BYTES
    for _, payload in payloads:
        parts += (_HEADER.pack(_EVENT_TYPE, len(payload)), payload)
        held += HEADER_BYTES + len(payload)
        if held >= full:
            yield memoryview(b"".join(parts))
            parts, held, full = [], 0, min(2 * full, BLOCK_BYTES)
    if parts:
        yield memoryview(b"".join(parts))


def _cut_bytes(
    blocks: Iterable[bytes | bytearray | memoryview], start: int, end: int | None = None
) -> Iterator[memoryview]:
    """Yield the bytes from ``start`` to ``end`` of all blocks."""
    at = 0
    for block in blocks:
        inside = memoryview(block)[max(start - at, 0) : None if end is None else max(end - at, 0)]
        at += len(block)
        if inside:
            yield inside


def _join(one: tuple[int, int], after: tuple[int, int]) -> tuple[int, int] | None:
    return (one[0], after[1]) if one[1] == after[0] else None


LAYOUT = EventsLayout()
