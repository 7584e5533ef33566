"""What has to stand in the target at the end, worked out from the archive's manifests alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from common.errors import Damaged, Usage
from importer.fill import Stretch
from importer.options import KeptRetention, Offsets
from importer.replay import Replay, plan_replay
from manifests.archive import History
from manifests.selection import ArchivedPart, select_parts
from streamstore.cuts import segments_between
from streamstore.model import Retention, ScaleKind, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamstore.own import OWN

__all__ = ["Part", "RestorePlan", "SegmentPlan", "generation_of", "plan_restore"]


@dataclass(frozen=True, slots=True)
class Part(ArchivedPart):
    """An archived range, what of it is restored, and how much lower its offsets in the target are (`shift`, bytes)."""

    shift: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of the range is restored."""
        return (self.start, self.end) == (self.row.start, self.row.end)


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """One segment of the target.

    Attributes:
        head: its start offset; filler lies below and is dropped.
        stretches: what it holds, from offset 0 on, without holes.
        parts: the archived ranges among them, in order.
        gap_bytes: how many bytes of filler stand for what the archive does not have.
        shift: how much lower its first offset is than in the archive (0 if offsets are kept).
    """

    head: int
    stretches: tuple[Stretch, ...]
    parts: tuple[Part, ...]
    gap_bytes: int
    shift: int

    @property
    def end(self) -> int:
        """The write offset it has to reach (bytes)."""
        return self.stretches[-1].end if self.stretches else 0


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The whole import.

    Attributes:
        source: name of the archived stream. generation: the newest that is restored.
        replay: the epochs and how to make them.
        segments: every segment of those epochs.
        head: the target's head cut, in the source's segments; its `stream` is the source.
        configuration: policies and tags to set at the end; a fixed number of segments is that of the open ones.
        sealed: whether to seal at the end.
        offsets: whether offsets are kept or segments start at 0.
        work: names this import: the same for the same archive, cuts and options, whatever the target is called. It
            tells the generation, see `generation_of`.
    """

    source: StreamName
    generation: int
    replay: Replay
    segments: Mapping[SegmentId, SegmentPlan]
    head: StreamCut
    configuration: StreamConfiguration
    sealed: bool
    offsets: Offsets
    work: str

    @property
    def parts(self) -> Iterator[tuple[SegmentId, Part]]:
        """Every archived range that is restored, in the stream's order."""
        return ((segment, part) for segment, plan in self.segments.items() for part in plan.parts)

    @property
    def bytes(self) -> int:
        """Segment bytes that come from the archive (filler not counted)."""
        return sum(part.end - part.start for _, part in self.parts)


def plan_restore(
    history: History,
    *,
    from_cut: StreamCut | None = None,
    to_cut: StreamCut | None = None,
    offsets: Offsets = "keep",
    filler_limit: int = 1024**3,
    retention: KeptRetention = "keep",
) -> RestorePlan:
    """Plan an import of an archive's generations, or of the part between two cuts.

    What the target has to hold while it is filled, and so the import's name, does not depend on ``retention``: an
    unfinished import can be resumed either way.

    Raises:
        InvalidCut: a cut is not one of the archive's stream, lies outside of it, or ``from_cut`` lies after ``to_cut``.
        Usage: keeping offsets would need more filler than ``filler_limit`` bytes for a segment.
        CannotReplay: no new stream can have the source's segments.
        Damaged: the manifests leave a hole that they do not declare.
    """
    described = history.description
    head, tail = from_cut or history.head, to_cut or history.tail
    parts: dict[SegmentId, list[Part]] = {}
    for part in select_parts(history, from_cut, to_cut):
        parts.setdefault(part.segment, []).append(Part(part.row, part.layout, part.start, part.end))
    between = segments_between(described, head, tail)
    created = described.created_in()
    last = max(created[segment] for segment in tail.offsets)
    replay = plan_replay([epoch for epoch in described.epochs if epoch.number <= last])
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
        work=_work_name(history, head, tail, offsets),
    )


def generation_of(work: str) -> int | None:
    """The generation that an import restores up to, by its name (`RestorePlan.work`); None if it is no such name."""
    number = work.partition(".")[0]
    return int(number) if number.isdecimal() else None


def _fitting(configuration: StreamConfiguration, open_segments: int) -> StreamConfiguration:
    """The source's configuration, its fixed number of segments set to how many are open.

    A stream can have another number than its fixed policy says, but not be given such a policy: Pravega would scale it.
    """
    # no archive can make a user's stream one of ours
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
    """Lay out a segment: filler below its head, ranges, filler for gaps (none of both if offsets are shifted)."""
    stretches: list[Stretch] = []
    laid: list[Part] = []
    keep = offsets == "keep"
    if at_head and parts and parts[0].start > start and keep:
        check_gap(start, parts[0].start)
        start = parts[0].start  # a gap at the very head: the stream starts behind it
    head, shift, at, gap_bytes = (start, 0, start, 0) if keep else (0, start, start, 0)
    if head:
        stretches.append(Stretch(0, head))
    for part in [*parts, None]:
        until = part.start if part is not None else max(end or 0, at)
        if until > at:
            check_gap(at, until)
            gap_bytes += until - at
            if keep:
                stretches.append(Stretch(at, until))
            else:
                shift += until - at
        if part is not None:
            stretches.append(Stretch(part.start - shift, part.end - shift, part.row, part.start, part.layout))
            laid.append(replace(part, shift=shift))
            at = part.end
    return SegmentPlan(head, tuple(stretches), tuple(laid), gap_bytes, 0 if keep else start)


def _check_gap(history: History, segment: SegmentId, start: int, end: int) -> None:
    declared = sum(max(0, min(gap_end, end) - max(gap_start, start)) for gap_start, gap_end in history.gaps(segment))
    if declared < end - start:
        raise Damaged(
            "the manifests leave a hole that they do not declare",
            where=f"{segment.in_stream(history.stream)} bytes {start} to {end}",
        )


def _check_filler(stream: StreamName, segments: Mapping[SegmentId, SegmentPlan], limit: int) -> None:
    for segment, plan in segments.items():
        size = sum(stretch.end - stretch.start for stretch in plan.stretches if stretch.origin is None)
        if size > limit:
            raise Usage(
                f"keeping offsets needs {size} bytes of filler, more than --filler-limit {limit}",
                where=segment.in_stream(stream),
                todo="Use --offsets shift, which lets segments start at 0, or raise the limit.",
            )


def _work_name(history: History, head: StreamCut, tail: StreamCut, offsets: Offsets) -> str:
    content = [str(history.stream), history.generation, history.content_digest, head.to_json(), tail.to_json(), offsets]
    return f"{history.generation}.{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}"
