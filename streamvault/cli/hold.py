"""`streamvault hold`."""

from __future__ import annotations

from typing import Annotated

import typer

from common.progress import Progress
from manifests.reports import HoldReport
from streamvault.cli.options import (
    ArchiveArgument,
    DryRun,
    Generation,
    HoldName,
    Json,
    LogLevel,
    LogLevelOption,
)
from streamvault.cli.output import Results
from streamvault.cli.running import run

__all__ = ["hold"]


def hold(
    archive: ArchiveArgument,
    name: HoldName,
    *,
    generation: Generation = None,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="A text for whoever meets the hold.", show_default=False)
    ] = "",
    dry_run: DryRun = False,
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Keep a generation, and all after it, from expiring until the hold is released."""

    def work(_progress: Progress) -> HoldReport:
        from manifests.hold import hold_archive

        return hold_archive(archive, name, generation=generation, why=why, dry_run=dry_run)

    return run(work, show=_show, document=HoldReport.to_json, as_json=as_json, log_level=log_level)


def _show(results: Results, report: HoldReport) -> None:
    done = "is already on" if report.unchanged else "would be put on" if report.dry_run else "is on"
    results.line(f"hold {report.name} {done} generation {report.generations[0]} of {report.archive}")
