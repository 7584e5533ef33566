"""Plan of a restore: the target's final content, from the source's description and the places of its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from streamvault.common.errors import Usage
from streamvault.importer.fill import Section
from streamvault.importer.options import Numbers, Offsets, TargetOptions
from streamvault.importer.replay import Replay, plan_replay
from streamvault.streamstore.arithmetic.byte_source import ByteSource
from streamvault.streamstore.arithmetic.cuts import segments_between
from streamvault.streamstore.model import (
    ContentKind,
    ScaleKind,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.own import OWN


@dataclass(frozen=True, slots=True)
class Part:
    """A source of bytes, or the part of it that is restored.

    Attributes:
        origin: the source.
        start: offset of the part's first byte, in the source's offsets (bytes).
        end: offset after its last byte.
        events: number of events in the part; None if it is not known.
        shift: how much lower its offsets are in the target (bytes).
    """

    origin: ByteSource
    start: int
    end: int
    events: int | None = None
    shift: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of the source is restored."""
        return (self.start, self.end) == (self.origin.start, self.origin.end)


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Plan of one segment of the target.

    Attributes:
        head: its start offset; the filler below is truncated.
        sections: its content, from offset 0 on, without holes.
        parts: the sections' sources, in order.
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
        work: name of this import: the same for the same archive, cuts and options, whatever the target's name. It
            contains the generation of an archive, see `importer.from_archive.generation_of`.
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
    work: str

    @property
    def parts(self) -> Iterator[tuple[SegmentId, Part]]:
        """Every source of bytes, in the stream's order."""
        return ((segment, part) for segment, plan in self.segments.items() for part in plan.parts)

    @property
    def tail(self) -> Mapping[SegmentId, int]:
        """The last segments and their final write offsets (bytes)."""
        return {segment: self.segments[segment].end for segment in self.replay.epochs[-1].segments}

    @property
    def bytes(self) -> int:
        """Segment bytes that come from the archive; filler is not included."""
        return sum(part.end - part.start for _, part in self.parts)


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be restored.

    Attributes:
        described: the source: its epochs, and the configuration that the target gets.
        generation: the newest generation to restore; 0 if the source is no archive.
        head: the cut at which the target begins.
        tail: the cut at which it ends.
        parts: segment → the places of its bytes between the cuts, in order.
        bases: segment → its offset that becomes offset 0 if offsets are shifted; of others, that is where they start.
        sealed: whether to seal the target.
        work: see `RestorePlan`.
        check_gap: raises if the bytes of a segment from one offset to another should be there, but no part has them.
        kind: what the segments hold.
        ends: segment → the offset after its last byte (bytes), where neither the parts nor `tail` say it.
    """

    described: StreamDescription
    generation: int
    head: StreamCut
    tail: StreamCut
    parts: Mapping[SegmentId, Sequence[Part]]
    bases: Mapping[SegmentId, int]
    sealed: bool
    work: str
    check_gap: Callable[[SegmentId, int, int], None]
    kind: ContentKind = "events"
    ends: Mapping[SegmentId, int] = field(default_factory=dict)


def plan_restore(content: Content, options: TargetOptions, *, limit_filler: bool = True) -> RestorePlan:
    """Plan how a new stream gets a content.

    Args:
        content: what is to be restored.
        options: how.
        limit_filler: check the filler; if not, `check_filler` is left to the caller.

    Raises:
        Usage: keeping offsets needs more than `TargetOptions.filler_limit` bytes of filler in a segment.
        CannotReplay: no new stream can get the source's segment numbers, which are to be kept.
        Damaged: the source has an undeclared gap.
    """
    described, head, tail = content.described, content.head, content.tail
    between = segments_between(described, head, tail)
    created = described.created_in()
    last = max(created[segment] for segment in tail.offsets)
    replay = plan_replay([epoch for epoch in described.epochs if epoch.number <= last], options.numbers)
    segments: dict[SegmentId, SegmentPlan] = {}
    for segment in sorted({s for epoch in replay.epochs for s in epoch.segments}):
        if segment in between:
            start, end = between[segment]
            segments[segment] = _plan_segment(
                content.parts.get(segment, ()),
                start,
                content.ends.get(segment) if end is None else end,
                at_head=segment in head.offsets,
                base=0 if options.offsets == "keep" else content.bases.get(segment, start),
                keep=options.offsets == "keep",
                check_gap=partial(content.check_gap, segment),
            )
        else:
            segments[segment] = SegmentPlan(0, (), (), 0, 0)
    if limit_filler:
        check_filler(described.name, segments, options.filler_limit)
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
        work=content.work,
    )


def fitting_configuration(configuration: StreamConfiguration, open_segments: int) -> StreamConfiguration:
    """Return a finished target's configuration: the source's, with a fixed number of segments set to the open ones.

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
    parts: Sequence[Part],
    start: int,
    end: int | None,
    *,
    at_head: bool,
    base: int,
    keep: bool,
    check_gap: Callable[[int, int], None],
) -> SegmentPlan:
    """Plan a segment: filler below its head, ranges, filler for gaps; no filler if offsets are shifted.

    Args:
        parts: the places of its bytes, in order.
        start: its first offset to restore, in the source (bytes).
        end: the offset after its last byte; None if the parts say it.
        at_head: whether the target begins in this segment.
        base: the offset that becomes 0.
        keep: whether gaps are filled; if not, what follows moves up.
        check_gap: raises if a gap is not one.
    """
    sections: list[Section] = []
    laid: list[Part] = []
    if at_head and parts and parts[0].start > start and keep:
        check_gap(start, parts[0].start)
        start = parts[0].start  # a gap at the head: the stream starts after it
    head, shift, at, gap_bytes = start - base, base, start, 0
    if head:
        sections.append(Section(0, head))
    for part in [*parts, None]:
        until = part.start if part is not None else max(end or 0, at)
        if until > at:
            check_gap(at, until)
            gap_bytes += until - at
            if keep:
                sections.append(Section(at - shift, until - shift))
            else:
                shift += until - at
        if part is not None:
            sections.append(Section(part.start - shift, part.end - shift, part.origin, part.start))
            laid.append(replace(part, shift=shift))
            at = part.end
    return SegmentPlan(head, tuple(sections), tuple(laid), gap_bytes, base)


def check_filler(
    stream: StreamName,
    segments: Mapping[SegmentId, SegmentPlan],
    limit: int,
    held: Mapping[SegmentId, int] | None = None,
) -> None:
    """Check how much filler is to be appended.

    Args:
        stream: the source.
        segments: the plans.
        limit: see `TargetOptions.filler_limit`.
        held: segment → bytes that an unfinished target has already.

    Raises:
        Usage: it is more than the limit.
    """
    for segment, plan in segments.items():
        begun = (held or {}).get(segment, 0)
        filler = [section for section in plan.sections if section.origin is None]
        size = sum(max(0, section.end - max(section.start, begun)) for section in filler)
        if size > limit:
            raise Usage(
                f"keeping offsets needs {size} bytes of filler, more than --filler-limit {limit}",
                where=segment.in_stream(stream),
                todo="Use --offsets shift, so that segments start at 0, or raise the limit.",
            )
