"""A live stream as a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime

from streamvault.common.errors import Damaged
from streamvault.common.times import now_utc
from streamvault.manifests.format.archived_range import digest_of
from streamvault.reading.source import SourcePart
from streamvault.streamstore.arithmetic.byte_source import LiveSegment, SourceTruncated
from streamvault.streamstore.arithmetic.cuts import live_between, live_ends, validate_cut
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import (
    HEADER_BYTES,
    ContentKind,
    SegmentId,
    SegmentInfo,
    StreamCut,
    StreamDescription,
)
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import describe_source

PART_BYTES = 256 * 1024 * 1024
"""Size of the parts in which a segment is read, and read back."""

LAST_BYTES = (4 * 1024, 512, 64, HEADER_BYTES)
"""Of how many bytes before a cut digests are taken. Something of a stream that was truncated since can be compared."""


class StreamSource:
    """A live stream as a `Source`.

    Attributes:
        stream: the stream.
        name: see `Source`.
        uri: see `Source`.
    """

    def __init__(self, stream: OpenStream) -> None:
        self.stream = stream
        self.name = stream.name
        self.uri = stream.uri

    def look(self) -> LiveState:
        """See `Source.look`."""
        taken = now_utc()
        return LiveState(self.stream, describe_source(self.stream.store, self.name), taken)

    def end_of(self, segment: SegmentId) -> int:
        """See `Source.end_of`."""
        return live_ends(self.stream.store, self.name)(segment)


@dataclass(frozen=True, slots=True)
class LiveState:
    """A live stream as a `SourceState`; its tail only moves on, so what it had then is still there or truncated.

    Attributes:
        stream: the stream.
        described: see `SourceState`.
        taken: see `SourceState`.
        content: see `SourceState`.
    """

    stream: OpenStream
    described: StreamDescription
    taken: datetime
    content: ContentKind = "events"

    def parts(
        self, start: StreamCut, end: StreamCut, *, known: Sequence[StreamCut] = ()
    ) -> Mapping[SegmentId, Sequence[SourcePart]]:
        """See `SourceState.parts`."""
        described = self.described
        for cut in (start, end):
            if cut not in (described.head, described.tail):
                validate_cut(described, cut)
        with self._unless_truncated():
            between = live_between(self.stream.store, described, start, end)
            if start not in known:
                _check_events(self.stream, start, described.head)
            if end not in (described.tail, *known):
                _check_events(self.stream, end, start)
        return {segment: list(parts_of(self.stream, segment, low, high)) for segment, (low, high) in between.items()}

    def between(self, start: StreamCut, end: StreamCut) -> Mapping[SegmentId, tuple[int, int]]:
        """See `SourceState.between`."""
        try:
            return live_between(self.stream.store, self.described, start, end)
        except NoSuchSegment as error:
            raise SourceTruncated(error.what, where=error.where) from None

    def last(self, segment: SegmentId, start: int, end: int) -> Sequence[tuple[int, int, str]]:
        """See `SourceState.last`."""
        low = max(start, end - LAST_BYTES[0])
        while low < end:
            try:
                data = self.stream.store.read_bytes(self.stream.name, segment, low, end)
            except SegmentTruncated as truncated:
                low = max(truncated.start_offset, low + 1)
            except NoSuchSegment:
                return ()
            else:
                return digests_before(end, data)
        return ()

    def digest(self, segment: SegmentId, start: int, end: int) -> str:
        """See `SourceState.digest`."""
        return digest_of(self.stream.store.read(self.stream.name, segment, start, end))

    def check_gap(self, segment: SegmentId, start: int, end: int) -> None:
        """See `SourceState.check_gap`; a stream has no gaps after its head."""
        raise Damaged(
            "a part of the stream is missing", where=f"{segment.in_stream(self.stream.name)} {start} to {end}"
        )

    def reading(self, doing: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """See `SourceState.reading`."""
        return nullcontext()

    @contextmanager
    def _unless_truncated(self) -> Iterator[None]:
        """Raise `SourceTruncated` if something is missing and the head has moved on."""
        try:
            yield
        except (NoSuchSegment, SegmentTruncated) as error:
            if describe_source(self.stream.store, self.stream.name).head == self.described.head:
                raise
            raise SourceTruncated(error.what, where=error.where) from None


def digests_before(end: int, data: bytes) -> list[tuple[int, int, str]]:
    """Return what `SourceState.last` does of a segment's last bytes before an offset."""
    sizes = sorted({min(size, len(data)) for size in LAST_BYTES} - {0}, reverse=True)
    return [(end - size, end, digest_of([data[-size:]])) for size in sizes]


def parts_of(stream: OpenStream, segment: SegmentId, start: int, end: int) -> Iterator[SourcePart]:
    """Cut a range of a segment into parts."""
    for low in range(start, end, PART_BYTES):
        high = min(low + PART_BYTES, end)
        yield SourcePart(LiveSegment(stream.address, stream.name, segment, low, high), low, high, events=0)


def _check_events(stream: OpenStream, cut: StreamCut, known: StreamCut) -> None:
    """Check that no event lies on both sides of a cut.

    Args:
        stream: the stream.
        cut: the cut, not before its head.
        known: a cut between two events, not after the other one. Segments that it does not name are walked from their
            beginning.

    Raises:
        InvalidCut: the cut lies inside an event, or beyond the end of a segment.
    """
    asked = [segment for segment, offset in cut.offsets.items() if offset > known.offsets.get(segment, 0)]
    for info in stream.store.segment_info(stream.name, asked) if asked else []:
        offset, where = cut.offsets[info.segment], info.segment.in_stream(stream.name)
        if offset > info.write_offset:
            raise InvalidCut(
                f"the stream cut lies beyond the segment's end at {info.write_offset}", where=f"{where}: {offset}"
            )
        if not _is_boundary(stream, info, known.offsets.get(info.segment, 0), offset):
            raise InvalidCut("the stream cut lies inside an event", where=f"{where}: {offset}")


def _is_boundary(stream: OpenStream, info: SegmentInfo, start: int, offset: int) -> bool:
    """Return whether no event from ``start`` on begins before an offset and ends after it.

    A segment without events, as a byte stream's, can be cut anywhere. Memory: a few blocks and an event of 8 MiB.
    """
    at, segment, segment_end = start, info.segment, info.write_offset
    while at < offset:
        splitter = EventSplitter(at, segment.in_stream(stream.name))
        try:
            # a whole header at least, to tell whether these are events
            last = min(max(offset, at + HEADER_BYTES), segment_end)
            for block in stream.store.read(stream.name, segment, at, last):
                for whole in splitter.feed(block):
                    at = whole.end
            return at == offset or (at == start and segment_end - start < HEADER_BYTES)
        except NotAnEvent as error:
            if not error.length:
                return True
            at = error.offset + error.length
    return at == offset
