"""`streamvault rotate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from common.progress import Progress
from common.sizes import bytes_text, count_text, generations_text, seconds_text
from rotation.reports import FollowReport, RotateReport
from streamvault.cli import follow as following
from streamvault.cli.costs import cost_fields
from streamvault.cli.follow import check_follow
from streamvault.cli.options import (
    Compress,
    CompressOption,
    DryRun,
    Every,
    Follow,
    Idle,
    Json,
    Keep,
    KeepFor,
    LargestEvent,
    Lasting,
    Layout,
    LayoutOption,
    LogLevel,
    LogLevelOption,
    Master,
    RangeSize,
    RetryFor,
    RootArgument,
    StorageClass,
    StreamArgument,
    Until,
    Window,
)
from streamvault.cli.output import Results
from streamvault.cli.running import run, whole_command

if TYPE_CHECKING:
    from manifests.model import Compression

__all__ = ["rotate"]


def rotate(
    stream: StreamArgument,
    root: RootArgument,
    *,
    keep: Keep = None,
    keep_for: KeepFor = None,
    until: Until = None,
    truncate_source: Annotated[
        bool,
        typer.Option("--truncate-source", help="Truncate the stream up to what is archived and was read back."),
    ] = False,
    hold: Annotated[
        str, typer.Option("--hold", metavar="NAME", help="Put a hold on the newest generation.", show_default=False)
    ] = "",
    queue: Annotated[
        str,
        typer.Option(
            "--queue", metavar="QUEUE", help="Leave the deleting to who works this queue off.", show_default=False
        ),
    ] = "",
    layout: LayoutOption = Layout.EVENTS,
    compress: CompressOption = Compress.NONE,
    range_size: RangeSize = "64MiB",  # type: ignore[assignment]  # typer parses defaults too
    window: Window = "64MiB",  # type: ignore[assignment]
    largest_event: LargestEvent = "256MiB",  # type: ignore[assignment]
    storage_class: StorageClass = "",
    follow: Follow = False,
    idle: Idle = None,
    lasting: Lasting = None,
    every: Every = None,
    retry_for: RetryFor = None,
    master: Master = "local[*]",
    dry_run: DryRun = False,
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Archive what is new, read it back, let old generations expire, and truncate the stream if asked to."""
    compression: Compression = "zstd" if compress is Compress.ZSTD else ""
    times = {"--idle": idle, "--for": lasting, "--every": every, "--retry-for": retry_for}

    def work_on(progress: Progress) -> FollowReport:
        check_follow(True, times, {"--until": until, "--hold": hold, "--queue": queue, "--dry-run": dry_run})
        from rotation.follow import EVERY, RETRY_FOR, follow_stream

        return follow_stream(
            stream,
            root,
            rotate=True,
            idle=idle,
            lasting=lasting,
            every=EVERY if every is None else every,
            retry_for=RETRY_FOR if retry_for is None else retry_for,
            keep=keep,
            keep_for=keep_for,
            truncate_source=truncate_source,
            storage_class=storage_class,
            layout=layout.value,
            compress=compression,
            range_size=range_size,
            window=window,
            largest_event=largest_event,
            master=master,
            progress=progress,
        )

    if follow:
        return following.follow(work_on, as_json=as_json, log_level=log_level)

    def work(progress: Progress) -> RotateReport:
        check_follow(False, times, {})
        from rotation.rotate import rotate_stream

        report = rotate_stream(
            stream,
            root,
            keep=keep,
            keep_for=keep_for,
            until=until,
            truncate_source=truncate_source,
            storage_class=storage_class,
            hold=hold,
            queue=queue,
            layout=layout.value,
            compress=compression,
            range_size=range_size,
            window=window,
            largest_event=largest_event,
            master=master,
            dry_run=dry_run,
            progress=progress,
        )
        return whole_command(report)

    return run(
        work,
        show=_show,
        document=RotateReport.to_json,
        as_json=as_json,
        log_level=log_level,
        resumable=not dry_run,
    )


def _show(results: Results, report: RotateReport) -> None:
    would = "would " if report.dry_run else ""
    export = report.export
    if export.unchanged:
        results.line(f"nothing new since generation {report.generation} of {report.archive}")
    else:
        results.line(
            f"{'would write' if report.dry_run else 'wrote'} generation {report.generation} of {report.archive}"
        )
    stopped = report.stopped
    kept = "" if stopped is None else f"generation {stopped.generation}, by {stopped.reason}"
    results.fields(
        {
            "events": "" if export.unchanged else f"{export.events:,}",
            "bytes": "" if export.unchanged else f"{export.bytes:,} ({bytes_text(export.bytes)})",
            **cost_fields(export.cost),
            "hold": report.hold and f"{report.hold}, {would and 'would be '}on generation {report.generation}",
            f"{would}read back": generations_text(report.checked) or "nothing; all was read back before",
            "would expire" if would else "expired": generations_text(report.expired) or "nothing",
            "kept": kept + (f" until {stopped.until}" if stopped is not None and stopped.until else ""),
            "deleted": f"{count_text(report.objects_deleted, 'object')}, {count_text(report.requests, 'request')}"
            if report.requests
            else "",
            "to delete": f"{generations_text(report.queued)} and what is before, by who works the queue off"
            if report.queued
            else "",
            "resumed": "a deletion that an earlier run had begun" if report.resumed else "",
            "archive has": generations_text(range(report.first_generation, report.generation + 1)),
            "would truncate"
            if would
            else "truncated": "the stream, up to the end of what is archived and was read back"
            if report.truncated or (report.dry_run and report.cut is not None)
            else "",
            "seconds": f"{seconds_text(report.seconds)} of {seconds_text(report.total_seconds)} in all",
        }
    )
