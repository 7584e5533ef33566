"""The *append* command."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from streamvault.common.progress import Progress
from streamvault.common.verb import verb
from streamvault.importer.target import check_other_stream
from streamvault.joining.filling import digest_of, fill_transaction
from streamvault.joining.options import AppendOptions
from streamvault.joining.planning import StitchPlanner
from streamvault.joining.reporting import Reporting
from streamvault.joining.reports import StitchReport
from streamvault.joining.sources import open_sources
from streamvault.joining.stitching import Stitching
from streamvault.joining.target import StitchTarget
from streamvault.reading.source import Source
from streamvault.reading.stream_source import StreamSource
from streamvault.sparkrun.opening import Tasks
from streamvault.streamstore.open_stream import OpenStream, open_stream

STITCH_TASKS = (fill_transaction, digest_of)
"""The tasks of a stitch, for opening a runner."""


@verb(AppendOptions)
def append_streams(sources: Sequence[str], into: str, options: AppendOptions, progress: Progress) -> StitchReport:
    """Append streams and archives to a stream: everything becomes readable at once, after its last event.

    Events keep their bytes and, for each routing key, their order: a source's own, and that of the sources. Whoever
    writes to the stream goes on meanwhile. After a kill, repeat the call to resume. A call that is repeated later
    appends what the sources have got since, or nothing.

    If a source's segment covers the keys of several segments of the stream, these are merged into one for the commit,
    and split again after it, whatever the stream's policy; the report of a dry run names them.

    Args:
        sources: the streams and archives to append, in this order.
        into: the stream to append to, which exists; its cluster's login may be given by ``PRAVEGA_TARGET_USERNAME``,
            ``…_PASSWORD``, ``…_CA_FILE`` and ``…_TLS_VERIFY_HOSTNAME``.
        own_segments: put the bytes into segments of their own, from offset 0, sealed at once. The stream gets three
            more epochs for it, and its segments' numbers cannot be given again (an import needs ``numbers="map"``).
        to_cut: append only events before this cut (JSON text or a mapping) of the only source.
        distinct: leave out a segment of which an earlier source has one with the same length and SHA-256.
        window: maximum data a task buffers in memory (bytes).
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be appended.
        progress: receives the progress.

    Raises:
        Problem: nothing was appended; the exception has the command's exit code.
    """
    with ExitStack() as stack:
        opened = open_sources(sources, stack)
        stream = open_into(into, opened, stack)
        target = StitchTarget(stream)
        planner = StitchPlanner(opened, distinct=options.distinct, to_cut=options.to_cut, window=options.window)
        stitching = Stitching(target, planner, own_segments=options.own_segments, window=options.window)
        tasks, reporting = Tasks(options.master, stack, STITCH_TASKS), Reporting(planner, stream)
        if options.dry_run:
            return reporting.rehearsed(stitching.rehearse(tasks), seconds=tasks.seconds)
        return reporting.done(stitching.run(tasks, progress), target, seconds=tasks.seconds)


def open_into(into: str, sources: Sequence[Source], stack: ExitStack) -> OpenStream:
    """Open the target of a stitch; ``stack`` closes it.

    Raises:
        Usage: it is one of the sources.
    """
    stream = stack.enter_context(open_stream(into, target=True))
    for source in sources:
        if isinstance(source, StreamSource):
            check_other_stream(source.stream, stream)
    return stream
