"""`streamvault doctor`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.options import argument, folder_as_uri
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.errors import Problem
from streamvault.report.options import DoctorOptions
from streamvault.report.reports import SetupReport

StreamToCheck = Annotated[
    str, argument("STREAM", "pravega://HOST:PORT/SCOPE/STREAM, pravega+tls://… or local:///FOLDER/SCOPE/STREAM.")
]
RootToCheck = Annotated[
    str | None,
    argument(
        "ROOT", "Where it is to be archived: s3://BUCKET/PREFIX, or a folder's path or URI.", callback=folder_as_uri
    ),
]


def doctor(stream: StreamToCheck, root: RootToCheck = None, *, options: DoctorOptions, running: Running) -> int:
    """Check whether a stream can be archived from this machine.

    A line for each check: ok, failed or not checked, what was found, and what to do. The exit code is 1 if one failed.
    Empty probe objects are written below ROOT and deleted again; nothing else is changed.
    """
    return running.verb("check_setup", stream, root, options, show=_show)


def _show(results: Results, report: SetupReport) -> None:
    width = max(len(one.name) for one in report.setup)
    for one in report.setup:
        results.line(f"{one.verdict:<11}  {one.name:<{width}}  {Problem(one.found, todo=one.todo)}")
