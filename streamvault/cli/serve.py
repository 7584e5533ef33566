"""`streamvault serve`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.options import argument, folder_as_uri
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, seconds_text
from streamvault.serving.reports import ServeArguments, ServeOptions, ServeReport

_Sources = Annotated[
    list[str],
    argument(
        "ARCHIVE",
        "ROOT/SCOPE/STREAM, as `export` and `ls` print it; with / or a quoted pattern in place of the last name: all "
        "matching archives of the scope.",
        callback=folder_as_uri,
    ),
]


def serve(sources: _Sources, options: ServeOptions, *, command: Command) -> None:
    """Serve archives to Pravega clients as if they were streams.

    Readers need nothing but the address. Prints a line (with --json, an object) when it is ready, and one when it is
    interrupted.
    """
    from streamvault.serving.serve import serve_archives

    def ready(report: ServeReport) -> None:
        command.write(report.to_json(), lambda results: results.line(f"serving {_streams(report)} at {report.uri}"))

    command.is_ready = False  # until it answers
    arguments = ServeArguments(**options.keywords(), ready=ready, answering=command.serving)
    command.call(serve_archives, sources, arguments, show=_show)


def _streams(report: ServeReport) -> str:
    named = ", ".join(report.served[:3])
    return named if len(report.served) <= 3 else f"{named} and {len(report.served) - 3} more"


def _show(results: Results, report: ServeReport) -> None:
    results.line(f"served {_streams(report)}")
    results.fields(
        {
            "sent": bytes_text(report.sent_bytes),
            "ranges compared": f"{report.ranges_read:,}",
            "time": seconds_text(report.total_seconds),
        }
    )
