"""What has to agree in an archive: manifest with ranges, a generation with the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from common.errors import Damaged
from manifests.model import Manifest, SegmentEntry, segment_key
from manifests.range_row import RangeRow, segment_digest
from streamstore.model import SegmentId

__all__ = ["by_segment", "check_follows", "cross_check"]


def by_segment(rows: Iterable[RangeRow]) -> dict[SegmentId, list[RangeRow]]:
    """Ranges by their segment, in their order."""
    found: dict[SegmentId, list[RangeRow]] = {}
    for row in rows:
        found.setdefault(row.segment, []).append(row)
    return found


def check_follows(before: Manifest, after: Manifest, where: str) -> None:
    """Raise `Damaged` unless a generation starts where the one before ended and knows its epochs."""
    if after.from_ != before.to:
        raise Damaged(f"generation {after.generation} does not start where {before.generation} ended", where=where)
    if after.epochs[: len(before.epochs)] != before.epochs:
        raise Damaged(f"generation {after.generation} has other epochs than {before.generation}", where=where)


def cross_check(manifest: Manifest, rows: Mapping[SegmentId, Sequence[RangeRow]], where: str) -> None:
    """Raise `Damaged` unless each segment is its ranges and gaps, joined, with the right counts and digest.

    Args:
        manifest: of a generation.
        rows: its ranges, those of a segment in order.
        where: the file to name.
    """
    entries = {segment_key(entry.name): entry for entry in manifest.segments}
    foreign = next((segment for segment in rows if segment not in entries), None)
    if foreign is not None:
        raise Damaged(f"the index has ranges of segment {foreign}, the manifest does not", where=where)
    gaps: dict[SegmentId, list[tuple[int, int]]] = {}
    for gap in manifest.gaps:
        if gap.start < gap.end:
            gaps.setdefault(segment_key(gap.segment), []).append((gap.start, gap.end))
    for segment, entry in entries.items():
        held = rows.get(segment, ())
        stretches = sorted([*((row.start, row.end) for row in held), *gaps.get(segment, ())])
        at = entry.start
        for start, end in stretches:
            if start != at:
                raise Damaged(f"ranges and gaps of segment {segment} do not join at {at}", where=where)
            at = end
        if at != entry.end or not _adds_up(entry, held):
            raise Damaged(f"ranges and manifest disagree on segment {segment}", where=where)


def _adds_up(entry: SegmentEntry, rows: Sequence[RangeRow]) -> bool:
    return (
        entry.events == sum(row.events for row in rows)
        and entry.bytes == sum(row.end - row.start for row in rows)
        and entry.digest == segment_digest(row.digest for row in rows)
    )
