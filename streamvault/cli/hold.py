"""`streamvault hold`."""

from __future__ import annotations

from streamvault.cli.options import ArchiveArgument, DryRun, HoldName
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run
from streamvault.common.progress import Progress
from streamvault.manifests.options import HoldOptions
from streamvault.manifests.verbs.reports import HoldReport


def hold(
    archive: ArchiveArgument,
    name: HoldName,
    options: HoldOptions,
    *,
    dry_run: DryRun = False,
    running: Running,
) -> int:
    """Keep a generation and those after it from expiring.

    It lasts until the hold is released.
    """

    def work(_progress: Progress) -> HoldReport:
        from streamvault.manifests.verbs.hold import hold_archive

        return hold_archive(archive, name, **options.keywords(), dry_run=dry_run)

    return run(work, show=_show, document=HoldReport.to_json, running=running)


def _show(results: Results, report: HoldReport) -> None:
    done = "is already on" if report.unchanged else "would be placed on" if report.dry_run else "is on"
    results.line(f"hold {report.name} {done} generation {report.generations[0]} of {report.archive}")
