"""`streamvault status`."""

from __future__ import annotations

from collections.abc import Callable

from streamvault.cli.ls import path_below
from streamvault.cli.options import RootArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text
from streamvault.common.times import age_text, seconds_moment_text
from streamvault.report.options import StatusOptions
from streamvault.report.reports import ArchiveStatus, StatusReport


def status(root: RootArgument, options: StatusOptions, *, running: Running) -> int:
    """Show how old and how complete archives are.

    A line for each archive and table. One that cannot be read has a line, too, and a warning that says why.
    """
    return running.verb("show_status", root, options, show=_show)


def _show(results: Results, report: StatusReport) -> None:
    if not report.statuses:
        results.line(f"no archives below {report.root}")
        return
    columns: dict[str, Callable[[ArchiveStatus], str]] = {
        "ARCHIVE": lambda one: path_below(one, report.root) + (f" (table {one.table})" if one.table else ""),
        "NEWEST": lambda one: "?" if one.problem else f"{one.generation}" if one.generation else "none",
        "TAKEN": lambda one: "cannot be read" if one.problem else seconds_moment_text(one.created) or "-",
        "AGE": lambda one: "-" if one.problem or one.newest_age is None else age_text(round(one.newest_age)),
        "READ BACK": _read_back,
        "UNFINISHED": _unfinished,
        "HELD": lambda one: f"{one.held_generations:,}" if one.held_generations else "",
        "GAPS": lambda one: bytes_text(one.gap_bytes) if one.gap_bytes else "",
    }
    cells = {name: [cell(one) for one in report.statuses] for name, cell in columns.items()}
    shown = {name: column for name, column in cells.items() if any(column)}
    results.table(
        {name: name in {"NEWEST", "AGE", "HELD", "GAPS"} for name in shown}, list(zip(*shown.values(), strict=True))
    )


def _read_back(one: ArchiveStatus) -> str:
    checked = one.generations_in_force - one.unchecked_generations
    if one.problem or one.table or not one.generations_in_force:
        return "-"
    if not one.unchecked_generations:
        return "yes"
    return f"{checked:,} of {one.generations_in_force:,}" if checked else "no"


def _unfinished(one: ArchiveStatus) -> str:
    if not one.unfinished_generation:
        return ""
    return f"{one.unfinished_generation}: {one.spans_done:,} of {one.spans_planned:,} ranges"
