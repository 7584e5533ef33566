"""`streamvault ls`."""

from __future__ import annotations

import streamvault
from streamvault.cli.options import RootArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text, events_text
from streamvault.common.times import seconds_moment_text
from streamvault.manifests.verbs.reports import ArchiveList, ArchiveSummary


def ls(root: RootArgument, *, running: Running) -> int:
    """List the archives and tables below a root."""
    with running.command() as command:
        archives = streamvault.list_archives(root, progress=command.progress)
        for archive in archives:
            if archive.problem:
                command.progress.warn(f"{archive.archive}: {archive.problem}")
        document = ArchiveList(
            archives=tuple(one for one in archives if not one.table),
            archive_tables=tuple(one for one in archives if one.table),
        ).to_json()
        command.write(document, lambda results: _show(results, root, archives))
    return command.exit_code


def _show(results: Results, root: str, archives: list[ArchiveSummary]) -> None:
    from streamvault.objectstore.uri import RootAddress

    if not archives:
        results.line(f"no archives below {root}")
        return
    root = RootAddress.parse(root).uri
    results.table(
        {"ARCHIVE": False, "GENERATIONS": True, "EVENTS": True, "BYTES": True, "LAYOUT": False, "NEWEST": False},
        [
            (archive.name_below(root), "?", "?", "?", "?", "cannot be read")
            if archive.problem
            else (
                archive.name_below(root),
                _generations(archive),
                events_text(archive.events, archive.bytes) or "-",
                bytes_text(archive.bytes),
                f"table {archive.table}" if archive.table else archive.layout,
                seconds_moment_text(archive.created) if archive.created else "-",
            )
            for archive in archives
        ],
    )


def _generations(archive: ArchiveSummary) -> str:
    remarks = [f"from {archive.first_generation}"] if archive.first_generation > 1 else []
    remarks += [f"{archive.unfinished_generation} is unfinished"] if archive.unfinished_generation else []
    remarks += ["being deleted"] if archive.being_deleted else []
    return f"{archive.generations_in_force:,}" + (f" ({', '.join(remarks)})" if remarks else "")
