"""The *copy* command: a stream, or a part of it, as a new stream."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

from streamvault.common.progress import Progress
from streamvault.common.verb import verb
from streamvault.importer.ownership import remove_leftovers
from streamvault.importer.plan import RestorePlan
from streamvault.importer.reader_groups import group_warnings
from streamvault.importer.reports import MovedBoundary, renumbered
from streamvault.importer.run import RESTORE_TASKS
from streamvault.importer.target import check_other_stream
from streamvault.joining.append import STITCH_TASKS
from streamvault.joining.events.copying import EventCopying
from streamvault.joining.join import join_parts
from streamvault.joining.options import JoinOptions
from streamvault.joining.ranges import RangePlanner
from streamvault.mirrors.carried_groups import CarryingGroups
from streamvault.mirrors.copied import Copied
from streamvault.mirrors.copying import Copying, PlannedCopy
from streamvault.mirrors.options import CopyOptions
from streamvault.mirrors.reports import CopyReport
from streamvault.reading.stream_source import StreamSource
from streamvault.sparkrun.opening import Tasks
from streamvault.streamstore.arithmetic.cut_option import parse_cut
from streamvault.streamstore.model import StreamCut
from streamvault.streamstore.open_stream import OpenStream, open_stream


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
        copying = Copying(copied, target, options, cuts)
        tasks = Tasks(options.master, stack, RESTORE_TASKS)
        planned, finished = copying.look(None if options.dry_run or not options.read_back else tasks, progress)
        report = _finished_report(source, stream, planned, finished) if finished else _report(source, stream, planned)
        read_back = options.read_back and (options.dry_run or finished is None or finished.read_back)
        for warning in report.warnings:
            progress.warn(warning)
        began = time.monotonic()
        if finished is None and not options.dry_run:
            done = copying.copy(planned, tasks, progress)
            planned, seconds = done.planned, done.restored.finished - began - tasks.start_seconds
            report = _report(source, stream, planned)
            report = replace(
                report,
                resumed=done.restored.resumed and not done.truncated,
                moved_bytes=done.moved_bytes,
                truncated=done.truncated or report.truncated,
                renumbered=renumbered(done.restored.segments),
                seconds=round(seconds, 3),
            )
        elif finished is not None:
            report = replace(report, seconds=tasks.seconds)
        groups = carrying.carry(planned.content.described, dry_run=options.dry_run) if carrying else ()
        if finished is not None and not options.dry_run:
            remove_leftovers(target)
    warnings = group_warnings(groups)
    for warning in warnings:
        progress.warn(warning)
    return replace(
        report,
        read_back=read_back,
        dry_run=options.dry_run,
        reader_groups=groups,
        warnings=(*report.warnings, *warnings),
    )


def _copy_events(copying: EventCopying, options: CopyOptions, progress: Progress) -> CopyReport:
    copied = copying.rehearse() if options.dry_run else copying.run(progress)
    for warning in copied.warnings:
        progress.warn(warning)
    if copied.truncated:
        progress.warn("the source was truncated meanwhile; what is missing there is not copied")
    return CopyReport(
        source=copying.source.uri,
        stream=copying.target.uri,
        resumed=copied.resumed,
        unchanged=copied.unchanged,
        dry_run=options.dry_run,
        bytes=copied.bytes,
        moved_bytes=copied.moved_bytes,
        segments=copied.segments,
        epochs=1,
        head=copied.head.to_json(),
        tail=copied.tail.to_json() if copied.tail else {},
        behind_bytes=copied.behind,
        truncated=copied.truncated,
        warnings=copied.warnings,
    )


def _copy_ranges(source: StreamSource, target: OpenStream, options: CopyOptions, progress: Progress) -> CopyReport:
    """Put parts of a stream together in a new one."""
    with ExitStack() as stack:
        planner = RangePlanner(source, options.ranges, window=options.window)
        tasks = Tasks(options.master, stack, STITCH_TASKS)
        joined = join_parts(planner, target, options.shared_with(JoinOptions), tasks, progress)
    return CopyReport(
        source=source.uri,
        stream=target.uri,
        resumed=joined.resumed,
        unchanged=joined.unchanged,
        bytes=joined.bytes,
        moved_bytes=joined.moved_bytes,
        segments=joined.segments,
        places=joined.places,
        warnings=joined.warnings,
        dry_run=joined.dry_run,
        seconds=joined.seconds,
    )


def _report(source: str, stream: str, planned: PlannedCopy) -> CopyReport:
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
        truncated=bool(planned.warnings),
        offsets=plan.offsets,
        shifts=plan.shifts,
        moved_boundaries=_moved(plan, len(plan.replay.epochs)),
        warnings=planned.warnings,
    )


def _finished_report(source: str, stream: str, planned: PlannedCopy, copied: Copied) -> CopyReport:
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
