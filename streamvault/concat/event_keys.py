"""Fills a batch's transaction with events, and finds their routing keys in the payloads."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from streamvault.common.errors import Usage
from streamvault.common.progress import Progress
from streamvault.concat.placing import Places
from streamvault.sources.identity import LastBytes
from streamvault.sources.sources import LAST_BYTES, digests_before
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.events import EventBlock, EventSplitter
from streamvault.streamstore.filling import Pinger, TransactionBuffers
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import (
    HEADER_BYTES,
    LARGEST_EVENT_BYTES,
    MAX_EVENT_BYTES,
    EventPointer,
    KeyRange,
    SegmentId,
    StreamDescription,
)
from streamvault.streamstore.store import Transaction, Transactions
from streamvault.streamstore.uri import OpenStream

_TODO = 'Give a JSON pointer such as "/customer/id", or MODULE:FUNCTION.'

_ANY = (Exception, SystemExit)
"""Whatever a user's code raises; the copy must not end as if it were done."""


class EventKey:
    """Finds the routing key of an event.

    Args:
        text: a JSON pointer (RFC 6901), or ``module:function``, of a module that is installed or in the current folder;
            the function takes the payload (bytes) and returns the key (text).

    Raises:
        Usage: it is neither, or there is no such function.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._find: Callable[[bytes], object] = _pointer(text) if text.startswith("/") else _function(text)

    def of(self, payload: bytes, pointer: Callable[[], EventPointer]) -> str:
        """Return an event's key; the pointer is for messages.

        Raises:
            Usage: there is none; names the event.
        """
        try:
            key = self._find(payload)
            if isinstance(key, int) and not isinstance(key, bool):
                return str(key)
        except _ANY as error:
            what = f"no routing key is found in an event ({_text(error)})"
            raise self._missing(what, pointer()) from None
        if not isinstance(key, str):
            raise self._missing("the routing key of an event is neither text nor an integer", pointer())
        return key

    def _missing(self, what: str, pointer: EventPointer) -> Usage:
        todo = f"Delete the unfinished copy, and give a --key that every event has, instead of {self._text}."
        return Usage(what, where=str(pointer), todo=todo)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _pointer(text: str) -> Callable[[bytes], object]:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]

    def find(payload: bytes) -> object:
        value: Any = json.loads(payload)
        for step in steps:
            value = value[int(step)] if isinstance(value, list) else value[step]
        return value

    return find


def _function(text: str) -> Callable[[bytes], object]:
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise Usage("--key is neither a JSON pointer nor MODULE:FUNCTION", where=repr(text), todo=_TODO)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # behind what is installed, so that nothing is hidden
    try:
        found = getattr(importlib.import_module(module), name)
    except _ANY as error:
        raise Usage(f"the function of --key is not found ({_text(error)})", where=text, todo=_TODO) from None
    if not callable(found):
        raise Usage("what --key names is not a function", where=text, todo=_TODO)
    find: Callable[[bytes], object] = found
    return find


BATCH_BYTES = 64 * 1024 * 1024
"""Size of a batch, about; each segment of it has `LEAST_BYTES` at least, or what there is."""

LEAST_BYTES = 1024 * 1024

_KEYS = 10_000
"""Keys whose places are remembered."""

LEASE = 600.0
"""How long a batch's transaction stays open without a sign of life (seconds)."""


@dataclass(frozen=True, slots=True)
class FilledBatch:
    """A transaction with a batch.

    Attributes:
        ends: how far the source's segments were copied (bytes).
        lengths: bytes in the transaction, by segment.
        lasts: length (bytes) and SHA-256 of the last block, by segment; segments without any are absent.
        witness: the last bytes that were copied of each segment of the source.
    """

    ends: Mapping[SegmentId, int]
    lengths: Mapping[SegmentId, int]
    lasts: Mapping[SegmentId, tuple[int, str]]
    witness: tuple[LastBytes, ...]


class BatchFiller:
    """Fills transactions with the source's events.

    Args:
        source: the source.
        described: its description.
        key: finds the events' keys; None if the source's segments fit into the target's.
    """

    def __init__(self, source: OpenStream, described: StreamDescription, key: EventKey | None) -> None:
        self._source = source
        self._ranges = described.ranges()
        self._key = key

    def fill(
        self,
        transactions: Transactions,
        transaction: Transaction,
        stretches: Mapping[SegmentId, tuple[int, int]],
        progress: Progress,
    ) -> FilledBatch:
        """Append a batch's events to an empty transaction.

        Raises:
            SourceTruncated: the source was truncated meanwhile.
            Usage: an event has no key.
        """
        with ExitStack() as stack, Pinger(transactions, transaction, LEASE) as pinger:
            buffers = _Buffers(transactions, transaction, stack)
            limit = max(BATCH_BYTES // len(stretches), LEAST_BYTES)
            ends, witness = dict[SegmentId, int](), list[LastBytes]()
            for segment, (start, end) in stretches.items():
                put = self._placer(buffers, transaction.segments, segment)
                at, last = start, b""
                for block in self._blocks(segment, start, min(end, start + limit), end):
                    put(block)
                    pinger.check()
                    at, last = block.end, (last + block.data[-LAST_BYTES[0] :])[-LAST_BYTES[0] :]
                    progress.advance(block.count, len(block.data))
                ends[segment] = at
                witness += [
                    LastBytes(segment, low, high - low, digest) for low, high, digest in digests_before(at, last)
                ]
            return FilledBatch(ends, buffers.finish(), buffers.lasts, tuple(witness))

    def _blocks(self, segment: SegmentId, start: int, end: int, limit: int) -> Iterator[EventBlock]:
        """Yield the whole events before ``end``; at least one, for which bytes up to ``limit`` are read.

        A larger event than 8 MiB is the last one, and comes in pieces, unless its key is to be found in it.
        """
        try:
            try:
                yield from self._whole(segment, start, end, limit)
            except NotAnEvent as found:
                if not 0 < found.length <= limit - found.offset:
                    raise
                yield from self._pieces(segment, found.offset, found.offset + found.length)
        except (SegmentTruncated, NoSuchSegment) as error:
            todo = "Nothing of this batch was copied. Run it again to continue at the source's head."
            raise SourceTruncated("the source was truncated while it was read", where=error.where, todo=todo) from None

    def _whole(self, segment: SegmentId, start: int, end: int, limit: int) -> Iterator[EventBlock]:
        store, name = self._source.store, self._source.name
        largest = LARGEST_EVENT_BYTES if self._key else MAX_EVENT_BYTES
        splitter = EventSplitter(start, segment.in_stream(name), largest=largest)
        low = start
        while low < end:
            for data in store.read(name, segment, low, end):
                yield from splitter.feed(data)
            low = end
            if splitter.offset == start:  # its first event goes on
                end = min(start + splitter.next_length, limit)
            elif end == limit:
                splitter.finish()
        if splitter.offset == start:
            splitter.finish()

    def _pieces(self, segment: SegmentId, start: int, end: int) -> Iterator[EventBlock]:
        """Yield one event, as blocks of which the last one counts."""
        at = start
        for data in self._source.store.read(self._source.name, segment, start, end):
            at += len(data)
            yield EventBlock(at - len(data), data, int(at == end))

    def _placer(
        self, buffers: _Buffers, segments: Mapping[SegmentId, KeyRange], segment: SegmentId
    ) -> Callable[[EventBlock], None]:
        """Return what puts the events of a segment of the source where they belong."""
        name, key = self._source.name, self._key
        if key is None:
            (into,) = Places(segments).of(self._ranges[segment])
            index = buffers.router.segments.index(into)
            return lambda block: buffers.add_framed(index, block.data)

        index_of = lru_cache(_KEYS)(buffers.router.index_of)

        def put(block: EventBlock) -> None:
            for offset, payload in block.events():
                begin, size = offset - block.offset, HEADER_BYTES + len(payload)
                index = index_of(key.of(bytes(payload), partial(EventPointer, name, segment, offset, size)))
                buffers.add_framed(index, block.data[begin : begin + size])

        return put


class _Buffers(TransactionBuffers):
    """Notes the last block of each segment."""

    def __init__(self, transactions: Transactions, transaction: Transaction, stack: ExitStack) -> None:
        super().__init__(transactions, transaction, stack)
        self.lasts: dict[SegmentId, tuple[int, str]] = {}

    def sent(self, segment: SegmentId, block: memoryview) -> None:
        """See `TransactionBuffers.sent`."""
        self.lasts[segment] = len(block), hashlib.sha256(block).hexdigest()
