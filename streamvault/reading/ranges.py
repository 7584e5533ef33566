"""Reads the range whose events begin in a span; the caller decides what is done with the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from streamvault.common.errors import Failed, Problem
from streamvault.manifests.archive.rows import FinishedSpan, Gap, RangeEntry
from streamvault.reading.reader import TRUNCATED, LargeEventReader, PieceReader, SegmentReader
from streamvault.reading.spans import Span
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.arithmetic.walking import find_start
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import LARGEST_EVENT_BYTES, MAX_EVENT_BYTES, ContentKind, SegmentId, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress


class NotEvents(Failed):
    """A segment's bytes are not events, or the range began inside an event."""


def read_range(
    store: StreamStore,
    stream: StreamName,
    segment: SegmentId,
    *,
    span: Span,
    segment_end: int,
    largest: int,
    take: Callable[[PieceReader | LargeEventReader], RangeEntry],
    content: ContentKind = "events",
) -> FinishedSpan | None:
    """Find where the range of a span begins, and process its pieces.

    Args:
        store: the stream's store.
        stream: the stream.
        segment: the segment.
        span: the range's span; if its start is not known to be an event boundary, the range's start is a guess.
        segment_end: the segment's end in this run (bytes).
        largest: maximum payload of an event (bytes), if the range's start is known. A guess accepts at most
            `MAX_EVENT_BYTES`; a range with larger events is then read again from the proved boundary.
        take: consumes the blocks of a piece, or the data of a large event, and returns its description.
        content: what the segment holds. A range of bytes is exactly its span: what is truncated beyond belongs to the
            ranges there.

    Returns:
        The finished range; None if no event begins in the span, or the guess was wrong.

    Raises:
        NotEvents: a range that begins at a known boundary does not consist of events.
        InvalidCut: the segment's end in this run is inside an event.
    """
    if content == "bytes":
        span, segment_end = replace(span, known=True), span.high
    found = _start(store, stream, segment, span, segment_end)
    if found is None or found.start >= span.high:
        return None
    reader = SegmentReader(
        store,
        stream,
        segment,
        start=found.start,
        high=span.high,
        segment_end=segment_end,
        largest=largest if span.known else MAX_EVENT_BYTES,
        content=content,
    )
    try:
        pieces = tuple(_taken(reader, take))
    except NotAnEvent as error:
        if not span.known:
            return None  # a wrong guess; the driver tries again from a proved boundary
        raise not_events(error, segment.in_stream(stream)) from None
    return FinishedSpan(
        start=found.start,
        end=reader.end,
        ranges=tuple(piece for piece in pieces if piece.start < piece.end),
        gaps=(*found.gaps, *reader.gaps),
    )


def _taken(reader: SegmentReader, take: Callable[[PieceReader | LargeEventReader], RangeEntry]) -> Iterator[RangeEntry]:
    """Yield the result of each piece, except for a large event that is truncated while it is read.

    Raises:
        NoSuchSegment: the store does not find the segment, although the stream should still have it.
    """
    for piece in reader.pieces():
        try:
            taken = take(piece)
        except (SegmentTruncated, NoSuchSegment):
            if piece.gone_until <= piece.start:
                raise
        else:
            yield taken


_BYTES = "For a byte stream, use `export --content bytes`."


def not_events(error: NotAnEvent, where: str) -> Problem:
    """Return the error to raise if no event begins where one must."""
    if "cut" in error.what:
        return InvalidCut(f"the stream cut lies inside an event ({error.what})", where=where)
    if error.length:
        todo = f"If the stream has such large events, increase --largest-event. {_BYTES}"
        return NotEvents(error.what, where=where, todo=todo)
    return NotEvents(error.what, where=where, todo=f"A cut must be between events. {_BYTES}")


@dataclass(frozen=True, slots=True)
class FindTask:
    """Arguments of a task that finds where a range begins and ends: see `read_range`."""

    source: StoreAddress
    stream: StreamName
    segment: SegmentId
    segment_end: int
    span: Span
    largest: int = LARGEST_EVENT_BYTES


def find_range(task: FindTask) -> FinishedSpan | None:
    """Read a range only to find where it begins and ends. See `read_range`."""
    with task.source.lend() as store:
        return read_range(
            store,
            task.stream,
            task.segment,
            span=task.span,
            segment_end=task.segment_end,
            largest=task.largest,
            take=_only_read,
        )


def _only_read(piece: PieceReader | LargeEventReader) -> RangeEntry:
    for _ in piece.data() if isinstance(piece, LargeEventReader) else piece.blocks():
        pass
    return RangeEntry(start=piece.start, end=piece.end, events=piece.count, digest=piece.digest)


def _start(
    store: StreamStore, stream: StreamName, segment: SegmentId, span: Span, segment_end: int
) -> FinishedSpan | None:
    """Return a row without content at the range's start; None if the start is not found."""
    if span.known:
        return FinishedSpan(start=span.low, end=span.low, ranges=())
    try:
        start = find_start(store, stream, segment, span.low, segment_end)
    except SegmentTruncated as truncated:
        start = truncated.start_offset
        gap = Gap(start=span.low, end=start, reason=TRUNCATED)
        return FinishedSpan(start=start, end=start, ranges=(), gaps=(gap,))
    except NoSuchSegment:
        return None  # the task that starts at the known boundary determines what is gone
    return None if start is None else FinishedSpan(start=start, end=start, ranges=())
