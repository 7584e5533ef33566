"""`streamvault release`."""

from __future__ import annotations

from typing import Annotated

import typer

from common.progress import Progress
from manifests.reports import HoldReport
from streamvault.cli.options import ArchiveArgument, DryRun, HoldName, Json, LogLevel, LogLevelOption
from streamvault.cli.output import Results
from streamvault.cli.running import run

__all__ = ["release"]


def release(
    archive: ArchiveArgument,
    name: HoldName,
    *,
    generation: Annotated[
        int | None,
        typer.Option(
            "--generation",
            metavar="G",
            min=1,
            help="From this generation only, instead of each that has it.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Take a hold off again, so that what it kept may expire."""

    def work(_progress: Progress) -> HoldReport:
        from manifests.hold import release_archive

        return release_archive(archive, name, generation=generation, dry_run=dry_run)

    return run(work, show=_show, document=HoldReport.to_json, as_json=as_json, log_level=log_level)


def _show(results: Results, report: HoldReport) -> None:
    done = "would be taken off" if report.dry_run else "is off"
    numbers = ", ".join(map(str, report.generations))
    results.line(f"hold {report.name} {done} generation {numbers} of {report.archive}")
