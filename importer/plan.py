"""Plan of an import: the target's final content, computed from the archive's manifests alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from common.errors import Damaged, Usage
from importer.fill import Section
from importer.options import KeptRetention, Numbers, Offsets
from importer.replay import Replay, plan_replay
from manifests.archive import History
from manifests.selection import RangePart, select_parts
from streamstore.cuts import segments_between
from streamstore.model import Retention, ScaleKind, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamstore.own import OWN

__all__ = ["Part", "RestorePlan", "SegmentPlan", "generation_of", "plan_restore"]


@dataclass(frozen=True, slots=True)
class Part(RangePart):
    """An archived range, or the part of it that is restored.

    Attributes:
        shift: how much lower its offsets are in the target (bytes).
    """

    shift: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of the range is restored."""
        return (self.start, self.end) == (self.row.start, self.row.end)


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Plan of one segment of the target.

    Attributes:
        head: its start offset; the filler below is truncated.
        sections: its content, from offset 0 on, without holes.
        parts: the archived ranges among the sections, in order.
        gap_bytes: bytes of filler in place of gaps.
        shift: how much lower its first offset is than in the archive; 0 if offsets are kept.
    """

    head: int
    sections: tuple[Section, ...]
    parts: tuple[Part, ...]
    gap_bytes: int
    shift: int

    @property
    def end(self) -> int:
        """The segment's final write offset (bytes)."""
        return self.sections[-1].end if self.sections else 0


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Plan of an import.

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
        work: name of this import: the same for the same archive, cuts and options, whatever the target's name. It
            contains the generation, see `generation_of`.
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
    work: str

    @property
    def parts(self) -> Iterator[tuple[SegmentId, Part]]:
        """Every archived range to restore, in the stream's order."""
        return ((segment, part) for segment, plan in self.segments.items() for part in plan.parts)

    @property
    def tail(self) -> Mapping[SegmentId, int]:
        """The last segments and their final write offsets (bytes)."""
        return {segment: self.segments[segment].end for segment in self.replay.epochs[-1].segments}

    @property
    def bytes(self) -> int:
        """Segment bytes that come from the archive; filler is not included."""
        return sum(part.end - part.start for _, part in self.parts)


def plan_restore(
    history: History,
    *,
    from_cut: StreamCut | None = None,
    to_cut: StreamCut | None = None,
    offsets: Offsets = "keep",
    filler_limit: int = 1024**3,
    numbers: Numbers = "keep",
    retention: KeptRetention = "keep",
) -> RestorePlan:
    """Plan an import of an archive's generations, or of the part between two cuts.

    The target's content, and so the import's name, does not depend on ``retention``: an unfinished import can be
    resumed with either value.

    Raises:
        InvalidCut: a cut is not one of the archive's stream, lies outside it, or ``from_cut`` lies after ``to_cut``.
        Usage: keeping offsets needs more than ``filler_limit`` bytes of filler in a segment.
        CannotReplay: no new stream can get the source's segment numbers, and ``numbers`` is ``"keep"``.
        Damaged: the manifests have an undeclared gap.
    """
    described = history.description
    head, tail = from_cut or history.head, to_cut or history.tail
    parts: dict[SegmentId, list[Part]] = {}
    for part in select_parts(history, from_cut, to_cut):
        parts.setdefault(part.segment, []).append(Part(part.row, part.layout, part.start, part.end))
    between = segments_between(described, head, tail)
    created = described.created_in()
    last = max(created[segment] for segment in tail.offsets)
    replay = plan_replay([epoch for epoch in described.epochs if epoch.number <= last], numbers)
    segments: dict[SegmentId, SegmentPlan] = {}
    for segment in sorted({s for epoch in replay.epochs for s in epoch.segments}):
        if segment in between:
            start, end = between[segment]
            segments[segment] = _plan_segment(
                parts.get(segment, []),
                start,
                end,
                at_head=segment in head.offsets,
                offsets=offsets,
                check_gap=partial(_check_gap, history, segment),
            )
        else:
            segments[segment] = SegmentPlan(0, (), (), 0, 0)
    _check_filler(history.stream, segments, filler_limit)
    configuration = described.configuration
    if retention == "off":
        configuration = replace(configuration, retention=Retention())
    new_head = StreamCut(history.stream, {segment: segments[segment].head for segment in head.offsets})
    complete = tail == history.tail
    return RestorePlan(
        source=history.stream,
        generation=history.generation,
        replay=replay,
        segments=segments,
        head=new_head,
        configuration=_fitting(configuration, len(replay.epochs[-1].segments)),
        sealed=described.sealed and complete,
        offsets=offsets,
        numbers=numbers,
        work=_work_name(history, head, tail, offsets, numbers),
    )


def generation_of(work: str) -> int | None:
    """Return the generation in an import's name (`RestorePlan.work`); None if it is not such a name."""
    number = work.partition(".")[0]
    return int(number) if number.isdecimal() else None


def _fitting(configuration: StreamConfiguration, open_segments: int) -> StreamConfiguration:
    """Return the source's configuration, with a fixed number of segments set to the number of open ones.

    The number of a stream's segments can differ from its fixed policy. If a stream is given such a policy, however,
    Pravega scales it.
    """
    # an archive must not mark a user's stream as Streamvault's own
    configuration = replace(configuration, tags=tuple(tag for tag in configuration.tags if tag != OWN))
    scaling = configuration.scaling
    if scaling.kind is not ScaleKind.FIXED or scaling.min_segments == open_segments:
        return configuration
    return replace(configuration, scaling=replace(scaling, min_segments=open_segments))


def _plan_segment(
    parts: list[Part],
    start: int,
    end: int | None,
    *,
    at_head: bool,
    offsets: Offsets,
    check_gap: Callable[[int, int], None],
) -> SegmentPlan:
    """Plan a segment: filler below its head, ranges, filler for gaps; no filler if offsets are shifted."""
    sections: list[Section] = []
    laid: list[Part] = []
    keep = offsets == "keep"
    if at_head and parts and parts[0].start > start and keep:
        check_gap(start, parts[0].start)
        start = parts[0].start  # a gap at the head: the stream starts after it
    head, shift, at, gap_bytes = (start, 0, start, 0) if keep else (0, start, start, 0)
    if head:
        sections.append(Section(0, head))
    for part in [*parts, None]:
        until = part.start if part is not None else max(end or 0, at)
        if until > at:
            check_gap(at, until)
            gap_bytes += until - at
            if keep:
                sections.append(Section(at, until))
            else:
                shift += until - at
        if part is not None:
            sections.append(Section(part.start - shift, part.end - shift, part.row, part.start, part.layout))
            laid.append(replace(part, shift=shift))
            at = part.end
    return SegmentPlan(head, tuple(sections), tuple(laid), gap_bytes, 0 if keep else start)


def _check_gap(history: History, segment: SegmentId, start: int, end: int) -> None:
    declared = sum(max(0, min(gap_end, end) - max(gap_start, start)) for gap_start, gap_end in history.gaps(segment))
    if declared < end - start:
        raise Damaged(
            "the manifests have an undeclared gap",
            where=f"{segment.in_stream(history.stream)} bytes {start} to {end}",
        )


def _check_filler(stream: StreamName, segments: Mapping[SegmentId, SegmentPlan], limit: int) -> None:
    for segment, plan in segments.items():
        size = sum(section.end - section.start for section in plan.sections if section.origin is None)
        if size > limit:
            raise Usage(
                f"keeping offsets needs {size} bytes of filler, more than --filler-limit {limit}",
                where=segment.in_stream(stream),
                todo="Use --offsets shift, so that segments start at 0, or raise the limit.",
            )


def _work_name(history: History, head: StreamCut, tail: StreamCut, offsets: Offsets, numbers: Numbers) -> str:
    content = [str(history.stream), history.generation, history.content_digest, head.to_json(), tail.to_json(), offsets]
    if numbers != "keep":  # so that imports of earlier releases keep their names
        content.append(numbers)
    return f"{history.generation}.{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}"
