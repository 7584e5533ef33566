"""`streamvault copy` and `streamvault move`."""

from __future__ import annotations

from streamvault.cli.join import print_places
from streamvault.cli.lines import earlier_text, exact_text, print_groups, print_new_places, time_text
from streamvault.cli.options import SourceArgument, TargetArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import count_text, seconds_text
from streamvault.concat.reports import CopyReport
from streamvault.replication.reports import CopyOptions, MoveOptions, MoveReport


def copy(source: SourceArgument, stream: TargetArgument, options: CopyOptions, *, command: Command) -> None:
    """Copy a stream, or a part of it, into a new stream.

    The new stream has the same segments, offsets and bytes as the source.
    """
    from streamvault.replication.copy import copy_stream

    command.call(copy_stream, source, stream, options, show=_show, resumable=True)


def _show(results: Results, report: CopyReport) -> None:
    if report.unchanged:
        results.line(f"already copied: {report.stream} is a copy of {report.source}")
        if report.read_back and report.dry_run:
            results.line("would read back and compare it")
    elif report.dry_run:
        results.line(f"would copy {report.source} to {report.stream}")
    else:
        resumed = " (resumed an unfinished copy)" if report.resumed else ""
        results.line(f"copied {report.source} to {report.stream}{resumed}")
    results.fields(
        {
            "bytes": exact_text(report.bytes),
            "of these": not report.unchanged and earlier_text(report, "copied"),
            "behind": report.behind_bytes and f"{report.behind_bytes:,} bytes have been written to the source since",
            "segments": f"{report.segments:,}" + (f" in {count_text(report.epochs, 'epoch')}" if report.epochs else ""),
            "head": report.truncated and "moved, as the source was truncated",
            "compared": report.read_back and not report.dry_run and "read back and equal",
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)
    print_new_places(results, report.renumbered, report.shifts)
    print_places(results, report.places)


def move(source: SourceArgument, stream: TargetArgument, options: MoveOptions, *, command: Command) -> None:
    """Move a stream to another name or cluster.

    Writers may continue until the cut-over. The old stream is sealed, and deleted only after the new one has been read
    back and compared.
    """
    from streamvault.replication.move import move_stream

    command.call(move_stream, source, stream, options, show=_show_move, resumable=True)


def _show_move(results: Results, report: MoveReport) -> None:
    if report.unchanged:
        results.line(f"already moved: {report.source} is {report.stream}")
        return
    results.line(f"{'would move' if report.dry_run else 'moved'} {report.source} to {report.stream}")
    if report.dry_run:
        results.fields({"to replicate": exact_text(report.bytes)})
        return
    results.fields(
        {
            "bytes": f"{exact_text(report.bytes)}, read back and equal",
            "cut-over": seconds_text(report.cutover_seconds),
            "old name": "an empty sealed stream, tagged with the new URI" if report.tombstone else "free",
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)
    print_new_places(results, report.renumbered)
