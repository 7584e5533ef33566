"""`streamvault request-restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from common.progress import Progress
from common.sizes import bytes_text
from importer.queue.reports import RequestReport
from streamvault.cli.options import (
    ArchiveArgument,
    At,
    FillerLimit,
    FromCut,
    Generation,
    Json,
    LogLevel,
    LogLevelOption,
    Offsets,
    OffsetsOption,
    ReadBack,
    Retention,
    RetentionOption,
    StreamArgument,
    ToCut,
    Window,
    read_cut,
)
from streamvault.cli.output import Results
from streamvault.cli.running import run

__all__ = ["request_restore"]


def request_restore(
    archive: ArchiveArgument,
    stream: StreamArgument,
    *,
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            metavar="QUEUE",
            help="The queue, written as a stream's URI; made if need be.",
            show_default=False,
        ),
    ],
    from_cut: FromCut = None,
    to_cut: ToCut = None,
    generation: Generation = None,
    at: At = None,
    offsets: OffsetsOption = Offsets.KEEP,
    filler_limit: FillerLimit = "1GiB",  # type: ignore[assignment]  # typer parses defaults too
    retention: RetentionOption = Retention.KEEP,
    window: Window = "64MiB",  # type: ignore[assignment]
    read_back: ReadBack = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the arguments; put nothing in.")] = False,
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Ask for a restore that `work` does later. Prints the request's id."""

    def work(_progress: Progress) -> RequestReport:
        starts, ends = read_cut(from_cut, "--from"), read_cut(to_cut, "--to")
        from importer.queue.request import request_restore as ask

        return ask(
            archive,
            stream,
            queue=queue,
            from_cut=starts,
            to_cut=ends,
            generation=generation,
            at=at,
            offsets=offsets.value,
            filler_limit=filler_limit,
            retention=retention.value,
            window=window,
            read_back=read_back,
            dry_run=dry_run,
        )

    return run(work, show=_show, document=RequestReport.to_json, as_json=as_json, log_level=log_level)


def _show(results: Results, report: RequestReport) -> None:
    if report.dry_run:
        results.line(f"would ask {report.queue}: {report.text}")
        return
    results.line(f"requested: {report.text}")
    results.fields(
        {"id": report.id, "queue": report.queue, "waiting": f"{bytes_text(report.outstanding_bytes)} in all"}
    )
