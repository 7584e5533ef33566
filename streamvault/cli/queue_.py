"""`streamvault queue show`, `queue retry`, `queue drop` and `queue skip`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from streamvault.cli.options import QueueArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run
from streamvault.common.sizes import bytes_text, count_text, seconds_text
from streamvault.requests.reports import QueueReport, WaitingRequest


def show(queue: QueueArgument, *, running: Running) -> int:
    """Show the waiting and the failed requests of a queue."""
    from streamvault.requests.show import show_queue

    return _run(lambda: show_queue(queue), running)


def retry(queue: QueueArgument, *, running: Running) -> int:
    """Move the failed requests back to the end of the queue."""
    from streamvault.requests.show import retry_failed

    return _run(lambda: retry_failed(queue), running)


def drop(queue: QueueArgument, *, running: Running) -> int:
    """Drop the failed requests of a queue."""
    from streamvault.requests.show import drop_failed

    return _run(lambda: drop_failed(queue), running)


def skip(
    queue: QueueArgument,
    offset: Annotated[
        int,
        typer.Argument(metavar="OFFSET", help="Where they begin, as `queue show` prints it.", show_default=False),
    ],
    *,
    failed: Annotated[bool, typer.Option("--failed", help="They are among the failed requests.")] = False,
    running: Running,
) -> int:
    """Remove foreign bytes that block a queue."""
    from streamvault.requests.show import skip_foreign

    return _run(lambda: skip_foreign(queue, offset, failed=failed), running)


SUBCOMMANDS = {"show": show, "retry": retry, "drop": drop, "skip": skip}


def _run(function: Callable[[], QueueReport], running: Running) -> int:
    return run(lambda _progress: function(), show=print_queue, document=QueueReport.to_json, running=running)


def print_queue(results: Results, report: QueueReport) -> None:
    """Print the contents of a queue."""
    if report.moved:
        results.line(f"requeued: {count_text(report.moved, 'failed request')}")
    if report.dropped:
        results.line(f"dropped: {count_text(report.dropped, 'failed request')}")
    if report.skipped_bytes:
        results.line(f"skipped: {bytes_text(report.skipped_bytes)}")
    results.line(
        f"{report.queue}: {count_text(report.waiting, 'request')} waiting, {bytes_text(report.outstanding_bytes)}"
        + (f"; {report.failed:,} failed, {bytes_text(report.failed_bytes)}" if report.failed else "")
    )
    _table(results, "WAITING", report.first_waiting, report.waiting)
    _table(results, "FAILED", report.first_failed, report.failed)
    for one in report.foreign:
        option = " --failed" if one.in_failed_queue else ""
        results.line(
            f"foreign: {bytes_text(one.bytes)} at offset {one.offset} ({one.reason}); "
            f"streamvault queue skip {report.queue} {one.offset}{option}"
        )


def _table(results: Results, what: str, shown: tuple[WaitingRequest, ...], count: int) -> None:
    if not shown:
        return
    reasons = any(request.reason for request in shown)
    columns = {what: False, "AGE": True, "REQUEST": False, **({"ERROR": False} if reasons else {})}
    rows = [
        (request.id, seconds_text(request.age_seconds), request.text, *((request.reason,) if reasons else ()))
        for request in shown
    ]
    results.table(columns, rows)
    if count > len(shown):
        results.line(f"and {count - len(shown):,} more")
