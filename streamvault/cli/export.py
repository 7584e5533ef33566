"""`streamvault export`."""

from __future__ import annotations

from typing import Any

from streamvault.cli.costs import cost_fields
from streamvault.cli.options import RootArgument, StreamArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run, whole_command
from streamvault.common.progress import Progress
from streamvault.common.sizes import bytes_text, events_text, seconds_text, size_text
from streamvault.exporter.options import ExportOptions
from streamvault.exporter.reports import ConvertReport, ExportReport


def export(
    stream: StreamArgument,
    root: RootArgument,
    options: ExportOptions,
    *,
    running: Running,
) -> int:
    """Archive a stream, or the events since the last export.

    Each export that finds new events adds a generation to the archive.
    """

    def work(progress: Progress) -> ExportReport:
        from streamvault.exporter.export import export_stream

        report = export_stream.with_options(stream, root, options, progress)
        return whole_command(report)

    return run(work, show=_show, document=ExportReport.to_json, running=running, resumable=not options.dry_run)


def _show(results: Results, report: ExportReport) -> None:
    if report.unchanged:
        results.line(f"nothing new since generation {report.generation} of {report.archive}")
        return
    if report.dry_run:
        verb = "resume the unfinished" if report.resumed else "write"
        results.line(f"would {verb} generation {report.generation} of {report.archive}")
    else:
        resumed = " (resumed an unfinished run)" if report.resumed else ""
        results.line(f"wrote generation {report.generation} of {report.archive}{resumed}")
    earlier = report.bytes - report.moved_bytes
    results.fields(
        {
            **plan_fields(report),
            "events": events_text(report.events, report.bytes),
            "bytes": f"{report.bytes:,} ({bytes_text(report.bytes)})",
            "of these": f"{bytes_text(earlier)} archived by an earlier run" if earlier and not report.dry_run else "",
            "ranges": f"{report.ranges:,}" if report.ranges else "",
            "fingerprint": report.fingerprint,
            "gaps": f"{len(report.gaps):,} (see the warnings)" if report.gaps else "",
            **cost_fields(report.cost),
            "time": f"{seconds_text(report.seconds)} (total {seconds_text(report.total_seconds)})",
        }
    )


def plan_fields(report: ExportReport | ConvertReport) -> dict[str, str]:
    """Return the fields on the unfinished run that an export or a conversion resumes or gives up."""
    return {
        "resumes": _options_text(report.resumes) if report.dry_run else "",
        "gives up" if report.dry_run else "gave up": _options_text(report.gave_up),
    }


def _options_text(options: dict[str, Any] | None) -> str:
    if options is None:
        return ""
    size = size_text(options["range_size"])
    kept = ", ".join(f"{name} {options[name]}" for name in ("content", "layout", "compress"))
    return f"an unfinished run with {kept}, range size {size}"
