"""What is appended: the bytes of the sources' segments between their cuts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

from streamvault.common.errors import Usage
from streamvault.joining.record import SourceCuts
from streamvault.reading.identity import LastBytes, SourcePosition, another_source, bytes_differ
from streamvault.reading.open_source import open_source
from streamvault.reading.source import Source, SourcePart, SourceState, bytes_between
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.arithmetic.cuts import is_before
from streamvault.streamstore.errors import SegmentTooShort
from streamvault.streamstore.model import KeyRange, SegmentId


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive bytes of one segment of a source.

    Attributes:
        uri: the source.
        segment: the segment's full name.
        keys: its key range.
        parts: where the bytes are, in order, without holes; at least one.
        last: the last of them, as they were when the stitch was planned; None if that is not known.
    """

    uri: str
    segment: str
    keys: KeyRange
    parts: tuple[SourcePart, ...]
    last: LastBytes | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from the others of a stitch."""
        return self.uri, self.segment, self.start

    @property
    def start(self) -> int:
        """Offset of the first byte (bytes)."""
        return self.parts[0].start

    @property
    def end(self) -> int:
        """Offset after the last byte (bytes)."""
        return self.parts[-1].end

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.end - self.start

    def blocks(self, window: int) -> Iterator[bytes | memoryview]:
        """Yield its bytes, as blocks that may split events.

        The last ones are compared with those that were planned. It is too late to compare the source with them when all
        is read: what was read may be of another one, which has lost these bytes since.

        Args:
            window: maximum data buffered in memory (bytes).

        Raises:
            AnotherSource: after the last block: the last bytes differ; or the segment is shorter.
            Damaged, SourceTruncated, StreamStoreError: as `ByteSource.blocks`.
        """
        at, digest = self.start, hashlib.sha256()
        try:
            for part in self.parts:
                for block in bytes_between(part.origin, part.start, part.end, window):
                    if self.last:
                        digest.update(memoryview(block)[max(self.last.offset - at, 0) :])
                    at += len(block)
                    yield block
        except SegmentTooShort as error:
            raise another_source(error.what, self.uri) from None
        if self.last and digest.hexdigest() != self.last.digest:
            raise another_source(bytes_differ(self.last.segment, self.last.offset, self.end), self.uri)


class Sources:
    """The sources of a stitch, in the order in which they are appended, as they are at one moment.

    Args:
        sources: the sources, none of which is given twice.

    Raises:
        NoSuchStream, NoSuchArchive: one does not exist.
        OwnStream: one is an internal stream.
        Usage: one is the archive of a byte stream, which has no events.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self.looks: Sequence[SourceState] = [source.look() for source in sources]
        for source, look in zip(sources, self.looks, strict=True):
            if look.content == "bytes":
                raise Usage("an archive of a byte stream has no events to append", where=source.uri)

    def look_at(self, part: SourceCuts) -> SourceState:
        """Return the source of a part as it was looked at."""
        return next(look for source, look in zip(self.sources, self.looks, strict=True) if source.uri == part.uri)

    def stretches(self, part: SourceCuts) -> dict[SegmentId, list[Stretch]]:
        """Return what a source has of a part, whose cuts are known to lie between events.

        Returns:
            Segment → its stretches in order, of each segment that has bytes there; in the stream's order. There are
            several where an archive has gaps.

        Raises:
            Damaged: an archive lacks bytes, and does not declare it.
            SourceTruncated: the source was truncated since this look.
            AnotherSource: it is not the source of the part.
        """
        look = self.look_at(part)
        from_cut, to_cut = part.between(look)
        if not is_before(look.described, look.described.head, from_cut):
            raise SourceTruncated("the source was truncated meanwhile", where=part.uri, todo="Run it again.")
        ranges = look.described.ranges()
        found: dict[SegmentId, list[Stretch]] = {}
        for segment, parts in look.parts(from_cut, to_cut, known=(from_cut, to_cut)).items():
            pieces = list(_without_holes(parts))
            for before, after in pairwise(pieces):
                look.check_gap(segment, before[-1].end, after[0].start)
            name = segment.in_stream(look.described.name)
            if pieces:
                found[segment] = [
                    Stretch(part.uri, name, ranges[segment], tuple(piece), _last(part.to, segment, piece))
                    for piece in pieces
                ]
        return dict(sorted(found.items()))


def _last(planned: SourcePosition, segment: SegmentId, parts: Sequence[SourcePart]) -> LastBytes | None:
    """Return what the last bytes are compared with; None in an archive, whose ranges have digests."""
    return None if parts[-1].origin.digest else planned.last_in(segment, parts[0].start, parts[-1].end)


def _without_holes(parts: Iterable[SourcePart]) -> Iterator[list[SourcePart]]:
    """Group consecutive parts; empty ones are left out."""
    group: list[SourcePart] = []
    for part in parts:
        if part.start == part.end:
            continue
        if group and group[-1].end != part.start:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def open_sources(uris: Sequence[str], stack: ExitStack) -> list[Source]:
    """Open the sources; ``stack`` closes them.

    Raises:
        InvalidName: a URI is not valid.
        Usage: there is none, one is given twice, or a text is given instead of a list.
    """
    if isinstance(uris, str):
        raise Usage("the sources must be a list of URIs", where=repr(uris))
    if not uris:
        raise Usage("no source is given")
    found: list[Source] = []
    for uri in uris:
        source = open_source(uri, stack)
        if any(one.uri == source.uri for one in found):
            raise Usage("the sources overlap: one is given twice", where=source.uri, todo="Give each source once.")
        found.append(source)
    return found
