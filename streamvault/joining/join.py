"""The *join* command."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from streamvault.common.progress import Progress
from streamvault.common.verb import verb
from streamvault.joining.append import STITCH_TASKS, open_into
from streamvault.joining.new_target import NewTarget
from streamvault.joining.options import JoinOptions, StitchOptions
from streamvault.joining.placing import shared_ranges
from streamvault.joining.planning import StitchPlanner
from streamvault.joining.reporting import Reporting
from streamvault.joining.reports import StitchReport
from streamvault.joining.sources import open_sources
from streamvault.joining.stitching import Rehearsal
from streamvault.sparkrun.opening import Tasks
from streamvault.streamstore.open_stream import OpenStream


@verb(JoinOptions)
def join_streams(sources: Sequence[str], into: str, options: JoinOptions, progress: Progress) -> StitchReport:
    """Put streams and archives together in a new stream, one after the other.

    For each routing key, events keep their order: a source's own, and that of the sources. The stream has the key
    ranges that all sources share, a fixed number of segments, no retention and no tags. Until everything is there, it
    is an internal stream. After a kill, repeat the call to resume. To add what the sources get later, append them.

    Args:
        sources: the streams and archives, in this order.
        into: the stream to create, as for `append_streams`; its scope is created if it does not exist.
        distinct: as for `append_streams`.
        window: maximum data a task buffers in memory (bytes).
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be joined.
        progress: receives the progress.

    Raises:
        Problem: the join failed; the exception has the command's exit code.
        TargetTaken: the stream exists and is neither this call's unfinished one nor a finished one (exit code 4).
    """
    with ExitStack() as stack:
        opened = open_sources(sources, stack)
        planner = StitchPlanner(opened, distinct=options.distinct, window=options.window, joins=True)
        stream, tasks = open_into(into, opened, stack), Tasks(options.master, stack, STITCH_TASKS)
        return join_parts(planner, stream, options, tasks, progress)


def join_parts(
    planner: StitchPlanner, stream: OpenStream, options: StitchOptions, tasks: Tasks, progress: Progress
) -> StitchReport:
    """Make a stream of what a planner plans; see `join_streams`.

    Args:
        planner: decides what is joined.
        stream: the stream to create.
        options: how.
        tasks: open the runner.
        progress: receives the progress.
    """
    new, reporting = NewTarget(stream, planner, window=options.window), Reporting(planner, stream)
    if new.is_finished():
        return replace(reporting.nothing(seconds=tasks.seconds), dry_run=options.dry_run)
    found = new.find()
    if options.dry_run:
        nothing_begun = Rehearsal(planner.plan(None, tasks), resumed=False, scale=None)
        rehearsal = found[0].rehearse(tasks) if found else nothing_begun
        segments = len(shared_ranges(planner.ranges()))
        return replace(reporting.rehearsed(rehearsal, seconds=tasks.seconds), segments=segments)
    stitching, target = new.make()
    stitched = stitching.run(tasks, progress)
    report = reporting.done(stitched, target, seconds=tasks.seconds)
    new.finish(target)
    return report
