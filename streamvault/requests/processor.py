"""Process requests one by one: each succeeds, is retried, or fails for good and moves to the failed ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from streamvault.common.errors import Conflict, Damaged, Failed, Problem, Usage
from streamvault.common.retries import is_transient
from streamvault.requests.handlers import HANDLERS, RequestContext
from streamvault.requests.model import FailedRequest, NotARequest, decode_failed, decode_request, encode
from streamvault.requests.reports import FinishedRequest
from streamvault.streamstore.services.fifo.entry import QueueEntry
from streamvault.streamstore.services.fifo.producer import Producer
from streamvault.streamstore.services.fifo.segment import QueueSegment

FINAL = (Usage, Conflict, Damaged)
"""Errors that a retry cannot fix."""

TRIES = 3
"""Attempts at a request that fails for any other reason (no permission, a full disk, a bug)."""

TEXT_CHARACTERS = 2000
"""Maximum length of each text recorded with a failed request."""


class RequestProcessor:
    """Processes the requests of a queue; a `streamstore.services.fifo.Handler`.

    Args:
        context: passed to the handlers of requests.
        failed: returns the queue for failed requests; called when a request fails.
        finished: called with each request that was done or has failed.

    Attributes:
        current: the request in progress or to be retried, as text for users; empty if there is none.
        tried: number of attempts at the current request.
        trouble: why the last attempt failed; empty if it did not.
        done: number of requests done.
        failed: number of failed requests.
        exit_codes: exit codes of the failed requests.
    """

    def __init__(
        self,
        context: RequestContext,
        failed: Callable[[], QueueSegment],
        finished: Callable[[FinishedRequest], None],
    ) -> None:
        self._context = context
        self._failed_queue = failed
        self._finished = finished
        self.current = ""
        self.tried = 0
        self.trouble = ""
        self.done = 0
        self.failed = 0
        self.exit_codes: set[int] = set()

    def __call__(self, batch: Sequence[QueueEntry]) -> None:
        """Process one request.

        Raises:
            Exception: the request must be retried.
        """
        (entry,) = batch
        began = time.monotonic()
        self.tried += 1
        self.current, kind = f"an invalid request ({entry.name})", ""
        try:
            request = decode_request(entry.content)
            self.current, kind = f"{request} ({entry.name})", request.kind
            report = HANDLERS[kind](request, self._context)
        except Exception as error:
            self._context.close()
            self.trouble = str(as_problem(error))
            if is_transient(error) or not (isinstance(error, FINAL) or self.tried >= TRIES):
                raise
            self._move_to_failed(entry, kind, as_problem(error), began)
        else:
            self.done += 1
            self._tell(entry, began, kind=kind, text=str(request), ok=True, report=report)
        self.current, self.trouble, self.tried = "", "", 0

    def _move_to_failed(self, entry: QueueEntry, kind: str, error: Problem, began: float) -> None:
        """Move a request to the failed ones; for a moment it is in both queues, never in neither.

        A request that another worker has moved already is not moved again. Comparing names would not do: a request that
        was put back and fails again must be moved even if it was not yet removed from the failed ones.
        """
        failed = FailedRequest(
            content=entry.content,
            offset=entry.offset,
            time=datetime.now(UTC),
            what=_shortened(error.what),
            where=_shortened(error.where),
            todo=_shortened(error.todo),
            exit_code=error.exit_code,
            tries=self.tried,
        )

        def is_this(other: QueueEntry) -> bool:
            try:
                return other.name == entry.name and decode_failed(other.content).offset == entry.offset
            except NotARequest:
                return False

        Producer(self._failed_queue()).move(encode(failed), entry.name, unless=is_this)
        self.failed += 1
        self.exit_codes.add(error.exit_code)
        why = {"what": error.what, "where": error.where, "todo": error.todo, "exit_code": error.exit_code}
        self._tell(entry, began, kind=kind, text=str(failed), ok=False, error=why)

    def _tell(self, entry: QueueEntry, began: float, **result: Any) -> None:
        """Tell of a request that was done or has failed."""
        seconds, latency = time.monotonic() - began, max(time.time() - entry.put_time, 0.0)
        self._finished(
            FinishedRequest(
                id=str(entry.name),
                tries=self.tried,
                seconds=round(seconds, 3),
                latency_seconds=round(latency, 3),
                **result,
            )
        )


def as_problem(error: BaseException) -> Problem:
    """Return an error as a `Problem`."""
    if isinstance(error, Problem):
        return error
    return Failed(f"internal error: {type(error).__name__}", where=" ".join(str(error).split()))


def _shortened(text: str) -> str:
    """Shorten a text to be recorded with a failed request, so that three of them fit into `NOTE_BYTES`."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - 2]} …"
