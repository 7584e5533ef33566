"""`streamvault request-restore`."""

from __future__ import annotations

from streamvault.cli.options import ArchiveArgument, NewStreamArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text
from streamvault.requests.options import RequestOptions
from streamvault.requests.reports import RequestReport


def request_restore(
    archive: ArchiveArgument, stream: NewStreamArgument, options: RequestOptions, *, running: Running
) -> int:
    """Queue a restore for a worker.

    Prints the request's id; `work` processes it.
    """
    return running.verb("request_restore", archive, stream, options, show=_show)


def _show(results: Results, report: RequestReport) -> None:
    if report.dry_run:
        results.line(f"would queue in {report.queue}: {report.text}")
        return
    results.line(f"requested: {report.text}")
    results.fields(
        {"id": report.id, "queue": report.queue, "waiting": f"{bytes_text(report.outstanding_bytes)} in total"}
    )
