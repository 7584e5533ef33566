"""`streamvault get`."""

from __future__ import annotations

import base64
from typing import Annotated

from streamvault.cli.options import ArchiveArgument, argument
from streamvault.cli.running import Running
from streamvault.manifests.options import GetOptions


def get(
    archive: ArchiveArgument,
    pointer: Annotated[
        str, argument("POINTER", "scope/stream/N.#epoch.E:OFFSET-LENGTH, as Pravega's clients print it.")
    ],
    options: GetOptions,
    *,
    running: Running,
) -> int:
    """Write one event's payload to standard output.

    With --json, in base64.
    """
    from streamvault.manifests.verbs.get import get_event

    with running.command() as command:
        payload = get_event.with_options(archive, pointer, options)
        document = {"pointer": pointer, "payload": base64.b64encode(payload).decode()}
        command.write(document, lambda results: results.raw(payload))
    return command.exit_code
