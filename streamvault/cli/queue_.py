"""`streamvault queue`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from common.errors import Usage
from common.progress import Progress
from common.sizes import bytes_text, count_text, seconds_text
from importer.queue.reports import QueueReport, WaitingRequest
from streamvault.cli.options import Json, LogLevel, LogLevelOption, QueueArgument
from streamvault.cli.output import Results
from streamvault.cli.running import run

__all__ = ["queue", "show"]


def queue(
    queue: QueueArgument,
    *,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="First put the failed requests back at the queue's end.")
    ] = False,
    drop_failed: Annotated[bool, typer.Option("--drop-failed", help="First drop the failed requests.")] = False,
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Show what waits in a queue of requests, and what has failed."""

    def work(_progress: Progress) -> QueueReport:
        if retry_failed and drop_failed:
            raise Usage("--retry-failed puts back what --drop-failed drops", todo="Give one of them.")
        from importer.queue.show import show_queue

        failed: Literal["keep", "retry", "drop"] = "retry" if retry_failed else "drop" if drop_failed else "keep"
        return show_queue(queue, failed=failed)

    return run(work, show=show, document=QueueReport.to_json, as_json=as_json, log_level=log_level)


def show(results: Results, report: QueueReport) -> None:
    """Print what lies in a queue."""
    if report.moved:
        results.line(f"put back: {count_text(report.moved, 'failed request')}")
    if report.dropped:
        results.line(f"dropped: {count_text(report.dropped, 'failed request')}")
    results.line(
        f"{report.queue}: {count_text(report.waiting, 'request')} waiting, {bytes_text(report.outstanding_bytes)}"
        + (f"; {report.failed:,} failed, {bytes_text(report.failed_bytes)}" if report.failed else "")
    )
    _table(results, "WAITING", report.first_waiting, report.waiting)
    _table(results, "FAILED", report.first_failed, report.failed)


def _table(results: Results, what: str, shown: tuple[WaitingRequest, ...], count: int) -> None:
    if not shown:
        return
    reasons = any(request.error for request in shown)
    columns = {what: False, "AGE": True, "REQUEST": False, **({"WHY": False} if reasons else {})}
    rows = [
        (request.id, seconds_text(request.age_seconds), request.text, *((request.error,) if reasons else ()))
        for request in shown
    ]
    results.table(columns, rows)
    if count > len(shown):
        results.line(f"and {count - len(shown):,} more")
