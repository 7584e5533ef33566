"""`streamvault compact`."""

from __future__ import annotations

from streamvault.cli.lines import time_text
from streamvault.cli.options import ArchiveArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text, count_text
from streamvault.common.times import exact_moment_text
from streamvault.rotation.options import CompactOptions
from streamvault.rotation.reports import CompactReport


def compact(archive: ArchiveArgument, options: CompactOptions, *, running: Running) -> int:
    """Merge small adjacent generations.

    Also deletes what earlier merges replaced.
    """
    return running.verb("compact_archive", archive, options, show=_show, resumable=True)


def _show(results: Results, report: CompactReport) -> None:
    would = "would " if report.dry_run else ""
    if report.unchanged:
        results.line(f"nothing to merge in {report.archive}")
    for one in report.runs:
        merged = f"{would}merge" if would else "merged"
        results.line(
            f"{merged} generations {one.first} to {one.generation} of {report.archive} ({bytes_text(one.bytes)})"
        )
    results.fields(
        {
            "would join"
            if would
            else "joined": f"{bytes_text(report.moved_bytes)}, {count_text(report.joined, 'chunk')}"
            if report.joined
            else "",
            "resumed": "an unfinished merge of an earlier run" if report.resumed_runs else "",
            "deleted": f"{count_text(report.objects_deleted, 'object')} that had been replaced"
            if report.objects_deleted
            else "",
            "replaced objects": f"may be deleted by any run after {exact_moment_text(report.waits_until)}"
            if report.waits_until
            else "",
            "time": time_text(report),
        }
    )
