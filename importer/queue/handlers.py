"""What does each kind of request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from common.progress import Progress
from importer.import_ import import_stream
from importer.queue.deletions import delete
from importer.queue.model import RestoreRequest
from sparkrun.opening import open_runner
from sparkrun.preload import TASK_MODULES

__all__ = ["HANDLERS", "Workshop"]


class Workshop:
    """What handlers work with: where tasks run, and whom to tell. Spark stays up from one request to the next.

    Args:
        master: a Spark master, or ``"inline"``.
        progress: told how requests go on.
    """

    def __init__(self, master: str, progress: Progress) -> None:
        self.master = master
        self.progress = progress
        self._open = ExitStack()
        self._is_open = False

    def warm(self) -> None:
        """Have a runner open; those that a verb opens with the same master share it."""
        if not self._is_open:
            self._open.enter_context(open_runner(self.master, TASK_MODULES))
            self._is_open = True

    def close(self) -> None:
        """Stop the runner."""
        self._is_open = False
        self._open.close()


def restore(request: RestoreRequest, workshop: Workshop) -> dict[str, Any]:
    """Restore a stream; one that was restored already by this same request is only verified."""
    arguments = request.model_dump(exclude={"kind", "version", "archive", "stream"})
    workshop.warm()
    report = import_stream(
        request.archive,
        request.stream,
        **arguments,
        again=True,
        master=workshop.master,
        progress=workshop.progress,
    )
    for warning in report.warnings:
        workshop.progress.warn(warning)
    return report.to_json()


HANDLERS: Mapping[str, Callable[[Any, Workshop], dict[str, Any]]] = {
    "restore": restore,
    "delete": lambda request, _workshop: delete(request),
}
"""`kind` of a request → what does it. It returns plain values for the record, and may be called again with a request
that it has done already."""
