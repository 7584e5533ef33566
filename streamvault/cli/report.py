"""`streamvault report`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.options import argument, folder_as_uri
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text
from streamvault.report.options import ReportOptions
from streamvault.report.reports import PageReport

_Place = Annotated[
    str,
    argument(
        "ARCHIVE|ROOT|STREAM",
        "An archive, a root with archives, or a stream, as the other commands take it.",
        callback=folder_as_uri,
    ),
]


def report(place: _Place, options: ReportOptions, *, running: Running) -> int:
    """Report on an archive, a root or a stream as a web page.

    Also as SVG files. Of archives, only the records are read.
    """
    return running.verb("write_report", place, options, show=_show)


def _show(results: Results, report: PageReport) -> None:
    for file in (report.file, *report.charts):
        if file:
            results.line(file)
    if report.unarchived is not None:
        results.line(f"not archived yet: {bytes_text(report.unarchived)}")
