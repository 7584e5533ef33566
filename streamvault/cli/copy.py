"""`streamvault copy`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from streamvault.cli.import_ import MAX_LINES
from streamvault.cli.options import DryRun, Master, SourceArgument, TargetArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run, whole_command
from streamvault.common.progress import Progress
from streamvault.common.sizes import bytes_text, count_text, seconds_text
from streamvault.mirrors.options import CopyOptions
from streamvault.mirrors.reports import CopyReport


def copy(
    source: SourceArgument,
    stream: TargetArgument,
    options: CopyOptions,
    *,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    running: Running,
) -> int:
    """Copy a stream, or a part of it, into a new stream.

    Segments, offsets and bytes are those of the source.
    """

    def work(progress: Progress) -> CopyReport:
        from streamvault.mirrors.copy import copy_stream

        report = copy_stream(source, stream, **options.keywords(), master=master, dry_run=dry_run, progress=progress)
        return whole_command(report)

    return run(work, show=_show, document=CopyReport.to_json, running=running, resumable=not dry_run)


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
    behind = f"{report.behind_bytes:,} bytes were written to the source since" if report.behind_bytes else ""
    earlier = report.bytes - report.moved_bytes
    counted = not (report.dry_run or report.unchanged)
    results.fields(
        {
            "bytes": f"{report.bytes:,} ({bytes_text(report.bytes)})",
            "of these": f"{bytes_text(earlier)} copied by an earlier run" if earlier > 0 and counted else "",
            "behind": behind,
            "segments": f"{report.segments:,} in {count_text(report.epochs, 'epoch')}",
            "head": "moved, as the source was truncated" if report.truncated else "",
            "compared": "read back and equal" if report.read_back and not report.dry_run else "",
            "time": f"{seconds_text(report.seconds)} (total {seconds_text(report.total_seconds)})",
        }
    )
    show_renumbered(results, report.renumbered)
    for segment, size in report.shifts.items():
        results.line(f"shifted: every offset of {segment} is {size:,} lower than in the source")


def show_renumbered(results: Results, renumbered: Mapping[str, str]) -> None:
    """Print which segments have other numbers than the source's, at most a few."""
    for old, new in islice(renumbered.items(), MAX_LINES):
        results.line(f"renumbered: {old} of the source is {new}")
    if len(renumbered) > MAX_LINES:
        results.line(f"renumbered: {len(renumbered) - MAX_LINES:,} more segments (--json lists all)")
