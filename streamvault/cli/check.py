"""`streamvault check` and `streamvault warm`."""

from __future__ import annotations

import json

from streamvault.cli.lines import exact_text, time_text
from streamvault.cli.options import ArchiveArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.errors import Usage
from streamvault.common.units import bytes_text, count_text, events_text, generations_text, numbers_text, seconds_text
from streamvault.manifests.options import CheckOptions, WarmOptions
from streamvault.manifests.verbs.reports import CheckReport, WarmReport


def check(archive: ArchiveArgument, options: CheckOptions, *, command: Command) -> None:
    """Verify that an archive is complete and intact.

    Exits with 3 if anything is missing or changed.
    """
    from streamvault.manifests.verbs.check import check_archive

    if options.read_data and options.subset is not None:
        raise Usage("--read-data and --read-data-subset are mutually exclusive", todo="Give only one of them.")
    if options.seed is not None and options.subset is None:
        raise Usage("--seed requires --read-data-subset", todo="Add --read-data-subset.")
    command.call(check_archive, archive, options, show=_show)


def _show(results: Results, report: CheckReport) -> None:
    results.line(f"{_headline(report)}: {report.archive}")
    read = f"{report.ranges_read:,} read and verified" if report.ranges_read else "no data read"
    results.fields(
        {
            "generations": numbers_text(report.generations),
            "events": events_text(report.events, report.bytes),
            "bytes": exact_text(report.bytes),
            "ranges": f"{report.ranges:,}, {read}",
            "checksums": _compared(report),
            "seed": "" if report.seed is None else str(report.seed),
            "recorded": report.marked and f"{generations_text(report.marked)} as read back",
            "time": time_text(report),
        }
    )
    if report.strays:
        results.line(f"note: {_strays(report)}")
    for note in report.notes:
        results.line(f"note: {note}")
    for finding in report.findings:
        results.line(f"damaged: {finding}")
    if report.more_findings:
        results.line(f"damaged: and {count_text(report.more_findings, 'more finding')}")
    for generation, cut in {each.generation: each.cut for each in report.damage}.items():
        results.line(f"generation {generation} begins at the cut {json.dumps(cut)}")
    if report.restore:
        results.line(_way_out(report))


def _headline(report: CheckReport) -> str:
    if not report.ok:
        return "DAMAGED"
    compared, left = report.checksums_compared, report.checksums_not_kept + report.checksums_not_indexed
    if not compared and left:
        return "nothing compared"
    return f"intact as far as compared ({compared:,} of {compared + left:,} objects)" if compared and left else "intact"


def _compared(report: CheckReport) -> str:
    if report.checksums_compared is None:
        return ""
    left = report.checksums_not_kept + report.checksums_not_indexed
    return f"{report.checksums_compared:,} compared with the store's" + (f", {left:,} not compared" if left else "")


def _way_out(report: CheckReport) -> str:
    if not report.intact_generation:
        return f"no generation is intact; all but the damaged ranges can be restored: {report.restore}"
    return (
        f"intact up to generation {report.intact_generation}, as far as it was compared: {report.restore} "
        "(--skip-damaged in place of --generation restores all but the damaged ranges)"
    )


def _strays(report: CheckReport) -> str:
    strays = count_text(report.strays, "stray object")
    if report.removed:
        return f"{strays}; {report.removed:,} deleted"
    return f"{strays}, harmless; --repair deletes those that are proven to be unused"


def warm(archive: ArchiveArgument, options: WarmOptions, *, command: Command) -> None:
    """Restore an archive's objects from an archive class of S3.

    Afterwards, the archive can be imported. Run the command again to see the progress.
    """
    from streamvault.manifests.verbs.warm import warm_archive

    command.call(warm_archive, archive, options, show=_show_warm, resumable=True)


def _show_warm(results: Results, report: WarmReport) -> None:
    if report.readable:
        results.line(f"readable: {report.archive}")
    elif report.dry_run:
        results.line(f"would request {report.archive} from S3")
    else:
        results.line(f"S3 is restoring {report.archive}; run this again to see the progress, or add --wait")
    earlier = report.cold - report.asked
    results.fields(
        {
            "cold": report.cold and f"{report.cold:,} objects, {bytes_text(report.bytes)}",
            "requested": report.cold and not report.dry_run and f"{report.asked:,} now, {earlier:,} before",
            "time": seconds_text(report.total_seconds),
        }
    )
