"""`streamvault join`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.append import SourcesArgument, print_stitch
from streamvault.cli.options import option
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.joining.options import JoinOptions
from streamvault.joining.reports import StitchReport

NewOption = Annotated[str, option("--into", "The stream to create.", environment=False, metavar="TARGET")]


def join(sources: SourcesArgument, into: NewOption, options: JoinOptions, *, running: Running) -> int:
    """Join streams and archives into a new stream.

    Its key ranges are those that all sources share, so the events of each key keep their order.
    """
    return running.verb("join_streams", sources, into, options, show=_show, resumable=True)


def _show(results: Results, report: StitchReport) -> None:
    if report.unchanged:
        results.line(f"already joined: {report.stream} has {', '.join(report.sources)}")
    else:
        print_stitch(results, report, "join", "into")
