"""The sources: a live stream and an archive that grows, opened by their URIs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from streamvault.common.errors import Conflict, Damaged, Overtaken
from streamvault.common.units import now_utc
from streamvault.layouts.archived_range import digest_of
from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.history import Generation, History, check_boundaries, parts_by_segment, select_parts
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.sources.identity import what_is_left
from streamvault.sources.source import SourcePart
from streamvault.streamstore.byte_source import LiveSegment, SourceTruncated
from streamvault.streamstore.cuts import live_between, live_ends, segments_between, validate_cut
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, SegmentTooShort, SegmentTruncated
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import (
    HEADER_BYTES,
    ContentKind,
    SegmentId,
    SegmentInfo,
    StreamCut,
    StreamDescription,
)
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.uri import OpenStream, is_stream, open_stream


class ArchiveSource:
    """An archive as a `Source`: each new generation is something new.

    Args:
        uri: the archive.
        load: see `Archive.history`.

    Attributes:
        name: see `Source`.
        uri: see `Source`.
    """

    def __init__(self, uri: str, load: Callable[[GenerationSpan], Generation] | None = None) -> None:
        self._archive, self._load = Archive.open(uri), load
        self.uri = self._archive.uri
        self.name = self._archive.stream
        self._history: History | None = None
        self._spans: object = None

    def look(self) -> ArchiveState:
        """See `Source.look`; manifests are read only if there is another generation, or one less."""
        spans = self._archive.listing().spans
        if self._history is None or spans != self._spans:
            self._history, self._spans = self._archive.history(load=self._load, keep="none"), spans
        return ArchiveState(self._archive, self._history)

    def end_of(self, segment: SegmentId) -> int:
        """See `Source.end_of`; in the archive as it was looked at last."""
        return (self._history or self.look().history).sealed_end(segment)


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """An archive as a `SourceState`: some of its generations.

    Attributes:
        archive: the archive.
        history: the generations.
    """

    archive: Archive
    history: History

    @property
    def described(self) -> StreamDescription:
        """See `SourceState.described`."""
        return self.history.description

    @property
    def taken(self) -> datetime:
        """See `SourceState.taken`."""
        return self.history.newest.created

    @property
    def content(self) -> ContentKind:
        """See `SourceState.content`."""
        return self.history.generations[-1].manifest.content

    def parts(
        self, start: StreamCut, end: StreamCut, *, known: Sequence[StreamCut] = ()
    ) -> Mapping[SegmentId, Sequence[SourcePart]]:
        """See `SourceState.parts`."""
        chosen = select_parts(self.archive.address, self.history, start, end)
        if not {start, end}.issubset({self.history.head, self.history.tail, *known}):
            check_boundaries(self.history.stream, chosen)
        return dict.fromkeys(segments_between(self.described, start, end), ()) | parts_by_segment(chosen)

    def between(self, start: StreamCut, end: StreamCut) -> Mapping[SegmentId, tuple[int, int]]:
        """See `SourceState.between`."""
        ends = segments_between(self.described, start, end)
        return {s: (low, (self.history.end(s) or low) if high is None else high) for s, (low, high) in ends.items()}

    def last(self, segment: SegmentId, start: int, end: int) -> Sequence[tuple[int, int, str]]:
        """See `SourceState.last`. A whole range, which may go on behind the end, has a digest: nothing is read."""
        rows = [row for _, row in self.history.ranges(segment) if row.start < end and start < row.end]
        return [(row.start, row.end, row.digest) for row in rows[-1:]]

    def digest(self, segment: SegmentId, start: int, end: int) -> str:
        """See `SourceState.digest`. The digest of a whole range is that of its manifest; of others all is read.

        Raises:
            Damaged: a range does not match the manifest.
        """
        held = [
            ArchivedPart(self.archive.address, layout, row, max(start, row.start), min(end, row.end))
            for layout, row in self.history.ranges(segment)
            if row.start < end and start < row.end
        ]
        bounds = (held[0].start, held[-1].end) if held else None
        if len(held) == 1 and bounds == (start, end) and held[0].whole:
            return held[0].digest
        known = self.history.end(segment)
        if known is None:
            raise NoSuchSegment("all of it has expired from the archive", where=f"{self.archive.uri}/{segment}")
        if known < end:
            raise SegmentTooShort(f"the segment ends before {end}", where=f"{self.archive.uri}/{segment}")
        if bounds != (start, end) or any(a.end != b.start for a, b in pairwise(held)):
            raise NoSuchSegment("the archive no longer has these bytes", where=f"{self.archive.uri}/{segment}: {start}")
        return digest_of(block for one in held for block in one.blocks(one.start, one.end, WINDOW_BYTES))

    def check_gap(self, segment: SegmentId, start: int, end: int, *, also: Iterable[tuple[int, int]] = ()) -> None:
        """See `SourceState.check_gap`; ``also`` are other gaps of the segment (bytes), apart from the declared ones."""
        gaps = [*self.history.gaps(segment), *also]
        declared = sum(max(0, min(gap_end, end) - max(gap_start, start)) for gap_start, gap_end in gaps)
        if declared < end - start:
            raise Damaged(
                "the manifests have an undeclared gap",
                where=f"{segment.in_stream(self.history.stream)} bytes {start} to {end}",
            )

    @contextmanager
    def reading(self, doing: str, *, first: int = 0) -> Iterator[None]:
        """See `SourceState.reading`; ``first`` is the first original generation that matters, 0 for all."""
        try:
            yield
        except (Damaged, NoSuchArchive):
            self.check_in_force(doing, first=first)
            raise

    def check_in_force(self, doing: str, *, first: int = 0, expired_todo: str = "") -> None:
        """Check, after data were found missing, that they were not deleted with the archive, expired or were merged.

        Args:
            doing: what was being done to them, for the message: "restored".
            first: the first original generation that matters; 0 for all.
            expired_todo: what to do if they have expired; empty if the same command can continue with the rest.

        Raises:
            Conflict: they have expired or were merged meanwhile.
            NoSuchArchive: the archive was deleted.
        """
        archive, first = self.archive, first or self.history.first
        listing = archive.listing()
        if listing.decision.is_deleted:
            raise archive.nothing_yet(listing) from None
        if listing.dropped >= first:
            what = f"generation {first} expired while it was being {doing}"
            if expired_todo:
                raise Conflict(what, where=archive.uri, todo=expired_todo) from None
            todo = "Run the same command again; a hold ('streamvault hold') keeps generations from expiring."
            raise Overtaken(what, where=archive.uri, todo=todo) from None
        read = [one.manifest for one in self.history.generations if one.manifest.generation >= first]
        if not {manifest.span for manifest in read}.issubset(listing.spans):
            raise Overtaken(
                f"generations were merged while they were being {doing}",
                where=archive.uri,
                todo="Run the same command again: it continues with the merged generation.",
            ) from None


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
        try:
            return digests_before(end, what_is_left(self.stream.store, self.stream.name, segment, low, end))
        except NoSuchSegment:
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
        yield LiveSegment(stream.address, stream.name, segment, low, high)


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


def open_source(uri: str, stack: ExitStack) -> StreamSource | ArchiveSource:
    """Open a source; ``stack`` closes it.

    Raises:
        InvalidName, Usage: the URI is not valid.
    """
    return StreamSource(stack.enter_context(open_stream(uri))) if is_stream(uri) else ArchiveSource(uri)
