"""What a copy restores: a live stream, or the part of it between two cuts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from streamvault.common.errors import Damaged
from streamvault.importer.fill import SourcePart
from streamvault.importer.plan import Content
from streamvault.mirrors.options import CopyOptions
from streamvault.streamstore.arithmetic.byte_source import LiveSegment
from streamvault.streamstore.arithmetic.cuts import later_of, segments_between, validate_cut
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import HEADER_BYTES, SegmentId, SegmentInfo, StreamCut, StreamDescription
from streamvault.streamstore.open_stream import OpenStream

COPY = "copy."
"""Prefix of a copy's name (`importer.plan.RestorePlan.import_id`)."""

PART_BYTES = 256 * 1024 * 1024
"""Size of the parts in which a segment is read, and read back."""


def stream_content(
    source: OpenStream,
    described: StreamDescription,
    *,
    import_id: str,
    first_head: StreamCut,
    from_cut: StreamCut | None = None,
    to_cut: StreamCut | None = None,
) -> Content:
    """Return what a copy restores.

    Args:
        source: the stream.
        described: the stream as it is now; its head and tail bound the content.
        import_id: see `RestorePlan`.
        first_head: where the copy began, maybe in an earlier run; see `Content.bases`.
        from_cut: begin at this cut, or where the head has moved beyond it; None for the head.
        to_cut: end at this cut; None for the tail.

    Raises:
        InvalidCut: a cut is not of the stream, lies outside it or inside an event, or ``from_cut`` is after ``to_cut``.
    """
    head, tail = begin_of(described, from_cut), to_cut or described.tail
    for cut in (head, tail):
        if cut not in (described.head, described.tail):
            validate_cut(described, cut)
    between = segments_between(described, head, tail)
    _check_events(source, head, described.head)
    if to_cut is not None:
        _check_events(source, to_cut, head)
    sealed = [segment for segment, (_, end) in between.items() if end is None]
    ends = (
        {info.segment: info.write_offset for info in source.store.segment_info(source.name, sealed)} if sealed else {}
    )

    def check_gap(segment: SegmentId, start: int, end: int) -> None:
        raise Damaged("a part of the stream is missing", where=f"{segment.in_stream(source.name)} {start} to {end}")

    return Content(
        described=described,
        generation=0,
        head=head,
        tail=tail,
        parts={
            segment: list(parts_of(source, segment, start, ends[segment] if end is None else end))
            for segment, (start, end) in between.items()
        },
        bases={segment: first_head.offsets.get(segment, 0) for segment in between},
        sealed=described.sealed and to_cut is None,
        import_id=import_id,
        check_gap=check_gap,
    )


def begin_of(described: StreamDescription, from_cut: StreamCut | None) -> StreamCut:
    """Return where a copy begins: at a cut, but not before the head, for every key.

    Raises:
        InvalidCut: the cut is not of the stream.
    """
    return described.head if from_cut is None else later_of(described, from_cut, described.head)


def copy_id(source: OpenStream, described: StreamDescription, options: CopyOptions, cuts: Mapping[str, object]) -> str:
    """Return the name of a copy (`RestorePlan.import_id`): the same for the same source, cuts and options.

    A source that was deleted and recreated is another one.
    """
    first = [segment.value for segment in described.epochs[0].segments]
    content = [source.address.uri, str(source.name), first, cuts, options.offsets, options.numbers]
    return f"{COPY}{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]}"


def parts_of(source: OpenStream, segment: SegmentId, start: int, end: int) -> Iterator[SourcePart]:
    """Cut a range of a segment into parts."""
    for low in range(start, end, PART_BYTES):
        high = min(low + PART_BYTES, end)
        yield SourcePart(LiveSegment(source.address, source.name, segment, low, high), low, high, events=0)


def _check_events(source: OpenStream, cut: StreamCut, known: StreamCut) -> None:
    """Check that no event lies on both sides of a cut.

    Args:
        source: the stream.
        cut: the cut, not before its head.
        known: a cut between two events, not after the other one. Segments that it does not name are walked from their
            beginning.

    Raises:
        InvalidCut: the cut lies inside an event, or beyond the end of a segment.
    """
    asked = [segment for segment, offset in cut.offsets.items() if offset > known.offsets.get(segment, 0)]
    for info in source.store.segment_info(source.name, asked) if asked else []:
        offset, where = cut.offsets[info.segment], info.segment.in_stream(source.name)
        if offset > info.write_offset:
            raise InvalidCut(
                f"the stream cut lies beyond the segment's end at {info.write_offset}", where=f"{where}: {offset}"
            )
        if not _is_boundary(source, info, known.offsets.get(info.segment, 0), offset):
            raise InvalidCut("the stream cut lies inside an event", where=f"{where}: {offset}")


def _is_boundary(source: OpenStream, info: SegmentInfo, start: int, offset: int) -> bool:
    """Return whether no event from ``start`` on begins before an offset and ends after it.

    A segment without events, as a byte stream's, can be cut anywhere. Memory: a few blocks and an event of 8 MiB.
    """
    at, segment, segment_end = start, info.segment, info.write_offset
    while at < offset:
        splitter = EventSplitter(at, segment.in_stream(source.name))
        try:
            # a whole header at least, to tell whether these are events
            last = min(max(offset, at + HEADER_BYTES), segment_end)
            for block in source.store.read(source.name, segment, at, last):
                for whole in splitter.feed(block):
                    at = whole.end
            return at == offset or (at == start and segment_end - start < HEADER_BYTES)
        except NotAnEvent as error:
            if not error.length:
                return True
            at = error.offset + error.length
    return at == offset
