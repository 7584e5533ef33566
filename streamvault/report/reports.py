"""Reports of *report*, *status* and *doctor*."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streamvault.common.notebook import html_of
from streamvault.common.report import Report
from streamvault.manifests.verbs.reports import ArchiveSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReport(Report):
    """What *report* has written.

    Attributes:
        file: the HTML file; empty if none was asked for.
        charts: the SVG files.
        archives_found: number of archives and tables on the page.
        generations_read: number of generations in force whose manifests were read for charts.
        unarchived: bytes of the given stream that are not archived yet; None if no stream was given.
        warnings: what the page does not show, and why.
        total_seconds: duration of the call; of the whole command on the command line.
    """

    file: str = ""
    charts: tuple[str, ...] = ()
    archives_found: int = 0
    generations_read: int = 0
    unarchived: int | None = None
    warnings: tuple[str, ...] = ()
    total_seconds: float = 0.0

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the charts as well, as long as their files exist."""
        files = [file for file in map(Path, self.charts) if file.is_file()]
        return html_of(self.to_json(), [(file.stem, file.read_text(encoding="utf-8")) for file in files])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStatus(ArchiveSummary):
    """The status of an archive or a table.

    Attributes:
        newest_age: how long before the status the newest generation was taken, in seconds; None if there is none.
        spans_planned: number of spans of the unfinished generation.
        spans_done: number of these whose ranges are archived. If an event is larger than a span, some spans have no
            range, and not all get done.
    """

    newest_age: float | None = None
    spans_planned: int = 0
    spans_done: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport(Report):
    """The status of the archives and tables below a root.

    Attributes:
        root: the root's URI.
        seen: when it was read, RFC 3339.
        statuses: the archives and tables, in the order of their paths.
        metrics_file: the file with the metrics; empty if none was asked for.
        warnings: which of them cannot be read, and why.
    """

    root: str
    seen: str
    statuses: tuple[ArchiveStatus, ...]
    metrics_file: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupCheck:
    """One check of a set-up.

    Attributes:
        name: what was checked.
        verdict: `ok`, `failed` or `not checked`.
        found: what was found, or why it was not checked.
        todo: what to do about it; empty if there is nothing to do.
    """

    name: str
    verdict: Literal["ok", "failed", "not checked"]
    found: str
    todo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupReport(Report):
    """The checks of a set-up.

    Attributes:
        passed: whether no check failed.
        setup: the checks, in the order in which they depend on each other.
        warnings: where probe objects remain or may remain.
        total_seconds: duration of the call; of the whole command on the command line.
    """

    passed: bool
    setup: tuple[SetupCheck, ...]
    warnings: tuple[str, ...] = ()
    total_seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 if a check failed."""
        return 0 if self.passed else 1
