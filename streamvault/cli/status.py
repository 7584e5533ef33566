"""`streamvault status`, `streamvault report` and `streamvault doctor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from streamvault.cli.lines import print_table
from streamvault.cli.options import argument, folder_as_uri
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.errors import Problem
from streamvault.common.units import age_text, bytes_text, seconds_moment_text
from streamvault.inspect.reports import (
    ArchiveStatus,
    DoctorOptions,
    LeaseStatus,
    PageReport,
    QueueStatus,
    ReplicaStatus,
    ReportOptions,
    SetupReport,
    StatusOptions,
    StatusReport,
    StreamStatus,
)

_Place = Annotated[
    str,
    argument(
        "ROOT|SCOPE/",
        "A root: s3://BUCKET/PREFIX, or a folder's path or URI. Or a scope: pravega://HOST:PORT/SCOPE/ or "
        "local:///FOLDER/SCOPE/, also a pattern or a stream, with --root.",
        callback=folder_as_uri,
    ),
]

RIGHT = frozenset({"NEWEST", "AGE", "HELD", "GAPS", "NOT ARCHIVED", "WAITING", "FAILED", "OLDEST", "LAG", "PID"})
"""Columns of figures."""


def status(place: _Place, options: StatusOptions, *, command: Command) -> None:
    """Show how old and how complete archives are.

    Prints a line for each archive and table; if one cannot be read, a warning says why. For a scope, prints a line
    for each stream, with how much is not archived yet, and the leases, queues and replicas.
    """
    from streamvault.scopes.status import show_status

    command.call(show_status, place, options, show=_show)


def _show(results: Results, report: StatusReport) -> None:
    if not report.scope:
        if report.statuses:
            print_table(results, _archive_columns(report.root), report.statuses, RIGHT)
        else:
            results.line(f"no archives below {report.root}")
        return
    parts: list[tuple[Sequence[Any], Callable[[], None]]] = [
        ((*report.live_streams, *report.statuses), lambda: _show_streams(results, report)),
        (report.queues, lambda: print_table(results, QUEUES, report.queues, RIGHT)),
        (report.replicas, lambda: print_table(results, REPLICAS, report.replicas, RIGHT)),
        (report.leases, lambda: print_table(results, LEASES, report.leases, RIGHT)),
    ]
    shown = [show for rows, show in parts if rows]
    for number, show in enumerate(shown):
        if number:
            results.line("")
        show()
    if not shown:
        results.line(f"nothing in {report.scope}")


def _show_streams(results: Results, report: StatusReport) -> None:
    """Print a line for each stream and its archive, and one for each other archive or table."""
    archives = {one.archive: one for one in report.statuses if not one.table}
    rows: list[tuple[StreamStatus | None, ArchiveStatus | None]] = [
        (one, archives.pop(one.archive, None)) for one in report.live_streams
    ]
    rows += [(None, one) for one in [*archives.values(), *(one for one in report.statuses if one.table)]]
    of_archive = _archive_columns("")
    of_archive.pop("ARCHIVE")

    def cell(column: Callable[[ArchiveStatus], str]) -> Callable[[tuple[Any, ArchiveStatus | None]], str]:
        return lambda row: "" if row[1] is None else column(row[1])

    def newest(row: tuple[StreamStatus | None, ArchiveStatus | None]) -> str:
        if row[0] is None or row[1] is not None:
            return cell(of_archive["NEWEST"])(row)
        return "no archive" if row[0].is_archived is False else "?" if row[0].problem else ""

    columns: dict[str, Callable[[tuple[StreamStatus | None, ArchiveStatus | None]], str]] = {
        "STREAM": lambda row: _name(row[0].stream) if row[0] else _archived_name(row[1]),
        **{name: cell(column) for name, column in of_archive.items()},
        "NEWEST": newest,
        "NOT ARCHIVED": lambda row: _unarchived(row[0]) if row[0] else "" if row[1] and row[1].table else "no stream",
    }
    print_table(results, columns, rows, RIGHT)


def _archived_name(one: ArchiveStatus | None) -> str:
    return "" if one is None else one.stream_name + (f" (table {one.table})" if one.table else "")


def _unarchived(one: StreamStatus) -> str:
    if one.unarchived is not None:
        return bytes_text(one.unarchived)
    return "?" if one.problem or one.archive else ""


def _archive_columns(root: str) -> dict[str, Callable[[ArchiveStatus], str]]:
    return {
        "ARCHIVE": lambda one: one.name_below(root) + (f" (table {one.table})" if one.table else ""),
        "NEWEST": lambda one: "?" if one.problem else f"{one.generation}" if one.generation else "none",
        "TAKEN": lambda one: "cannot be read" if one.problem else seconds_moment_text(one.created) or "-",
        "AGE": lambda one: "-" if one.problem or one.newest_age is None else age_text(round(one.newest_age)),
        "READ BACK": _read_back,
        "UNFINISHED": _unfinished,
        "DELETION": lambda one: "not finished" if one.being_deleted else "",
        "HELD": lambda one: f"{one.held_generations:,}" if one.held_generations else "",
        "GAPS": lambda one: bytes_text(one.gap_bytes) if one.gap_bytes else "",
    }


QUEUES: Mapping[str, Callable[[QueueStatus], str]] = {
    "QUEUE": lambda one: _name(one.queue),
    "WAITING": lambda one: f"{one.waiting:,}" if one.is_readable else "?",
    "FAILED": lambda one: f"{one.failed:,}" if one.is_readable else "?",
    "OLDEST": lambda one: "-" if one.oldest_age is None else age_text(round(one.oldest_age)),
    "WORKER": lambda one: one.worker or "none",
}

REPLICAS: Mapping[str, Callable[[ReplicaStatus], str]] = {
    "REPLICA": lambda one: _name(one.replica),
    "OF": lambda one: one.source or "?",
    "STATE": lambda one: one.state,
    "REACHED": lambda one: seconds_moment_text(one.reached) or "-",
    "LAG": lambda one: bytes_text(one.lag_bytes) if one.lag_bytes is not None else "?" if one.problem else "-",
}

LEASES: Mapping[str, Callable[[LeaseStatus], str]] = {
    "LEASE FOR": lambda one: _name(one.stream) or _name(one.lease),
    "WHAT": lambda one: one.purpose,
    "HOST": lambda one: one.host,
    "PID": lambda one: f"{one.pid}",
    "HOLDER": lambda one: "alive" if one.alive else "dead",
}


def _name(uri: str) -> str:
    """Return scope and name of a stream."""
    return "/".join(uri.rsplit("/", 2)[1:])


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


_ReportPlace = Annotated[
    str,
    argument(
        "ARCHIVE|ROOT|STREAM",
        "An archive, a root with archives, or a stream, as for other commands.",
        callback=folder_as_uri,
    ),
]


def report(place: _ReportPlace, options: ReportOptions, *, command: Command) -> None:
    """Report on an archive, a root or a stream as a web page.

    Can also write SVG files. Of archives, only the records are read, not the data.
    """
    from streamvault.inspect.write import write_report

    command.call(write_report, place, options, show=_show_report)


def _show_report(results: Results, report: PageReport) -> None:
    for file in (report.file, *report.charts):
        if file:
            results.line(file)
    if report.unarchived is not None:
        results.line(f"not archived yet: {bytes_text(report.unarchived)}")


StreamToCheck = Annotated[
    str, argument("STREAM", "pravega://HOST:PORT/SCOPE/STREAM, pravega+tls://… or local:///FOLDER/SCOPE/STREAM.")
]
RootToCheck = Annotated[
    str | None,
    argument(
        "ROOT", "The root for its archive: s3://BUCKET/PREFIX, or a folder's path or URI.", callback=folder_as_uri
    ),
]


def doctor(stream: StreamToCheck, root: RootToCheck = None, *, options: DoctorOptions, command: Command) -> None:
    """Check whether a stream can be archived from this machine.

    Prints a line for each check: ok, failed or not checked, what was found, and what to do. The exit code is 1 if any
    failed. Empty probe objects are written below ROOT and deleted again; nothing else is changed.
    """
    from streamvault.inspect.doctor import check_setup

    command.call(check_setup, stream, root, options, show=_show_doctor)


def _show_doctor(results: Results, report: SetupReport) -> None:
    width = max(len(one.name) for one in report.setup)
    for one in report.setup:
        results.line(f"{one.verdict:<11}  {one.name:<{width}}  {Problem(one.found, todo=one.todo)}")
