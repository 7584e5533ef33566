"""An archive's generations as one stream, their agreement, and the part of it between two stream cuts."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from heapq import merge
from itertools import chain
from typing import TypeVar

from streamvault.common.errors import Damaged, Usage
from streamvault.common.lazy import LazyChain, LazyMap
from streamvault.common.neighbours import holes, joined
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import PlaceAddress
from streamvault.layouts.layout import open_reader
from streamvault.layouts.packed_ranges import Kept, PackedRanges, packed
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.epochs import epoch_texts
from streamvault.manifests.manifest import Configuration, Manifest, Replaced, SegmentEntry
from streamvault.streamstore.cuts import no_end, segments_between, validate_cut
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import Range, SegmentId, StreamCut, StreamDescription, StreamName

NOT_MERGED = (
    "Nothing was deleted. If none of your runs has merged them in this way, somebody else has written it: archive the "
    "stream below another root, and delete nothing."
)


R = TypeVar("R", Range, ArchivedRange, ArchivedPart)


def by_segment(rows: Iterable[R]) -> dict[SegmentId, list[R]]:
    """Group ranges by segment; their order is kept."""
    found: dict[SegmentId, list[R]] = {}
    for row in rows:
        found.setdefault(row.segment, []).append(row)
    return found


def check_follows(before: Manifest, after: Manifest, where: str) -> None:
    """Raise `Damaged` unless a generation continues the previous one: its cut, epochs and content."""
    if after.from_ != before.to:
        what = f"generation {after.generation} does not start where generation {before.generation} ended"
        raise Damaged(what, where=where)
    if not after.epochs.starts_with(before.epochs):
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
    ends = merged.ends
    there = [ends.get(generation) == end for generation, end in old.ends.items()]
    there.append(merged.created == merged.replaces[-1].created)
    if not (begins and all(there)) or any(
        entry.id not in entries
        or not entries[entry.id].start <= entry.start <= entry.end <= entries[entry.id].end
        or any(True for _ in _new_gaps(merged, old, entry))
        for entry in old.segments
    ):
        what = f"the merged generation {merged.generation} does not contain all of generation {old.generation}"
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
        held = PackedRanges.of(segment, rows.get(segment, ()))
        at = entry.start
        for start, end in merge(held.bounds(), sorted(gaps.get(segment, ()))):
            if start != at:
                raise Damaged(f"ranges and gaps of segment {segment} are not contiguous at {at}", where=where)
            at = end
        if not held.hold(manifest.content):
            raise Damaged(f"a range of segment {segment} does not hold {manifest.content}", where=where)
        if at != entry.end or entry != _counted(entry, held):
            raise Damaged(f"ranges and manifest do not agree on segment {segment}", where=where)


def with_rows(manifest: Manifest, rows: Iterable[ArchivedRange], events: int | None, where: str) -> Manifest:
    """Return the manifest with the counts and digests of these ranges, which are in order.

    Raises:
        Damaged: they do not have this number of events, if it is given.
    """
    held = by_segment(rows)
    entries = tuple(_counted(entry, PackedRanges.of(entry.id, held.get(entry.id, ()))) for entry in manifest.segments)
    totals = {"events": sum(entry.events for entry in entries), "bytes": sum(entry.bytes for entry in entries)}
    if events not in {None, totals["events"]}:
        what = f"generation {manifest.generation} has {totals['events']} events, but its manifest says {events}"
        raise Damaged(what, where=where, todo="Run 'streamvault check --read-data' on the archive.")
    return manifest.model_copy(update={"segments": entries, **totals})


def _counted(entry: SegmentEntry, rows: PackedRanges) -> SegmentEntry:
    return entry.model_copy(update={"events": rows.events, "bytes": rows.bytes, "digest": rows.digest})


_FINGERPRINT = re.compile("[0-9a-f]{64}")


@dataclass(eq=False)
class Generation:
    """A manifest and its ranges, which are consistent.

    Attributes:
        manifest: the generation's manifest.
        rows: segment → its ranges in order; segments without ranges are absent.
        layout: the reader of its data, for `layouts.layout.open_reader`: the manifest's layout, or a table.
        fingerprint: SHA-256 of the manifest's file, hexadecimal; empty if it was not read from a file.
    """

    manifest: Manifest
    rows: Mapping[SegmentId, Sequence[ArchivedRange]]
    layout: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        self.layout = self.layout or self.manifest.layout

    def all_rows(self) -> Iterator[ArchivedRange]:
        """Yield its ranges, segment by segment."""
        return chain.from_iterable(self.rows.values())

    @property
    def row_count(self) -> int:
        """Number of its ranges."""
        return sum(map(len, self.rows.values()))

    def keeping(self, kept: Kept) -> Generation:
        """Return it with some of its ranges' checksums."""
        return replace(self, rows=packed(self.all_rows(), kept))


class History:
    """An archive's generations, oldest first, as one stream.

    Args:
        generations: contiguous: each starts where the previous one ended.
        upto: if given, the original generation, contained in the last of them, with which the stream ends: the history
            is then that of the stream at that time, and only data before its cut belong to it.

    Attributes:
        stream: the archived stream.
        generations: the generations; the last may extend beyond the tail.
    """

    def __init__(self, generations: Sequence[Generation], upto: Replaced | None = None) -> None:
        self.generations = tuple(generations)
        self.stream = self._last.name
        self._upto = upto

    @property
    def _last(self) -> Manifest:
        return self.generations[-1].manifest

    @property
    def newest(self) -> Manifest | Replaced:
        """The newest original generation: its number, time and state of the stream."""
        return self._upto or self._last

    @property
    def first(self) -> int:
        """The oldest original generation's number."""
        return self.generations[0].manifest.first

    @property
    def generation(self) -> int:
        """The newest original generation's number."""
        return self.newest.generation

    @property
    def head(self) -> StreamCut:
        """The cut at which the archive begins."""
        return self.generations[0].manifest.from_

    @property
    def tail(self) -> StreamCut:
        """The cut at which the archive ends."""
        return self.newest.to

    @property
    def events(self) -> int:
        """Number of events in all generations."""
        return sum(part.events for part in self._parts())

    @property
    def bytes(self) -> int:
        """Number of segment bytes in all generations, headers included."""
        return sum(part.bytes for part in self._parts())

    def _parts(self) -> Iterator[Manifest | Replaced]:
        """Yield the parts whose counts add up to the whole."""
        upto = self._upto
        yield from (generation.manifest for generation in self.generations[: None if upto is None else -1])
        if upto is not None:
            yield from (one for one in self._last.replaces if one.generation <= upto.generation)

    @property
    def description(self) -> StreamDescription:
        """The stream at the time of the newest generation, from the archive's head to its tail."""
        newest = self.newest
        epochs = self._last.epochs if self._upto is None else self._last.epochs.upto(self._upto.epochs)
        return StreamDescription(self.stream, newest.configuration.value(), epochs, self.head, self.tail, newest.sealed)

    @property
    def content_digest(self) -> str:
        """A digest of the archived content by the manifests; merging generations does not change it.

        So it covers the stream's shape and what lies between its two cuts, but not ranges and manifests.
        """
        described = self.description
        between = segments_between(described, self.head, self.tail)
        ends = {entry.id: entry.end for part in self.generations for entry in part.manifest.segments}
        held = {
            segment: (start, ends.get(segment) if end is None else end) for segment, (start, end) in between.items()
        }
        content = {
            "stream": str(self.stream),
            "configuration": Configuration.of(described.configuration).document(),
            "epochs": epoch_texts(described.epochs),
            "sealed": described.sealed,
            "head": self.head.to_json(),
            "tail": self.tail.to_json(),
            "segments": [(segment.value, *bounds) for segment, bounds in held.items()],
            "gaps": self._gaps_within(held),
            "events": self.events,
            "bytes": self.bytes,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _gaps_within(self, held: Mapping[SegmentId, tuple[int, int | None]]) -> list[tuple[int, int, int]]:
        """Return the gaps before the ends of segments, neighbours joined, as (segment id, start, end)."""

        def cut() -> Iterator[tuple[int, int, int]]:
            gaps = [gap for part in self.generations for gap in part.manifest.gaps]
            for segment, low, high in sorted((gap.id, gap.start, gap.end) for gap in gaps):
                end = held.get(segment, (0, 0))[1]
                until = high if end is None else min(high, end)
                if low < until:
                    yield segment.value, low, until

        def join(one: tuple[int, int, int], after: tuple[int, int, int]) -> tuple[int, int, int] | None:
            return (*one[:2], after[2]) if (one[0], one[2]) == after[:2] else None

        return list(joined(cut(), join))

    def check_fingerprints(self, expected: Iterable[str], where: str) -> None:
        """Check the manifests against fingerprints that the user has noted.

        Args:
            expected: the fingerprints; if any are given, the newest generation's must be among them.
            where: the archive's name in messages.

        Raises:
            Usage: a fingerprint is not valid.
            Damaged: the newest generation's is not among them, or one of them belongs to no generation.
        """
        held = {generation.fingerprint for generation in self.generations}
        asked = {one.lower() for one in expected}
        if wrong := next((one for one in asked if not _FINGERPRINT.fullmatch(one)), None):
            raise Usage("a fingerprint must be 64 hexadecimal digits", where=repr(wrong), todo="'show' prints it.")
        newest = self.generations[-1]
        if not asked or (newest.fingerprint in asked and asked <= held):
            return
        where = f"{where}, generation {newest.manifest.generation}"
        if newest.fingerprint not in asked:
            raise Damaged(f"the manifest has the fingerprint {newest.fingerprint}, not the expected one", where=where)
        raise Damaged(f"no generation has the fingerprint {min(asked - held)}", where=where)

    def segments(self) -> list[SegmentId]:
        """Return all segments with ranges or gaps, in order."""
        found = {s for generation in self.generations for s in generation.rows}
        found |= {gap.id for generation in self.generations for gap in generation.manifest.gaps}
        return sorted(found)

    def ranges(self, segment: SegmentId) -> Iterator[tuple[str, ArchivedRange]]:
        """Yield a segment's ranges in all generations, in order, each with its layout."""
        for generation in self.generations:
            for row in generation.rows.get(segment, ()):
                yield generation.layout, row

    def holder(self, segment: SegmentId, offset: int) -> tuple[int, StreamCut]:
        """Return the original generation that holds a byte of a segment, and the stream cut at which it begins.

        Raises:
            ValueError: none does.
        """
        for generation in self.generations:
            if any(row.start <= offset < row.end for row in generation.rows.get(segment, ())):
                break
        else:
            raise ValueError(f"no generation holds byte {offset} of {segment}")
        manifest = generation.manifest
        originals = manifest.replaces

        def begins_before(original: Replaced) -> bool:
            between = segments_between(History([generation], original).description, manifest.from_, original.to)
            start, end = between.get(segment, (0, 0))
            return start <= offset and (end is None or offset < end)

        if not originals:
            return manifest.generation, manifest.from_
        found = bisect_left(originals, True, key=begins_before)
        return originals[found].generation, originals[found - 1].to if found else manifest.from_

    def begin_since(self, moment: datetime) -> StreamCut | None:
        """Return where the first original generation begins that was taken at a moment or later; None if none was.

        What was written since the moment lies behind the cut: a generation's time is noted after its tail was taken.
        """
        begin = self.head
        for original in (one for each in self.generations for one in each.manifest.originals):
            if original.generation <= self.generation and original.created >= moment:
                return begin
            begin = original.to
        return None

    def end(self, segment: SegmentId) -> int | None:
        """Return a segment's end (bytes) in the newest generation that has the segment; None if none has it."""
        for generation in reversed(self.generations):
            for entry in generation.manifest.segments:
                if entry.id == segment:
                    return entry.end
        return None

    def sealed_end(self, segment: SegmentId) -> int:
        """Return the end (bytes) of a sealed segment.

        Raises:
            InvalidCut: the segment was open at the archive's tail, or the archive does not have it.
        """
        end = self.tail.offsets.get(segment)
        if end is not None and not self.newest.sealed:
            raise no_end(self.stream, segment, "was still open at the archive's tail")
        end = self.end(segment) if end is None else end
        if end is None:
            raise no_end(self.stream, segment, "is not in the archive")
        return end

    def gaps(self, segment: SegmentId) -> Iterator[tuple[int, int]]:
        """Yield a segment's gaps in all generations, in order, as (start, end)."""
        for generation in self.generations:
            for gap in generation.manifest.gaps:
                if gap.id == segment:
                    yield gap.start, gap.end


def select_parts(
    address: PlaceAddress, history: History, from_cut: StreamCut | None = None, to_cut: StreamCut | None = None
) -> Sequence[ArchivedPart]:
    """Return the ranges between two cuts, in the stream's order; None for the archive's own head or tail.

    Gaps are left out. The parts are made when they are asked for.

    Raises:
        InvalidCut: a cut is not of the archive's stream or outside the archive, or ``from_cut`` is after ``to_cut``.
    """
    _check_inside(history, from_cut, to_cut)
    described = history.description
    parts = []
    between = segments_between(described, from_cut or history.head, to_cut or history.tail)
    for segment, (start, end) in between.items():
        if end is not None and start >= end:
            continue
        for generation in history.generations:
            if not (rows := generation.rows.get(segment)):
                continue
            first = bisect_right(rows, start, key=lambda row: row.end)
            last = len(rows) if end is None else bisect_left(rows, end, key=lambda row: row.start)
            if first < last:
                parts.append(LazyMap(partial(_part, address, generation.layout, start, end), rows[first:last]))
    return LazyChain(parts)


def _part(address: PlaceAddress, layout: str, start: int, end: int | None, row: ArchivedRange) -> ArchivedPart:
    """Return the part of a range between two offsets."""
    return ArchivedPart(address, layout, row, max(start, row.start), row.end if end is None else min(end, row.end))


def parts_by_segment(parts: Sequence[ArchivedPart]) -> dict[SegmentId, Sequence[ArchivedPart]]:
    """Group parts, of which those of a segment are neighbours; they are not kept in memory."""
    found: dict[SegmentId, Sequence[ArchivedPart]] = {}
    at = 0
    while at < len(parts):
        segment = parts[at].segment
        end = bisect_left(parts, True, lo=at, key=lambda part: part.segment != segment)
        found[segment], at = parts[at:end], end
    return found


def check_boundaries(stream: StreamName, parts: Iterable[ArchivedPart]) -> None:
    """Raise `InvalidCut` if a part of a range begins or ends inside an event; bytes may be cut anywhere.

    For each part that is not a whole range, it lists or reads the range.
    """
    for part in (each for each in parts if each.row.content == "events"):
        for cut in {part.start, part.end} - {part.row.start, part.row.end}:
            offset, length = open_reader(part.layout).find_event(part.place, part.row, cut)
            if offset != cut:
                raise InvalidCut(
                    f"the stream cut lies inside an event (of {length} bytes at {offset})",
                    where=f"offset {cut} of {part.segment.in_stream(stream)}",
                )


def _check_inside(history: History, *cuts: StreamCut | None) -> None:
    """Reject cuts that are not of the archive's stream, or beyond the archived end of a segment.

    Raises:
        InvalidCut: names the cut.
    """
    described = history.description
    for cut in cuts:
        if cut is None:
            continue
        validate_cut(described, cut)
        for segment, offset in cut.offsets.items():
            end = history.end(segment)
            if end is not None and offset > end:
                raise InvalidCut(
                    f"the stream cut lies beyond the segment's end ({end})",
                    where=f"offset {offset} of {segment.in_stream(cut.stream)}",
                )
