"""`streamvault promote`."""

from __future__ import annotations

from typing import Annotated

import typer

from streamvault.cli.copy import show_renumbered
from streamvault.cli.options import DryRun, Master
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run, whole_command
from streamvault.common.progress import Progress
from streamvault.common.sizes import bytes_text, seconds_text
from streamvault.mirrors.options import PromoteOptions
from streamvault.mirrors.reports import PromoteReport


def promote(
    stream: Annotated[
        str,
        typer.Argument(metavar="REPLICA", help="The replica, as `replicate` made it.", show_default=False),
    ],
    options: PromoteOptions,
    *,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    running: Running,
) -> int:
    """Make a replica a stream like any other.

    Without --seal-source it is taken as it is, and its source may be gone. With it, nothing that was written to the
    source is missing.
    """

    def work(progress: Progress) -> PromoteReport:
        from streamvault.mirrors.promote import promote_replica

        report = promote_replica(stream, **options.keywords(), master=master, dry_run=dry_run, progress=progress)
        return whole_command(report)

    return run(work, show=_show, document=PromoteReport.to_json, running=running, resumable=not dry_run)


def _show(results: Results, report: PromoteReport) -> None:
    of = f" (a replica of {report.source})" if report.source else ""
    if report.unchanged:
        results.line(f"already promoted: {report.stream}{of}")
    else:
        results.line(f"{'would promote' if report.dry_run else 'promoted'} {report.stream}{of}")
    complete = report.source_sealed and not report.dry_run
    results.fields(
        {
            "source": "sealed; the stream has all of it" if complete else "",
            "as of": "" if complete or report.unchanged else report.tail_time or "no round was ever finished",
            "last round": bytes_text(report.moved_bytes) if complete else "",
            "cut-over": seconds_text(report.cutover_seconds) if complete else "",
            "sealed": "yes, as the source was" if report.sealed else "",
            "time": seconds_text(report.total_seconds),
        }
    )
    show_renumbered(results, report.renumbered)
