"""Reads a stream for the format ``pravega``, in batches or continuously.

A partition is a part of a segment between two cuts, read exactly. A segment's bytes do not show where an event
begins. So a part in the middle of a segment begins either at a known boundary (the driver read up to it) or at a
guessed one. In the latter case the part before it proves the guess: it repeats the guess, and fails unless its own
last event ends there.

A micro-batch never contains both a segment and one of its successors: Spark reads a batch in parallel, so events of
one key would arrive in any order. A successor begins after earlier batches have read the segments before it to their
ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from streamvault.common.errors import Failed
from streamvault.common.units import now_utc
from streamvault.lake.read import batch_of
from streamvault.manifests.spans import spans_of
from streamvault.sources.identity import COMPARED_SEGMENTS, SourcePosition
from streamvault.sources.source import SourceState
from streamvault.sources.sources import LiveState
from streamvault.spark.batch_reader import BatchReader, Bounds, PartPartition
from streamvault.spark.columns import EventColumns
from streamvault.spark.options import MIN_RANGE_SIZE, Reading
from streamvault.streamstore.cuts import infos_if_there, is_before, segments_between
from streamvault.streamstore.errors import InvalidCut, NoSuchScope, NoSuchSegment, NoSuchStream, SegmentTruncated
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import (
    LARGEST_EVENT_BYTES,
    MAX_EVENT_BYTES,
    EpochChange,
    SegmentId,
    SegmentInfo,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import OpenStream
from streamvault.streamstore.walking import EventWalk, find_start

BATCH_ROWS = 64 * 1024
"""Maximum events of a batch; its size is that of a block of the store, 2 MiB, or of one larger event."""


class DataLoss(Failed):
    """Events to be read were truncated."""


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The events of a segment that begin in ``[start, high)``.

    Attributes:
        segment: the segment.
        start: where to begin (bytes).
        high: start of the next part.
        end: where the segment ends for this read.
        emit_from: skip events before this offset.
        range_size: 0 if `start` is an event boundary. Otherwise the boundary must be guessed, unless `is_first`, and
            the following parts have this size.
        is_first: whether the reading of the segment begins here.
    """

    segment: SegmentId
    start: int
    high: int
    end: int
    emit_from: int = 0
    range_size: int = 0
    is_first: bool = True

    def walk(self, store: StreamStore, stream: StreamName, largest: int = LARGEST_EVENT_BYTES) -> EventWalk:
        """Return a walk of the events, given that `start` is an event boundary."""
        splitter = EventSplitter(self.start, self.segment.in_stream(stream), largest=largest, starts=True)
        return EventWalk(store, stream, self.segment, splitter, high=self.high, segment_end=self.end)

    def boundaries(self, store: StreamStore, stream: StreamName, size: int, most: int | None = None) -> list[int]:
        """Return event boundaries about a size apart, from `start` to the end of the last event. Reads it all.

        Args:
            store: the stream's store.
            stream: the stream.
            size: how far apart (bytes).
            most: after how many events to end; None for no limit.

        Raises:
            NotAnEvent: the start or the end lies inside an event.
        """
        walk = self.walk(store, stream)
        found, end = [walk.end], walk.end
        for block in walk.blocks():
            end = block.end
            if most is not None:
                if most < block.count and block.starts is not None:
                    end = block.offset + int(block.starts[most])
                most -= min(most, block.count)
            if end - found[-1] >= size:
                found.append(end)
            if most == 0:
                break
        return found if end == found[-1] else [*found, end]

    def guessed(self, range_size: int) -> list[SegmentPart]:
        """Split the part at multiples of the range size; each task guesses where its events begin."""
        return [
            replace(self, start=span.low, high=span.high, range_size=range_size, is_first=span.known)
            for span in spans_of(self.start, self.end, range_size)
        ]


def known_parts(segment: SegmentId, boundaries: list[int]) -> list[SegmentPart]:
    """Return the parts between known boundaries."""
    return [SegmentPart(segment, low, high, high) for low, high in pairwise(boundaries)]


def read_events(reading: Reading, part: SegmentPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the events of a part, in order, as batches.

    Raises:
        DataLoss: events were truncated, and the query fails if so.
        Failed: a guess was wrong, so the query must be run again with other ``boundaries``.
        NotAnEvent: the segment contains other data, or a cut lies inside an event.
    """
    with reading.address.lend() as store:
        left: SegmentPart | None = part
        while left is not None:
            part, left = left, None
            try:
                yield from _read(store, reading.stream, part, schema)
            except SegmentTruncated as truncated:
                if reading.fail_on_data_loss or part.range_size:
                    raise _lost(reading.stream, part, truncated.start_offset) from None
                if truncated.start_offset < part.high:
                    # events read so far lie below the truncation
                    left = replace(part, start=truncated.start_offset)
            except (NoSuchSegment, NoSuchStream, NoSuchScope):
                if reading.fail_on_data_loss:
                    raise _lost(reading.stream, part, part.end) from None


def _read(store: StreamStore, stream: StreamName, part: SegmentPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    start: int | None = part.start
    if not part.is_first:
        start = find_start(store, stream, part.segment, part.start, part.end)
    if start is None or start >= part.high:
        return
    largest = LARGEST_EVENT_BYTES if part.is_first else MAX_EVENT_BYTES
    walk = replace(part, start=start).walk(store, stream, largest)
    try:
        for block in walk.blocks():
            if block.end > part.emit_from:
                batch = batch_of(stream, part.segment, block, schema)
                yield from (batch.slice(low, BATCH_ROWS) for low in range(0, batch.num_rows, BATCH_ROWS))
    except NotAnEvent as error:
        if part.is_first:
            raise
        raise _wrong_guess(stream, part, error.offset if error.length else start) from None
    if part.range_size:
        _prove_next(store, stream, part, walk.end)


def _prove_next(store: StreamStore, stream: StreamName, part: SegmentPart, ended: int) -> None:
    """Repeat the guesses of the following parts, up to the end of this part's last event, and check them.

    By induction from the first part, whose start is known, the segment is read exactly if no task fails.
    """
    for span in spans_of(part.high, part.end, part.range_size):
        guess = find_start(store, stream, part.segment, span.low, part.end)
        if ended >= span.high:
            # one event covers the whole span, so no event begins there
            if guess is not None and guess < span.high:
                raise _wrong_guess(stream, part, guess)
            continue
        if guess != ended:
            raise _wrong_guess(stream, part, span.low if guess is None else guess)
        return


def _wrong_guess(stream: StreamName, part: SegmentPart, offset: int) -> Failed:
    return Failed(
        "a guessed event boundary is wrong: a payload looks like events, or is larger than 8 MiB",
        where=f"offset {offset} of {part.segment.in_stream(stream)}",
        todo="Discard the rows read so far, and set the option boundaries to segment or walked.",
    )


def _lost(stream: StreamName, part: SegmentPart, start: int) -> DataLoss:
    return DataLoss(
        f"the segment was truncated and now begins at {start}",
        where=f"{part.segment.in_stream(stream)}, to be read from {part.start} to {part.high}",
        todo="Set failOnDataLoss to false to read the remaining events.",
    )


def as_cut(described: StreamDescription, requested: StreamCut | str) -> StreamCut:
    """Return a validated cut; for ``earliest`` and ``latest``, the current head and tail.

    Raises:
        InvalidCut: the cut is not of this stream, or lies beyond its tail.
    """
    if isinstance(requested, StreamCut):
        if not is_before(described, requested, described.tail):
            where, todo = json.dumps(requested.to_json()), f"The tail is {json.dumps(described.tail.to_json())}."
            raise InvalidCut("the stream cut lies beyond the stream's tail", where=where, todo=todo)
        return requested
    return described.head if requested == "earliest" else described.tail


def readable_parts(
    reading: Reading, store: StreamStore, described: StreamDescription, start: StreamCut, end: StreamCut
) -> list[SegmentPart]:
    """Return what can be read of each segment between two cuts, in the stream's order.

    Raises:
        DataLoss: events were truncated, and the query fails if so.
        InvalidCut: ``start`` does not lie before ``end``, or a cut names an offset beyond a segment's end.
    """
    requested = segments_between(described, start, end)
    infos = infos_if_there(store, described.name, list(requested))
    found = []
    for segment, (low, high) in requested.items():
        info = infos[segment]
        first = _first(described, info, segment, low)
        if first is None or info is None:
            if reading.fail_on_data_loss and high != low:
                raise _gone(described.name, segment, "the segment was deleted")
            continue
        stop = info.write_offset if high is None else high
        if max(low, stop) > info.write_offset:
            where = f"offset {max(low, stop)} of {segment.in_stream(described.name)}"
            raise InvalidCut(f"the stream cut lies beyond the segment's end ({info.write_offset})", where=where)
        if reading.fail_on_data_loss and first > low and stop > low:
            raise _gone(described.name, segment, f"the segment now begins at {first}, not at {low}")
        if first < stop:
            found.append(SegmentPart(segment, first, stop, stop))
    return found


def _first(described: StreamDescription, info: SegmentInfo | None, segment: SegmentId, low: int) -> int | None:
    """Return the first offset from ``low`` on that still exists; None if the segment lies before the stream's head."""
    if info is None:
        return None
    if segment in described.head.offsets:
        return max(low, info.start_offset, described.head.offsets[segment])
    ranges = described.ranges()
    held = ranges[segment]
    if any(other.epoch > segment.epoch and held.overlaps(ranges[other]) for other in described.head.offsets):
        return None
    return max(low, info.start_offset)


def _gone(stream: StreamName, segment: SegmentId, what: str) -> DataLoss:
    return DataLoss(
        f"events to be read were truncated: {what}",
        where=segment.in_stream(stream),
        todo="Set failOnDataLoss to false to read the remaining events, or start at 'earliest'. A query that has a "
        "checkpoint ignores startingOffsets: it also needs a new checkpoint.",
    )


K = TypeVar("K")

Infos = Callable[[Sequence[SegmentId]], Mapping[SegmentId, SegmentInfo | None]]


def advance(
    described: StreamDescription, infos: Infos, start: StreamCut, limit: StreamCut | None = None
) -> dict[SegmentId, int]:
    """Return the end of each segment in the next batch if nothing else limits it, which is a stream cut.

    Args:
        described: the stream now.
        infos: returns information on segments; None for a deleted one, which counts as read to its end.
        start: where the batch begins.
        limit: a cut to stop at, which may lie beyond the tail; None for no limit.

    Returns:
        Segment → offset to read up to. Segments that were read to their ends are replaced by their successors, which
        begin at 0.
    """
    between = {} if limit is None else segments_between(described, start, limit)
    front = dict(start.offsets)
    known = dict(infos(list(front)))
    for change in described.epochs.changes[1:]:
        for left, entered in _replaced(change):
            if not left <= front.keys() or not (limit is None or entered <= between.keys()):
                continue
            if all(_is_read(known[segment], front[segment]) for segment in left):
                for segment in left:
                    del front[segment]
                known |= infos(sorted(entered))
                front |= dict.fromkeys(entered, 0)
    limits = {segment: end for segment, (_, end) in between.items()}
    return {segment: _until(known[segment], offset, limits.get(segment)) for segment, offset in front.items()}


def share_out(available: Mapping[K, int], limit: int) -> dict[K, int]:
    """Limit bytes of segments, or of streams, to ``limit`` in total, in proportion, but to no less than one byte each.

    Args:
        available: available bytes of each one; those without any are omitted from the result.
        limit: maximum total (bytes, or events).
    """
    total = sum(available.values())
    if total <= limit:
        return {segment: size for segment, size in available.items() if size}
    return {segment: max(1, size * limit // total) for segment, size in available.items() if size}


def _replaced(change: EpochChange) -> list[tuple[set[SegmentId], set[SegmentId]]]:
    """Group the segments that a scale seals and opens by key range, so that each group is replaced at once."""
    groups: list[tuple[set[SegmentId], set[SegmentId]]] = []
    reach = -1.0
    for old, (segment, held) in sorted(
        [(True, one) for one in change.seals.items()] + [(False, one) for one in change.opens.items()],
        key=lambda item: (item[1][1].low, item[0]),
    ):
        if held.low >= reach:
            groups.append((set(), set()))
        groups[-1][0 if old else 1].add(segment)
        reach = max(reach, held.high)
    return groups


def _is_read(info: SegmentInfo | None, offset: int) -> bool:
    return info is None or (info.sealed and offset >= info.write_offset)


def _until(info: SegmentInfo | None, offset: int, limit: int | None) -> int:
    end = offset if info is None else info.write_offset
    return max(offset, end if limit is None else min(end, limit))


class PravegaReader(BatchReader[SegmentPart]):
    """Plans and reads parts of segments.

    Args:
        reading: the options.
        columns: the columns that Spark requests.
        bounds: what the query's filters limit; None if they are not known yet.
    """

    def __init__(self, reading: Reading, columns: EventColumns, bounds: Bounds | None = None) -> None:
        super().__init__(columns)
        self._reading = reading
        self._bounds = bounds or self._bounds

    def parts(self) -> list[SegmentPart]:
        """Return the parts in which events may pass the filters."""
        reading = self._reading
        with reading.look() as (store, described):
            start, end = (as_cut(described, cut) for cut in (reading.from_cut, reading.to_cut))
            readable = readable_parts(reading, store, described, start, end)
            size = reading.split_size(sum(whole.end - whole.start for whole in readable))
            return [part for whole in readable for part in self._split(store, whole, size)]

    def _events(self, part: SegmentPart) -> Iterator[pa.RecordBatch]:
        return read_events(self._reading, part, self._columns.own)

    def _split(self, store: StreamStore, whole: SegmentPart, size: int) -> list[SegmentPart]:
        """Split a part of a segment, and leave out the parts in which no event can pass the filters."""
        segment = whole.segment
        if not self._bounds.meet(segment, whole.start, whole.end):
            return []
        high = self._bounds.stop_at(whole.end)
        part = replace(whole, high=high, emit_from=self._bounds.start_at)
        match self._reading.boundaries:
            case "walked":
                parts = known_parts(segment, part.boundaries(store, self._reading.stream, size))
                return [one for one in parts if self._bounds.meet(segment, one.start, one.high)]
            case "guessed":
                # only parts at the end may be omitted, as each proves the next
                return [one for one in part.guessed(size) if one.start < high]
            case _:
                return [part]


_KNOWN_BY = "recognized-by"
"""What an offset has beside segments' names."""

ARCHIVED = "archived"
"""What an offset has if the events before it were read from an archive."""


class PravegaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads them.

    An offset is a stream cut, as JSON: ``{"scope/stream/N.#epoch.E": offset}``. Besides, it has what the stream is
    recognized by (`SourcePosition`), which is compared before a batch goes on from there.

    Args:
        reading: the options.
        columns: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, columns: EventColumns) -> None:
        self._reading = reading
        self._columns = columns
        self._until: StreamCut | None = reading.to_cut if isinstance(reading.to_cut, StreamCut) else None
        self._boundaries: dict[tuple[SegmentId, int, int], list[int]] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return where a query without a checkpoint begins."""
        with self._reading.look() as (store, described):
            start = as_cut(described, self._reading.from_cut)
            readable_parts(self._reading, store, described, start, described.tail)
            return self._offset(store, described, start, None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit set by ``maxBytesPerTrigger`` or ``maxEventsPerTrigger``; `latestOffset` knows both."""
        return limit_of(self._reading)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the batch that begins at ``start`` ends; ``start`` itself if there is nothing to read."""
        reading = self._reading
        with reading.look() as (store, described):
            begin = self._cut(store, described, start)
            infos = partial(infos_if_there, store, reading.stream)
            ahead = advance(described, infos, begin, self._until)
            end = StreamCut(reading.stream, ahead)
            # raise before Spark records the batch
            readable_parts(reading, store, described, begin, end)
            if not isinstance(limit, ReadAllAvailable):
                size = getattr(limit, "max_bytes", reading.max_bytes)
                count = getattr(limit, "max_rows", reading.max_events)
                end = StreamCut(reading.stream, self._bounded(store, begin, ahead, size, count))
            return start if end == begin else self._offset(store, described, end, self._position(start))

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Return the stream's tail, for the query's progress."""
        with self._reading.look() as (_, described):
            return described.tail.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop the query at the stream's current tail."""
        with self._reading.look() as (_, described):
            # the query's own end may lie before the tail, for every key
            if self._until is None or not is_before(described, self._until, described.tail):
                self._until = described.tail

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a batch's parts, which contain the same events for the same two cuts."""
        reading = self._reading
        with reading.look() as (store, described):
            readable = readable_parts(reading, store, described, self._plain(start), self._cut(store, described, end))
            size = reading.split_size(sum(whole.end - whole.start for whole in readable))
            return [PartPartition(part) for whole in readable for part in self._split(store, whole, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a part's events."""
        assert isinstance(partition, PartPartition)  # noqa: S101
        return self._columns.of(read_events(self._reading, partition.part, self._columns.own))

    def _offset(
        self, store: StreamStore, described: StreamDescription, cut: StreamCut, before: SourcePosition | None
    ) -> dict[str, Any]:
        return offset_of(self._look(store, described), cut, before, earlier=before)

    def _cut(self, store: StreamStore, described: StreamDescription, offset: dict[str, Any]) -> StreamCut:
        """Return an offset's cut, after comparing the stream."""
        todo = "Start the query with another checkpoint to read this stream."
        return self._position(offset).reached(
            self._look(store, described), f"{self._reading.address.uri}/{described.name}", todo
        )

    def _plain(self, offset: dict[str, Any]) -> StreamCut:
        return StreamCut.from_json(cut_in(offset), self._reading.stream)

    def _position(self, offset: dict[str, Any]) -> SourcePosition:
        return SourcePosition.from_json({"to": self._plain(offset).to_json(), **offset[_KNOWN_BY]})

    def _look(self, store: StreamStore, described: StreamDescription) -> LiveState:
        return LiveState(OpenStream(store, self._reading.address, self._reading.stream), described, now_utc())

    def _bounded(
        self, store: StreamStore, begin: StreamCut, ahead: dict[SegmentId, int], size: int | None, count: int | None
    ) -> dict[SegmentId, int]:
        """Return the batch's end, limited to ``size`` bytes and ``count`` events; None for no limit.

        The end of the last event that fits is known only after reading up to it, so the driver reads the same bytes as
        the tasks will. It remembers event boundaries, so that the batch can have many tasks.
        """
        reading = self._reading
        lost = not reading.fail_on_data_loss
        infos = infos_if_there(store, reading.stream, list(ahead)) if lost else {}
        low: dict[SegmentId, int] = {}
        for segment in ahead:
            info = infos.get(segment)
            low[segment] = max(begin.offsets.get(segment, 0), info.start_offset if info else 0)
        available = {segment: max(0, end - low[segment]) for segment, end in ahead.items()}
        shares = share_out(available, sum(available.values()) if size is None else size)
        # an event has more than one byte, so as many as bytes are no limit
        counts = share_out(shares, sum(shares.values()) if count is None else count)
        # what was truncated is passed over: behind a sealed segment, its successors would wait for ever
        ends = {segment: max(begin.offsets.get(segment, 0), min(low[segment], end)) for segment, end in ahead.items()}
        # how much so many events are is not known yet
        apart = reading.split_size(sum(shares.values())) if count is None else MIN_RANGE_SIZE
        self._boundaries.clear()
        for segment, share in shares.items():
            start, end = low[segment], ahead[segment]
            part = SegmentPart(segment, start, min(start + share, end), end)
            boundaries = part.boundaries(store, reading.stream, apart, counts[segment])
            ends[segment] = boundaries[-1]
            self._boundaries[segment, start, ends[segment]] = boundaries
        return ends

    def _split(self, store: StreamStore, whole: SegmentPart, size: int) -> list[SegmentPart]:
        boundaries = self._boundaries.get((whole.segment, whole.start, whole.end))
        if boundaries is None and self._reading.boundaries == "walked":
            boundaries = whole.boundaries(store, self._reading.stream, size)
        return [whole] if boundaries is None else known_parts(whole.segment, _apart(boundaries, size))


def _apart(boundaries: list[int], size: int) -> list[int]:
    """Return boundaries that are at least a size apart, with the first and the last."""
    kept = boundaries[:1]
    for one in boundaries[1:-1]:
        if one - kept[-1] >= size:
            kept.append(one)
    return kept + boundaries[1:][-1:]


def cut_in(offset: Mapping[str, Any]) -> dict[str, int]:
    """Return the stream cut in an offset, as JSON."""
    return {name: at for name, at in offset.items() if name not in {_KNOWN_BY, ARCHIVED}}


def offset_of(
    look: SourceState, cut: StreamCut, before: SourcePosition | None, *, earlier: SourcePosition | None
) -> dict[str, Any]:
    """Return the offset of a cut; arguments as for `SourcePosition.at`."""
    known = SourcePosition.at(look, cut, before, earlier=earlier, most=COMPARED_SEGMENTS).to_json()
    return {**known.pop("to"), _KNOWN_BY: known}


def limit_of(reading: Reading) -> ReadLimit:
    """Return one of the options' limits, as Spark knows no two at once."""
    if reading.max_bytes is None and reading.max_events is not None:
        return ReadMaxRows(reading.max_events)
    return ReadAllAvailable() if reading.max_bytes is None else ReadMaxBytes(reading.max_bytes)
