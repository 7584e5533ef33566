"""What a copy restores: a live stream, or the part of it between two cuts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from streamvault.common.errors import Damaged
from streamvault.importer.plan import Content, Part
from streamvault.mirrors.options import CopyOptions
from streamvault.streamstore.arithmetic.byte_source import LiveSegment
from streamvault.streamstore.arithmetic.cuts import later_of, segments_between, validate_cut
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import HEADER_BYTES, SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress

COPY = "copy."
"""Prefix of a copy's name (`importer.plan.RestorePlan.work`)."""

PART_BYTES = 256 * 1024 * 1024
"""Size of the parts in which a segment is read, and read back."""


def stream_content(
    store: StreamStore,
    address: StoreAddress,
    described: StreamDescription,
    *,
    work: str,
    first_head: StreamCut,
    from_cut: StreamCut | None = None,
    to_cut: StreamCut | None = None,
) -> Content:
    """Return what a copy restores.

    Args:
        store: the source's store.
        address: the same store, for tasks.
        described: the source as it is now; its head and tail bound the content.
        work: see `RestorePlan`.
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
    _check_events(store, described, head, described.head)
    if to_cut is not None:
        _check_events(store, described, to_cut, head)
    sealed = [segment for segment, (_, end) in between.items() if end is None]
    ends = {info.segment: info.write_offset for info in store.segment_info(described.name, sealed)} if sealed else {}

    def check_gap(segment: SegmentId, start: int, end: int) -> None:
        raise Damaged("a part of the stream is missing", where=f"{segment.in_stream(described.name)} {start} to {end}")

    return Content(
        described=described,
        generation=0,
        head=head,
        tail=tail,
        parts={
            segment: list(parts_of(address, described, segment, start, ends[segment] if end is None else end))
            for segment, (start, end) in between.items()
        },
        bases={segment: first_head.offsets.get(segment, 0) for segment in between},
        sealed=described.sealed and to_cut is None,
        work=work,
        check_gap=check_gap,
    )


def begin_of(described: StreamDescription, from_cut: StreamCut | None) -> StreamCut:
    """Return where a copy begins: at a cut, but not before the head, for every key.

    Raises:
        InvalidCut: the cut is not of the stream.
    """
    return described.head if from_cut is None else later_of(described, from_cut, described.head)


def copy_name(
    address: StoreAddress, described: StreamDescription, options: CopyOptions, cuts: Mapping[str, object]
) -> str:
    """Return the name of a copy (`RestorePlan.work`): the same for the same source, cuts and options.

    A source that was deleted and recreated is another one.
    """
    first = [segment.value for segment in described.epochs[0].segments]
    content = [address.uri, str(described.name), first, cuts, options.offsets, options.numbers]
    return f"{COPY}{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]}"


def parts_of(
    address: StoreAddress, described: StreamDescription, segment: SegmentId, start: int, end: int, shift: int = 0
) -> Iterator[Part]:
    """Cut a range of a segment into parts; ``shift`` as for `Part`."""
    for low in range(start, end, PART_BYTES):
        high = min(low + PART_BYTES, end)
        yield Part(LiveSegment(address, described.name, segment, low, high), low, high, events=0, shift=shift)


def _check_events(store: StreamStore, described: StreamDescription, cut: StreamCut, known: StreamCut) -> None:
    """Check that no event lies on both sides of a cut.

    Args:
        store: the stream's store.
        described: the stream.
        cut: the cut, not before its head.
        known: a cut between two events, not after the other one. Segments that it does not name are walked from their
            beginning.

    Raises:
        InvalidCut: the cut lies inside an event, or beyond the end of a segment.
    """
    asked = [segment for segment, offset in cut.offsets.items() if offset > known.offsets.get(segment, 0)]
    for info in store.segment_info(described.name, asked) if asked else []:
        offset, where = cut.offsets[info.segment], info.segment.in_stream(described.name)
        if offset > info.write_offset:
            raise InvalidCut(
                f"the stream cut lies beyond the segment's end at {info.write_offset}", where=f"{where}: {offset}"
            )
        start = known.offsets.get(info.segment, 0)
        if not _is_boundary(store, described.name, info.segment, start, offset, info.write_offset):
            raise InvalidCut("the stream cut lies inside an event", where=f"{where}: {offset}")


def _is_boundary(
    store: StreamStore, stream: StreamName, segment: SegmentId, start: int, offset: int, segment_end: int
) -> bool:
    """Return whether no event from ``start`` on begins before an offset and ends after it.

    A segment without events, as a byte stream's, can be cut anywhere. Memory: a few blocks and an event of 8 MiB.
    """
    at, where = start, segment.in_stream(stream)
    while at < offset:
        splitter = EventSplitter(at, where)
        try:
            # a whole header at least, to tell whether these are events
            for block in store.read(stream, segment, at, min(max(offset, at + HEADER_BYTES), segment_end)):
                for whole in splitter.feed(block):
                    at = whole.end
            return at == offset or (at == start and segment_end - start < HEADER_BYTES)
        except NotAnEvent as error:
            if not error.length:
                return True
            at = error.offset + error.length
    return at == offset
