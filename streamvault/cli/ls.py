"""`streamvault ls` and `streamvault timeline`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

from streamvault.cli.lines import print_table
from streamvault.cli.options import ArchiveArgument, RootArgument, option
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, events_text, exact_moment_text, seconds_moment_text
from streamvault.manifests.verbs.reports import ArchiveList, ArchiveSummary, Timeline, TimelineEntry


def ls(root: RootArgument, *, command: Command) -> None:
    """List the archives and tables below a root."""
    from streamvault.manifests.verbs.show import list_archives

    archives = command.run(list_archives, root, progress=command.progress)
    command.progress.warn_all(f"{one.archive}: {one.problem}" for one in archives if one.problem)
    document = ArchiveList(
        archives=tuple(one for one in archives if not one.table),
        archive_tables=tuple(one for one in archives if one.table),
    ).to_json()
    command.write(document, lambda results: _show_archives(results, root, archives))


def _show_archives(results: Results, root: str, archives: list[ArchiveSummary]) -> None:
    from streamvault.objectstore.uri import RootAddress

    if not archives:
        results.line(f"no archives below {root}")
        return
    root = RootAddress.parse(root).uri
    results.table(
        {"ARCHIVE": False, "GENERATIONS": True, "EVENTS": True, "BYTES": True, "LAYOUT": False, "NEWEST": False},
        [
            (archive.name_below(root), "?", "?", "?", _table_text(archive) or "?", "cannot be read")
            if archive.problem
            else (
                archive.name_below(root),
                _generations(archive),
                events_text(archive.events, archive.bytes) or "-",
                bytes_text(archive.bytes),
                _table_text(archive) or archive.layout,
                seconds_moment_text(archive.created) if archive.created else "-",
            )
            for archive in archives
        ],
    )


def _table_text(archive: ArchiveSummary) -> str:
    return f"table {archive.table}" if archive.table else ""


def _generations(archive: ArchiveSummary) -> str:
    remarks = [f"from {archive.first_generation}"] if archive.first_generation > 1 else []
    remarks += [f"{archive.unfinished_generation} is unfinished"] if archive.unfinished_generation else []
    remarks += ["being deleted"] if archive.being_deleted else []
    return f"{archive.generations_in_force:,}" + (f" ({', '.join(remarks)})" if remarks else "")


SEGMENTS_SHOWN = 3
"""Maximum segments of a cut with ``--wide``; `--json` has all of them."""


def timeline(
    archive: ArchiveArgument,
    *,
    wide: Annotated[
        bool, option("--wide", "Also show where each generation begins and ends in the first segments.")
    ] = False,
    command: Command,
) -> None:
    """List an archive's generations, holds and checks.

    Generations that have expired are left out.
    """
    from streamvault.manifests.verbs.show import show_timeline

    command.call(show_timeline, archive, show=partial(_show_generations, wide=wide))


def _show_generations(results: Results, timeline: Timeline, *, wide: bool = False) -> None:
    results.line(timeline.archive)
    if timeline.expired_up_to:
        results.line(f"generations up to {timeline.expired_up_to} have expired, according to {timeline.decision}")
    if timeline.being_deleted:
        results.line(f"the archive is being deleted, according to {timeline.decision}")
    columns: dict[str, Callable[[TimelineEntry], str]] = {
        "GENERATION": lambda one: (
            str(one.generation) if one.first == one.generation else f"{one.first} to {one.generation}"
        ),
        "TAKEN": lambda one: exact_moment_text(one.created),  # --at with a rounded time would choose the one before
        "EVENTS": lambda one: events_text(one.events, one.bytes) or "-",
        "BYTES": lambda one: bytes_text(one.bytes),
        "LAYOUT": lambda one: one.layout,
        "READ BACK": lambda one: seconds_moment_text(one.checked_at) or "no",
        "HOLDS": lambda one: ", ".join(one.holds),
    }
    if any(entry.group_names is not None for entry in timeline.entries):
        columns["READER GROUPS"] = lambda one: "-" if one.group_names is None else ", ".join(one.group_names) or "none"
    if wide:
        columns |= {"FROM": lambda one: _short(one.from_cut), "TO": lambda one: _short(one.to_cut)}
    print_table(results, columns, timeline.entries, {"GENERATION", "EVENTS", "BYTES"})


def _short(cut: Mapping[str, int]) -> str:
    """Return a cut's first segments, without scope and stream."""
    shown = [f"{name.rpartition('/')[2]}:{offset}" for name, offset in list(cut.items())[:SEGMENTS_SHOWN]]
    more = len(cut) - len(shown)
    return " ".join([*shown, *([f"+{more} more"] if more else [])])
