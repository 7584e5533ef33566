"""`streamvault delete`."""

from __future__ import annotations

from streamvault.cli.lines import exact_text, time_text
from streamvault.cli.options import ArchiveArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import count_text, generations_text
from streamvault.manifests.options import DeleteOptions
from streamvault.manifests.verbs.reports import DeleteReport


def delete(archive: ArchiveArgument, options: DeleteOptions, *, running: Running) -> int:
    """Delete an archive.

    Without --yes, only prints what would be deleted. Holds and S3 locks prevent the deletion; tables stay. The
    archive's address cannot be reused.
    """
    return running.verb("delete_archive", archive, options, show=_show, resumable=options.yes)


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
            "resumed": f"an unfinished deletion of an earlier run, says {report.decision}" if report.resumed else "",
            "objects": f"{report.objects:,}",
            "bytes": exact_text(report.bytes),
            "tables that stay": ", ".join(report.tables),
            "foreign objects that stay": f"{count_text(report.foreign_objects, 'object')}: {named}"
            if report.foreign_objects
            else "",
            "time": time_text(report),
        }
    )
    if report.dry_run and report.resumed:
        results.line("nothing was deleted; if nobody has run 'delete', somebody else has written that decision")
    elif report.dry_run:
        results.line("nothing was deleted; with --yes it is, and nothing brings it back")
