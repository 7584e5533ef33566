"""`streamvault warm`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from common.progress import Progress
from common.sizes import bytes_text, seconds_text
from manifests.reports import WarmReport
from streamvault.cli.options import ArchiveArgument, DryRun, Generation, Json, LogLevel, LogLevelOption
from streamvault.cli.output import Results
from streamvault.cli.running import run, whole_command

__all__ = ["warm"]


class Tier(StrEnum):
    """How quickly S3 brings objects back."""

    BULK = "Bulk"
    STANDARD = "Standard"
    EXPEDITED = "Expedited"


def warm(
    archive: ArchiveArgument,
    *,
    generation: Generation = None,
    days: Annotated[int, typer.Option("--days", min=1, help="How many days the objects stay readable.")] = 7,
    tier: Annotated[
        Tier, typer.Option("--tier", case_sensitive=False, help="How quick, and how dear.")
    ] = Tier.STANDARD,
    wait: Annotated[bool, typer.Option("--wait", help="Return only when everything can be read.")] = False,
    poll: Annotated[
        float, typer.Option("--poll", min=0.1, metavar="SECONDS", help="How often to look while waiting.")
    ] = 300.0,
    dry_run: DryRun = False,
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Bring an archive back from an archive class of S3 (Glacier), so that it can be imported. Again: how far it is."""

    def work(progress: Progress) -> WarmReport:
        from manifests.warm import warm_archive

        report = warm_archive(
            archive,
            generation=generation,
            days=days,
            tier=tier.value,
            wait=wait,
            poll_seconds=poll,
            dry_run=dry_run,
            progress=progress,
        )
        return whole_command(report)

    return run(
        work,
        show=_show,
        document=WarmReport.to_json,
        as_json=as_json,
        log_level=log_level,
        resumable=not dry_run,
    )


def _show(results: Results, report: WarmReport) -> None:
    if report.readable:
        results.line(f"readable: {report.archive}")
    elif report.dry_run:
        results.line(f"would ask S3 for {report.archive}")
    else:
        results.line(f"S3 is bringing back {report.archive}; run this again to see how far it is, or with --wait")
    earlier = report.cold - report.asked
    results.fields(
        {
            "cold": f"{report.cold:,} objects, {bytes_text(report.bytes)}" if report.cold else "",
            "asked for": f"{report.asked:,} now, {earlier:,} before" if report.cold and not report.dry_run else "",
            "seconds": seconds_text(report.total_seconds),
        }
    )
