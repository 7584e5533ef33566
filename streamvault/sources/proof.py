"""Proof that ranges begin at event boundaries.

A task that starts in the middle of a segment guesses its first event boundary, and a payload can look like a chain of
events. So the driver follows the finished ranges from a known boundary (the segment's start): each must begin exactly
where the previous one ended. A range that is not reached began at a wrong boundary; it is ignored, and its span is
moved again from the proved boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from streamvault.common.errors import Failed
from streamvault.common.neighbours import joined
from streamvault.manifests.plan import FinishedSpan, Gap, RangeEntry
from streamvault.manifests.spans import Span, span_of, spans_of
from streamvault.streamstore.model import SegmentId

Decide = Callable[[SegmentId, FinishedSpan], FinishedSpan]


def spans_to_run(
    chains: Mapping[SegmentId, SegmentChain], decide: Decide = lambda _, row: row
) -> Iterator[Sequence[tuple[SegmentId, Span]]]:
    """Yield spans to run until the ranges are proved to be contiguous from each segment's start to its end.

    Whoever runs them adds what they find to the chains before taking the next ones.

    Args:
        chains: the chains, with the ranges finished before.
        decide: writes the row of a gap that follows from a later range, create-only; returns the row in the store. So
            concurrent runs agree on each step of a chain: the first decides.

    Raises:
        Failed: as for `SegmentChain.prove`.
    """
    spans = list(_first_spans(chains, decide))
    while spans:
        yield spans
        spans = [
            (segment, span)
            for segment, chain in chains.items()
            if (span := chain.prove(partial(decide, segment))) is not None
        ]


def _first_spans(chains: Mapping[SegmentId, SegmentChain], decide: Decide) -> Iterator[tuple[SegmentId, Span]]:
    for segment, chain in chains.items():
        proved = chain.prove(partial(decide, segment))
        for span in chain.open_spans():
            known = proved is not None and span.low <= proved.low < span.high
            yield segment, proved if known and proved is not None else span


class SegmentChain:
    """The finished ranges of one segment between the plan's cuts, and how far they are proved.

    Memory: one small row per range.

    Args:
        start: the segment's start in this generation (bytes), an event boundary.
        end: its end.
        range_size: the plan's range size (bytes).
    """

    def __init__(self, start: int, end: int, range_size: int) -> None:
        self.start = start
        self.end = end
        self.range_size = range_size
        self.proved = start
        self._rows: dict[int, FinishedSpan] = {}
        self._links: list[FinishedSpan] = []

    def add(self, row: FinishedSpan) -> None:
        """Add a finished range; of two that begin at the same offset, which are equal, the first is kept."""
        self._rows.setdefault(row.start, row)

    def open_spans(self) -> Iterator[Span]:
        """Return the spans in which no finished range begins: what is left to do, as far as known."""
        begun = {max(self.start, start // self.range_size * self.range_size) for start in self._rows}
        return (span for span in spans_of(self.start, self.end, self.range_size) if span.low not in begun)

    def prove(self, decide: Callable[[FinishedSpan], FinishedSpan] = lambda row: row) -> Span | None:
        """Follow the chain as far as possible; return the next span to run, from a known boundary, or None at the end.

        Args:
            decide: as for `spans_to_run`.

        Raises:
            Failed: a range ends beyond the segment's end (the cut lies inside an event).
        """
        while self.proved < self.end:
            row = self._rows.get(self.proved)
            if row is None:
                gap = self._gap_until_head()
                if gap is None:
                    return span_of(self.proved, self.end, self.range_size)
                row = decide(gap)
                self.add(row)
            self._links.append(row)
            self.proved = row.end
        if self.proved > self.end:
            raise Failed("the cut lies inside an event", where=f"offset {self.end}")
        return None

    def _gap_until_head(self) -> FinishedSpan | None:
        """Return a gap up to the next range that began at the source's new head, if any: all before it is truncated."""
        beyond = (row for row in self._rows.values() if row.start > self.proved and row.follows_truncation)
        row = min(beyond, key=lambda row: row.start, default=None)
        if row is None:
            return None
        reason = next(gap.reason for gap in row.gaps if gap.end == row.start)
        gap = Gap(start=self.proved, end=row.start, reason=reason)
        return FinishedSpan(start=self.proved, end=row.start, ranges=(), gaps=(gap,))

    def rows(self) -> Iterator[FinishedSpan]:
        """Yield the finished spans that are proved so far, in order."""
        yield from self._links

    def ranges(self) -> Iterator[RangeEntry]:
        """Yield the archived ranges of the segment, in order."""
        for row in self._links:
            yield from row.ranges

    def gaps(self) -> Iterator[Gap]:
        """Yield what was truncated before it could be archived, in order, neighbours joined."""
        # a gap that ends where its row starts belongs to the previous link
        return joined((gap for row in self._links for gap in row.gaps if gap.end != row.start), _join)


def _join(one: Gap, after: Gap) -> Gap | None:
    if (one.end, one.reason) != (after.start, after.reason):
        return None
    return Gap(start=one.start, end=after.end, reason=one.reason)
