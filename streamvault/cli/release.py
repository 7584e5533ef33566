"""`streamvault release`."""

from __future__ import annotations

from streamvault.cli.options import ArchiveArgument, DryRun, HoldName
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run
from streamvault.common.progress import Progress
from streamvault.manifests.options import ReleaseOptions
from streamvault.manifests.verbs.reports import HoldReport


def release(
    archive: ArchiveArgument,
    name: HoldName,
    options: ReleaseOptions,
    *,
    dry_run: DryRun = False,
    running: Running,
) -> int:
    """Release a hold, so that the generations it kept may expire."""

    def work(_progress: Progress) -> HoldReport:
        from streamvault.manifests.verbs.hold import release_archive

        return release_archive(archive, name, **options.keywords(), dry_run=dry_run)

    return run(work, show=_show, document=HoldReport.to_json, running=running)


def _show(results: Results, report: HoldReport) -> None:
    done = "would be released from" if report.dry_run else "released from"
    numbers = ", ".join(map(str, report.generations))
    results.line(f"hold {report.name} {done} generation {numbers} of {report.archive}")
