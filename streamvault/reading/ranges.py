"""Reads the range whose events begin in a span; the caller decides what is done with the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from streamvault.common.errors import Failed, Problem
from streamvault.common.underway import task_progress
from streamvault.manifests.archive.rows import FinishedSpan, Gap, RangeEntry
from streamvault.reading.reader import TRUNCATED, LargeEventReader, RunReader, SegmentReader
from streamvault.reading.spans import SegmentSpan
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.arithmetic.walking import find_start
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, SegmentTruncated
from streamvault.streamstore.store import StreamStore


class NotEvents(Failed):
    """A segment's bytes are not events, or the range began inside an event."""


def read_range(
    store: StreamStore, planned: SegmentSpan, consume: Callable[[RunReader | LargeEventReader], RangeEntry]
) -> FinishedSpan | None:
    """Find where the range of a span begins, and process its runs.

    Args:
        store: the stream's store.
        planned: the span.
        consume: reads the blocks of a run, or the data of a large event, and returns its description.

    Returns:
        The finished range; None if no event begins in the span, or the guess was wrong.

    Raises:
        NotEvents: a range that begins at a known boundary does not consist of events.
        InvalidCut: the segment's end in this run is inside an event.
    """
    if planned.content == "bytes":
        planned = replace(planned, span=replace(planned.span, known=True), segment_end=planned.span.high)
    found = _start(store, planned)
    if found is None or found.start >= planned.span.high:
        return None
    reader = SegmentReader(store, planned, found.start)
    try:
        ranges = tuple(_ranges(reader, consume))
    except NotAnEvent as error:
        if not planned.span.known:
            return None  # a wrong guess; the driver tries again from a proved boundary
        raise not_events(error, planned.segment.in_stream(planned.stream)) from None
    return FinishedSpan(
        start=found.start,
        end=reader.end,
        ranges=tuple(one for one in ranges if one.start < one.end),
        gaps=(*found.gaps, *reader.gaps),
    )


def _ranges(
    reader: SegmentReader, consume: Callable[[RunReader | LargeEventReader], RangeEntry]
) -> Iterator[RangeEntry]:
    """Yield the result of each run, except for a large event that is truncated while it is read.

    Raises:
        NoSuchSegment: the store does not find the segment, although the stream should still have it.
    """
    for run in reader.runs():
        try:
            found = consume(run)
        except (SegmentTruncated, NoSuchSegment):
            if run.gone_until <= run.start:
                raise
        else:
            yield found


_BYTES = "For a byte stream, use `export --content bytes`."


def not_events(error: NotAnEvent, where: str) -> Problem:
    """Return the error to raise if no event begins where one must."""
    if "cut" in error.what:
        return InvalidCut(f"the stream cut lies inside an event ({error.what})", where=where)
    if error.length:
        todo = f"If the stream has such large events, increase --largest-event. {_BYTES}"
        return NotEvents(error.what, where=where, todo=todo)
    return NotEvents(error.what, where=where, todo=f"A cut must be between events. {_BYTES}")


def find_range(planned: SegmentSpan) -> FinishedSpan | None:
    """Read a range only to find where it begins and ends. See `read_range`."""
    task_progress().only_reads()
    with planned.source.lend() as store:
        return read_range(store, planned, _only_read)


def _only_read(run: RunReader | LargeEventReader) -> RangeEntry:
    for _ in run.data() if isinstance(run, LargeEventReader) else run.blocks():
        pass
    return RangeEntry(start=run.start, end=run.end, events=run.count, digest=run.digest)


def _start(store: StreamStore, planned: SegmentSpan) -> FinishedSpan | None:
    """Return a row without content at the range's start; None if the start is not found."""
    span = planned.span
    if span.known:
        return FinishedSpan(start=span.low, end=span.low, ranges=())
    try:
        start = find_start(store, planned.stream, planned.segment, span.low, planned.segment_end)
    except SegmentTruncated as truncated:
        start = truncated.start_offset
        gap = Gap(start=span.low, end=start, reason=TRUNCATED)
        return FinishedSpan(start=start, end=start, ranges=(), gaps=(gap,))
    except NoSuchSegment:
        return None  # the task that starts at the known boundary determines what is gone
    return None if start is None else FinishedSpan(start=start, end=start, ranges=())
