"""`streamvault request-restore` and `streamvault work`."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from streamvault.cli.options import ArchiveArgument, NewStreamArgument, QueueArgument, option
from streamvault.cli.output import OutputClosed, Results
from streamvault.cli.queue_ import show as show_queue
from streamvault.cli.running import Command
from streamvault.common.errors import Usage
from streamvault.common.units import bytes_text, count_text, seconds_text
from streamvault.requests.reports import (
    FinishedRequest,
    RequestOptions,
    RequestReport,
    WorkArguments,
    WorkOptions,
    WorkReport,
)


def request_restore(
    archive: ArchiveArgument, stream: NewStreamArgument, options: RequestOptions, *, command: Command
) -> None:
    """Queue a restore for a worker.

    Prints the request's id; `work` processes it.
    """
    from streamvault.requests.show import request_restore

    command.call(request_restore, archive, stream, options, show=_show)


def _show(results: Results, report: RequestReport) -> None:
    if report.dry_run:
        results.line(f"would queue in {report.queue}: {report.text}")
        return
    results.line(f"requested: {report.text}")
    results.fields(
        {"id": report.id, "queue": report.queue, "waiting": f"{bytes_text(report.outstanding_bytes)} in total"}
    )


def work(
    queue: QueueArgument,
    options: WorkOptions,
    *,
    once: Annotated[bool, option("--once", "Process the waiting requests, then stop.")] = False,
    dry_run: Annotated[bool, option("--dry-run", "Only show the requests.")] = False,
    command: Command,
) -> None:
    """Process the requests of a queue until interrupted.

    Prints a line (with --json, an object) for each finished request, and one at the end. A request that cannot be
    processed is moved to the failed requests, and the exit code reports the failure.
    """
    from streamvault.requests.work import work_queue

    if dry_run:
        show_queue(queue, command=command)
        return
    if once and options.idle is not None:
        raise Usage("--once and --idle are mutually exclusive", todo="Give only one of them.")

    def finished(request: FinishedRequest) -> None:
        with suppress(OutputClosed):
            command.write(request.to_json(), lambda results: results.line(_line(request)))

    given = WorkArguments(**{**options.keywords(), **({"idle": 0.0} if once else {})}, finished=finished)
    command.call(work_queue, queue, given, show=_show_work, resumable=True)


def _line(request: FinishedRequest) -> str:
    if request.error is not None:
        why = ": ".join(str(request.error[key]) for key in ("what", "where") if request.error[key])
        return f"failed: {request.text} ({request.id}): {why}"
    report = request.report or {}
    again = " (already restored; verified)" if report.get("unchanged") else ""
    if request.kind == "delete":
        moved = f", {count_text(report['objects_deleted'], 'object')}"
        return f"done: {request.text} ({request.id}){moved} in {seconds_text(request.seconds)}"
    moved = f", {report['events']:,} events, {bytes_text(report['bytes'])}" if "events" in report else ""
    return f"done: {request.text} ({request.id}){moved} in {seconds_text(request.seconds)}{again}"


def _show_work(results: Results, report: WorkReport) -> None:
    results.line(f"processed {report.queue}: {report.done:,} done, {report.failed:,} failed")
    failed = f"{bytes_text(report.failed_bytes)} in {report.queue}-failed" if report.failed_bytes else ""
    results.fields(
        {
            "unfinished": report.unfinished,
            "waiting": bytes_text(report.outstanding_bytes),
            "failed": failed,
            "time": seconds_text(report.total_seconds),
        }
    )
