"""Decides what is appended: what the sources have after what was appended before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from streamvault.common.errors import Usage
from streamvault.joining.filling import digest_of
from streamvault.joining.record import LeftOut, SourceCuts, StitchRecord
from streamvault.joining.sources import Sources, Stretch
from streamvault.reading.identity import SourcePosition
from streamvault.reading.source import Source
from streamvault.sparkrun.opening import Tasks
from streamvault.streamstore.arithmetic.cut_option import Cut, parse_cut
from streamvault.streamstore.arithmetic.cuts import later_of
from streamvault.streamstore.model import KeyRange, SegmentId
from streamvault.streamstore.services.transaction_log import Stage

BySegment = Mapping[SegmentId, Sequence[Stretch]]


class StitchPlanner:
    """Plans stitches of some sources.

    Args:
        sources: the sources, in the order in which they are appended.
        distinct: whether to leave out a segment that an earlier source's segment is equal to.
        to_cut: append only what comes before this cut of the only source; None for its tail.
        window: maximum data a task buffers in memory (bytes).
        joins: whether the target is made for this stitch, and gets nothing after it.

    Attributes:
        sources: the sources as they were when they were last looked at.
        distinct, joins: see above.
        warnings: what the user is to be warned of.

    Raises:
        Usage: a cut is given for several sources.
        InvalidCut: the cut is not one of the source.
    """

    def __init__(
        self, sources: Sequence[Source], *, distinct: bool, window: int, to_cut: Cut | None = None, joins: bool = False
    ) -> None:
        if to_cut is not None and len(sources) > 1:
            raise Usage("--to is a stream cut of one source, but several are given")
        self.sources = Sources(sources)
        self.joins = joins
        self.warnings: list[str] = []
        self.distinct = distinct
        self._to_cut = parse_cut(to_cut, sources[0].name, sources[0].end_of)
        self._window = window
        self._known: tuple[tuple[Sequence[SourceCuts], LeftOut], list[Stretch]] | None = None

    def keeps(self, record: StitchRecord) -> bool:
        """Return whether a record's plan is to be finished: it has this run's sources and options, or is too far."""
        if record.stage is Stage.COMMITTING or record.is_committed:
            return True
        return self.is_asked(record) and (self._to_cut is None or record.parts[0].to.is_at(self._to_cut))

    def check_sources(self, record: StitchRecord) -> None:
        """Look at the sources, and check that they are those of a record; errors as `SourcePosition.reached`."""
        looks = Sources(self.sources.sources)
        for part in record.parts:
            part.between(looks.look_at(part))

    def is_asked(self, record: StitchRecord) -> bool:
        """Return whether a record is of this run's sources, in this order, and of its options."""
        order = list(dict.fromkeys(part.uri for part in record.parts))
        return (order, record.distinct) == (self.order, self.distinct)

    @property
    def order(self) -> list[str]:
        """The URIs of the sources, in the order in which they are appended."""
        return [source.uri for source in self.sources.sources]

    def plan(self, newest: StitchRecord | None, tasks: Tasks) -> StitchRecord | None:
        """Plan what the sources have now and was not appended yet; None if that is nothing.

        Args:
            newest: the newest record; if it is not committed, its plan is replaced.
            tasks: run what reads segments of equal length, if equal ones are to be left out.

        Raises:
            AnotherSource: a source is not the one that was appended before.
            InvalidCut: the cut lies inside an event, or before what was appended already.
        """
        self.sources = Sources(self.sources.sources)
        self._known = None
        self.warnings = []
        parts = tuple(self._parts(newest))
        held = self._by_source(parts)
        if not any(held) and not self.joins:
            return None
        left_out = self._equal(held, tasks) if self.distinct else frozenset()
        return StitchRecord(stage=Stage.PLANNED, parts=parts, distinct=self.distinct, left_out=left_out)

    @property
    def names(self) -> list[str]:
        """What tells a stitch of these sources from others into the same target."""
        return sorted(self.order)

    def ranges(self) -> list[KeyRange]:
        """Return the key ranges of all segments that have bytes to append, whether or not they are left out."""
        held = self._by_source(self._parts(None))
        return [stretch.keys for some in held for stretches in some.values() for stretch in stretches]

    def stretches(self, record: StitchRecord) -> list[Stretch]:
        """Return what a record's plan appends, in order. Errors as `Sources.stretches`."""
        plan = record.parts, record.left_out
        if self._known is None or self._known[0] != plan:
            by_source = enumerate(self._by_source(record.parts))
            left = [
                stretch
                for index, held in by_source
                for segment, some in held.items()
                if (index, segment) not in record.left_out
                for stretch in some
            ]
            self._known = plan, left
        return self._known[1]

    def left_out(self, record: StitchRecord) -> list[str]:
        """Return the URI of each segment that a plan leaves out: that of its source, and the segment's name."""
        return [f"{record.parts[index].uri}/{segment}" for index, segment in sorted(record.left_out)]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context in which the sources are read; see `SourceState.reading`."""
        with ExitStack() as stack:
            for look in self.sources.looks:
                stack.enter_context(look.reading("appended"))
            yield

    def _parts(self, newest: StitchRecord | None) -> list[SourceCuts]:
        """Return what each source has after what was appended."""
        before = {part.uri: part for part in newest.parts} if newest else {}
        begun = newest is not None and not newest.is_committed
        sources = self.sources.sources
        return [self._cuts(index, before.get(source.uri), begun=begun) for index, source in enumerate(sources)]

    def _cuts(self, index: int, before: SourceCuts | None, *, begun: bool) -> SourceCuts:
        look, source = self.sources.looks[index], self.sources.sources[index]
        described = look.described
        begin = described.head
        if before is not None:
            from_cut, to_cut = before.between(look)
            reached = from_cut if begun else to_cut
            begin = later_of(described, reached, described.head)
            if begin != reached:
                self.warnings.append(
                    f"{source.uri} was truncated beyond what was appended; what is missing is left out"
                )
        if self._to_cut is not None:
            look.parts(begin, self._to_cut, known=(begin,))  # checks the cut
        end = SourcePosition.at(look, self._to_cut or described.tail, before.to if before else None)
        return SourceCuts(source.uri, begin, end)

    def _by_source(self, parts: Iterable[SourceCuts]) -> list[dict[SegmentId, list[Stretch]]]:
        """Return what each part has, by segment."""
        return [self.sources.stretches(part) for part in parts]

    def _equal(self, held: Sequence[BySegment], tasks: Tasks) -> LeftOut:
        """Return the segments that have the same bytes as one of an earlier source; only those of one size are read."""
        sizes: dict[int, list[tuple[int, SegmentId]]] = {}
        for index, by_segment in enumerate(held):
            for segment, stretches in by_segment.items():
                sizes.setdefault(sum(stretch.size for stretch in stretches), []).append((index, segment))
        asked = [one for some in sizes.values() if len({index for index, _ in some}) > 1 for one in some]
        specs = [(stretch, self._window) for index, segment in asked for stretch in held[index][segment]]
        digests = {}
        with self.reading():
            for at, digest in tasks.runner.run(digest_of, specs):
                digests[specs[at][0].key] = digest
        first: dict[tuple[str, ...], int] = {}
        left_out = set()
        for index, segment in sorted(asked):
            content = tuple(f"{stretch.size} {digests[stretch.key]}" for stretch in held[index][segment])
            if first.setdefault(content, index) != index:
                left_out.add((index, segment))
        return frozenset(left_out)
