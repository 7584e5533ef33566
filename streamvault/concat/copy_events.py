"""Copies a stream by events: batch after batch, each in a transaction (`streamstore.transaction_log`).

Routing keys are found in the payloads. The stream is cut into batches of which none holds a segment and its
successor: a cut covers the key space once, so no two of its segments share a key. A batch has only bytes of one cut's
segments, and a segment takes the place of its predecessors in the cut once these are at their ends: so the events of
a key are in one segment within a batch, and in the stream's order from batch to batch.

A batch's record says how long the target's segments are before it and after it. Nobody else writes to the target
while it has the mark of an unfinished one, so after a kill its length tells whether the batch is there, even if the
store no longer knows the transaction; and the last block of each segment is compared, so that nothing is appended to
a stream that is not the one that was left, nor from a source that is not the one that was read. The last record says
what the finished copy has, and no batch follows it: whoever finds it only finishes the copy. Each target's mark has a
token of its own, so a late run does not finish another target of the same copy.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.common.progress import Progress
from streamvault.concat.planning import Places, choose_count, fitting_count
from streamvault.concat.reports import CopyReport
from streamvault.importer.plan import fitting_configuration, scaling_warnings
from streamvault.importer.target import OTHER_NAME, TargetTaken, first_segment_id, marked_import, target_exists_error
from streamvault.sources.identity import LastBytes, Position, SourcePosition, history_digest
from streamvault.sources.source import bytes_after
from streamvault.sources.sources import LAST_BYTES, StreamSource, digests_before
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.cuts import later_of, sealed_ends, segments_between
from streamvault.streamstore.errors import (
    NoSuchSegment,
    SegmentSealed,
    SegmentTruncated,
    StreamExists,
    StreamStoreError,
    TransactionEnded,
)
from streamvault.streamstore.events import EventBlock, EventSplitter
from streamvault.streamstore.filling import Pinger, TransactionBuffers
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.ledger import LedgerConflict
from streamvault.streamstore.model import (
    HEADER_BYTES,
    LARGEST_EVENT_BYTES,
    MAX_EVENT_BYTES,
    EpochChange,
    EventPointer,
    KeyRange,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
)
from streamvault.streamstore.own import (
    APPEND_LEDGER,
    COPY_OF,
    LONGEST_TAG,
    OWN,
    UNFINISHED,
    is_own,
    stream_beside,
    tag_of,
    users_tags,
)
from streamvault.streamstore.store import Segment, StreamStore, Transaction, Transactions, Written
from streamvault.streamstore.transaction_log import Bytes, Cut, Entry, Stage, TransactionLog
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
            todo = "Nothing in this batch was copied. Run the same command again to continue from the source's head."
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(Entry):
    """A batch; once the log is closed, what the finished copy has.

    Attributes:
        head: where the copied part of the source begins.
        begin: where the batch begins in the source.
        end: where it ends, and the next one begins; with the source's last bytes before it.
        before: the ends of the target's segments before the commit (bytes).
        after: the same after it.
        lasts: length (bytes) and SHA-256 of the last block of each of the target's segments, if it has any.
        copied: bytes that were copied up to the end of the batch.
    """

    head: Cut
    begin: Cut
    end: Position
    before: Bytes
    after: Bytes
    lasts: Mapping[Segment, tuple[int, str]]
    copied: int

    def without_batch(self) -> Self:
        """Return the record as if its batch, whose transaction was given up, were empty."""
        lasts = {segment: last for segment, last in self.lasts.items() if self.before[segment] == self.after[segment]}
        copied = self.copied - sum(self.after.values()) + sum(self.before.values())
        return replace(self, after=self.before, lasts=lasts, copied=copied)


class BatchLog(TransactionLog[BatchRecord]):
    """The log of one copy; it stays as long as the copy.

    Args:
        target: the target.
        described: which stream of this name it is.
        id_: tells the copy from others: by the source and the options.
    """

    def __init__(self, target: OpenStream, described: StreamDescription, id_: str) -> None:
        self._target = target
        name = stream_beside(target.name, APPEND_LEDGER, first_segment_id(described), id_)
        what, todo = "another process is copying into this stream", "Let one of them continue."
        conflict = LedgerConflict(what, where=target.uri, todo=todo)
        super().__init__(target.store, name, target.name, BatchRecord, conflict)

    def is_there(self, entry: BatchRecord) -> bool:
        """See `TransactionLog.is_there`: nobody else writes to the target, so its length tells."""
        return self._target.describe().tail.offsets == entry.after


Held = tuple[SegmentId, KeyRange]


@dataclass(frozen=True, slots=True)
class Succession:
    """Segments that a scale sealed, and those that have their keys.

    Attributes:
        before: the sealed ones.
        after: the new ones.
    """

    before: frozenset[SegmentId]
    after: frozenset[SegmentId]


class BatchPlanner:
    """What is still to be copied of a stream.

    Args:
        store: the stream's store.
        described: the stream, up to whose tail it is copied.
        begin: what lies before this cut was copied; None at the beginning.
        fits: tells segments that can be copied from those that cannot; what follows these is not copied either.

    Attributes:
        cut: where the next batch begins.
        truncated: whether the source was truncated beyond ``begin``.
        left: bytes that are still to be copied, or cannot be.
        is_cut_short: whether there are segments that cannot be copied.

    Raises:
        SourceTruncated: the source was truncated since it was described.
    """

    def __init__(
        self,
        store: StreamStore,
        described: StreamDescription,
        begin: StreamCut | None,
        fits: Callable[[SegmentId], bool] = lambda _: True,
    ) -> None:
        self.cut = described.head if begin is None else later_of(described, begin, described.head)
        self.truncated = begin is not None and self.cut != begin
        between = segments_between(described, self.cut, described.tail)
        ends = sealed_ends(store, described.name, [segment for segment, (_, end) in between.items() if end is None])
        if gone := next(
            (segment for segment, (_, end) in between.items() if end is None and segment not in ends), None
        ):
            todo = "Run the same command again to continue from the source's head."
            raise SourceTruncated("the source was truncated meanwhile", where=gone.in_stream(described.name), todo=todo)
        self._ends = {segment: ends[segment] if end is None else end for segment, (_, end) in between.items()}
        self.left = sum(self._ends[segment] - start for segment, (start, _) in between.items())
        self._fitting = set(filter(fits, self._ends))
        self.is_cut_short = self._fitting != self._ends.keys()
        self._successions = [
            one for change in described.epochs.changes for one in _successions(change) if one.after <= self._fitting
        ]

    def next(self) -> Mapping[SegmentId, tuple[int, int]]:
        """Return the stretches (bytes) from which the next batch is taken, by segment; empty at the end."""
        waiting = []
        for one in self._successions:
            offsets = self.cut.offsets
            if one.before <= offsets.keys() and all(offsets[s] == self._ends[s] for s in one.before):
                kept = {segment: offset for segment, offset in offsets.items() if segment not in one.before}
                self.cut = StreamCut(self.cut.stream, kept | dict.fromkeys(one.after, 0))
            else:
                waiting.append(one)
        self._successions = waiting
        return {
            segment: (offset, self._ends[segment])
            for segment, offset in self.cut.offsets.items()
            if offset < self._ends[segment] and segment in self._fitting
        }

    def copied(self, ends: Mapping[SegmentId, int]) -> None:
        """Move on: a batch has been copied up to these offsets (bytes)."""
        self.left -= sum(end - self.cut.offsets[segment] for segment, end in ends.items())
        self.cut = StreamCut(self.cut.stream, {**self.cut.offsets, **ends})


def _successions(change: EpochChange) -> Iterator[Succession]:
    """Split a scale into its parts that are independent of each other."""
    sealed, opened = list(change.seals.items()), list(change.opens.items())
    while sealed and opened:
        olds, news = 1, 1
        while (old := sealed[olds - 1][1].high) != (new := opened[news - 1][1].high):
            olds, news = (olds + 1, news) if old < new else (olds, news + 1)
        yield Succession(_names(sealed[:olds]), _names(opened[:news]))
        sealed, opened = sealed[olds:], opened[news:]


def _names(held: Sequence[Held]) -> frozenset[SegmentId]:
    return frozenset(segment for segment, _ in held)


UNKNOWN = "it is unknown how far the source was copied, because the record of it is gone"

Ends = Mapping[SegmentId, int]


class EventCopying:
    """A copy by events.

    Args:
        source: the source.
        target: the stream to create.
        key: how the events' keys are found (`EventKey`); empty if they are not needed.
        segments: how many segments the target gets; None for as many as the source has, if that works.

    Attributes:
        source: the source.
        target: the target.
        count: how many segments the target gets.

    Raises:
        Usage: a segment of the source does not fit into one of the target, or the key is not valid.
        OwnStream: the source is an internal stream.
    """

    def __init__(self, source: OpenStream, target: OpenStream, key: str, segments: int | None) -> None:
        self.source = source
        self.target = target
        self._key = EventKey(key) if key else None
        self._look = StreamSource(source).look()
        self._described = self._look.described
        current = len(self._described.epochs[-1].segments)
        text = json.dumps([source.address.uri, str(source.name), first_segment_id(self._described), key, segments])
        self._digest = hashlib.sha256(text.encode()).hexdigest()
        self._id = f"events.{self._digest[:20]}"
        self._filler = BatchFiller(source, self._described, self._key)
        self._found = target.find()
        self._mark = ""
        if self._found is not None:  # if it is this copy's, its segments are chosen
            self.count = len(self._found.epochs[0].segments)
        elif self._key:
            self.count = segments or current
        else:
            self.count = choose_count(source.name, self._held, current, segments)
        given = self._described.configuration
        self._warnings: tuple[str, ...] = ()
        if segments is None and self.count == current:
            self._warnings = scaling_warnings(given, fitting_configuration(given, current))

    @property
    def _held(self) -> dict[SegmentId, KeyRange]:
        """The source's segments that are to be copied."""
        described = self._described
        ranges, ends = described.ranges(), (described.head, described.tail)
        return {segment: ranges[segment] for segment in segments_between(described, *ends)}

    @property
    def _tag(self) -> str:
        """The tag of the finished copy."""
        end = f"#{self._digest[:8]}"
        return COPY_OF + str(self.source.name)[: LONGEST_TAG - len(COPY_OF) - len(end)] + end

    def rehearse(self) -> CopyReport:
        """Return what a copy would do.

        Raises:
            TargetTaken: the stream exists and is not this copy's.
        """
        if (finished := self._finished()) is not None:
            return finished
        return self._result(BatchPlanner(self.source.store, self._described, None).left)

    def run(self, progress: Progress) -> CopyReport:
        """Copy what is not there yet.

        Raises:
            TargetTaken: the stream exists and is not this copy's.
            Conflict: another process writes to it.
            SourceTruncated: the source was truncated meanwhile.
            Usage: an event has no key.
        """
        if (finished := self._finished()) is not None:
            return finished
        target = self._found or self._create()
        if not self._is_begun(target):
            raise self._taken_up()
        self._mark = marked_import(target)
        self._log = BatchLog(self.target, target, self._id)
        newest = self._log.newest(create=True)
        if newest is None or newest.stage is not Stage.CLOSED:
            return self._go_on(target, newest, progress)
        tail = newest.end.reached(self._look, self.source.uri)
        self._finish(target, newest)
        size, behind = sum(newest.after.values()), bytes_after(self._look, tail)
        result = self._result(size, newest.head, tail)
        return replace(result, resumed=True, behind_bytes=behind)

    def _go_on(self, target: StreamDescription, newest: BatchRecord | None, progress: Progress) -> CopyReport:
        """Copy what follows the newest record's batch; None is before the first one. Errors as `run`."""
        resumed, begin, none = newest is not None, self._described.head, dict.fromkeys(target.epochs[0].segments, 0)
        start = self._position(begin, ())
        done = BatchRecord(
            stage=Stage.PLANNED, head=begin, begin=begin, end=start, before=none, after=none, lasts={}, copied=0
        )
        if newest is not None:
            begin = newest.end.reached(self._look, self.source.uri)
            done = newest = self._log.settle(newest)
            if not newest.is_committed:
                begin, done = newest.begin, newest.without_batch()
        self._check_end(done.after)
        if not self._has(target, done.lasts, done.after):
            raise self._changed()
        places, ranges = Places(target.epochs[0].segments), self._described.ranges()
        batches = BatchPlanner(
            self.source.store,
            self._described,
            begin,
            lambda segment: self._key is not None or len(places.of(ranges[segment])) == 1,
        )
        before = done.copied
        progress.begin("copying", batches.left + before, before)
        while stretches := batches.next():
            done = newest = self._put(batches, stretches, done, newest, progress)
            self._check_end(done.after)
        cut_short = self._cut_short(batches.left, done.copied) if batches.left and batches.is_cut_short else ""
        if batches.left and not cut_short:
            raise Failed("not all of the source was copied", where=self.source.uri, todo="Run the same command again.")
        progress.end()
        closed = replace(done, stage=Stage.CLOSED, end=self._position(batches.cut, done.end.witness))
        self._finish(target, self._log.record(closed, newest))
        return replace(
            self._result(sum(done.after.values()), tail=batches.cut if cut_short else None),
            moved_bytes=done.copied - before,
            resumed=resumed,
            truncated=batches.truncated,
            warnings=(*self._warnings, *((cut_short,) if cut_short else ())),
        )

    def _cut_short(self, left: int, copied: int) -> str:
        """Return the warning about what cannot be copied, as its segments do not fit into those of the copy.

        The source's segments fitted when the copy was begun, so that is what was written since.

        Raises:
            Conflict: nothing was copied.
        """
        what = f"the source has been scaled since the copy was started, and {left} bytes do not fit into its segments"
        again = f"with --key, or with --segments {fitting_count(self._held, self.count)}"
        if not copied:
            todo = f"Delete the unfinished copy, and start over {again}."
            raise Conflict(what, where=self.target.uri, todo=todo)
        return f"{what}; the copy ends before them; to include them, delete it, and copy again {again}"

    def _finished(self) -> CopyReport | None:
        """Return what a finished copy has; None if there is none.

        Raises:
            TargetTaken: the stream exists and is not this copy's.
        """
        found = self._found
        if found is None or self._is_begun(found):
            return None
        if tag_of(found.configuration, COPY_OF) != self._tag.removeprefix(COPY_OF) or is_own(found.configuration):
            raise target_exists_error(self.target.store, found)
        record = BatchLog(self.target, found, self._id).newest()
        segments, held = len(found.epochs[-1].segments), BatchPlanner(self.target.store, found, None).left
        if record is None or record.stage is not Stage.CLOSED:
            unknown = self._result(held)
            return replace(unknown, segments=segments, unchanged=True, tail={}, warnings=(UNKNOWN,))
        tail = record.end.reached(self._look, self.source.uri)
        self._check_untouched(found, record)
        behind = bytes_after(self._look, tail)
        result = self._result(held, record.head, tail)
        return replace(result, segments=segments, unchanged=True, behind_bytes=behind, warnings=())

    def _check_untouched(self, found: StreamDescription, record: BatchRecord) -> None:
        """Compare a finished copy with its record, as far as it was not truncated.

        Raises:
            TargetTaken: it was written to or scaled since.
        """
        if (
            len(found.epochs) > 1
            or found.tail.offsets != record.after
            or not self._has(found, record.lasts, record.after)
        ):
            raise TargetTaken("the copy has been written to since", where=self.target.uri, todo=OTHER_NAME)

    def _has(self, found: StreamDescription, lasts: Mapping[SegmentId, tuple[int, str]], ends: Ends) -> bool:
        """Whether the last block of each of the target's segments is the one that was noted, if it is still there."""
        store, name = self.target.store, self.target.name
        for segment, (length, digest) in lasts.items():
            start, end = ends[segment] - length, ends[segment]
            if start < found.head.offsets[segment]:
                continue
            if hashlib.sha256(store.read_bytes(name, segment, start, end)).hexdigest() != digest:
                return False
        return True

    def _create(self) -> StreamDescription:
        """Create the target. It has as many tags as it will have, so that one too many is refused now."""
        mark = f"{UNFINISHED}{self._id}.{secrets.token_hex(8)}"
        tags = (*users_tags(self._described.configuration), OWN, mark)
        try:
            self.target.store.create_stream_and_scope(
                self.target.name, StreamConfiguration(Scaling(min_segments=self.count), tags=tags)
            )
        except StreamExists:
            raise self._taken_up() from None
        return self.target.describe()

    def _is_begun(self, described: StreamDescription) -> bool:
        """Whether a stream is the unfinished target of this copy, if perhaps not the one that this run began with."""
        return marked_import(described).startswith(f"{self._id}.")

    def _put(
        self,
        batches: BatchPlanner,
        stretches: Mapping[SegmentId, tuple[int, int]],
        done: BatchRecord,
        newest: BatchRecord | None,
        progress: Progress,
    ) -> BatchRecord:
        """Copy a batch, and return its record. The source is compared again, now that the batch is read.

        Args:
            batches: what is copied.
            stretches: where the batch is taken from.
            done: what was copied before.
            newest: the record that it follows from.
            progress: receives the progress.
        """
        transactions = self.target.store.transactions()
        transaction = transactions.begin(self.target.name, LEASE)
        if transaction.segments.keys() != done.after.keys():
            self._log.abort(transaction)
            raise self._changed()
        begin = batches.cut
        try:
            filled = self._filler.fill(transactions, transaction, stretches, progress)
            transactions.check_holds(Written(transaction, filled.lengths))
            batches.copied(filled.ends)
            # what is before the new cut: of other segments, what former batches had
            known = (one for one in done.end.witness if one.segment in batches.cut.offsets.keys() - filled.ends)
            end = self._position(batches.cut, (*known, *filled.witness))
            self._check_source(done.end, end)
        except (NoSuchSegment, SegmentSealed, TransactionEnded):
            self._check_end(done.after)  # raises if the copy is another stream now
            what = "the transaction of a batch has ended; this process was paused, or the batch took too long"
            raise Failed(what, where=self.target.uri, todo="Run the same command again.") from None
        except BaseException as error:
            self._log.abort(transaction)
            if isinstance(error, StreamStoreError):
                self._check_source(done.end)  # if it is another one, that is why
            raise
        batch = replace(
            done,
            stage=Stage.COMMITTING,
            transaction=transaction,
            begin=begin,
            end=end,
            before=done.after,
            after={segment: at + filled.lengths.get(segment, 0) for segment, at in done.after.items()},
            lasts={**done.lasts, **filled.lasts},
            copied=done.copied + sum(filled.lengths.values()),
        )
        settled = self._log.commit(batch, newest)
        if not settled.is_committed:
            what = "a batch was not committed: its transaction is aborted"
            raise Failed(what, where=self._log.where(transaction), todo="Run the same command again.")
        return settled

    def _check_source(self, *positions: SourcePosition) -> None:
        """Compare the source as it is now with positions that it was read at; errors as `SourcePosition.reached`."""
        look = StreamSource(self.source).look()
        for position in positions:
            position.reached(look, self.source.uri)

    def _check_end(self, ends: Ends) -> None:
        """Check that the target has what was copied, and nothing else."""
        found = self.target.describe()
        if marked_import(found) != self._mark:
            if self._is_begun(found):
                raise self._taken_up()
            what = "another process has finished the copy, or another stream has its name now"
            raise Conflict(what, where=self.target.uri, todo="Run the same command again to see which.")
        if found.sealed or len(found.epochs) > 1 or found.tail.offsets != ends:
            raise self._changed()

    def _position(self, cut: StreamCut, witness: Sequence[LastBytes]) -> SourcePosition:
        return SourcePosition(cut, history_digest(self._described.epochs), tuple(witness))

    def _finish(self, target: StreamDescription, record: BatchRecord) -> None:
        """Make it an ordinary stream with the source's policies, if it has what was recorded."""
        self._check_end(record.after)
        given = self._described.configuration
        least = self.count if given.scaling.kind is ScaleKind.FIXED else min(given.scaling.min_segments, self.count)
        final = replace(
            given,
            scaling=replace(given.scaling, min_segments=least),
            tags=(*users_tags(given), self._tag),
        )
        self.target.store.update_stream(self.target.name, final, was=target.configuration)

    def _result(self, size: int, head: StreamCut | None = None, tail: StreamCut | None = None) -> CopyReport:
        """Return the report of a copy of so many bytes, between two cuts of the source or all of it."""
        return CopyReport(
            source=self.source.uri,
            stream=self.target.uri,
            bytes=size,
            segments=self.count,
            epochs=1,
            head=(head or self._described.head).to_json(),
            tail=(tail or self._described.tail).to_json(),
            warnings=self._warnings,
        )

    def _changed(self) -> Conflict:
        what = "the unfinished copy was changed by another process"
        todo = "Run the same command again. If it fails again, delete the copy and start over; the source is unchanged."
        return Conflict(what, where=self.target.uri, todo=todo)

    def _taken_up(self) -> Conflict:
        todo = "Run the same command again to see how far that process has come."
        return Conflict("another process is copying into this stream", where=self.target.uri, todo=todo)
