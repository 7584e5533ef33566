"""An archive as a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from streamvault.common.errors import Conflict, Damaged, Overtaken
from streamvault.manifests.archive.archive import Archive, NoSuchArchive
from streamvault.manifests.archive.history import History
from streamvault.manifests.archive.range_bytes import RangeBytes
from streamvault.manifests.archive.selection import RangePart, check_boundaries, select_parts
from streamvault.manifests.format.archived_range import digest_of
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.reading.source import SourcePart, bytes_between
from streamvault.streamstore.arithmetic.cuts import segments_between
from streamvault.streamstore.errors import NoSuchSegment, SegmentTooShort
from streamvault.streamstore.model import ContentKind, SegmentId, StreamCut, StreamDescription


class ArchiveSource:
    """An archive as a `Source`: each new generation is something new.

    Attributes:
        name: see `Source`.
        uri: see `Source`.
    """

    def __init__(self, uri: str) -> None:
        self._archive = Archive.open(uri)
        self.uri = self._archive.uri
        self.name = self._archive.stream
        self._history: History | None = None
        self._spans: object = None

    def look(self) -> ArchiveState:
        """See `Source.look`; manifests are read only if there is another generation, or one less."""
        spans = self._archive.listing().spans
        if self._history is None or spans != self._spans:
            self._history, self._spans = self._archive.history(), spans
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
        chosen = select_parts(self.history, start, end)
        if not {start, end}.issubset({self.history.head, self.history.tail, *known}):
            check_boundaries(self.archive.place, self.history.stream, chosen)
        return dict.fromkeys(segments_between(self.described, start, end), ()) | source_parts(self.archive, chosen)

    def between(self, start: StreamCut, end: StreamCut) -> Mapping[SegmentId, tuple[int, int]]:
        """See `SourceState.between`."""
        ends = segments_between(self.described, start, end)
        return {s: (low, (self.history.end(s) or low) if high is None else high) for s, (low, high) in ends.items()}

    def last(self, segment: SegmentId, start: int, end: int) -> Sequence[tuple[int, int, str]]:
        """See `SourceState.last`. A whole range, which may go on behind the end, has a digest: nothing is read."""
        return [(one.start, one.end, one.digest) for one in self._ranges(segment, start, end)[-1:]]

    def digest(self, segment: SegmentId, start: int, end: int) -> str:
        """See `SourceState.digest`. The digest of a whole range is that of its manifest; of others all is read.

        Raises:
            Damaged: a range does not match the manifest.
        """
        held = self._ranges(segment, start, end)
        if [(one.start, one.end) for one in held] == [(start, end)]:
            return held[0].digest
        if (self.history.end(segment) or 0) < end:
            raise SegmentTooShort(f"the segment ends before {end}", where=f"{self.archive.uri}/{segment}")
        if not held or held[0].start > start or held[-1].end < end or any(a.end != b.start for a, b in pairwise(held)):
            raise NoSuchSegment("the archive no longer has these bytes", where=f"{self.archive.uri}/{segment}: {start}")
        return digest_of(block for one in held for block in bytes_between(one, start, end, WINDOW_BYTES))

    def _ranges(self, segment: SegmentId, start: int, end: int) -> list[RangeBytes]:
        """Return the ranges with bytes of a segment between two offsets, in order."""
        ranges = self.history.ranges(segment)
        address = self.archive.address
        return [RangeBytes(address, layout, row) for layout, row in ranges if row.start < end and start < row.end]

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


def source_parts(archive: Archive, parts: Iterable[RangePart]) -> dict[SegmentId, list[SourcePart]]:
    """Return segment → the parts of its ranges; the number of events is that of a whole range, or of some bytes."""
    found: dict[SegmentId, list[SourcePart]] = {}
    for part in parts:
        row = part.row
        is_counted = (part.start, part.end) == (row.start, row.end) or row.content == "bytes"
        origin = RangeBytes(archive.address, part.layout, row)
        one = SourcePart(origin, part.start, part.end, events=row.events if is_counted else None)
        found.setdefault(part.segment, []).append(one)
    return found
