"""Whether a replica holds nothing but a beginning of what its source held, so that it can be promoted without it."""

from __future__ import annotations

import struct

from streamvault.common.errors import Failed
from streamvault.importer.unfinished import look_again
from streamvault.mirrors.record import Record
from streamvault.streamstore.arithmetic.cuts import is_before, later_of, segments_between
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import (
    ANY_EVENT_BYTES,
    HEADER_BYTES,
    MAX_EVENT_BYTES,
    SegmentInfo,
    StreamDescription,
)
from streamvault.streamstore.open_stream import OpenStream

_HEADER = struct.Struct(">q")

REPLICATE_ONCE_MORE = "Replicate once more when the source can be reached."
KEEP = "It can still be read. If the source can be reached, replicate into another stream."


def check_ends(replica: OpenStream, record: Record) -> StreamDescription:
    """Check that a replica holds nothing but a beginning of its source; return it.

    Every tail of the source is an event boundary, so only what was appended after the recorded one is read.

    Args:
        replica: the replica.
        record: the newest record of its ledger.

    Raises:
        Failed: it may have filler that is still to be truncated; it has less than the ledger says; or it ends inside
            an event, as a round that was appending a large one was killed.
    """
    # a late run of the replication may truncate it
    return look_again(lambda: _check_ends(replica, record), NoSuchSegment, SegmentTruncated)


def _check_ends(replica: OpenStream, record: Record) -> StreamDescription:
    todo = KEEP if record.is_promoting else REPLICATE_ONCE_MORE
    store, name, described = replica.store, replica.name, replica.describe()
    if record.tail is None or record.skipping or not record.is_about(described):
        raise Failed(
            "the replica begins with filler, as no round has ended since it began, or since its source was truncated",
            where=replica.uri,
            todo=todo,
        )
    reached = later_of(described, record.end_cut(name), described.head)
    short = Failed("the replica has fewer bytes than its ledger says", where=replica.uri, todo=KEEP)
    if not is_before(described, reached, described.tail):
        raise short
    between = segments_between(described, reached, described.tail)
    for info in store.segment_info(name, list(between)):
        start = max(info.start_offset, between[info.segment][0])
        where = f"{store.uri}/{info.segment.in_stream(name)}"
        if info.write_offset < start:
            raise short
        whole = _whole_up_to(replica, info, start, info.write_offset)
        if whole < info.write_offset and not _holds_bytes(replica, info, start, whole):
            raise Failed(
                "the replica ends inside an event, of which the rest is at the source",
                where=f"{where} offset {whole}",
                todo=todo,
            )
    return described


def _whole_up_to(replica: OpenStream, info: SegmentInfo, start: int, end: int) -> int:
    """Return up to where whole events follow one another from ``start`` on.

    Memory: a few blocks and an event of 8 MiB.
    """
    at = start
    while at < end:
        splitter = EventSplitter(at, info.segment.in_stream(replica.name))
        try:
            for block in replica.store.read(replica.name, info.segment, at, end):
                for _ in splitter.feed(block):
                    pass
        except NotAnEvent as error:
            if not error.length or error.offset + error.length > end:
                return error.offset
            at = error.offset + error.length
        else:
            return splitter.offset
    return at


def _holds_bytes(replica: OpenStream, info: SegmentInfo, start: int, torn: int) -> bool:
    """Whether a segment that ends inside an event, if it holds events, is one of a byte stream, which has none to tear.

    What the ledger has recorded of it tells: a source's tail never lies inside an event. Of a segment of which nothing
    was recorded, it is the event's size: only events of more than 8 MiB are appended in pieces.

    Args:
        replica: the replica.
        info: the segment.
        start: up to where the ledger has recorded it (bytes).
        torn: where the event would begin.
    """
    if start > info.start_offset:
        return _whole_up_to(replica, info, info.start_offset, start) < start
    if info.write_offset - torn < HEADER_BYTES:
        return True
    blocks = replica.store.read(replica.name, info.segment, torn, torn + HEADER_BYTES)
    header = b"".join(bytes(block) for block in blocks)
    return not MAX_EVENT_BYTES < _HEADER.unpack(header)[0] <= ANY_EVENT_BYTES
