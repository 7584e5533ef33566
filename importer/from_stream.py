"""What a copy restores: a live stream, or the part of it between two cuts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from common.errors import Damaged
from importer.options import CopyOptions
from importer.plan import Content, Part
from streamstore.byte_source import LiveSegment
from streamstore.cuts import is_before, segments_between, validate_cut
from streamstore.errors import InvalidCut
from streamstore.framing import NotAnEvent
from streamstore.model import ANY_EVENT_BYTES, ContentKind, SegmentId, StreamCut, StreamDescription
from streamstore.splitting import EventSplitter
from streamstore.store import StreamStore
from streamstore.uri import StoreAddress

__all__ = ["copy_name", "stream_content"]

PART_BYTES = 256 * 1024 * 1024
"""Size of the parts in which a segment is read, and read back."""

LOOK_BYTES = 256 * 1024
"""How much is read after a cut to see whether an event begins there."""


def stream_content(
    store: StreamStore,
    address: StoreAddress,
    described: StreamDescription,
    *,
    work: str,
    first_head: StreamCut,
    from_cut: StreamCut | None = None,
    to_cut: StreamCut | None = None,
    kind: ContentKind = "events",
) -> Content:
    """Return what a copy restores.

    Args:
        store: the source's store.
        address: the same store, for tasks.
        described: the source as it is now; its head and tail bound the content.
        work: see `RestorePlan`.
        first_head: where the copy began, maybe in an earlier run; see `Content.bases`.
        from_cut: begin at this cut, or at the head if that has moved beyond it; None for the head.
        to_cut: end at this cut; None for the tail.
        kind: what the segments hold; cuts are not compared with bytes.

    Raises:
        InvalidCut: a cut is not of the stream, lies outside it or inside an event, or ``from_cut`` is after ``to_cut``.
    """
    head, tail = described.head, to_cut or described.tail
    given = [] if to_cut is None else [to_cut]
    if from_cut is not None and not is_before(described, from_cut, described.head):
        head = from_cut
        given.append(from_cut)
    for cut in given:
        validate_cut(described, cut)
        _check_cut(store, described, cut, kind)
    between = segments_between(described, head, tail)
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
            segment: list(_parts(address, described, segment, start, ends[segment] if end is None else end))
            for segment, (start, end) in between.items()
        },
        bases={segment: first_head.offsets.get(segment, 0) for segment in between},
        sealed=described.sealed and to_cut is None,
        work=work,
        check_gap=check_gap,
        kind=kind,
    )


def copy_name(
    address: StoreAddress, described: StreamDescription, options: CopyOptions, cuts: Mapping[str, object]
) -> str:
    """Return the name of a copy (`RestorePlan.work`): the same for the same source, cuts and options.

    A source that was deleted and recreated is another one.
    """
    first = [segment.value for segment in described.epochs[0].segments]
    content = [address.uri, str(described.name), first, cuts, options.offsets, options.numbers]
    return f"copy.{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]}"


def _parts(
    address: StoreAddress, described: StreamDescription, segment: SegmentId, start: int, end: int
) -> Iterator[Part]:
    for low in range(start, end, PART_BYTES):
        high = min(low + PART_BYTES, end)
        yield Part(LiveSegment(address, described.name, segment, low, high), low, high, events=0)


def _check_cut(store: StreamStore, described: StreamDescription, cut: StreamCut, kind: ContentKind) -> None:
    """Check that a cut lies inside the segments and, by the bytes that follow, that events begin there."""
    for info in store.segment_info(described.name, list(cut.offsets)):
        offset = cut.offsets[info.segment]
        if offset > info.write_offset:
            raise InvalidCut(
                f"the stream cut lies beyond the segment's end at {info.write_offset}",
                where=f"{info.segment.in_stream(described.name)}: {offset}",
            )
        if kind == "bytes":
            continue
        end = min(offset + LOOK_BYTES, info.write_offset)
        splitter = EventSplitter(offset, info.segment.in_stream(described.name), largest=ANY_EVENT_BYTES)
        try:
            for block in store.read(described.name, info.segment, offset, end):
                for _ in splitter.events(block):
                    pass
            if end == info.write_offset:
                splitter.finish()
        except NotAnEvent:
            raise InvalidCut(
                "the stream cut lies inside an event",
                where=f"{info.segment.in_stream(described.name)}: {offset}",
                todo="Use --content bytes if it is a byte stream.",
            ) from None
