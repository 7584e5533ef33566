"""`streamvault follow`."""

from __future__ import annotations

from streamvault.cli.lines import exact_text, print_groups, time_text
from streamvault.cli.options import RootArgument, StreamArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text, count_text, events_text
from streamvault.rotation.options import FollowOptions
from streamvault.rotation.reports import FollowReport

_ENDED = {
    "idle": "no new events",
    "time": "the time limit was reached",
    "sealed": "the stream is sealed and completely archived",
}


def follow(stream: StreamArgument, root: RootArgument, options: FollowOptions, *, running: Running) -> int:
    """Archive a stream as it grows.

    Each round archives the new events as a generation; small generations are merged. --keep, --keep-for and
    --truncate-source imply --rotate.
    """
    return running.verb("follow_stream", stream, root, options, show=_show, resumable=True)


def _show(results: Results, report: FollowReport) -> None:
    results.line(f"stopped at generation {report.generation} of {report.archive}: {_ENDED[report.ended]}")
    results.fields(
        {
            "generations": f"{report.made:,} written, in {count_text(report.rounds, 'round')}",
            "events": events_text(report.events, report.bytes),
            "bytes": exact_text(report.bytes),
            "retries": f"{report.retries:,}" if report.retries else "",
            "merged": f"{count_text(report.merges, 'time')}, {bytes_text(report.moved_bytes)} rewritten"
            if report.merges
            else "",
            "archive has": count_text(report.generations_in_force, "generation"),
            "expired": count_text(report.expired_count, "generation") if report.expired_count else "",
            "deleted": count_text(report.objects_deleted, "object") if report.objects_deleted else "",
            "truncated": "the stream, up to the end of the archived and verified data"
            if report.cut is not None
            else "",
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)
