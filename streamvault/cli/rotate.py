"""`streamvault rotate`, `streamvault follow` and `streamvault compact`."""

from __future__ import annotations

from streamvault.cli.lines import cost_fields, exact_text, plan_fields, print_groups, time_text
from streamvault.cli.options import ArchiveArgument, RootArgument, StreamArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, count_text, events_text, exact_moment_text, generations_text
from streamvault.exporter.reports import (
    CompactOptions,
    CompactReport,
    FollowOptions,
    FollowReport,
    RotateOptions,
    RotateReport,
)


def rotate(stream: StreamArgument, root: RootArgument, options: RotateOptions, *, command: Command) -> None:
    """Archive, read back, expire old generations, truncate.

    --keep, --keep-for and --until are mutually exclusive; without any of them, nothing expires.
    """
    from streamvault.exporter.rotate import rotate_stream

    command.call(rotate_stream, stream, root, options, show=_show, resumable=True)


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
            "would compare" if would else "compared": report.ranges_compared
            and f"{count_text(report.ranges_compared, 'range')} with the stream before it loses them",
            "would expire" if would else "expired": generations_text(report.expired) or "nothing",
            "kept": kept + (f" until {stopped.until}" if stopped is not None and stopped.until else ""),
            "deleted": report.objects_deleted
            and f"{count_text(report.objects_deleted, 'object')}, {count_text(report.requests, 'request')}",
            "to delete": report.queued
            and f"{generations_text(report.queued)} and earlier ones, by a worker of the queue",
            "resumed": report.resumed and "an unfinished deletion of an earlier run",
            "archive has": generations_text(range(report.first_generation, report.generation + 1)),
            "would truncate" if would else "truncated": (
                report.truncated or (report.dry_run and report.cut is not None)
            )
            and "the stream, up to the end of the archived and verified data",
            "time": time_text(report),
        }
    )
    print_groups(results, export.reader_groups)


_ENDED = {
    "idle": "no new events",
    "time": "the time limit was reached",
    "sealed": "the stream is sealed and completely archived",
}


def follow(stream: StreamArgument, root: RootArgument, options: FollowOptions, *, command: Command) -> None:
    """Archive a stream as it grows.

    Each round archives the new events as a generation; small generations are merged. --keep, --keep-for and
    --truncate-source imply --rotate.
    """
    from streamvault.exporter.follow import follow_stream

    command.call(follow_stream, stream, root, options, show=_show_follow, resumable=True)


def _show_follow(results: Results, report: FollowReport) -> None:
    results.line(f"stopped at generation {report.generation} of {report.archive}: {_ENDED[report.ended]}")
    results.fields(
        {
            "generations": f"{report.made:,} written, in {count_text(report.rounds, 'round')}",
            "events": events_text(report.events, report.bytes),
            "bytes": exact_text(report.bytes),
            "retries": report.retries and f"{report.retries:,}",
            "merged": report.merges
            and f"{count_text(report.merges, 'time')}, {bytes_text(report.moved_bytes)} rewritten",
            "archive has": count_text(report.generations_in_force, "generation"),
            "expired": report.expired_count and count_text(report.expired_count, "generation"),
            "deleted": report.objects_deleted and count_text(report.objects_deleted, "object"),
            "truncated": report.cut is not None and "the stream, up to the end of the archived and verified data",
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)


def compact(archive: ArchiveArgument, options: CompactOptions, *, command: Command) -> None:
    """Merge small adjacent generations.

    Also deletes what earlier merges replaced.
    """
    from streamvault.exporter.compact import compact_archive

    command.call(compact_archive, archive, options, show=_show_compact, resumable=True)


def _show_compact(results: Results, report: CompactReport) -> None:
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
            "would join" if would else "joined": report.joined
            and f"{bytes_text(report.moved_bytes)}, {count_text(report.joined, 'chunk')}",
            "resumed": report.resumed_runs and "an unfinished merge of an earlier run",
            "deleted": report.objects_deleted
            and f"{count_text(report.objects_deleted, 'object')} that had been replaced",
            "replaced objects": report.waits_until
            and f"may be deleted by any run after {exact_moment_text(report.waits_until)}",
            "time": time_text(report),
        }
    )
