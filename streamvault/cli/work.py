"""`streamvault work`."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from streamvault.cli.options import Master, QueueArgument, option
from streamvault.cli.output import OutputClosed, Results
from streamvault.cli.queue_ import show as show_queue
from streamvault.cli.running import Running, run, whole_command
from streamvault.common.errors import Usage
from streamvault.common.progress import Progress
from streamvault.common.sizes import bytes_text, count_text, seconds_text
from streamvault.requests.options import WorkOptions
from streamvault.requests.reports import FinishedRequest, WorkReport


def work(
    queue: QueueArgument,
    options: WorkOptions,
    *,
    once: Annotated[bool, option("--once", "Process the waiting requests, then stop.")] = False,
    master: Master = "local[*]",
    dry_run: Annotated[bool, option("--dry-run", "Only show the requests.")] = False,
    running: Running,
) -> int:
    """Process the requests of a queue until interrupted.

    Prints a line (with --json an object) for each finished request, and one at the end. A request that cannot be
    processed is moved to the failed ones, and the exit code reports the failure.
    """
    if dry_run:
        return show_queue(queue, running=running)
    real: list[Results] = []

    def do(progress: Progress) -> WorkReport:
        if once and options.idle is not None:
            raise Usage("--once and --idle are mutually exclusive", todo="Give only one of them.")
        from streamvault.requests.work import work_queue

        def finished(request: FinishedRequest) -> None:
            progress.end()
            with suppress(OutputClosed):
                if running.as_json:
                    real[0].json(request.to_json())
                else:
                    real[0].line(_line(request))

        report = work_queue(
            queue,
            **{**options.keywords(), **({"idle": 0.0} if once else {})},
            master=master,
            finished=finished,
            progress=progress,
        )
        return whole_command(report)

    return run(
        do,
        show=_show,
        document=WorkReport.to_json,
        running=running,
        resumable=True,
        exit_code=_exit_code,
        begun=real.append,
    )


def _exit_code(report: WorkReport) -> int:
    """Return the exit code that all failed requests share, else 1; also 1 if time ran out before a request was done."""
    codes = set(report.failed_exit_codes) | ({1} if report.unfinished else set())
    return codes.pop() if len(codes) == 1 else 1 if codes else 0


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


def _show(results: Results, report: WorkReport) -> None:
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
