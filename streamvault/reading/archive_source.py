"""An archive as a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from streamvault.common.errors import Damaged
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.changed import unless_changed
from streamvault.manifests.archive.history import History
from streamvault.manifests.archive.range_bytes import RangeBytes
from streamvault.manifests.archive.selection import RangePart, check_boundaries, select_parts
from streamvault.reading.source import SourcePart
from streamvault.streamstore.arithmetic.cuts import segments_between
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
        """See `Source.end_of`."""
        return self.look().history.sealed_end(segment)


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

    def parts(self, start: StreamCut, end: StreamCut) -> Mapping[SegmentId, Sequence[SourcePart]]:
        """See `SourceState.parts`."""
        chosen = select_parts(self.history, start, end)
        check_boundaries(self.archive.place, self.history.stream, chosen)
        between = segments_between(self.history.description, start, end)
        return dict.fromkeys(between, ()) | source_parts(self.archive, chosen)

    def sealed_ends(self, segments: Iterable[SegmentId]) -> Mapping[SegmentId, int]:
        """See `SourceState.sealed_ends`."""
        ends = {segment: self.history.end(segment) for segment in segments}
        return {segment: end for segment, end in ends.items() if end is not None}

    def check_gap(self, segment: SegmentId, start: int, end: int, *, also: Iterable[tuple[int, int]] = ()) -> None:
        """See `SourceState.check_gap`; ``also`` are other gaps of the segment (bytes), apart from the declared ones."""
        gaps = [*self.history.gaps(segment), *also]
        declared = sum(max(0, min(gap_end, end) - max(gap_start, start)) for gap_start, gap_end in gaps)
        if declared < end - start:
            raise Damaged(
                "the manifests have an undeclared gap",
                where=f"{segment.in_stream(self.history.stream)} bytes {start} to {end}",
            )

    def reading(self, doing: str) -> AbstractContextManager[None]:
        """See `SourceState.reading`."""
        return unless_changed(self.archive, self.history, self.history.first, doing=doing)


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
