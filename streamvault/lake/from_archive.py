"""Archive as the origin of a table: its generations, oldest first, whether or not they were merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from streamvault.common.errors import Conflict, Damaged, Overtaken
from streamvault.lake.inference import SAMPLE_BYTES, sample
from streamvault.lake.origin import Origin
from streamvault.lake.plan import TablePlan
from streamvault.lake.recorded import OriginKind, TableOptions
from streamvault.lake.sources import ArchivedEvents, TableRange
from streamvault.layouts.layout import open_layout, open_reader
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.archive.range_bytes import RangeBytes
from streamvault.manifests.archive.remainder import remainder_of
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.manifests.format.field_types import segment_key
from streamvault.manifests.format.manifest import Manifest
from streamvault.reading.archive_source import ArchiveState
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.model import ANY_EVENT_BYTES, SegmentId


class ArchiveOrigin(Origin):
    """An archive as the origin of a table. A generation without events counts.

    Args:
        source: the archive, with its generations in force.
        window: maximum data a task buffers in memory (bytes).
    """

    kind: OriginKind = "archive"

    def __init__(self, source: ArchiveState, window: int) -> None:
        super().__init__(source.history.stream, source.archive.uri, ArchivedEvents(window))
        self._source = source
        self._archive = source.archive
        self._history = source.history

    @property
    def raw_segments(self) -> Sequence[SegmentId]:
        """See `Origin.raw_segments`."""
        return sorted(
            {
                segment
                for generation in self._history.generations
                if open_layout(generation.manifest.layout).one_object_per_event
                for segment in generation.rows
            }
        )

    def unless_archive_changed(self, first: int = 0) -> AbstractContextManager[None]:
        """See `Origin.unless_archive_changed`."""
        return self._source.reading("handed off", first=first)

    def draft(self, last: Manifest | None, options: TableOptions, where: str) -> TablePlan | None:  # noqa: ARG002
        """See `Origin.draft`. Draft the first generation that the table does not have, or not completely."""
        after = 0 if last is None else last.generation
        if last is not None:
            self._check_same(last, where)
        generation = next((one for one in self._history.generations if one.manifest.generation > after), None)
        if generation is None:
            return None
        if last is not None:
            self._check_not_expired(after + 1, where)
        return _draft(generation, last, where)

    def check(self, plan: TablePlan, where: str) -> None:
        """See `Origin.check`. Planned generations may have expired, or be newer than this run knows."""
        self._check_not_expired(plan.first, where)
        self._check_same(plan.manifest, where)
        if plan.generation > self._history.generation:
            what = f"another run is handing off generation {plan.generation}, which was published after this run began"
            raise Overtaken(what, where=where)

    def _check_same(self, known: Manifest, where: str) -> None:
        """Reject a manifest of another archive, which has another generation with this number."""
        number = known.generation
        held = next((one.manifest for one in self._history.generations if one.manifest.generation >= number), None)
        if held is None and self._archive.listing().newest < number:
            todo = "Give the new table another name (--table), unless the archive has lost generations."
            raise Conflict(f"the archive has no generation {number} any more, as the table has", where=where, todo=todo)
        if held is None or number < held.first:
            return  # published after this run began, or expired
        ends = [(one.generation, one.created, one.to) for one in held.replaces or (held,)]
        if (number, known.created, known.to) in ends:
            return
        made_of, ours = (f"{one.source or 'a store'}, {one.created:%Y-%m-%d %H:%M:%S} UTC" for one in (known, held))
        raise Conflict(
            f"generation {number} of the table is not from this archive: it is of {made_of}, the archive's of {ours}",
            where=where,
            todo="Give the new table another name (--table).",
        )

    def _check_not_expired(self, number: int, where: str) -> None:
        first = self._history.first
        if number < first:
            gone = f"generation {number}" if number == first - 1 else f"generations {number} to {first - 1}"
            raise Conflict(
                f"{gone} expired before the table had all of it",
                where=where,
                todo="Create another table (--table NAME); it begins where the archive begins now.",
            )

    def ranges(self, plan: TablePlan) -> Iterator[TableRange]:
        """See `Origin.ranges`.

        Raises:
            Damaged: the archive lacks some of them.
        """
        held = [
            generation
            for generation in self._history.generations
            if plan.first <= generation.manifest.generation and generation.manifest.first <= plan.generation
        ]
        for name in sorted(plan.ranges, key=segment_key):
            yield from _located(self._archive, segment_key(name), plan.ranges[name], held)

    def sample(self) -> Iterator[bytes]:
        """See `Origin.sample`."""
        ranges = [found for segment in self._history.segments() for found in self._history.ranges(segment)]
        return sample(ranges, self._read)

    def _read(self, archived: tuple[str, ArchivedRange]) -> tuple[EventSplitter, Iterable[bytes | memoryview]]:
        layout, row = archived
        blocks = open_reader(layout).read_range(self._archive.place, row.stored, row.start, row.end, SAMPLE_BYTES)
        return EventSplitter(row.start, str(row.segment), largest=ANY_EVENT_BYTES), blocks


def _draft(generation: Generation, last: Manifest | None, where: str) -> TablePlan:
    """Plan a generation of the archive as the table's next one; of a merged one, only the part that the table lacks.

    Raises:
        Conflict: the table does not end where an original generation of this archive does.
    """
    manifest = generation.manifest
    after = 0 if last is None else last.generation
    if last is not None:
        start = next((one.to for one in manifest.replaces if one.generation == after), manifest.from_)
        if start != last.to or manifest.epochs[: len(last.epochs)] != last.epochs:
            todo = "Give the new table another name (--table)."
            raise Conflict(f"generation {after} of the table is not from this archive", where=where, todo=todo)
        if manifest.first <= after:
            remainder = remainder_of(generation, after)
            return _plan(after, remainder.manifest, remainder.parts, remainder.events)
    parts = ((row, row.start) for rows in generation.rows.values() for row in rows)
    return _plan(after, manifest, parts, manifest.events)


def _plan(after: int, manifest: Manifest, parts: Iterable[tuple[ArchivedRange, int]], events: int) -> TablePlan:
    ranges: dict[str, list[tuple[int, int]]] = {}
    for row, start in parts:
        ranges.setdefault(row.segment.in_stream(manifest.name), []).append((start, row.end))
    return TablePlan(
        after=after, manifest=manifest, ranges={name: tuple(some) for name, some in ranges.items()}, events=events
    )


def _located(
    archive: Archive, segment: SegmentId, bounds: tuple[tuple[int, int], ...], held: list[Generation]
) -> Iterator[TableRange]:
    parts = [
        RangeBytes(archive.address, generation.layout, row)
        for generation in held
        for row in generation.rows.get(segment, ())
    ]
    at = 0
    for start, end in bounds:
        while at < len(parts) and parts[at].end <= start:
            at += 1
        found: list[RangeBytes] = []
        reached, next_one = start, at
        while reached < end and next_one < len(parts) and parts[next_one].start <= reached:
            found.append(parts[next_one])
            reached = parts[next_one].end
            next_one += 1
        if reached < end:
            raise Damaged(f"the archive lacks a part of segment {segment} from {start} to {end}")
        yield TableRange(segment, start, end, tuple(found))
