"""Parts of one stream, put together in a new one: *copy --range*."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from streamvault.joining.planning import StitchPlanner
from streamvault.joining.record import SourceCuts, StitchRecord
from streamvault.reading.identity import SourcePosition
from streamvault.reading.source import Source
from streamvault.streamstore.arithmetic.cut_option import Cut, parse_cut
from streamvault.streamstore.arithmetic.cuts import is_before, later_of, segments_between
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamDescription


class RangePlanner(StitchPlanner):
    """Plans a stitch of some parts of one source.

    Args:
        source: the source.
        ranges: the parts, each between two cuts, in the stream's order.
        window: maximum data a task buffers in memory (bytes).

    Raises:
        InvalidCut: a cut is not one of the source, a part ends before it begins, or parts overlap or are out of order.
    """

    def __init__(self, source: Source, ranges: Sequence[tuple[Cut, Cut]], *, window: int) -> None:
        super().__init__([source], distinct=False, window=window, joins=True)
        described = self.sources.looks[0].described
        self._ranges = [(self._cut(one), self._cut(other)) for one, other in ranges]
        for begin, end in self._ranges:
            _check_order(described, begin, end, "a range ends before it begins")
        for (_, end), (begin, _) in pairwise(self._ranges):
            _check_order(described, end, begin, "the ranges overlap, or are not in the stream's order")

    def _cut(self, given: Cut) -> StreamCut:
        source = self.sources.sources[0]
        cut = parse_cut(given, source.name, source.end_of)
        assert cut is not None  # noqa: S101  (one is given)
        return cut

    @property
    def names(self) -> list[str]:
        """See the base class."""
        cuts = [[cut.to_json() for cut in both] for both in self._ranges]
        return [*super().names, json.dumps(cuts)]

    def _parts(self, newest: StitchRecord | None) -> list[SourceCuts]:
        """Return what the source still has of each range; the cuts are checked at first."""
        source, look = self.sources.sources[0], self.sources.looks[0]
        described, found = look.described, list[SourceCuts]()
        for part in newest.parts if newest is not None else ():
            part.between(look)
        known = newest.parts if newest is not None else (None,) * len(self._ranges)
        for (given, until), before in zip(self._ranges, known, strict=True):
            begin = later_of(described, given, described.head)
            end = later_of(described, until, begin)
            if begin != given:
                self.warnings.append(f"{source.uri} was truncated beyond the beginning of a range")
            if newest is None:
                look.parts(begin, end, known=() if begin == given else (begin,))
            found.append(SourceCuts(source.uri, begin, SourcePosition.at(look, end, before.to if before else None)))
        return found


def _check_order(described: StreamDescription, one: StreamCut, other: StreamCut, what: str) -> None:
    """Check that a cut is not after another one for any key.

    Raises:
        InvalidCut: it is; names the segment.
    """
    if not is_before(described, one, other):
        try:
            segments_between(described, one, other)
        except InvalidCut as error:
            raise InvalidCut(what, where=error.where) from None
