"""`streamvault promote`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.lines import print_groups, print_new_places
from streamvault.cli.options import argument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text, seconds_text
from streamvault.common.times import exact_moment_text
from streamvault.mirrors.options import PromoteOptions
from streamvault.mirrors.reports import PromoteReport


def promote(
    stream: Annotated[str, argument("REPLICA", "The replica that `replicate` created.")],
    options: PromoteOptions,
    *,
    running: Running,
) -> int:
    """Turn a replica into an ordinary stream.

    Without --seal-source, the replica is promoted as it is; its source may be gone. With it, nothing written to the
    source is lost.
    """
    return running.verb("promote_replica", stream, options, show=_show, resumable=True)


def _show(results: Results, report: PromoteReport) -> None:
    of = f" (a replica of {report.source})" if report.source else ""
    if report.unchanged:
        results.line(f"already promoted: {report.stream}{of}")
    else:
        results.line(f"{'would promote' if report.dry_run else 'promoted'} {report.stream}{of}")
    complete = report.source_sealed and not report.dry_run
    results.fields(
        {
            "source": "sealed; the stream has all of it" if complete else "",
            "as of": ""
            if complete or report.unchanged
            else exact_moment_text(report.tail_time) or "no round was ever finished",
            "last round": bytes_text(report.moved_bytes) if complete else "",
            "cut-over": seconds_text(report.cutover_seconds) if complete else "",
            "sealed": "yes, as the source was" if report.sealed else "",
            "time": seconds_text(report.total_seconds),
        }
    )
    print_groups(results, report.reader_groups)
    print_new_places(results, report.renumbered)
