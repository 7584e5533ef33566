"""`streamvault move`."""

from __future__ import annotations

from streamvault.cli.lines import exact_text, print_groups, print_new_places, time_text
from streamvault.cli.options import SourceArgument, TargetArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import seconds_text
from streamvault.mirrors.options import MoveOptions
from streamvault.mirrors.reports import MoveReport


def move(source: SourceArgument, stream: TargetArgument, options: MoveOptions, *, running: Running) -> int:
    """Move a stream to another name or cluster.

    Writers may continue until the cut-over. The old stream is sealed, and deleted only after the new one has been read
    back and compared.
    """
    return running.verb("move_stream", source, stream, options, show=_show, resumable=True)


def _show(results: Results, report: MoveReport) -> None:
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
