"""Report of *report*."""

from __future__ import annotations

from dataclasses import dataclass

from streamvault.common.report import Report


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
