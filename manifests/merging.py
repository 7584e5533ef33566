"""What becomes of neighbouring generations when they are merged: worked out from their manifests and ranges alone.

The result depends on which original generations it stands for, not on the steps in which they were merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from manifests.agreement import check_follows
from manifests.history import Generation
from manifests.model import GapEntry, Manifest, Replaced, SegmentEntry, segment_key
from manifests.range_row import RangeRow, segment_digest
from streamstore.model import SegmentId

__all__ = ["Join", "Merger", "can_merge"]


@dataclass(frozen=True, slots=True)
class Join:
    """A range of a merged generation: one old range that stays as it is, or several that become one object.

    Attributes:
        rows: the old ranges, without a hole.
    """

    rows: tuple[RangeRow, ...]

    @property
    def segment(self) -> SegmentId:
        """Which segment's."""
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
        """How many events it has."""
        return sum(row.events for row in self.rows)

    def row(self, digest: str, frames: tuple[int, ...]) -> RangeRow:
        """As the index has it, once its bytes are known."""
        return RangeRow(self.segment, self.start, self.end, self.events, digest, frames)


def can_merge(before: Manifest, after: Manifest) -> bool:
    """Whether a generation can be merged with the one before it: only what is laid out in the same way can."""
    return (before.layout, before.compression) == (after.layout, after.compression)


class Merger:
    """Neighbouring generations as one.

    Args:
        generations: in their order; all laid out in the same way.
        where: names the archive in messages.

    Raises:
        Damaged: they do not follow each other.
    """

    def __init__(self, generations: Sequence[Generation], where: str) -> None:
        self._held = tuple(generations)
        for before, after in zip(self._held, self._held[1:], strict=False):
            check_follows(before.manifest, after.manifest, where)
        self.range_size = max(generation.manifest.range_size for generation in self._held)

    def joins(self) -> Iterator[Join]:
        """Every range of the merged generation, in the stream's order.

        Chunks are joined up to the range size: the first old boundary at or after each multiple of it stays one, and so
        does each edge of a hole and of a large event, which stays alone. An event's object is named by the event alone,
        so ranges of events stay as they are.
        """
        for segment in sorted({segment for generation in self._held for segment in generation.rows}):
            rows = [row for generation in self._held for row in generation.rows.get(segment, ())]
            if self._held[0].manifest.layout == "chunks":
                yield from self._joined(rows)
            else:
                yield from (Join((row,)) for row in rows)

    def _joined(self, rows: Sequence[RangeRow]) -> Iterator[Join]:
        for _, span in groupby(rows, key=lambda row: row.start // self.range_size):
            some: list[RangeRow] = []
            for row in span:
                if some and (some[-1].end != row.start or some[-1].is_large or row.is_large):
                    yield Join(tuple(some))
                    some = []
                some.append(row)
            yield Join(tuple(some))

    def manifest(self, rows: Mapping[SegmentId, Sequence[RangeRow]], *, tool: str) -> Manifest:
        """The manifest of the merged generation.

        Args:
            rows: its ranges, those of a segment in order.
            tool: name and version to note.
        """
        first, last = self._held[0].manifest, self._held[-1].manifest
        return last.model_copy(
            update={
                "from_": first.from_,
                "replaces": tuple(one for generation in self._held for one in _originals(generation.manifest)),
                "segments": tuple(self._entries(rows)),
                "gaps": tuple(self._gaps()),
                "events": sum(generation.manifest.events for generation in self._held),
                "bytes": sum(generation.manifest.bytes for generation in self._held),
                "range_size": self.range_size,
                "tool": tool,
            }
        )

    def _entries(self, rows: Mapping[SegmentId, Sequence[RangeRow]]) -> Iterator[SegmentEntry]:
        found: dict[SegmentId, list[SegmentEntry]] = {}
        for generation in self._held:
            for entry in generation.manifest.segments:
                found.setdefault(segment_key(entry.name), []).append(entry)
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
        yield from sorted(gaps, key=lambda gap: (segment_key(gap.segment), gap.start))


def _originals(manifest: Manifest) -> tuple[Replaced, ...]:
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
        ),
    )
