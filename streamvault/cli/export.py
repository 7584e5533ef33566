"""`streamvault export`."""

from __future__ import annotations

from streamvault.cli.lines import cost_fields, earlier_text, exact_text, plan_fields, print_groups, time_text
from streamvault.cli.options import RootArgument, StreamArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import events_text
from streamvault.exporter.reports import ExportOptions, ExportReport


def export(stream: StreamArgument, root: RootArgument, options: ExportOptions, *, command: Command) -> None:
    """Archive a stream, or the events since the last export.

    Each export that finds new events adds a generation to the archive.
    """
    from streamvault.exporter.export import export_stream

    command.call(export_stream, stream, root, options, show=_show, resumable=True)


def _show(results: Results, report: ExportReport) -> None:
    if report.unchanged:
        results.line(f"nothing new since generation {report.generation} of {report.archive}")
        results.fields({"fingerprint": report.fingerprint})
        return
    if report.dry_run:
        verb = "resume the unfinished" if report.resumed else "write"
        results.line(f"would {verb} generation {report.generation} of {report.archive}")
    else:
        resumed = " (resumed an unfinished run)" if report.resumed else ""
        results.line(f"wrote generation {report.generation} of {report.archive}{resumed}")
    about = "about " if report.events_estimated else ""
    events = events_text(report.events, report.bytes)
    results.fields(
        {
            **plan_fields(report),
            "events": events and about + events,
            "bytes": exact_text(report.bytes),
            "of these": earlier_text(report, "archived"),
            "ranges": report.ranges and f"{about}{report.ranges:,}",
            "fingerprint": report.fingerprint,
            "gaps": report.gaps and f"{len(report.gaps):,} (see the warnings)",
            **cost_fields(report.cost),
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)
