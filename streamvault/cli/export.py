"""`streamvault export`."""

from __future__ import annotations

from streamvault.cli.lines import cost_fields, exact_text, plan_fields, print_groups, time_text
from streamvault.cli.options import RootArgument, StreamArgument
from streamvault.cli.output import Results
from streamvault.cli.running import RunningCommand
from streamvault.common.units import bytes_text, events_text
from streamvault.exporter.reports import ExportOptions, ExportReport


def export(stream: StreamArgument, root: RootArgument, options: ExportOptions, *, command: RunningCommand) -> None:
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
    earlier = report.bytes - report.moved_bytes
    results.fields(
        {
            **plan_fields(report),
            "events": events and about + events,
            "bytes": exact_text(report.bytes),
            "of these": f"{bytes_text(earlier)} archived by an earlier run" if earlier and not report.dry_run else "",
            "ranges": f"{about}{report.ranges:,}" if report.ranges else "",
            "fingerprint": report.fingerprint,
            "gaps": f"{len(report.gaps):,} (see the warnings)" if report.gaps else "",
            **cost_fields(report.cost),
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)
