"""`streamvault queue show`, `queue retry`, `queue drop` and `queue skip`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from streamvault.cli.lines import print_table
from streamvault.cli.options import QueueArgument, argument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, count_text, seconds_text
from streamvault.requests.reports import QueueReport, SkipOptions, WaitingRequest


def show(queue: QueueArgument, *, command: Command) -> None:
    """Show the waiting and the failed requests of a queue."""
    from streamvault.requests.show import show_queue

    command.call(show_queue, queue, show=_show)


def retry(queue: QueueArgument, *, command: Command) -> None:
    """Move the failed requests back to the end of the queue."""
    from streamvault.requests.show import retry_failed

    command.call(retry_failed, queue, show=_show)


def drop(queue: QueueArgument, *, command: Command) -> None:
    """Drop the failed requests of a queue."""
    from streamvault.requests.show import drop_failed

    command.call(drop_failed, queue, show=_show)


def skip(
    queue: QueueArgument,
    offset: Annotated[int, argument("OFFSET", "The offset at which they begin, as `queue show` prints it.")],
    options: SkipOptions,
    *,
    command: Command,
) -> None:
    """Remove foreign bytes that block a queue."""
    from streamvault.requests.show import skip_foreign

    command.call(skip_foreign, queue, offset, options, show=_show)


SUBCOMMANDS = {"show": show, "retry": retry, "drop": drop, "skip": skip}


def _show(results: Results, report: QueueReport) -> None:
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
    columns: dict[str, Callable[[WaitingRequest], str]] = {
        what: lambda one: one.id,
        "AGE": lambda one: seconds_text(one.age_seconds),
        "REQUEST": lambda one: one.text,
        "ERROR": lambda one: one.reason,
    }
    print_table(results, columns, shown, {"AGE"})
    if shown and count > len(shown):
        results.line(f"and {count - len(shown):,} more")
