"""`streamvault translate`."""

from __future__ import annotations

import json
from typing import Annotated

from streamvault.cli.options import argument, folder_as_uri, option
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.errors import Usage
from streamvault.mirrors.reports import TranslateReport


def translate(
    source: Annotated[
        str,
        argument(
            "SOURCE",
            "What the positions belong to: an archive, ROOT/SCOPE/STREAM, or a stream's URI.",
            callback=folder_as_uri,
        ),
    ],
    stream: Annotated[
        str,
        argument("TARGET", "The restored stream. If it is in another cluster, set PRAVEGA_TARGET_USERNAME and so on."),
    ],
    positions: Annotated[
        list[str] | None,
        argument("CUT|POINTER", "Stream cuts as JSON, event pointers, or names of files that contain one."),
    ] = None,
    *,
    reader_group: Annotated[
        list[str] | None,
        option("--reader-group", "Translate the position of this reader group of SOURCE. Repeatable.", metavar="NAME"),
    ] = None,
    running: Running,
) -> int:
    """Translate cuts and pointers for a restored stream.

    The positions of reader groups are translated, too. The output has a line for each cut or pointer, in the same
    order; those of groups follow.
    """
    with running.command() as command:
        from streamvault.streamstore.arithmetic.cut_option import load_position

        given = [load_position(one, "CUT") for one in positions or ()]
        if not given and not reader_group:
            raise Usage(
                "no position is given", todo="Give cuts or pointers, or a reader group's name with --reader-group."
            )
        command.call("translate", source, stream, given, reader_group or (), show=_show)
    return command.exit_code


def _show(results: Results, report: TranslateReport) -> None:
    for position in report.positions:
        results.line(position.new if isinstance(position.new, str) else json.dumps(position.new))
