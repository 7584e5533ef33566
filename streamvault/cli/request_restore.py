"""`streamvault request-restore`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.options import ArchiveArgument, StreamArgument, option
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run
from streamvault.common.progress import Progress
from streamvault.common.sizes import bytes_text
from streamvault.importer.options import RestoreOptions
from streamvault.requests.reports import RequestReport


def request_restore(
    archive: ArchiveArgument,
    stream: StreamArgument,
    options: RestoreOptions,
    *,
    queue: Annotated[
        str,
        option(
            "--queue",
            "The queue, as a stream's URI; created if it does not exist.",
            metavar="QUEUE",
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, option("--dry-run", "Only check the arguments; queue nothing.")] = False,
    running: Running,
) -> int:
    """Queue a restore for a worker.

    Prints the request's id; `work` processes it.
    """

    def work(_progress: Progress) -> RequestReport:
        from streamvault.requests.request import request_restore as request

        return request(archive, stream, queue=queue, **options.keywords(), dry_run=dry_run)

    return run(work, show=_show, document=RequestReport.to_json, running=running)


def _show(results: Results, report: RequestReport) -> None:
    if report.dry_run:
        results.line(f"would queue in {report.queue}: {report.text}")
        return
    results.line(f"requested: {report.text}")
    results.fields(
        {"id": report.id, "queue": report.queue, "waiting": f"{bytes_text(report.outstanding_bytes)} in total"}
    )
