"""`streamvault hold`, `streamvault release` and `streamvault delete`."""

from __future__ import annotations

from streamvault.cli.lines import exact_text, time_text
from streamvault.cli.options import ArchiveArgument, HoldName
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import count_text, generations_text
from streamvault.manifests.options import DeleteOptions, HoldOptions, ReleaseOptions
from streamvault.manifests.verbs.reports import DeleteReport, HoldReport


def hold(archive: ArchiveArgument, name: HoldName, options: HoldOptions, *, command: Command) -> None:
    """Keep a generation and those after it from expiring.

    This lasts until the hold is released.
    """
    from streamvault.manifests.verbs.delete import hold_archive

    command.call(hold_archive, archive, name, options, show=_show_held)


def _show_held(results: Results, report: HoldReport) -> None:
    done = "is already on" if report.unchanged else "would be placed on" if report.dry_run else "is on"
    results.line(f"hold {report.name} {done} generation {report.generations[0]} of {report.archive}")


def release(archive: ArchiveArgument, name: HoldName, options: ReleaseOptions, *, command: Command) -> None:
    """Release a hold, so that the generations it kept may expire."""
    from streamvault.manifests.verbs.delete import release_archive

    command.call(release_archive, archive, name, options, show=_show_released)


def _show_released(results: Results, report: HoldReport) -> None:
    done = "would be released from" if report.dry_run else "released from"
    results.line(f"hold {report.name} {done} {generations_text(report.generations)} of {report.archive}")


def delete(archive: ArchiveArgument, options: DeleteOptions, *, command: Command) -> None:
    """Delete an archive.

    Without --yes, only prints what would be deleted. Holds and S3 locks prevent the deletion; tables stay. The
    archive's address cannot be reused.
    """
    from streamvault.manifests.verbs.delete import delete_archive

    command.call(delete_archive, archive, options, show=_show, resumable=options.yes)


def _show(results: Results, report: DeleteReport) -> None:
    if report.unchanged:
        results.line(f"{report.archive} was deleted before")
        return
    results.line(f"{'would delete' if report.dry_run else 'deleted'} {report.archive}")
    named = ", ".join(report.foreign_keys) + (", …" if report.foreign_objects > len(report.foreign_keys) else "")
    results.fields(
        {
            "generations": generations_text(report.generations).partition(" ")[2],
            "unfinished": generations_text(report.unfinished_generations),
            "resumed": report.resumed and f"an unfinished deletion of an earlier run, according to {report.decision}",
            "objects": f"{report.objects:,}",
            "bytes": exact_text(report.bytes),
            "tables that stay": ", ".join(report.tables),
            "foreign objects that stay": report.foreign_objects
            and f"{count_text(report.foreign_objects, 'object')}: {named}",
            "time": time_text(report),
        }
    )
    if report.dry_run and report.resumed:
        results.line("nothing was deleted; if nobody has run 'delete', somebody else has written that decision")
    elif report.dry_run:
        results.line("nothing was deleted; to delete it for good, add --yes")
