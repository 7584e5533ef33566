"""`streamvault replicate`."""

from __future__ import annotations

from typing import Annotated

import typer

from streamvault.cli.copy import show_renumbered
from streamvault.cli.options import DryRun, Master, TargetArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run, whole_command
from streamvault.common.progress import Progress
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
        typer.Argument(
            metavar="SOURCE",
            help="The stream, or the archive ROOT/SCOPE/STREAM, to replicate.",
            show_default=False,
        ),
    ],
    stream: TargetArgument,
    options: ReplicateOptions,
    *,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    running: Running,
) -> int:
    """Keep a replica of a stream or an archive up to date.

    The replica can be read at any time; `promote` makes it a stream like any other. --dry-run tells how far it is
    behind.
    """

    def work(progress: Progress) -> ReplicateReport:
        from streamvault.mirrors.replicate import replicate_stream

        report = replicate_stream(
            source, stream, **options.keywords(), master=master, dry_run=dry_run, progress=progress
        )
        return whole_command(report)

    return run(work, show=_show, document=ReplicateReport.to_json, running=running, resumable=not dry_run)


def _show(results: Results, report: ReplicateReport) -> None:
    if report.dry_run:
        is_new = report.behind_seconds is None
        age = "" if report.behind_seconds is None else f", {seconds_text(report.behind_seconds)}"
        state = "no replica yet: would replicate {} to {}" if is_new else "{1} is a replica of {0}"
        results.line(state.format(report.source, report.stream))
        results.fields({"behind": f"{report.behind_bytes:,} bytes ({bytes_text(report.behind_bytes)}){age}"})
        return
    results.line(f"replicated to {report.stream}: {_ENDED[report.ended or 'caught up']} {report.source}")
    results.fields(
        {
            "rounds": f"{report.rounds:,} with something new",
            "bytes": f"{report.moved_bytes:,} ({bytes_text(report.moved_bytes)})",
            "retries": count_text(report.retries, "retry", "retries") if report.retries else "",
            "lag": f"{seconds_text(report.lag_seconds)}, at most {seconds_text(report.most_lag_seconds)}"
            if report.rounds
            else "",
            "time": f"{seconds_text(report.seconds)} (total {seconds_text(report.total_seconds)})",
        }
    )
    show_renumbered(results, report.renumbered)
