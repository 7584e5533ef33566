"""`streamvault import`."""

from __future__ import annotations

from streamvault.cli.lines import cost_fields, earlier_text, exact_text, print_groups, print_new_places, time_text
from streamvault.cli.options import ArchiveArgument, NewStreamArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, count_text, events_text, exact_moment_text
from streamvault.importer.reports import ImportOptions, ImportReport


def import_(archive: ArchiveArgument, stream: NewStreamArgument, options: ImportOptions, *, command: Command) -> None:
    """Restore an archive into a new stream.

    The new stream has the same segments, offsets and bytes as the source.
    """
    from streamvault.importer.import_ import import_stream

    command.call(import_stream, archive, stream, options, show=_show, resumable=True)


def _show(results: Results, report: ImportReport) -> None:
    results.line(_outcome(report))
    results.fields(
        {
            "generation": str(report.generation),
            "taken": report.at and exact_moment_text(report.created),
            "events": events_text(report.events, report.bytes),
            "bytes": exact_text(report.bytes),
            "of these": earlier_text(report, "restored"),
            "segments": f"{report.segments:,} in {count_text(report.epochs, 'epoch')}",
            "schemas": report.encodings and _schemas_text(report),
            "gaps": report.gaps and f"{len(report.gaps):,}",
            **cost_fields(report.cost),
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)
    if report.findings:
        lost = sum(each.end - each.start for each in report.damage)
        results.line(f"INCOMPLETE: damaged parts of the archive are left out ({bytes_text(lost)})")
    for finding in report.findings:
        results.line(f"skipped: {finding}")
    for one in report.filled:
        results.line(f"filled: {one.segment} bytes {one.start} to {one.end}: {one.reason}")
    print_new_places(results, report.renumbered, report.shifts)
    for moved in report.moved_boundaries:
        results.line(
            f"moved: in epoch {moved.epoch} the key-range boundary {moved.source_position!r} is at "
            f"{moved.target_position!r} ({moved.ulps} ulps), so that segments keep their numbers"
        )


def _schemas_text(report: ImportReport) -> str:
    done = "to register" if report.dry_run else "registered by this run"
    new = f"{report.encodings_registered:,} of them {done}" if report.encodings_registered else "all registered before"
    return f"{count_text(report.encodings, 'encoding')}, {new}"


def _outcome(report: ImportReport) -> str:
    if report.dry_run and report.verified:
        return f"would read back and verify {report.stream}, restored before from {report.archive}"
    if report.dry_run and report.unchanged:
        return f"nothing to restore: {report.stream} has the segments and tails of {report.archive}"
    if report.dry_run:
        return f"would restore {report.archive} into {report.stream}"
    if report.unchanged and report.verified:
        return f"{report.stream} equals {report.archive}: read back and verified"
    if report.unchanged:
        return (
            f"already restored: {report.stream} has the segments and tails of {report.archive}; "
            "--again reads it back and verifies it"
        )
    resumed = " (resumed an unfinished import)" if report.resumed else ""
    return f"restored {report.archive} into {report.stream}{resumed}"
