"""The handler of each kind of request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from streamvault.common.progress import Progress
from streamvault.importer.import_ import import_stream
from streamvault.importer.run import RESTORE_TASKS
from streamvault.requests.deletions import delete
from streamvault.requests.model import RestoreRequest
from streamvault.sparkrun.opening import open_runner


class RequestContext:
    """Resources that handlers share. Spark keeps running from one request to the next.

    Args:
        master: a Spark master, or ``"inline"``.
        progress: receives the progress of requests.
    """

    def __init__(self, master: str, progress: Progress) -> None:
        self.master = master
        self.progress = progress
        self._open = ExitStack()
        self._is_open = False

    def start_runner(self) -> None:
        """Start a runner, unless it runs; functions that open one with the same master share it."""
        if not self._is_open:
            self._open.enter_context(open_runner(self.master, RESTORE_TASKS))
            self._is_open = True

    def close(self) -> None:
        """Stop the runner."""
        self._is_open = False
        self._open.close()


def restore(request: RestoreRequest, context: RequestContext) -> dict[str, Any]:
    """Restore a stream; if the same request restored it already, only verify it."""
    arguments = request.model_dump(exclude={"kind", "version", "archive", "stream"})
    context.start_runner()
    report = import_stream(
        request.archive,
        request.stream,
        **arguments,
        again=True,
        master=context.master,
        progress=context.progress,
    )
    for warning in report.warnings:
        context.progress.warn(warning)
    return report.to_json()


HANDLERS: Mapping[str, Callable[[Any, RequestContext], dict[str, Any]]] = {
    "restore": restore,
    "delete": lambda request, _context: delete(request),
}
"""`kind` of a request → its handler, which returns plain values for the report and may be called again with a request
that it has done already."""
