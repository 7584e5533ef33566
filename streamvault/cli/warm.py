"""`streamvault warm`."""

from __future__ import annotations

from streamvault.cli.options import ArchiveArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text, seconds_text
from streamvault.manifests.options import WarmOptions
from streamvault.manifests.verbs.reports import WarmReport


def warm(archive: ArchiveArgument, options: WarmOptions, *, running: Running) -> int:
    """Restore an archive's objects from an archive class of S3.

    Then the archive can be imported. Run the command again to see the progress.
    """
    return running.verb("warm_archive", archive, options, show=_show, resumable=True)


def _show(results: Results, report: WarmReport) -> None:
    if report.readable:
        results.line(f"readable: {report.archive}")
    elif report.dry_run:
        results.line(f"would request {report.archive} from S3")
    else:
        results.line(f"S3 is restoring {report.archive}; run this again to see the progress, or add --wait")
    earlier = report.cold - report.asked
    results.fields(
        {
            "cold": f"{report.cold:,} objects, {bytes_text(report.bytes)}" if report.cold else "",
            "requested": f"{report.asked:,} now, {earlier:,} before" if report.cold and not report.dry_run else "",
            "time": seconds_text(report.total_seconds),
        }
    )
