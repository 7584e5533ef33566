"""Computes the merge of neighbouring generations from their manifests and ranges.

The result depends only on the original generations it contains, not on the steps in which they were merged. That holds
only while each range size is a multiple of the smaller ones: otherwise a step joins away a boundary that a merge of the
originals would keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive.agreement import check_follows
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.format.archived_range import ArchivedRange, segment_digest
from streamvault.manifests.format.entries import GapEntry, SegmentEntry
from streamvault.manifests.format.manifest import Manifest, Replaced
from streamvault.streamstore.model import SegmentId


@dataclass(frozen=True, slots=True)
class MergeSpan:
    """A range of a merged generation: an old range that is kept, or contiguous ones that are joined into one object."""

    rows: tuple[ArchivedRange, ...]

    @property
    def segment(self) -> SegmentId:
        """The segment's id."""
        return self.rows[0].segment

    @property
    def start(self) -> int:
        """First offset (bytes)."""
        return self.rows[0].start

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.rows[-1].end

    @property
    def events(self) -> int:
        """Number of events."""
        return sum(row.events for row in self.rows)

    def row(self, digest: str) -> ArchivedRange:
        """Return the joined object as a row, given its digest."""
        return ArchivedRange(self.segment, self.start, self.end, self.events, digest)


def can_merge(manifests: Iterable[Manifest]) -> bool:
    """Check whether generations can be merged with each other.

    Layout and compression must be the same, and of chunks each range size must be a multiple of the smaller ones.
    """
    held = {(one.layout, one.compression, one.range_size) for one in manifests}
    if len({(layout, compression) for layout, compression, _ in held}) > 1:
        return False
    joinable = any(open_layout(layout).joinable for layout, _, _ in held)
    return not joinable or all(large % small == 0 for small, large in pairwise(sorted(size for *_, size in held)))


class Merger:
    """Computes the merge of neighbouring generations.

    Args:
        generations: the generations in order, all of the same layout and compression.
        where: the archive's name in messages.

    Raises:
        Damaged: the generations are not contiguous.
    """

    def __init__(self, generations: Sequence[Generation], where: str) -> None:
        self._held = tuple(generations)
        for before, after in zip(self._held, self._held[1:], strict=False):
            check_follows(before.manifest, after.manifest, where)
        self.range_size = max(generation.manifest.range_size for generation in self._held)

    def spans(self) -> Iterator[MergeSpan]:
        """Yield every range of the merged generation, in the stream's order.

        Chunks are joined up to the range size: of the old boundaries, the first at or after each multiple of it is
        kept, and those of a gap and of a large event, which is never joined. Ranges of events are kept, since an
        event's key does not depend on its range.
        """
        for segment in sorted({segment for generation in self._held for segment in generation.rows}):
            rows = [row for generation in self._held for row in generation.rows.get(segment, ())]
            if open_layout(self._held[0].manifest.layout).joinable:
                yield from self._joined(rows)
            else:
                yield from (MergeSpan((row,)) for row in rows)

    def _joined(self, rows: Sequence[ArchivedRange]) -> Iterator[MergeSpan]:
        for _, span in groupby(rows, key=lambda row: row.start // self.range_size):
            some: list[ArchivedRange] = []
            for row in span:
                if some and (some[-1].end != row.start or some[-1].is_large or row.is_large):
                    yield MergeSpan(tuple(some))
                    some = []
                some.append(row)
            yield MergeSpan(tuple(some))

    def manifest(self, rows: Mapping[SegmentId, Sequence[ArchivedRange]], *, tool: str) -> Manifest:
        """Return the manifest of the merged generation, given its ranges by segment, in order."""
        first, last = self._held[0].manifest, self._held[-1].manifest
        return last.model_copy(
            update={
                "from_": first.from_,
                "replaces": tuple(one for generation in self._held for one in originals_of(generation.manifest)),
                "segments": tuple(self._entries(rows)),
                "gaps": tuple(self._gaps()),
                "events": sum(generation.manifest.events for generation in self._held),
                "bytes": sum(generation.manifest.bytes for generation in self._held),
                "range_size": self.range_size,
                "tool": tool,
            }
        )

    def _entries(self, rows: Mapping[SegmentId, Sequence[ArchivedRange]]) -> Iterator[SegmentEntry]:
        found: dict[SegmentId, list[SegmentEntry]] = {}
        for generation in self._held:
            for entry in generation.manifest.segments:
                found.setdefault(entry.id, []).append(entry)
        for segment in sorted(found):
            entries = found[segment]
            yield entries[-1].model_copy(
                update={
                    "start": entries[0].start,
                    "events": sum(entry.events for entry in entries),
                    "bytes": sum(entry.bytes for entry in entries),
                    "digest": segment_digest(row.digest for row in rows.get(segment, ())),
                }
            )

    def _gaps(self) -> Iterator[GapEntry]:
        gaps = [gap for generation in self._held for gap in generation.manifest.gaps]
        yield from sorted(gaps, key=lambda gap: (gap.id, gap.start))


def originals_of(manifest: Manifest) -> tuple[Replaced, ...]:
    """Return the original generations that a generation contains: itself, if it is not merged."""
    if manifest.replaces:
        return manifest.replaces
    return (
        Replaced(
            generation=manifest.generation,
            created=manifest.created,
            to=manifest.to,
            epochs=len(manifest.epochs),
            configuration=manifest.configuration,
            sealed=manifest.sealed,
            events=manifest.events,
            bytes=manifest.bytes,
            reader_groups=manifest.reader_groups,
        ),
    )
