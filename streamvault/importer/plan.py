"""The plan of a restore: the target's final content, and the scales that give it the source's segments.

A new stream gets the same segment numbers, epochs and key ranges. The store numbers the segments of a scale in its own
order (`streamstore.numbering`). Where that order would give other numbers than the source's (most scales of the
auto-scaler), inner boundaries move by the fewest ulps that give the source's numbers; a moved boundary stays in place
as long as it exists. The hash of a routing key has 52 bits, so a move by a few ulps changes the segment of almost no
key.

Some histories cannot be repeated with their numbers: those of a name that was used before, those with a transaction
that was committed over a scale (Pravega then repeats two earlier epochs, with their numbers), and a few scales into
many segments. With mapped numbers they are repeated all the same: same epochs and key ranges, the store's numbers
(`streamstore.cuts`). Everything here is in the source's numbers, but for the positions that are found in the new
stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

import numpy as np

from streamvault.common.errors import Failed
from streamvault.common.lazy import LazyChain, LazyMap
from streamvault.importer.fill import TargetSpan
from streamvault.importer.reports import MovedBoundary, Numbers, Offsets, TargetOptions
from streamvault.sources.source import SourcePart
from streamvault.streamstore.cuts import common_counterparts, info_of, segments_between
from streamvault.streamstore.model import (
    ContentKind,
    Epoch,
    EpochChange,
    Epochs,
    KeyRange,
    Range,
    ScaleKind,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.numbering import nudge
from streamvault.streamstore.own import EPHEMERAL, OWN, SCALED, SWEPT, filled_places
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import OpenStream


class NoCounterpart(Failed):
    """The stream has no position that corresponds to the given one."""

    retriable = False


@dataclass(frozen=True, slots=True)
class TargetPositions:
    """Finds positions in a stream that was restored or copied.

    Attributes:
        store: its store.
        described: the stream.
        segments: the source's segment → its segment.
        infos: its segment → the segment's state, of those that were asked for; None for one that is gone.
    """

    store: StreamStore
    described: StreamDescription
    segments: Mapping[SegmentId, SegmentId]
    infos: dict[SegmentId, SegmentInfo | None] = field(default_factory=dict)

    @classmethod
    def of(cls, epochs: Epochs, source: str, target: OpenStream) -> TargetPositions:
        """Find the segments that correspond to those of a source.

        Args:
            epochs: the source's epochs.
            source: its URI, for messages.
            target: the stream.

        Raises:
            NoCounterpart: none correspond.
        """
        described = target.describe()
        segments = common_counterparts(epochs, described.epochs)
        if not segments:
            raise NoCounterpart(
                "the streams have different histories, so no segments correspond",
                where=f"{source} and {target.uri}",
                todo="Give the archive or the stream that was restored or copied, and the result.",
            )
        return cls(target.store, described, segments)

    @property
    def name(self) -> StreamName:
        """The stream's name."""
        return self.described.name

    def cut(self, cut: StreamCut) -> StreamCut:
        """Return the cut that corresponds to one of the source's.

        Raises:
            NoCounterpart: as `counterpart`.
        """
        return StreamCut(self.name, {self.counterpart(cut.stream, s, at, at): at for s, at in cut.offsets.items()})

    def counterpart(self, source: StreamName, segment: SegmentId, start: int, end: int) -> SegmentId:
        """Return the segment that corresponds to one of the source's, which has the bytes from start to end.

        Raises:
            NoCounterpart: there is none, or it does not have these bytes.
        """
        where = f"{segment.in_stream(source)}: {start}"
        if segment not in self.segments:
            raise NoCounterpart(
                "no segment of the stream corresponds to this one",
                where=where,
                todo=f"Check that it is one of the source's, and that {self.store.uri}/{self.name} was restored "
                "or copied from it after the segment was created.",
            )
        found = self.segments[segment]
        info = self.info(found)
        place = f"{self.store.uri}/{found.in_stream(self.name)}"
        if info is None or start < info.start_offset:
            begin = "" if info is None else f", which begins at {info.start_offset}"
            raise NoCounterpart(
                f"the position was truncated in {place}{begin}", where=where, todo="Begin at the stream's head instead."
            )
        if end > info.write_offset:
            raise NoCounterpart(
                f"the position lies beyond the end of {place} at {info.write_offset}",
                where=where,
                todo="Replicate again first if the stream is a replica; subtract the shifts if it was restored with "
                "--offsets shift.",
            )
        return found

    def info(self, segment: SegmentId) -> SegmentInfo | None:
        """Return the state of one of the stream's segments; None if it is gone."""
        if segment not in self.infos:
            self.infos[segment] = info_of(self.store, self.name, segment)
        return self.infos[segment]


MAP_NUMBERS = "Give --numbers map to restore the stream with other segment numbers."
"""What to do where numbers cannot be kept."""


class CannotReplay(Failed):
    """No sequence of scales can give a new stream the source's segment numbers."""


@dataclass(frozen=True, slots=True)
class ScaleStep:
    """One scale to replay.

    Attributes:
        epoch: the epoch it begins.
        seal: the segments it seals; each must be full first.
        ranges: the new key ranges, in the order of the request.
        opens: the source's segments that the new ones correspond to.
    """

    epoch: int
    seal: tuple[SegmentId, ...]
    ranges: tuple[KeyRange, ...]
    opens: Mapping[SegmentId, KeyRange]


@dataclass(frozen=True, slots=True)
class Replay:
    """The scales that create the target's epochs.

    Attributes:
        first: the epoch that the new stream must start with.
        steps: the scales, in order.
        epochs: the target's epochs, with their final boundaries.
        moved: the boundaries that differ from the source's.
    """

    first: Epoch
    steps: tuple[ScaleStep, ...]
    epochs: Epochs
    moved: tuple[MovedBoundary, ...]


def plan_replay(epochs: Epochs, numbers: Numbers = "keep") -> Replay:
    """Plan the scales for a source's epochs, in time in proportion to what they seal and open.

    Args:
        epochs: the epochs.
        numbers: ``"keep"`` if the segments must get the source's numbers; with ``"map"`` boundaries are still moved
            where that keeps numbers in order, and stay in place where it does not.

    Raises:
        CannotReplay: the segments cannot get the source's numbers: a scale cannot create one of the epochs (a
            transaction was committed over a scale), or no boundaries near the source's give these numbers.
    """
    _check_start(epochs)
    here: dict[SegmentId, KeyRange] = dict(epochs[0].segments)
    highest = max(segment.number for segment in here)
    made = [epochs.changes[0]]
    steps: list[ScaleStep] = []
    moved: list[MovedBoundary] = []
    kept = True
    for number, change in islice(enumerate(epochs.changes), 1, None):
        opens = sorted(change.opens)
        expected = [SegmentId(number, highest + 1 + i) for i in range(len(opens))]
        kept = kept and opens == expected
        if not opens or not (kept or numbers == "map"):
            raise CannotReplay(
                f"the segment numbers of epoch {number} cannot be reproduced: a transaction was committed across "
                "a scale",
                where=", ".join(map(str, opens[:3])),
                todo=MAP_NUMBERS,
            )
        highest = max(highest, *(segment.number for segment in opens))
        sealed = {segment: here.pop(segment) for segment in change.seals}
        fixed = _outer_boundaries(list(change.seals.values()), list(sealed.values()))
        source_ranges = [change.opens[segment] for segment in opens]
        ranges = nudge(source_ranges, fixed) if kept else None
        if ranges is None and numbers == "keep":
            raise CannotReplay(
                f"no boundaries near the source's give the {len(opens)} segments of epoch {number} the source's "
                "numbers",
                todo=MAP_NUMBERS,
            )
        ranges = ranges or [
            KeyRange(fixed.get(held.low, held.low), fixed.get(held.high, held.high)) for held in source_ranges
        ]
        steps.append(ScaleStep(number, tuple(sealed), tuple(ranges), dict(zip(opens, ranges, strict=True))))
        moved += _moves(number, source_ranges, ranges, fixed)
        here.update(steps[-1].opens)
        made.append(EpochChange(sealed, steps[-1].opens))
    return Replay(epochs[0], tuple(steps), Epochs.of(made), tuple(moved))


def _check_start(epochs: Epochs) -> None:
    first = sorted(epochs.changes[0].opens)
    if not first or first != [SegmentId(0, first[0].number + i) for i in range(len(first))]:
        raise CannotReplay("the source's epochs do not start with consecutively numbered segments of epoch 0")


def _outer_boundaries(source: Sequence[KeyRange], target: Sequence[KeyRange]) -> dict[float, float]:
    """Map the outer boundaries of the sealed key ranges, which cannot move, from source to target."""
    ends = {r.low: t.low for r, t in zip(source, target, strict=True)}
    ends.update({r.high: t.high for r, t in zip(source, target, strict=True)})
    inner = {r.low for r in source} & {r.high for r in source}
    return {boundary: ends[boundary] for boundary in ends if boundary not in inner}


def _moves(
    epoch: int, source: Sequence[KeyRange], target: Sequence[KeyRange], fixed: Mapping[float, float]
) -> list[MovedBoundary]:
    pairs = {s.low: t.low for s, t in zip(source, target, strict=True) if s.low not in fixed}
    return [
        MovedBoundary(epoch=epoch, source_position=s, target_position=t, ulps=_ulps(s, t))
        for s, t in sorted(pairs.items())
        if s != t
    ]


def _ulps(a: float, b: float) -> int:
    return abs(int(np.float64(a).view(np.int64)) - int(np.float64(b).view(np.int64)))


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Plan of one segment of the target.

    Attributes:
        head: its start offset; the filler below is truncated.
        spans: its content, from offset 0 on, without holes.
        gap_bytes: bytes of filler in place of gaps.
        shift: how much lower its first offset is than in the archive; 0 if offsets are kept.
    """

    head: int = 0
    spans: Sequence[TargetSpan] = ()
    gap_bytes: int = 0
    shift: int = 0

    @property
    def end(self) -> int:
        """The segment's final write offset (bytes)."""
        return self.spans[-1].end if self.spans else 0


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Plan of a restore.

    Attributes:
        source: the archived stream.
        generation: the newest generation to restore.
        replay: the epochs, and the scales that create them.
        segments: every segment of those epochs.
        head: the target's head cut, in the source's segments; its `stream` is the source.
        configuration: policies and tags to set at the end; a fixed number of segments equals the open segments.
        sealed: whether to seal the target at the end.
        offsets: whether offsets are kept or segments start at 0.
        numbers: whether the target's segments must have the source's numbers; all segments here are the source's.
        content: what the segments hold.
        import_id: names this import: the same for the same archive, cuts and options, whatever the target's name. It
            contains the generation of an archive, see `importer.from_archive.generation_of`.
        origin: URI of the archive; empty if the source is none, or a table.
    """

    source: StreamName
    generation: int
    replay: Replay
    segments: Mapping[SegmentId, SegmentPlan]
    head: StreamCut
    configuration: StreamConfiguration
    sealed: bool
    offsets: Offsets
    numbers: Numbers
    content: ContentKind
    import_id: str
    origin: str = ""

    @property
    def restored(self) -> Iterator[tuple[SegmentId, TargetSpan, SourcePart]]:
        """Every span that is no filler, with its part of the source, in the stream's order."""
        for segment, plan in self.segments.items():
            yield from ((segment, span, span.part) for span in plan.spans if span.part is not None)

    @property
    def filled(self) -> Iterator[Range]:
        """Yield where the target has filler in place of a gap, in its offsets: now, and since an earlier import."""
        earlier, _ = filled_places(self.configuration)
        for segment, plan in self.segments.items():
            for span in plan.spans:
                if span.part is None and span.end > plan.head:
                    yield Range(segment, span.start, span.end)
                elif span.part is not None:
                    for place in earlier:
                        low, high = max(place.start, span.part.start), min(place.end, span.part.end)
                        if place.segment == segment and low < high:
                            yield Range(segment, low - span.shift, high - span.shift)

    @property
    def tail(self) -> Mapping[SegmentId, int]:
        """The last segments and their final write offsets (bytes)."""
        return {segment: self.segments[segment].end for segment in self.replay.epochs[-1].segments}

    @property
    def shifts(self) -> Mapping[str, int]:
        """Name of a segment → how much lower its offsets are in the target, of those where that is not 0."""
        return {s.in_stream(self.source): plan.shift for s, plan in self.segments.items() if plan.shift}

    @property
    def bytes(self) -> int:
        """Segment bytes that come from the archive; filler is not included."""
        return sum(part.end - part.start for _, _, part in self.restored)


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be restored.

    Attributes:
        described: the source: its epochs, and the configuration that the target gets.
        generation: the newest generation to restore; 0 if it is not an import of an archive.
        head: the cut at which the target begins.
        tail: the cut at which it ends.
        parts: segment → the places of its bytes between the cuts, in order.
        bases: segment → its offset that becomes offset 0 if offsets are shifted; of others, that is where they start.
        sealed: whether to seal the target.
        import_id: see `RestorePlan`.
        check_gap: raises if the bytes of a segment from one offset to another should be there, but no part has them.
        kind: what the segments hold.
        ends: segment → the offset after its last byte (bytes), where neither the parts nor `tail` say it.
        origin: see `RestorePlan`.
    """

    described: StreamDescription
    generation: int
    head: StreamCut
    tail: StreamCut
    parts: Mapping[SegmentId, Sequence[SourcePart]]
    bases: Mapping[SegmentId, int]
    sealed: bool
    import_id: str
    check_gap: Callable[[SegmentId, int, int], None]
    kind: ContentKind = "events"
    ends: Mapping[SegmentId, int] = field(default_factory=dict)
    origin: str = ""


def plan_restore(content: Content, options: TargetOptions) -> RestorePlan:
    """Plan how a new stream gets a content; `importer.target.check_filler` is left to the caller.

    Raises:
        CannotReplay: no new stream can get the source's segment numbers, which are to be kept.
        Damaged: the source has an undeclared gap.
    """
    described, head, tail = content.described, content.head, content.tail
    between = segments_between(described, head, tail)
    last = max(described.epochs.life(segment).first for segment in tail.offsets)
    replay = plan_replay(described.epochs.upto(last + 1), options.numbers)
    keep = options.offsets == "keep"
    segments = {
        segment: _plan_segment(content, segment, between[segment], keep=keep) if segment in between else SegmentPlan()
        for segment in replay.epochs.ranges
    }
    return RestorePlan(
        source=described.name,
        generation=content.generation,
        replay=replay,
        segments=segments,
        head=StreamCut(described.name, {segment: segments[segment].head for segment in head.offsets}),
        configuration=fitting_configuration(described.configuration, len(replay.epochs[-1].segments)),
        sealed=content.sealed,
        offsets=options.offsets,
        numbers=options.numbers,
        content=content.kind,
        import_id=content.import_id,
        origin=content.origin,
    )


def fitting_configuration(configuration: StreamConfiguration, open_segments: int) -> StreamConfiguration:
    """Return a finished target's configuration: the source's, with a fixed number of segments set to the open ones.

    The number of a stream's segments can differ from its fixed policy. If a stream is given such a policy, however,
    Pravega scales it.
    """
    # an archive must not mark a user's stream as Streamvault's own, or as one that a sweep deletes
    tags = (tag for tag in configuration.tags if tag not in {OWN, SWEPT} and not tag.startswith((EPHEMERAL, SCALED)))
    configuration = replace(configuration, tags=tuple(tags))
    scaling = configuration.scaling
    if scaling.kind is not ScaleKind.FIXED or scaling.min_segments == open_segments:
        return configuration
    return replace(configuration, scaling=replace(scaling, min_segments=open_segments))


def scaling_warnings(given: StreamConfiguration, fitting: StreamConfiguration) -> tuple[str, ...]:
    """Return a warning if the policy that a new stream gets is not its source's; see `fitting_configuration`.

    It may be that the source was scaled for an append that was killed.
    """
    asked, fits = given.scaling, fitting.scaling
    if asked == fits:
        return ()
    warning = (
        f"the source's policy asks for {asked.min_segments} segments, but {fits.min_segments} are "
        f"open; the new stream's asks for {fits.min_segments}, so that the store does not scale it"
    )
    return (warning,)


def _plan_segment(content: Content, segment: SegmentId, between: tuple[int, int | None], *, keep: bool) -> SegmentPlan:
    """Plan a segment: filler below its head, parts, filler for gaps; no filler if offsets are shifted.

    Args:
        content: what is to be restored.
        segment: the segment.
        between: its first offset to restore, in the source (bytes), and the offset after its last byte; None if the
            content says it.
        keep: whether gaps are filled; if not, what follows moves up.

    The spans between two gaps are made when they are asked for.
    """
    parts, (start, end) = content.parts.get(segment, ()), between
    end = content.ends.get(segment) if end is None else end
    base = 0 if keep else content.bases.get(segment, start)
    if segment in content.head.offsets and parts and parts[0].start > start and keep:
        content.check_gap(segment, start, parts[0].start)
        start = parts[0].start  # a gap at the head: the stream starts after it
    head, shift, at, gap_bytes = start - base, base, start, 0
    spans: list[Sequence[TargetSpan]] = [(TargetSpan(0, head),)] if head else []
    first = 0
    for number, part in enumerate(chain(parts, [None])):
        until = part.start if part is not None else max(end or 0, at)
        if part is None or until > at:
            spans.append(LazyMap(partial(_span_of, shift), parts[first:number]))
            first = number
        if until > at:
            content.check_gap(segment, at, until)
            gap_bytes += until - at
            if keep:
                spans.append((TargetSpan(at - shift, until - shift),))
            else:
                shift += until - at
        if part is not None:
            at = part.end
    return SegmentPlan(head, LazyChain(spans), gap_bytes, base)


def _span_of(shift: int, part: SourcePart) -> TargetSpan:
    return TargetSpan(part.start - shift, part.end - shift, part)
