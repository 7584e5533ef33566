"""Consistency of a manifest with its ranges, and of a generation with the previous one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from streamvault.common.errors import Damaged
from streamvault.common.neighbours import holes
from streamvault.manifests.format.archived_range import ArchivedRange, segment_digest
from streamvault.manifests.format.entries import SegmentEntry
from streamvault.manifests.format.manifest import Manifest
from streamvault.streamstore.model import SegmentId

NOT_MERGED = (
    "Nothing was deleted. If none of your runs has merged them so, somebody else has written it: archive the stream"
    " below another root, and delete nothing."
)


def by_segment(rows: Iterable[ArchivedRange]) -> dict[SegmentId, list[ArchivedRange]]:
    """Group ranges by segment; their order is kept."""
    found: dict[SegmentId, list[ArchivedRange]] = {}
    for row in rows:
        found.setdefault(row.segment, []).append(row)
    return found


def check_follows(before: Manifest, after: Manifest, where: str) -> None:
    """Raise `Damaged` unless a generation continues the previous one: its cut, epochs and content."""
    if after.from_ != before.to:
        what = f"generation {after.generation} does not start where generation {before.generation} ended"
        raise Damaged(what, where=where)
    if after.epochs[: len(before.epochs)] != before.epochs:
        what = f"generation {after.generation} has different epochs than generation {before.generation}"
        raise Damaged(what, where=where)
    if after.content != before.content:
        what = f"generation {after.generation} holds {after.content}, generation {before.generation} {before.content}"
        raise Damaged(what, where=where)


def check_contains(merged: Manifest, old: Manifest, where: str) -> None:
    """Raise `Damaged` unless a merged generation has all that one has that it replaced.

    A late run may have published the old one once more, with more gaps than were merged, or in another layout.
    """
    entries = {entry.id: entry for entry in merged.segments}
    begins = old.first != merged.first or old.from_ == merged.from_
    ends = {one.generation: (one.created, one.to) for one in merged.replaces}
    there = [ends.get(one.generation) == (one.created, one.to) for one in old.replaces or (old,)]
    there.append(merged.created == merged.replaces[-1].created)
    if not (begins and all(there)) or any(
        entry.id not in entries
        or not entries[entry.id].start <= entry.start <= entry.end <= entries[entry.id].end
        or any(True for _ in _new_gaps(merged, old, entry))
        for entry in old.segments
    ):
        what = f"the merged generation {merged.generation} does not have all of generation {old.generation}"
        raise Damaged(what, where=where, todo=NOT_MERGED)


def _new_gaps(merged: Manifest, old: Manifest, entry: SegmentEntry) -> Iterator[tuple[int, int]]:
    """Yield what a merged generation calls a gap, within an entry of one that it replaced, which had it."""
    known = [(gap.start, gap.end) for gap in old.gaps if gap.id == entry.id]
    for gap in merged.gaps:
        if gap.id == entry.id:
            yield from holes(max(gap.start, entry.start), min(gap.end, entry.end), known)


def cross_check(manifest: Manifest, rows: Mapping[SegmentId, Sequence[ArchivedRange]], where: str) -> None:
    """Raise `Damaged` unless the ranges and gaps of each segment are contiguous, with matching counts and digest."""
    entries = {entry.id: entry for entry in manifest.segments}
    foreign = next((segment for segment in rows if segment not in entries), None)
    if foreign is not None:
        raise Damaged(f"the index has ranges of segment {foreign}, which is not in the manifest", where=where)
    gaps: dict[SegmentId, list[tuple[int, int]]] = {}
    for gap in manifest.gaps:
        if gap.start < gap.end:
            gaps.setdefault(gap.id, []).append((gap.start, gap.end))
    for segment, entry in entries.items():
        held = rows.get(segment, ())
        at = entry.start
        for start, end in sorted([*((row.start, row.end) for row in held), *gaps.get(segment, ())]):
            if start != at:
                raise Damaged(f"ranges and gaps of segment {segment} are not contiguous at {at}", where=where)
            at = end
        if any(row.content != manifest.content for row in held):
            raise Damaged(f"a range of segment {segment} does not hold {manifest.content}", where=where)
        if at != entry.end or entry != _counted(entry, held):
            raise Damaged(f"ranges and manifest do not agree on segment {segment}", where=where)


def with_rows(manifest: Manifest, rows: Iterable[ArchivedRange], events: int | None, where: str) -> Manifest:
    """Return the manifest with the counts and digests of these ranges, which are in order.

    Raises:
        Damaged: they do not have this number of events, if it is given.
    """
    held = by_segment(rows)
    entries = tuple(_counted(entry, held.get(entry.id, ())) for entry in manifest.segments)
    totals = {"events": sum(entry.events for entry in entries), "bytes": sum(entry.bytes for entry in entries)}
    if events not in {None, totals["events"]}:
        what = f"generation {manifest.generation} has {totals['events']} events, but its manifest says {events}"
        raise Damaged(what, where=where, todo="Run 'streamvault check --read-data' on the archive.")
    return manifest.model_copy(update={"segments": entries, **totals})


def _counted(entry: SegmentEntry, rows: Sequence[ArchivedRange]) -> SegmentEntry:
    found = {
        "events": sum(row.events for row in rows),
        "bytes": sum(row.end - row.start for row in rows),
        "digest": segment_digest(row.digest for row in rows),
    }
    return entry.model_copy(update=found)
