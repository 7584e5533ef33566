"""The *copy* command: makes a stream, or a part of one, a new stream, or looks at what an earlier copy has left.

A copy is a replica that is finished as soon as it has everything: its target, and the ledger of where its offsets are
counted from, are those of `replication.replication`. It needs no ledger if offsets are kept.

Of a finished copy nothing is stored. Whether it still is one, what it has, and how far the source has gone on, is found
out again: segments correspond by their place in the history, and the last bytes of a few are compared.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace

from streamvault.common.errors import Conflict
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.concat.append import STITCH_TASKS, RangePlanner, join_parts
from streamvault.concat.copy_events import EventCopying
from streamvault.concat.reports import CopyReport, JoinOptions
from streamvault.importer.fill import TargetSpan
from streamvault.importer.plan import Content, RestorePlan, SegmentPlan, scaling_warnings
from streamvault.importer.reader_groups import group_warnings
from streamvault.importer.reports import FilledStreamReport, MovedBoundary, renumbered
from streamvault.importer.run import COMPARED_BYTES, RESTORE_TASKS, SEGMENTS_TO_COMPARE, ImportRun, Restored
from streamvault.importer.target import (
    OTHER_NAME,
    TargetTaken,
    check_other_stream,
    finishing_record,
    finishing_under_lease,
    marked_import,
    remove_leftovers,
    reporting_lost_lease,
    target_exists_error,
    unfinished_import,
)
from streamvault.replication.content import CarryingGroups, begin_of, mirrored_content
from streamvault.replication.replica import Replica, replica_id
from streamvault.replication.replication import Mirror, Planned, ReplicaTarget
from streamvault.replication.reports import CopyOptions
from streamvault.runner.opening import Tasks
from streamvault.sources.source import SourceState
from streamvault.sources.sources import StreamSource, parts_of
from streamvault.streamstore.cuts import counterparts, live_between, parse_cut, segments_between
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.own import COPY_OF, FILLED, LONGEST_TAG, is_own, tag_of, users_tags
from streamvault.streamstore.uri import OpenStream, open_stream


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """What a copy has of a segment of its source, in bytes.

    Attributes:
        start: the copy's first offset.
        end: the copy's end.
        shift: how much lower offsets are in the copy; None if that can no longer be told.
    """

    start: int
    end: int
    shift: int | None


@dataclass(frozen=True, slots=True)
class Copied:
    """A finished copy.

    Attributes:
        described: the copy.
        segments: the source's segment → the copy's, of all epochs of the copy.
        ranges: the source's segment → what the copy has of it, of those that both still have.
        bytes: bytes that the copy has.
        behind: bytes that the source has and the copy does not have.
        read_back: whether all of it was read back and compared.
        warnings: what the user is to be warned of.
    """

    described: StreamDescription
    segments: Mapping[SegmentId, SegmentId]
    ranges: Mapping[SegmentId, CopiedRange]
    bytes: int
    behind: int
    read_back: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def shifts(self) -> Mapping[SegmentId, int]:
        """The source's segment → how much lower its offsets are in the copy, as far as that is known and not 0."""
        return {segment: held.shift for segment, held in self.ranges.items() if held.shift}

    def in_source(self, cut: StreamCut, source: StreamName) -> StreamCut:
        """Return a cut of the copy in the source's segments and offsets."""
        names = {new: old for old, new in self.segments.items()}
        offsets = {names[new]: offset for new, offset in cut.offsets.items()}
        return StreamCut(source, {old: offset + self.shifts.get(old, 0) for old, offset in offsets.items()})

    def plans(self, content: Content, source: OpenStream) -> dict[SegmentId, SegmentPlan]:
        """Return each of the source's segments with the spans of the copy whose bytes both still have.

        Args:
            content: the source's content.
            source: the source.
        """
        plans: dict[SegmentId, SegmentPlan] = {}
        for segment, held in self.ranges.items():
            if (shift := held.shift) is not None:
                low = max(held.start + shift, _source_range(content, segment)[0])
                parts = parts_of(source, segment, low, held.end + shift)
                spans = tuple(TargetSpan(part.start - shift, part.end - shift, part) for part in parts)
                plans[segment] = SegmentPlan(spans=spans)
        return plans


@dataclass(frozen=True, slots=True)
class Pair:
    """A finished copy and its source.

    Attributes:
        copy: the copy.
        copied: its description.
        source: the source.
        content: what a copy would have now.
        plan: its plan.
    """

    copy: OpenStream
    copied: StreamDescription
    source: OpenStream
    content: Content
    plan: RestorePlan

    def examine(self) -> Copied:
        """Compare the copy with its source.

        Raises:
            TargetTaken: the copy has been written to since, or is of another stream.
            NoSuchSegment, SegmentTruncated: one of them was truncated meanwhile.
        """
        copied, segments = self.copied, self._segments()
        live = live_between(self.copy.store, copied, copied.head, copied.tail)
        names = {new: old for old, new in segments.items()}
        ranges: dict[SegmentId, CopiedRange] = {}
        compared = 0
        for new in sorted(live, reverse=True):
            old, (start, end) = names[new], live[new]
            if old not in self.content.parts:
                self._check_beyond(old, new, end)
                continue
            compare = end > start and compared < SEGMENTS_TO_COMPARE
            compared += compare
            ranges[old] = CopiedRange(start, end, self._shift(old, new, start, end, compare=compare))
        size = sum(end - start for start, end in live.values())
        behind = sum(self._behind(old, ranges, segments) for old in self.content.parts)
        unknown = sum(held.end - held.start for held in ranges.values() if held.shift is None)
        what = f"{unknown} bytes of the copy match nothing in the source: it was truncated, or is a different stream"
        return Copied(copied, segments, dict(sorted(ranges.items())), size, behind, warnings=(what,) if unknown else ())

    def _segments(self) -> Mapping[SegmentId, SegmentId]:
        """Return the source's segment → the copy's."""
        source, copied, epochs = self.content.described, self.copied, self.plan.replay.epochs
        keep = self.plan.numbers == "keep"
        ours, theirs = (sorted(one.epochs[0].segments) for one in (copied, source))
        if keep and ours != theirs:
            what = f"the stream is a copy of another stream named {source.name}"
            if ours < theirs:
                what = "the source has been deleted and created again since it was copied"
            raise TargetTaken(what, where=self.copy.uri, todo=OTHER_NAME)
        if len(copied.epochs) > len(epochs):
            raise self._written_since(f"{len(copied.epochs)} epochs instead of {len(epochs)}")
        segments = counterparts(epochs, copied.epochs)
        if segments is None or (keep and any(old != new for old, new in segments.items())):
            raise self._written_since("other scales than the source's")
        return segments

    def _check_beyond(self, old: SegmentId, new: SegmentId, end: int) -> None:
        """Check a segment that the source has truncated, or that follows the cut at which the copy ends."""
        source, tail = self.content.described, self.content.tail
        if end and tail != source.tail and old in segments_between(source, tail, source.tail):
            raise self._written_since(f"{new} has {end} bytes instead of 0")

    def _shift(self, old: SegmentId, new: SegmentId, start: int, end: int, *, compare: bool) -> int | None:
        """Return how much lower offsets are in the copy; with ``compare``, compare its last bytes."""
        content, high = self.content, _source_range(self.content, old)[1]
        # sealed segments and those at the cut where the copy ends have all that the source has
        ends_there = content.tail != content.described.tail and old in content.tail.offsets
        complete = new not in self.copied.tail.offsets or ends_there
        shifts = self._possible_shifts(old, end)
        fitting = [shift for shift in shifts if (end + shift == high if complete else end + shift <= high)]
        if not fitting:
            raise self._written_since(f"{new} has {end} bytes instead of {high - shifts[0]}")
        if not compare and len(shifts) == 1:
            return fitting[0]
        found = {shift: self._difference(old, new, start, end, shift) for shift in fitting}
        equal = [shift for shift, offset in found.items() if offset is None]
        if not equal and len(shifts) == 1:
            raise self._written_since(f"{new} differs from the source from offset {found[fitting[0]]} on")
        return equal[0] if equal else None

    def _possible_shifts(self, segment: SegmentId, end: int) -> list[int]:
        """Return by how much offsets may be lower in the copy, likelier ones first.

        Shifted offsets begin where the source's did when the copy began. If the source was truncated since, that is 0
        or no longer known, unless nothing was written since.
        """
        if self.plan.offsets == "keep" or segment not in self.content.head.offsets:
            return [0]
        possible = (self.plan.segments[segment].shift, 0, _source_range(self.content, segment)[1] - end)
        return list(dict.fromkeys(shift for shift in possible if shift >= 0))

    def _difference(self, old: SegmentId, new: SegmentId, start: int, end: int, shift: int) -> int | None:
        """Return the copy's offset of the first byte that differs, among the last ones; None if they are equal."""
        low = max(start, end - COMPARED_BYTES, _source_range(self.content, old)[0] - shift)
        if low >= end:
            return None
        ours = self.copy.store.read_bytes(self.copy.name, new, low, end)
        theirs = self.source.store.read_bytes(self.source.name, old, low + shift, end + shift)
        pairs = enumerate(zip(ours, theirs, strict=True))
        return None if ours == theirs else low + next(at for at, (one, other) in pairs if one != other)

    def _behind(
        self, old: SegmentId, ranges: Mapping[SegmentId, CopiedRange], segments: Mapping[SegmentId, SegmentId]
    ) -> int:
        """Return how many bytes of a segment the source has more than the copy."""
        start, end = _source_range(self.content, old)
        if (held := ranges.get(old)) is not None:
            start = end if held.shift is None else max(start, held.end + held.shift)
        elif old in segments:
            start = end  # the copy had it, and has truncated it
        return max(0, end - start)

    def _written_since(self, what: str) -> TargetTaken:
        where = f"{self.copy.uri}: {what}"
        return TargetTaken("the copy has been written to since", where=where, todo=OTHER_NAME)


def _source_range(content: Content, segment: SegmentId) -> tuple[int, int]:
    """Return the source's first offset and end of a segment between its cuts."""
    start, parts = content.head.offsets.get(segment, 0), content.parts[segment]
    return start, parts[-1].end if parts else start


COPY = "copy."
"""Prefix of a copy's name (`importer.plan.RestorePlan.import_id`)."""

TRUNCATED_BEYOND = "the source was truncated beyond --from; what is missing there is not copied"


class CopyTarget(ReplicaTarget):
    """The target of a copy; see `ReplicaTarget`. `cuts` are those between which the source is copied."""

    def __init__(
        self, source: StreamSource, replica: Replica, options: CopyOptions, cuts: Mapping[str, StreamCut | None]
    ) -> None:
        super().__init__(source, replica, options, keep_head=False)
        self._cuts = cuts

    def id_of(self, described: StreamDescription) -> str:
        """Return the name of the copy of a source: the same for the same source, cuts and options."""
        cuts = [None if cut is None else cut.to_json() for cut in self._cuts.values()]
        return replica_id(self.source, described, self.options, cuts, kind=COPY)

    def begins(self, described: StreamDescription) -> StreamDescription:
        """See the base class."""
        return replace(described, head=begin_of(described, self._cuts["from_cut"]))

    @property
    def lacks_record(self) -> bool:
        """See the base class: without it, nothing tells that the source was replaced while it was read."""
        return self.replica.record is None or self.replica.record.reading is None

    def check_free(self) -> str | None:
        """See the base class."""
        stream = self.replica.stream
        begun = unfinished_import(stream)
        if begun is None or begun == self.id or (found := stream.find()) is None:
            return begun
        earlier = replace(self._described, epochs=found.epochs)
        if begun and begun == marked_import(found) == self.id_of(earlier):
            raise self.recreated_error()
        raise target_exists_error(stream.store, found, begun=begun)

    def no_ledger_error(self) -> TargetTaken:
        """See the base class."""
        return TargetTaken(
            "the record of where the unfinished copy began is gone",
            where=self.replica.uri,
            todo="Copy into another name. Delete the unfinished copy only if the source still has its events.",
        )

    def recreated_error(self) -> TargetTaken:
        """Build the error for an unfinished target that is a copy of an earlier stream of the source's name."""
        return TargetTaken(
            "the source has been deleted and created again since this copy was started",
            where=self.replica.uri,
            todo="Choose another name. The unfinished copy may have events that no other stream has.",
        )


class CopyJob(Mirror):
    """One copy.

    Args:
        source: the source.
        target: its copy; it need not exist.
        options: how it is copied.
        cuts: the cuts between which it is copied.
        progress: receives the progress.
        tasks: opens the runner.

    Attributes:
        finished: the finished copy that `look_first` has found; None if there is none.
    """

    def __init__(
        self,
        source: StreamSource,
        target: OpenStream,
        options: CopyOptions,
        cuts: Mapping[str, StreamCut | None],
        progress: Progress,
        tasks: Tasks,
    ) -> None:
        super().__init__(CopyTarget(source, Replica(target), options, cuts), progress, tasks)
        self._stream = target
        self._origin = source.stream
        self._cuts = cuts
        self.read_back = options.read_back
        self._is_dry_run = options.dry_run
        self.finished: Copied | None = None

    def _tag(self, import_id: str) -> str:
        """Return the tag of the finished copy, which tells copies with other cuts or options apart."""
        name, options = self.source.name, self._options
        plain = (options.offsets, options.numbers) == ("keep", "keep") and not any(self._cuts.values())
        suffix = "" if plain else "#" + import_id.removeprefix(COPY)[:8]
        if len(tag := f"{COPY_OF}{name}{suffix}") <= LONGEST_TAG:
            return tag
        return f"{COPY_OF}{hashlib.sha256(str(name).encode()).hexdigest()}{suffix}"

    def content(self, look: SourceState) -> Content:
        """See the base class; the copy gets a tag that says so."""
        described = look.described
        given, import_id = described.configuration, self.target.id
        filled = (tag for tag in given.tags if tag.startswith(FILLED))
        tagged = replace(given, tags=(*users_tags(given), *filled, self._tag(import_id)))
        return replace(
            mirrored_content(look, import_id=import_id, first_head=self.target.beginning(described), **self._cuts),
            described=replace(described, configuration=tagged),
        )

    def warnings_of(self, planned: Planned) -> tuple[str, ...]:
        """Return what the user is to be warned of."""
        beyond = () if self._cuts["from_cut"] in (None, planned.content.head) else (TRUNCATED_BEYOND,)
        return (*scaling_warnings(planned.look.described.configuration, planned.plan.configuration), *beyond)

    def _look_first(self) -> Planned:
        described = self._stream.find()
        if described is not None and not is_own(described.configuration):
            look = self.source.look()
            self.target.id = self.target.id_of(look.described)
            self.replica.record = None
            planned = self.plan(look)
            if (copied := self._find_finished(described, planned)) is not None:
                self.finished = copied
                return planned
        return super()._look_first()

    def copy(self, first: Planned) -> tuple[Planned, Restored, bool]:
        """Make the copy; begin it later if the source is truncated meanwhile.

        Args:
            first: what `look_first` has returned.

        Returns:
            What was copied, the result, and whether the source was truncated meanwhile.
        """
        with finishing_under_lease(self._stream, self.target.id) as lease, reporting_lost_lease(lease):
            self.target.read()  # others may have begun it before the lease was taken
            planned, run, target = self.bring_up(self.source.look(), lease)
            self._progress.warn_all(set(self.warnings_of(planned)).difference(self.warnings_of(first)))
            restored = run.finish(target, lease, self._tasks.runner, self._progress)
            self.replica.forget()
        return planned, restored, planned.look.described.head != first.look.described.head

    def _find_finished(self, described: StreamDescription, planned: Planned) -> Copied | None:
        """Return the finished copy, given the target; None if only the seal is missing."""
        import_id = planned.plan.import_id
        finishing = finishing_record(self._stream.store, described)
        begun = finishing.work if finishing is not None else ""
        if begun not in ("", import_id):
            raise target_exists_error(self._stream.store, described, begun=begun)
        if self._tag(import_id) not in described.configuration.tags:
            raise self._other_error(described)
        copied = Pair(self._stream, described, self._origin, planned.content, planned.plan).examine()
        equal = not copied.behind and len(described.epochs) == len(planned.plan.replay.epochs)
        if begun and equal and planned.plan.sealed and not described.sealed:
            return None  # an earlier run was killed before its last step
        return self._read_back(planned, copied) if self.read_back and not self._is_dry_run else copied

    def _read_back(self, planned: Planned, copied: Copied) -> Copied:
        """Compare all that a finished copy and its source still have."""
        plan = replace(planned.plan, segments=copied.plans(planned.content, self._origin))
        run = ImportRun(self._stream, plan, window=self._options.window, read_back=True)
        run.compare(copied.segments, self._tasks.runner, self._progress)
        self._progress.end()
        left = copied.bytes - plan.bytes
        warning = f"{left} bytes of the copy were not compared, as the source has been truncated since"
        return replace(copied, read_back=not left, warnings=(*copied.warnings, *([warning] if left else [])))

    def _other_error(self, described: StreamDescription) -> Conflict:
        """Return the error for a stream that is not a finished copy with these cuts and options."""
        found = tag_of(described.configuration, COPY_OF)
        if not found:
            return target_exists_error(self._stream.store, described)
        what = f"the stream is a copy of {found.partition('#')[0]}"
        if what.endswith(f" {self.source.name}"):
            what += " with other cuts or options, or of an earlier stream of that name"
        return TargetTaken(what, where=self._stream.uri, todo=OTHER_NAME)


@verb(CopyOptions)
def copy_stream(source: str, stream: str, options: CopyOptions, progress: Progress) -> CopyReport:
    """Copy a stream into a new one: same events, order and pointers, same segments, epochs and policies.

    The stream's head and tail are fixed when the call starts. After a kill, repeat the call to resume; it then copies
    up to the tail of that moment. What the source truncates meanwhile is missing at the copy's head. A finished copy
    has the tag ``streamvault-copy-of:SCOPE/STREAM``, and is left as it is if the call is repeated.

    Args:
        source: the stream to copy.
        stream: the stream to create, as for `import_stream`; its cluster's login may be given by
            ``PRAVEGA_TARGET_USERNAME``, ``…_PASSWORD``, ``…_CA_FILE`` and ``…_TLS_VERIFY_HOSTNAME``.
        from_cut: copy only events after this cut (JSON text or a mapping).
        to_cut: copy only events before this cut.
        ranges: copy only what is between these pairs of cuts, in the stream's order, one part after the other. Then
            the copy has the key ranges that all parts share, and other pointers, which the report's ``places`` tell;
            ``window``, ``master`` and ``dry_run`` are the only other options.
        offsets: as for `import_stream`.
        filler_limit: likewise (bytes).
        numbers: as for `import_stream`.
        window: maximum data a task buffers in memory (bytes).
        reader_groups: also create the reader groups of the source's scope that read the source, in the copy's scope,
            each with its name, where it was when the call started. A group that is there already stays as it is.
        read_back: read back every byte of the copy and compare it with the source.
        method: copy ``"bytes"`` into the same segments, or ``"events"`` into segments of equal width; the latter in
            this process, with ``segments`` and ``key`` as the only other options. Then the copy has other pointers.
        segments: with ``"events"``, how many segments the copy gets; None for as many as the source has, if no segment
            of the source must be divided for it.
        key: with ``"events"``, where an event's routing key is: a JSON pointer into the payload, or
            ``"module:function"``, which takes the payload (bytes) and returns the key (text).
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be copied.
        progress: receives the progress.

    Raises:
        Problem: the copy failed; the exception has the command's exit code.
        ReaderGroupsNotOffered: `reader_groups` is given, and a store does not support them (exit code 2).
        TargetTaken: the stream exists and is neither this call's unfinished copy nor a finished one (exit code 4).
    """
    with open_stream(source) as origin, open_stream(stream, target=True) as target, ExitStack() as stack:
        check_other_stream(origin, target)
        if options.method == "events":
            return _copy_events(EventCopying(origin, target, options.key, options.segments), options, progress)
        if options.ranges:
            return _copy_ranges(StreamSource(origin), target, options, progress)
        carrying = CarryingGroups(origin, target, options.offsets) if options.reader_groups else None
        copied, given = StreamSource(origin), {"from_cut": options.from_cut, "to_cut": options.to_cut}
        cuts = {option: parse_cut(cut, copied.name, copied.end_of) for option, cut in given.items()}
        tasks = Tasks(options.master, stack, RESTORE_TASKS)
        job = CopyJob(copied, target, options, cuts, progress, tasks)
        planned = job.look_first()
        finished, warnings = job.finished, job.warnings_of(planned)
        report = (
            _finished_report(source, stream, planned, finished)
            if finished
            else _report(source, stream, planned, warnings)
        )
        read_back = options.read_back and (options.dry_run or finished is None or finished.read_back)
        progress.warn_all(report.warnings)
        began = time.monotonic()
        if finished is None and not options.dry_run:
            planned, restored, truncated = job.copy(planned)
            report = _report(source, stream, planned, job.warnings_of(planned))
            report = replace(
                report,
                resumed=restored.resumed and not truncated,
                moved_bytes=job.moved_bytes,
                truncated=truncated or report.truncated,
                renumbered=renumbered(restored.segments),
                seconds=round(restored.finished - began - tasks.start_seconds, 3),
            )
        elif finished is not None:
            report = replace(report, seconds=tasks.seconds)
        groups = carrying.carry(planned.content.described, dry_run=options.dry_run) if carrying else ()
        if finished is not None and not options.dry_run:
            remove_leftovers(target)
    warnings = group_warnings(groups)
    progress.warn_all(warnings)
    return replace(
        report,
        read_back=read_back,
        dry_run=options.dry_run,
        reader_groups=groups,
        warnings=(*report.warnings, *warnings),
    )


def _copy_events(copying: EventCopying, options: CopyOptions, progress: Progress) -> CopyReport:
    report = copying.rehearse() if options.dry_run else copying.run(progress)
    progress.warn_all(report.warnings)
    if report.truncated:
        progress.warn("the source was truncated meanwhile; what is missing there is not copied")
    return replace(report, dry_run=options.dry_run)


def _copy_ranges(source: StreamSource, target: OpenStream, options: CopyOptions, progress: Progress) -> CopyReport:
    """Put parts of a stream together in a new one."""
    with ExitStack() as stack:
        planner = RangePlanner(source, options.ranges, window=options.window)
        tasks = Tasks(options.master, stack, STITCH_TASKS)
        joined = join_parts(planner, target, options.shared_with(JoinOptions), tasks, progress)
    shared = {one.name: getattr(joined, one.name) for one in fields(FilledStreamReport)}
    return CopyReport(source=source.uri, places=joined.places, **shared)


def _report(source: str, stream: str, planned: Planned, warnings: tuple[str, ...]) -> CopyReport:
    plan = planned.plan
    ends = {segment: end + plan.segments[segment].shift for segment, end in plan.tail.items()}
    return CopyReport(
        source=source,
        stream=stream,
        bytes=plan.bytes,
        segments=len(plan.segments),
        epochs=len(plan.replay.epochs),
        head=planned.content.head.to_json(),
        tail=StreamCut(plan.source, ends).to_json(),
        truncated=TRUNCATED_BEYOND in warnings,
        offsets=plan.offsets,
        shifts=plan.shifts,
        moved_boundaries=_moved(plan, len(plan.replay.epochs)),
        warnings=warnings,
    )


def _finished_report(source: str, stream: str, planned: Planned, copied: Copied) -> CopyReport:
    """Return the report of what a finished copy has."""
    described, name = copied.described, planned.content.described.name
    return CopyReport(
        source=source,
        stream=stream,
        unchanged=True,
        bytes=copied.bytes,
        behind_bytes=copied.behind,
        segments=len(copied.segments),
        epochs=len(described.epochs),
        head=copied.in_source(described.head, name).to_json(),
        tail=copied.in_source(described.tail, name).to_json(),
        offsets=planned.plan.offsets,
        shifts={segment.in_stream(name): shift for segment, shift in copied.shifts.items()},
        renumbered=renumbered(copied.segments),
        moved_boundaries=_moved(planned.plan, len(described.epochs)),
        warnings=copied.warnings,
    )


def _moved(plan: RestorePlan, epochs: int) -> tuple[MovedBoundary, ...]:
    return tuple(moved for moved in plan.replay.moved if moved.epoch < epochs)
