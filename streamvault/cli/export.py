"""`streamvault export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.progress import Progress
from common.sizes import bytes_text, count_text, seconds_text
from exporter.reports import ExportReport
from rotation.reports import FollowReport
from streamvault.cli import follow as following
from streamvault.cli.costs import cost_fields
from streamvault.cli.follow import check_follow
from streamvault.cli.options import (
    Compress,
    CompressOption,
    DryRun,
    Every,
    Follow,
    FromCut,
    Idle,
    Json,
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
    ToCut,
    Window,
    read_cut,
)
from streamvault.cli.output import Results
from streamvault.cli.running import run, whole_command

if TYPE_CHECKING:
    from manifests.model import Compression

__all__ = ["export"]


def export(
    stream: StreamArgument,
    root: RootArgument,
    *,
    from_cut: FromCut = None,
    to_cut: ToCut = None,
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
    """Archive a stream. If it was archived before, what came since is added as the next generation."""
    compression: Compression = "zstd" if compress is Compress.ZSTD else ""
    times = {"--idle": idle, "--for": lasting, "--every": every, "--retry-for": retry_for}

    def work_on(progress: Progress) -> FollowReport:
        check_follow(True, times, {"--from": from_cut, "--to": to_cut, "--dry-run": dry_run})
        from rotation.follow import EVERY, RETRY_FOR, follow_stream

        return follow_stream(
            stream,
            root,
            idle=idle,
            lasting=lasting,
            every=EVERY if every is None else every,
            retry_for=RETRY_FOR if retry_for is None else retry_for,
            layout=layout.value,
            compress=compression,
            range_size=range_size,
            window=window,
            largest_event=largest_event,
            storage_class=storage_class,
            master=master,
            progress=progress,
        )

    if follow:
        return following.follow(work_on, as_json=as_json, log_level=log_level)

    def work(progress: Progress) -> ExportReport:
        check_follow(False, times, {})
        starts, ends = read_cut(from_cut, "--from"), read_cut(to_cut, "--to")
        from exporter.export import export_stream

        report = export_stream(
            stream,
            root,
            from_cut=starts,
            to_cut=ends,
            layout=layout.value,
            compress=compression,
            range_size=range_size,
            window=window,
            largest_event=largest_event,
            storage_class=storage_class,
            master=master,
            dry_run=dry_run,
            progress=progress,
        )
        return whole_command(report)

    return run(
        work,
        show=_show,
        document=ExportReport.to_json,
        as_json=as_json,
        log_level=log_level,
        resumable=not dry_run,
    )


def _show(results: Results, report: ExportReport) -> None:
    if report.unchanged:
        results.line(f"nothing new since generation {report.generation} of {report.archive}")
        return
    if report.dry_run:
        results.line(f"would write generation {report.generation} of {report.archive}")
    else:
        resumed = " (went on with an unfinished run)" if report.adopted else ""
        results.line(f"wrote generation {report.generation} of {report.archive}{resumed}")
    earlier = report.bytes - report.moved_bytes
    results.fields(
        {
            "events": f"{report.events:,}",
            "bytes": f"{report.bytes:,} ({bytes_text(report.bytes)})",
            "of these": f"{bytes_text(earlier)} were there already" if earlier and not report.dry_run else "",
            "ranges": f"{report.ranges:,}" if report.ranges else "",
            "fingerprint": report.fingerprint,
            "gaps": f"{count_text(len(report.gaps), 'gap')}: see streamvault show" if report.gaps else "",
            **cost_fields(report.cost),
            "seconds": f"{seconds_text(report.seconds)} of {seconds_text(report.total_seconds)} in all",
        }
    )
