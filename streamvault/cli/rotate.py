"""`streamvault rotate`."""

from __future__ import annotations

from streamvault.cli.lines import cost_fields, exact_text, plan_fields, print_groups, time_text
from streamvault.cli.options import RootArgument, StreamArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import count_text, events_text, generations_text
from streamvault.rotation.options import RotateOptions
from streamvault.rotation.reports import RotateReport


def rotate(stream: StreamArgument, root: RootArgument, options: RotateOptions, *, running: Running) -> int:
    """Archive, read back, expire old generations, truncate.

    --keep, --keep-for and --until are mutually exclusive; without any of them, nothing expires.
    """
    return running.verb("rotate_stream", stream, root, options, show=_show, resumable=True)


def _show(results: Results, report: RotateReport) -> None:
    would = "would " if report.dry_run else ""
    export = report.export
    if export.unchanged:
        results.line(f"nothing new since generation {report.generation} of {report.archive}")
    else:
        results.line(
            f"{'would write' if report.dry_run else 'wrote'} generation {report.generation} of {report.archive}"
        )
    about, events = "about " if export.events_estimated else "", events_text(export.events, export.bytes)
    stopped = report.stopped
    kept = "" if stopped is None else f"generation {stopped.generation}, because of {stopped.reason}"
    results.fields(
        {
            **plan_fields(export),
            "events": "" if export.unchanged or not events else about + events,
            "bytes": "" if export.unchanged else exact_text(export.bytes),
            **cost_fields(export.cost),
            "hold": report.hold and f"{report.hold}, {would and 'would be '}on generation {report.generation}",
            f"{would}read back": generations_text(report.checked) or "nothing; everything was read back before",
            "would compare"
            if would
            else "compared": f"{count_text(report.ranges_compared, 'range')} with the stream before it loses them"
            if report.ranges_compared
            else "",
            "would expire" if would else "expired": generations_text(report.expired) or "nothing",
            "kept": kept + (f" until {stopped.until}" if stopped is not None and stopped.until else ""),
            "deleted": f"{count_text(report.objects_deleted, 'object')}, {count_text(report.requests, 'request')}"
            if report.objects_deleted
            else "",
            "to delete": f"{generations_text(report.queued)} and earlier ones, by a worker of the queue"
            if report.queued
            else "",
            "resumed": "an unfinished deletion of an earlier run" if report.resumed else "",
            "archive has": generations_text(range(report.first_generation, report.generation + 1)),
            "would truncate" if would else "truncated": "the stream, up to the end of the archived and verified data"
            if report.truncated or (report.dry_run and report.cut is not None)
            else "",
            "time": time_text(report),
        }
    )
    print_groups(results, export.reader_groups)
