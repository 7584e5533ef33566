"""`streamvault convert`."""

from __future__ import annotations

from streamvault.cli.costs import cost_fields
from streamvault.cli.export import plan_fields
from streamvault.cli.options import ArchiveArgument, RootArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run, whole_command
from streamvault.common.progress import Progress
from streamvault.common.sizes import bytes_text, events_text, generations_text, seconds_text
from streamvault.exporter.options import ConvertOptions
from streamvault.exporter.reports import ConvertReport


def convert(
    archive: ArchiveArgument,
    root: RootArgument,
    options: ConvertOptions,
    *,
    running: Running,
) -> int:
    """Copy an archive to another root in another layout.

    The copy has the same digests. Generations that it already has are kept.
    """

    def work(progress: Progress) -> ConvertReport:
        from streamvault.exporter.convert.convert import convert_archive

        report = convert_archive.with_options(archive, root, options, progress)
        return whole_command(report)

    return run(work, show=_show, document=ConvertReport.to_json, running=running, resumable=not options.dry_run)


def _show(results: Results, report: ConvertReport) -> None:
    if report.unchanged:
        results.line(f"nothing new: {report.archive} has every generation")
        return
    would = "would write" if report.dry_run else "wrote"
    results.line(f"{would} {generations_text(report.converted)} of {report.archive}")
    results.fields(
        {
            **plan_fields(report),
            "events": events_text(report.events, report.bytes),
            "bytes": f"{report.bytes:,} ({bytes_text(report.bytes)})",
            "ranges": f"{report.ranges:,}",
            **cost_fields(report.cost),
            "time": f"{seconds_text(report.seconds)} (total {seconds_text(report.total_seconds)})",
        }
    )
