"""`streamvault export`, `streamvault convert` and `streamvault plan`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.lines import cost_fields, earlier_text, exact_text, plan_fields, print_groups, time_text
from streamvault.cli.options import ArchiveArgument, RootArgument, StreamArgument, argument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, count_text, events_text, generations_text, size_text, usd_text
from streamvault.exporter.reports import (
    ConvertOptions,
    ConvertReport,
    ExportOptions,
    ExportReport,
    PlanOptions,
    PlanReport,
)


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


def convert(archive: ArchiveArgument, root: RootArgument, options: ConvertOptions, *, command: Command) -> None:
    """Copy an archive to another root in another layout.

    The copy has the same digests. Generations that it already has are kept.
    """
    from streamvault.exporter.convert import convert_archive

    command.call(convert_archive, archive, root, options, show=_show_convert, resumable=True)


def _show_convert(results: Results, report: ConvertReport) -> None:
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


_Planned = Annotated[
    str | None,
    argument("STREAM", "The stream to plan for; without it, give --segments, --bytes and --events."),
]


def plan(stream: _Planned = None, *, options: PlanOptions, command: Command) -> None:
    """Estimate the cost, time and resources of an archive.

    Nothing is written. Without a stream, no server is needed.
    """
    from streamvault.exporter.forecast import plan_archive

    command.call(plan_archive, stream, options, show=_show_plan)


def _show_plan(results: Results, report: PlanReport) -> None:
    kind = f"{report.layout} ({report.compression})" if report.compression else report.layout
    results.line(f"an archive of {report.stream or count_text(report.segments, 'segment')}, layout {kind}")
    about = "about " if report.events_estimated else ""
    results.fields(
        {
            "segments": f"{report.segments:,}",
            "events": f"{about}{report.events:,}",
            "bytes": exact_text(report.bytes),
            "ranges": f"{report.ranges:,} of {size_text(report.range_size)}",
            "exports": f"{report.exports:,}",
            "objects": f"{about if report.objects == report.events else ''}{report.objects:,}",
            "manifest": f"{bytes_text(report.manifest_bytes)} a generation",
            "index": f"{bytes_text(report.index_bytes)} a generation",
            "prefixes": f"{report.written_prefixes:,} that an export writes to at a time",
        }
    )
    results.line("")
    results.table(
        {"VERB": False, "PUT": True, "LIST": True, "GET": True, "MEMORY": True},
        [
            (one.verb, f"{one.puts:,}", f"{one.lists:,}", f"{one.gets:,}", bytes_text(one.driver_bytes))
            for one in report.work
        ],
    )
    results.line("")
    results.table(
        {"VERB": False, "USD": True, "HOURS": True, "LIMIT": False, "CORE HOURS": True, "PREFIXES": True},
        [
            (
                one.verb,
                usd_text(one.usd),
                f"{one.hours:,.2f}",
                one.limit,
                f"{one.processor_hours:,.2f}",
                f"{one.prefixes:,}",
            )
            for one in report.work
        ],
    )
    results.line(f"with {count_text(report.cores, 'core')} and {report.network:g} Gbit/s")
    results.line("")
    results.table(
        {"STORAGE CLASS": False, "A MONTH": True, "TO WRITE": True, "TO READ": True, "DAYS": True},
        [
            (
                one.storage_class,
                usd_text(one.usd_month),
                usd_text(one.usd_write),
                usd_text(one.usd_read),
                str(one.least_days),
            )
            for one in report.storage
        ],
    )
    results.line(f"USD, prices of {report.prices_date}:")
    results.line(report.prices)
