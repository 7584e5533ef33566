"""What the manifests of an archive tell about its stream over time, in bounded memory: they are read one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate, chain, islice
from math import ceil
from typing import Self

from streamvault.layouts.keys import manifest_key
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.listing import Listing
from streamvault.manifests.manifest import Manifest
from streamvault.objectstore.store import AccessDenied
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.model import Epochs, KeyRange, SegmentId, StreamCut, StreamDescription

MAX_MARKS = 5_000
"""Marks of a chart. More are joined: those of neighbouring generations, for each segment."""

LOCKS_READ = 20
"""Generations whose locks are looked up, the newest: that takes a request each."""

FIRST_SPAN = timedelta(hours=1)
"""How wide an only generation is drawn: nothing tells when its first event was written."""


@dataclass(frozen=True, slots=True)
class DrawnSegment:
    """A segment and the epochs that have it.

    Attributes:
        segment: the segment.
        keys: its key range.
        first: the first epoch that has it.
        last: the last one.
        is_open: whether the newest epoch has it.
        bytes: bytes of it; None if unknown.
        events: events of it; None if unknown.
    """

    segment: SegmentId
    keys: KeyRange
    first: int
    last: int
    is_open: bool
    bytes: int | None = None
    events: int | None = None


@dataclass(frozen=True, slots=True)
class DrawnPart:
    """What was written to a segment between the tails of two generations.

    Attributes:
        segment: the segment.
        step: number of the interval; consecutive numbers.
        generations: the first and the last generation that it is of.
        begin: where it is drawn from.
        end: where it is drawn to.
        seconds: between the tails; 0 if that is not known.
        offsets: the first byte's, and that after the last.
        bytes: its bytes.
        events: its events; None if they are not known.
    """

    segment: SegmentId
    step: int
    generations: tuple[int, int]
    begin: datetime
    end: datetime
    seconds: float
    offsets: tuple[int, int]
    bytes: int
    events: int | None

    def joined(self, other: DrawnPart) -> DrawnPart:
        """Return this part and a later one of the same segment as one."""
        return replace(
            self,
            generations=(self.generations[0], other.generations[1]),
            end=max(self.end, other.end),
            seconds=self.seconds + other.seconds if self.seconds and other.seconds else 0.0,
            offsets=(self.offsets[0], other.offsets[1]),
            bytes=self.bytes + other.bytes,
            events=None if self.events is None or other.events is None else self.events + other.events,
        )


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """An original generation, to which the stream can be restored.

    Attributes:
        generation: its number.
        created: when it was made.
        begin: when the one before it was; for the first, nobody knows: as long before it as the next one is after it.
        events: its events.
        bytes: its bytes.
        gaps: bytes that were truncated before they could be archived.
        merged: the generation that contains it; 0 if it is not merged.
        checked: whether it was read back.
        holds: names of its holds.
        lock: why it cannot be deleted; empty if nothing is known of a lock.
    """

    generation: int
    created: datetime
    begin: datetime
    events: int
    bytes: int
    gaps: int
    merged: int
    checked: bool
    holds: tuple[str, ...]
    lock: str = ""


@dataclass(slots=True)
class ArchiveHistory:
    """What an archive's manifests tell, and, once `complete` has asked for it, what the store says of the objects.

    Attributes:
        archive: the archive.
        listing: its generations in force.
        newest: the newest manifest.
        points: the original generations in force, in order.
        segments: every segment of the stream, with what the archive has of it.
        drawn: what was written between the generations.
        objects: number of data objects; an estimate for chunks.
        storage_class: of the newest layout's first objects; empty if the store has no classes.
        warnings: what is not known, and why.
    """

    archive: Archive
    listing: Listing
    newest: Manifest
    points: list[RestorePoint]
    segments: tuple[DrawnSegment, ...]
    drawn: DrawnParts
    objects: int
    storage_class: str = ""
    warnings: tuple[str, ...] = ()

    def complete(self, most: int) -> Self:
        """Add what the store says of the objects; ``most`` as for `read_history`."""
        locks, self.warnings = _locks(self.archive, self.listing)
        self.points = [replace(one, lock=locks.get(one.merged or one.generation, "")) for one in self.points]
        self.storage_class = _storage_class(self.archive, self.newest)
        self.drawn.limit(most)
        return self

    @property
    def events(self) -> int:
        """Events of all generations in force."""
        return sum(point.events for point in self.points)

    @property
    def bytes(self) -> int:
        """Bytes of all generations in force."""
        return sum(point.bytes for point in self.points)

    @property
    def gaps(self) -> int:
        """Bytes of all gaps."""
        return sum(point.gaps for point in self.points)


def read_history(archive: Archive, most: int = MAX_MARKS, listing: Listing | None = None) -> ArchiveHistory:
    """Read an archive's manifests.

    Args:
        archive: the archive.
        most: how many parts to keep; of more, those of neighbouring generations are joined.
        listing: the generations in force, if they were just listed.

    Raises:
        NoSuchArchive, Damaged: as for `Archive.manifest`.
    """

    def read(now: Listing) -> ArchiveHistory:
        manifests = map(archive.read_manifest, archive.in_force(now))
        return gather_history(archive, now, manifests, most).complete(most)

    return archive.stable(read, listing)


def gather_history(archive: Archive, listing: Listing, manifests: Iterable[Manifest], most: int) -> ArchiveHistory:
    """Read the manifests of all generations in force, in order, one at a time; the rest as for `read_history`."""
    points: list[RestorePoint] = []
    drawn, totals = DrawnParts(most), dict[SegmentId, list[int]]()
    objects = 0
    steps = (step for manifest in manifests for step in _steps(manifest))
    begun = list(islice(steps, 2))
    width = begun[-1].created - begun[0].created
    at = begun[0].created - (width if width > timedelta(0) else FIRST_SPAN)
    for step in chain(begun, steps):
        newest, last = step.manifest, step.manifest.generation
        begin, is_merged = min(at, step.created), bool(newest.replaces)
        points.append(
            RestorePoint(
                generation=step.generation,
                created=step.created,
                begin=begin,
                events=step.events,
                bytes=step.bytes,
                gaps=step.gaps,
                merged=last if is_merged else 0,
                checked=last in listing.checked,
                holds=listing.holds.get(last, ()),
            )
        )
        drawn.add(step, begin)
        at = step.created
        if step.generation == last:
            layout = open_layout(newest.layout)
            for entry in newest.segments:
                total = totals.setdefault(entry.id, [0, 0])
                total[0] += entry.bytes
                total[1] += entry.events
                objects += layout.object_count(ceil(entry.bytes / newest.range_size), entry.events)
    segments = tuple(spans_of(newest.epochs, totals))
    return ArchiveHistory(archive, listing, newest, points, segments, drawn, objects)


def spans_of(epochs: Epochs, totals: Mapping[SegmentId, Sequence[int | None]]) -> Iterator[DrawnSegment]:
    """Yield every segment, given segment → its bytes and events."""
    for segment, keys, first, last in sorted(epochs.lives, key=lambda life: life.first):
        size, events = totals.get(segment, (None, None))
        yield DrawnSegment(segment, keys, first, last, last == len(epochs) - 1, size, events)


@dataclass(frozen=True, slots=True)
class _Step:
    """An original generation: what the stream got since the one before it, and the epochs of that time."""

    manifest: Manifest
    generation: int
    created: datetime
    epochs: tuple[int, int]
    events: int
    bytes: int
    gaps: int
    parts: Sequence[tuple[SegmentId, int, int, int, int | None]]


def _steps(manifest: Manifest) -> Iterator[_Step]:
    begun = max(segment.epoch for segment in manifest.from_.offsets)
    if not manifest.replaces:
        yield _Step(
            manifest,
            manifest.generation,
            manifest.created,
            (begun, len(manifest.epochs) - 1),
            manifest.events,
            manifest.bytes,
            sum(gap.end - gap.start for gap in manifest.gaps),
            [(one.id, one.start, one.end, one.bytes, one.events) for one in manifest.segments],
        )
        return
    ends = {one.id: one.end for one in manifest.segments}
    described = StreamDescription(
        manifest.name, manifest.configuration.value(), manifest.epochs, manifest.from_, manifest.to, manifest.sealed
    )
    at: StreamCut = manifest.from_
    for one in manifest.replaces:
        parts, gaps = list[tuple[SegmentId, int, int, int, int | None]](), 0
        for segment, (start, end) in segments_between(described, at, one.to).items():
            to = ends[segment] if end is None else end
            missing = _missing(manifest, segment, start, to)
            gaps += missing
            parts.append((segment, start, to, to - start - missing, None))
        yield _Step(manifest, one.generation, one.created, (begun, one.epochs - 1), one.events, one.bytes, gaps, parts)
        at, begun = one.to, one.epochs - 1


def _missing(manifest: Manifest, segment: SegmentId, start: int, end: int) -> int:
    """Return the bytes of gaps between two offsets of a segment."""
    return sum(max(min(gap.end, end) - max(gap.start, start), 0) for gap in manifest.gaps if gap.id == segment)


class DrawnParts:
    """The parts of segments, those of neighbouring generations joined once there are too many.

    Attributes:
        joined: how many generations a part is of, at most.
        held: the parts, by number of the step and segment.
    """

    def __init__(self, most: int) -> None:
        self.joined = 1
        self._most = most
        self._steps = 0
        self.held: dict[tuple[int, SegmentId], DrawnPart] = {}

    def add(self, step: _Step, begin: datetime) -> None:
        """Add those of a generation.

        The epochs between two tails share the time between them, but for those whose sealed segments got nothing: the
        stream scaled right after the first of the tails.
        """
        begun, ended = step.epochs
        seconds = (step.created - begin).total_seconds() if self._steps else 0.0
        last = {part[0]: max(begun, min(ended, step.manifest.epochs.life(part[0]).last)) for part in step.parts}
        got = {last[segment] for segment, *_, size, _ in step.parts if size} | {ended}
        shares = [0, *accumulate(int(epoch in got) for epoch in range(begun, ended + 1))]
        each = (step.created - begin) / shares[-1]
        for segment, start, end, size, events in step.parts:
            from_ = shares[max(segment.epoch - begun, 0)]
            to = shares[last[segment] - begun + 1]
            if from_ == to:
                continue
            self._put(
                DrawnPart(
                    segment=segment,
                    step=self._steps,
                    generations=(step.generation, step.generation),
                    begin=begin + each * from_,
                    end=begin + each * to,
                    seconds=seconds,
                    offsets=(start, end),
                    bytes=size,
                    events=events,
                )
            )
        self._steps += 1
        self.limit(self._most)

    def limit(self, most: int) -> None:
        """Join parts until there are no more than so many, from now on."""
        self._most = most
        while len(self.held) > self._most and self.joined < self._steps:
            self._join()

    def _put(self, part: DrawnPart) -> None:
        key = part.step // self.joined, part.segment
        earlier = self.held.get(key)
        self.held[key] = part if earlier is None else earlier.joined(part)

    def _join(self) -> None:
        self.joined *= 2
        before, self.held = self.held, {}
        for part in before.values():
            self._put(part)

    @property
    def left_out(self) -> int:
        """How many parts `parts` leaves out."""
        return max(len(self.held) - self._most, 0)

    @property
    def parts(self) -> tuple[DrawnPart, ...]:
        """The parts in order; of a stream with more segments than a chart can have, those with most bytes."""
        most = sorted(self.held.values(), key=lambda part: part.bytes, reverse=True)[: self._most]
        return tuple(sorted(most, key=lambda part: (part.step, part.segment)))


def _locks(archive: Archive, listing: Listing) -> tuple[dict[int, str], tuple[str, ...]]:
    found: dict[int, str] = {}
    try:
        locks = archive.root.open_locks()
        if locks is None:
            return found, ()
        for span in listing.spans[-LOCKS_READ:]:
            lock = locks.lock_of(archive.prefix + manifest_key(span))
            if lock is not None:
                found[span.last] = f"{lock.reason}{f' until {lock.until:%Y-%m-%d %H:%M}' if lock.until else ''}"
    except AccessDenied as problem:
        return found, (f"The locks are not shown: {problem}",)
    more = len(listing.spans) > LOCKS_READ
    return found, (f"Locks are shown for the newest {LOCKS_READ} generations only.",) if more else ()


def _storage_class(archive: Archive, newest: Manifest) -> str:
    """Return the class of most of the objects on the first page of the data's listing."""
    folder = archive.prefix + open_layout(newest.layout).keys.root
    counted: dict[str, int] = {}
    with suppress(AccessDenied):
        for one in archive.root.open_cold_storage().objects(folder, folder, folder + "\x7f", first_page=True):
            counted[one.class_name] = counted.get(one.class_name, 0) + 1
    return max(counted, key=lambda name: counted[name], default="")
