"""`streamvault get`."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from streamvault.cli.options import ArchiveArgument, option
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run
from streamvault.common.progress import Progress


def get(
    archive: ArchiveArgument,
    pointer: Annotated[
        str,
        typer.Argument(
            metavar="POINTER",
            help="scope/stream/N.#epoch.E:OFFSET-LENGTH, as Pravega's clients print it.",
            show_default=False,
        ),
    ],
    *,
    verify: Annotated[
        bool, option("--verify", "First read the whole range that holds the event, and compare it with its digest.")
    ] = False,
    running: Running,
) -> int:
    """Write one event's payload to standard output.

    With --json, in base64.
    """

    def work(_: Progress) -> bytes:
        from streamvault.manifests.verbs.get import get_event

        return get_event(archive, pointer, verify=verify)

    return run(
        work,
        show=_show,
        document=lambda payload: {"pointer": pointer, "payload": base64.b64encode(payload).decode()},
        running=running,
    )


def _show(results: Results, payload: bytes) -> None:
    results.raw(payload)
