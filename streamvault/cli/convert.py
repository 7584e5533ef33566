"""`streamvault convert`."""

from __future__ import annotations

from streamvault.cli.lines import cost_fields, exact_text, plan_fields, time_text
from streamvault.cli.options import ArchiveArgument, RootArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import events_text, generations_text
from streamvault.exporter.reports import ConvertOptions, ConvertReport


def convert(archive: ArchiveArgument, root: RootArgument, options: ConvertOptions, *, command: Command) -> None:
    """Copy an archive to another root in another layout.

    The copy has the same digests. Generations that it already has are kept.
    """
    from streamvault.exporter.convert import convert_archive

    command.call(convert_archive, archive, root, options, show=_show, resumable=True)


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
            "bytes": exact_text(report.bytes),
            "ranges": f"{report.ranges:,}",
            **cost_fields(report.cost),
            "time": time_text(report),
        }
    )
