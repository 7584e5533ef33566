"""`streamvault translate`."""

from __future__ import annotations

import json
from typing import Annotated

from streamvault.cli.options import argument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.mirrors.reports import TranslateReport


def translate(
    source: Annotated[
        str, argument("SOURCE", "What the positions belong to: an archive, ROOT/SCOPE/STREAM, or a stream's URI.")
    ],
    stream: Annotated[
        str,
        argument("TARGET", "The restored stream. If it is in another cluster, set PRAVEGA_TARGET_USERNAME and so on."),
    ],
    positions: Annotated[
        list[str], argument("CUT|POINTER", "Stream cuts, each as JSON or a file's name, and event pointers.")
    ],
    *,
    running: Running,
) -> int:
    """Translate cuts and pointers into a restored stream's.

    The output has a line for each, in the same order.
    """
    with running.command() as command:
        from streamvault.streamstore.arithmetic.cut_option import load_cut
        from streamvault.streamstore.model import is_pointer

        given = [one if is_pointer(one) else load_cut(one, "CUT") for one in positions]
        command.call("translate", source, stream, given, show=_show)
    return command.exit_code


def _show(results: Results, report: TranslateReport) -> None:
    for position in report.positions:
        results.line(position.new if isinstance(position.new, str) else json.dumps(position.new))
