"""Cuts a stream into batches of which none holds a segment and its successor.

A cut covers the key space once, so no two of its segments share a key. A batch has only bytes of one cut's segments,
and a segment takes the place of its predecessors in the cut once these are at their ends: so the events of a key are in
one segment within a batch, and in the stream's order from batch to batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.arithmetic.cuts import later_of, sealed_ends, segments_between
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.store import StreamStore

Held = tuple[SegmentId, KeyRange]


@dataclass(frozen=True, slots=True)
class Succession:
    """Segments that a scale sealed, and those that have their keys.

    Attributes:
        before: the sealed ones.
        after: the new ones.
    """

    before: frozenset[SegmentId]
    after: frozenset[SegmentId]


class BatchPlanner:
    """What is still to be copied of a stream.

    Args:
        store: the stream's store.
        described: the stream, up to whose tail it is copied.
        begin: what lies before this cut was copied; None at the beginning.
        fits: tells segments that can be copied from those that cannot; what follows these is not copied either.

    Attributes:
        cut: where the next batch begins.
        truncated: whether the source was truncated beyond ``begin``.
        left: bytes that are still to be copied, or cannot be.
        is_cut_short: whether there are segments that cannot be copied.

    Raises:
        SourceTruncated: the source was truncated since it was described.
    """

    def __init__(
        self,
        store: StreamStore,
        described: StreamDescription,
        begin: StreamCut | None,
        fits: Callable[[SegmentId], bool] = lambda _: True,
    ) -> None:
        self.cut = described.head if begin is None else later_of(described, begin, described.head)
        self.truncated = begin is not None and self.cut != begin
        between = segments_between(described, self.cut, described.tail)
        ends = sealed_ends(store, described.name, [segment for segment, (_, end) in between.items() if end is None])
        if gone := next(
            (segment for segment, (_, end) in between.items() if end is None and segment not in ends), None
        ):
            todo = "Run it again to continue at the source's head."
            raise SourceTruncated("the source was truncated meanwhile", where=gone.in_stream(described.name), todo=todo)
        self._ends = {segment: ends[segment] if end is None else end for segment, (_, end) in between.items()}
        self.left = sum(self._ends[segment] - start for segment, (start, _) in between.items())
        self._fitting = set(filter(fits, self._ends))
        self.is_cut_short = self._fitting != self._ends.keys()
        self._successions = [
            one for pair in pairwise(described.epochs) for one in _successions(*pair) if one.after <= self._fitting
        ]

    def next(self) -> Mapping[SegmentId, tuple[int, int]]:
        """Return the stretches (bytes) from which the next batch is taken, by segment; empty at the end."""
        waiting = []
        for one in self._successions:
            offsets = self.cut.offsets
            if one.before <= offsets.keys() and all(offsets[s] == self._ends[s] for s in one.before):
                kept = {segment: offset for segment, offset in offsets.items() if segment not in one.before}
                self.cut = StreamCut(self.cut.stream, kept | dict.fromkeys(one.after, 0))
            else:
                waiting.append(one)
        self._successions = waiting
        return {
            segment: (offset, self._ends[segment])
            for segment, offset in self.cut.offsets.items()
            if offset < self._ends[segment] and segment in self._fitting
        }

    def copied(self, ends: Mapping[SegmentId, int]) -> None:
        """Move on: a batch has been copied up to these offsets (bytes)."""
        self.left -= sum(end - self.cut.offsets[segment] for segment, end in ends.items())
        self.cut = StreamCut(self.cut.stream, {**self.cut.offsets, **ends})


def _successions(before: Epoch, after: Epoch) -> Iterator[Succession]:
    """Split a scale into its parts that are independent of each other."""
    sealed = [(s, held) for s, held in before.segments.items() if s not in after.segments]
    opened = [(s, held) for s, held in after.segments.items() if s not in before.segments]
    while sealed and opened:
        olds, news = 1, 1
        while (old := sealed[olds - 1][1].high) != (new := opened[news - 1][1].high):
            olds, news = (olds + 1, news) if old < new else (olds, news + 1)
        yield Succession(_names(sealed[:olds]), _names(opened[:news]))
        sealed, opened = sealed[olds:], opened[news:]


def _names(held: Sequence[Held]) -> frozenset[SegmentId]:
    return frozenset(segment for segment, _ in held)
