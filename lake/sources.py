"""Where in the archive a table's ranges lie: mostly each is one of the archive's own, sometimes a part of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lake.plan import TablePlan
from manifests.history import Generation, History
from manifests.model import segment_key
from manifests.range_row import RangeRow
from problems import Damaged
from streamstore.model import SegmentId

__all__ = ["Source", "WantedRange", "wanted_ranges"]


@dataclass(frozen=True, slots=True)
class Source:
    """A range of the archive, and how it is kept (see `objectstore.layouts.open_reader`)."""

    row: RangeRow
    layout: str


@dataclass(frozen=True, slots=True)
class WantedRange:
    """A range of the table.

    Attributes:
        segment: which. start, end: offsets in it (bytes), event boundaries.
        sources: the archive's ranges that hold it, in order and without a hole.
    """

    segment: SegmentId
    start: int
    end: int
    sources: tuple[Source, ...]

    @property
    def known(self) -> RangeRow | None:
        """As the table's index has it; None if it is no range of the archive, so that its digest is not known yet."""
        row = self.sources[0].row
        whole = len(self.sources) == 1 and (row.start, row.end) == (self.start, self.end)
        return replace(row, frames=()) if whole else None  # what is compressed is the archive's own


def wanted_ranges(plan: TablePlan, history: History) -> Iterator[WantedRange]:
    """A planned generation's ranges in the stream's order: by epoch, number and offset.

    Args:
        plan: what is wanted.
        history: the archive's generations in force.

    Raises:
        Damaged: the archive has not got some of it.
    """
    held = [
        generation
        for generation in history.generations
        if plan.first <= generation.manifest.generation and generation.manifest.first <= plan.generation
    ]
    for name in sorted(plan.ranges, key=segment_key):
        yield from _located(segment_key(name), plan.ranges[name], held)


def _located(segment: SegmentId, bounds: tuple[tuple[int, int], ...], held: list[Generation]) -> Iterator[WantedRange]:
    sources = [Source(row, generation.layout) for generation in held for row in generation.rows.get(segment, ())]
    at = 0
    for start, end in bounds:
        while at < len(sources) and sources[at].row.end <= start:
            at += 1
        found: list[Source] = []
        reached, next_one = start, at
        while reached < end and next_one < len(sources) and sources[next_one].row.start <= reached:
            found.append(sources[next_one])
            reached = sources[next_one].row.end
            next_one += 1
        if reached < end:
            raise Damaged(f"the archive has not got all of segment {segment} from {start} to {end}")
        yield WantedRange(segment, start, end, tuple(found))
