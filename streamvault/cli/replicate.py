"""`streamvault replicate`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.lines import exact_text, print_groups, print_new_places, time_text
from streamvault.cli.options import TargetArgument, argument, folder_as_uri
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text, count_text, seconds_text
from streamvault.mirrors.options import ReplicateOptions
from streamvault.mirrors.reports import ReplicateReport

_ENDED = {
    "caught up": "caught up with",
    "idle": "no new events in",
    "time": "the time limit was reached; source",
    "sealed": "complete: the end was reached of the sealed",
}


def replicate(
    source: Annotated[
        str,
        argument("SOURCE", "The stream, or the archive ROOT/SCOPE/STREAM, to replicate.", callback=folder_as_uri),
    ],
    stream: TargetArgument,
    options: ReplicateOptions,
    *,
    running: Running,
) -> int:
    """Keep a replica of a stream or an archive up to date.

    The replica can be read at any time; `promote` turns it into an ordinary stream. --dry-run shows how far behind it
    is.
    """
    return running.verb("replicate_stream", source, stream, options, show=_show, resumable=True)


def _show(results: Results, report: ReplicateReport) -> None:
    if report.dry_run:
        is_new = report.behind_seconds is None
        age = "" if report.behind_seconds is None else f", {seconds_text(report.behind_seconds)}"
        state = "no replica yet: would replicate {} to {}" if is_new else "{1} is a replica of {0}"
        results.line(state.format(report.source, report.stream))
        results.fields({"behind": f"{bytes_text(report.behind_bytes)}{age}"})
        return
    results.line(f"replicated to {report.stream}: {_ENDED[report.ended or 'caught up']} {report.source}")
    results.fields(
        {
            "rounds": f"{report.rounds:,} with something new",
            "bytes": exact_text(report.moved_bytes),
            "retries": count_text(report.retries, "retry", "retries") if report.retries else "",
            "lag": f"{seconds_text(report.lag_seconds)}, at most {seconds_text(report.most_lag_seconds)}"
            if report.rounds
            else "",
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)
    print_new_places(results, report.renumbered)
