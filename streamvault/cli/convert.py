"""`streamvault convert`."""

from __future__ import annotations

from typing import Annotated

import typer

from common.progress import Progress
from common.sizes import bytes_text, generations_text, seconds_text
from exporter.reports import ConvertReport
from streamvault.cli.costs import cost_fields
from streamvault.cli.options import (
    ArchiveArgument,
    Compress,
    CompressOption,
    DryRun,
    Json,
    Layout,
    LogLevel,
    LogLevelOption,
    Master,
    RootArgument,
    Window,
)
from streamvault.cli.output import Results
from streamvault.cli.running import run, whole_command

__all__ = ["convert"]


def convert(
    archive: ArchiveArgument,
    root: RootArgument,
    *,
    layout: Annotated[Layout, typer.Option("--layout", help="What it becomes.", show_default=False)],
    compress: CompressOption = Compress.NONE,
    window: Window = "64MiB",  # type: ignore[assignment]  # typer parses defaults too
    master: Master = "local[*]",
    dry_run: DryRun = False,
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Write an archive again in another layout, below another root, with the same digests."""

    def work(progress: Progress) -> ConvertReport:
        from exporter.convert.convert import convert_archive

        report = convert_archive(
            archive,
            root,
            layout=layout.value,
            compress="zstd" if compress is Compress.ZSTD else "",
            window=window,
            master=master,
            dry_run=dry_run,
            progress=progress,
        )
        return whole_command(report)

    return run(
        work,
        show=_show,
        document=ConvertReport.to_json,
        as_json=as_json,
        log_level=log_level,
        resumable=not dry_run,
    )


def _show(results: Results, report: ConvertReport) -> None:
    if report.unchanged:
        results.line(f"every generation is there already: {report.archive}")
        return
    would = "would write" if report.dry_run else "wrote"
    results.line(f"{would} {generations_text(report.converted)} of {report.archive}")
    results.fields(
        {
            "events": f"{report.events:,}",
            "bytes": f"{report.bytes:,} ({bytes_text(report.bytes)})",
            "ranges": f"{report.ranges:,}",
            **cost_fields(report.cost),
            "seconds": f"{seconds_text(report.seconds)} of {seconds_text(report.total_seconds)} in all",
        }
    )
