"""`streamvault plan`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.lines import exact_text
from streamvault.cli.options import argument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, count_text, size_text, usd_text
from streamvault.exporter.reports import PlanOptions, PlanReport, VerbForecast

_Stream = Annotated[
    str | None,
    argument("STREAM", "The stream to plan for; without it, --segments, --bytes and --events of one."),
]


def plan(stream: _Stream = None, *, options: PlanOptions, command: Command) -> None:
    """Compute what an archive would cost, take and need.

    Nothing is written. Without a stream, no server is needed.
    """
    from streamvault.exporter.forecast import plan_archive

    command.call(plan_archive, stream, options, show=_show)


def _show(results: Results, report: PlanReport) -> None:
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
        [_times(one) for one in report.work],
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


def _times(one: VerbForecast) -> tuple[str, ...]:
    return (
        one.verb,
        usd_text(one.usd),
        f"{one.hours:,.2f}",
        one.limit,
        f"{one.processor_hours:,.2f}",
        f"{one.prefixes:,}",
    )
