"""The layout ``events``: one object per event, its payload and nothing else."""

# ruff: noqa: PLR0917  (a range is six plain values: store, prefix, epoch, number, start, end)
from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from struct import Struct

from objectstore.bulk import get_all, put_all
from objectstore.errors import NoSuchObject, WrongSize
from objectstore.keys import (
    EVENTS,
    HEADER_BYTES,
    MAX_INT63,
    RangeKey,
    event_key,
    events_after,
    events_folder,
    parse_event,
    parse_segment,
)
from objectstore.layouts.chain import Finding, RangeCheck, Stored, check, strict, walk
from objectstore.store import ObjectInfo, ObjectStore
from problems import Damaged

__all__ = ["EventsLayout"]

BLOCK_BYTES = 1024 * 1024
"""A block is handed on when it has this many bytes."""

DELETE_AT_ONCE = 1000

_HEADER = Struct(">ii")
_EVENT_TYPE = 0


class EventsLayout:
    """See `objectstore.layouts.Layout`. Memory: the bulk window's 32 MiB, and two blocks."""

    name = "events"

    def write_events(
        self,
        store: ObjectStore,
        prefix: str,
        epoch: int,
        number: int,
        events: Iterable[tuple[int, bytes | memoryview]],
    ) -> int:
        """See `Layout.write_events`."""
        return put_all(
            store,
            (
                (prefix + event_key(epoch, number, offset, len(payload) + HEADER_BYTES), bytes(payload))
                for offset, payload in events
            ),
        )

    def read_range(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int
    ) -> Iterator[bytes]:
        """See `Layout.read_range`."""
        entries = self.list_range(store, prefix, epoch, number, start, end)
        parts: list[bytes] = []
        held = 0
        for payload in _payloads(store, entries):
            parts += (_HEADER.pack(_EVENT_TYPE, len(payload)), payload)
            held += HEADER_BYTES + len(payload)
            if held >= BLOCK_BYTES:
                yield b"".join(parts)
                parts, held = [], 0
        if parts:
            yield b"".join(parts)

    def list_range(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int
    ) -> Iterator[Stored]:
        """See `Layout.list_range`."""
        return strict(_walk(store, prefix, epoch, number, start, end), store.uri)

    def check_range(self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> RangeCheck:
        """See `Layout.check_range`."""
        return check(_walk(store, prefix, epoch, number, start, end), event_each=True)

    def remove_extra(self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> int:
        """See `Layout.remove_extra`."""
        return _delete(store, _extra_keys(_walk(store, prefix, epoch, number, start, end), store.uri))

    def remove_all(self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> int:
        """See `Layout.remove_all`."""
        return _delete(store, (entry.key for entry in _between(store, prefix, epoch, number, start, end)))

    def strays(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, ranges: Iterable[tuple[int, int]]
    ) -> Iterator[str]:
        """See `Layout.strays`."""
        folder = prefix + events_folder(epoch, number)
        after, upto = "", -1
        for start, end in ranges:
            if start != upto:
                yield from _keys(store, folder, after, prefix + events_after(epoch, number, start))
            after, upto = prefix + events_after(epoch, number, end), end
        yield from _keys(store, folder, after)

    def segments(self, store: ObjectStore, prefix: str) -> list[tuple[int, int]]:
        """See `Layout.segments`."""
        return [found for name in store.folders(prefix + EVENTS) if (found := parse_segment(name)) is not None]

    def foreign(self, store: ObjectStore, prefix: str, segments: Iterable[tuple[int, int]]) -> Iterator[str]:
        """See `Layout.foreign`."""
        after, last = "", None
        for epoch, number in segments:
            folder = prefix + events_folder(epoch, number)
            yield from (key for key in _keys(store, prefix + EVENTS, after, folder) if not _is_in(key, last))
            after, last = prefix + events_after(epoch, number, MAX_INT63), folder
        yield from (key for key in _keys(store, prefix + EVENTS, after) if not _is_in(key, last))


def _keys(store: ObjectStore, folder: str, after: str, stop: str = "") -> Iterator[str]:
    """A folder's keys after one and, if that is given, before another."""
    for entry in store.list(folder, after):
        if stop and entry.key >= stop:
            return
        yield entry.key


def _is_in(key: str, folder: str | None) -> bool:
    return folder is not None and key.startswith(folder)


def _between(store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> Iterator[ObjectInfo]:
    """The objects whose keys lie between those of two offsets."""
    if start >= end:
        return iter(())
    stop = prefix + events_after(epoch, number, end)
    entries = store.list(prefix + events_folder(epoch, number), prefix + events_after(epoch, number, start))
    return takewhile(lambda entry: entry.key < stop, entries)


def _walk(store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> Iterator[Stored | Finding]:
    skip = len(prefix)

    def parse(key: str) -> RangeKey | None:
        return parse_event(key[skip:])

    return walk(
        _between(store, prefix, epoch, number, start, end),
        start=start,
        end=end,
        parse=parse,
        overhead=HEADER_BYTES,
        bound=lambda offset: prefix + events_after(epoch, number, offset),
    )


def _payloads(store: ObjectStore, entries: Iterable[Stored]) -> Iterator[bytes]:
    """The objects' bytes. An object that vanished or changed since it was listed is damage too."""
    try:
        for _, payload in get_all(store, ((entry.key, entry.size) for entry in entries)):
            yield payload
    except (NoSuchObject, WrongSize) as error:
        raise Damaged(error.what, where=error.where) from None


def _extra_keys(steps: Iterable[Stored | Finding], root: str) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Finding):
            if step.kind != "extra":
                raise step.problem(root)
            yield step.key


def _delete(store: ObjectStore, keys: Iterable[str]) -> int:
    """Delete keys while they are listed, a request's worth at a time."""
    batch: list[str] = []
    count = 0
    for key in keys:
        batch.append(key)
        if len(batch) == DELETE_AT_ONCE:
            store.delete(batch)
            count += len(batch)
            batch = []
    store.delete(batch)
    return count + len(batch)
