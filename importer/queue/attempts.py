"""One request after the other: done, to be tried again, or failed for good and put aside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from common.errors import Conflict, Damaged, Failed, Problem, Usage
from importer.queue.handlers import HANDLERS, Workshop
from importer.queue.model import FailedRequest, NotARequest, decode_failed, decode_request, encode
from importer.queue.reports import FinishedRequest
from manifests.retries import TRANSIENT
from streamstore.fifo import Entry, Producer, QueueSegment

__all__ = ["Attempts"]

FINAL = (Usage, Conflict, Damaged)
"""What trying again does not mend."""

TRIES = 3
"""How often a request is tried that fails for any other reason (no permission, a full disk, a bug)."""


TEXT_CHARACTERS = 2000
"""Of each text that is noted with a failed request."""


class Attempts:
    """The handler of a queue of requests; see `streamstore.fifo.Handler`.

    Args:
        workshop: what requests are done with.
        failed: gives the queue that failed requests are put into; asked for when it is needed.
        finished: told each request that was done or put aside.

    Attributes:
        current: the request under way or to be tried again, for a person; empty if there is none.
        tried: how often. trouble: why the last try failed; empty if there was none.
        done, failed: how many. exit_codes: of those that failed.
    """

    def __init__(
        self,
        workshop: Workshop,
        failed: Callable[[], QueueSegment],
        finished: Callable[[FinishedRequest], None],
    ) -> None:
        self._workshop = workshop
        self._aside = failed
        self._finished = finished
        self.current = ""
        self.tried = 0
        self.trouble = ""
        self.done = 0
        self.failed = 0
        self.exit_codes: set[int] = set()

    def __call__(self, batch: Sequence[Entry]) -> None:
        """Do one request.

        Raises:
            Exception: it is to be tried again.
        """
        (entry,) = batch
        began = time.monotonic()
        self.tried += 1
        self.current, kind = f"an entry that is no request ({entry.name})", ""
        try:
            request = decode_request(entry.content)
            self.current, kind = f"{request} ({entry.name})", request.kind
            report = HANDLERS[kind](request, self._workshop)
        except Exception as error:
            self._workshop.close()
            self.trouble = str(as_problem(error))
            if isinstance(error, TRANSIENT) or not (isinstance(error, FINAL) or self.tried >= TRIES):
                raise
            self._put_aside(entry, kind, as_problem(error), began)
        else:
            self.done += 1
            self._finished(
                FinishedRequest(
                    id=str(entry.name),
                    kind=kind,
                    text=str(request),
                    ok=True,
                    tries=self.tried,
                    seconds=round(time.monotonic() - began, 3),
                    latency_seconds=_since(entry),
                    report=report,
                )
            )
        self.current, self.trouble, self.tried = "", "", 0

    def _put_aside(self, entry: Entry, kind: str, error: Problem, began: float) -> None:
        """Move a request to the failed ones; it is in both for a moment, never in none.

        If another worker has moved it already, it is not moved again. Its name alone would not tell: one that was put
        back and fails once more has to be moved, though whoever put it back has not taken it out there yet.
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

        def is_this(other: Entry) -> bool:
            try:
                return other.name == entry.name and decode_failed(other.content).offset == entry.offset
            except NotARequest:
                return False

        Producer(self._aside()).move(encode(failed), entry.name, unless=is_this)
        self.failed += 1
        self.exit_codes.add(error.exit_code)
        self._finished(
            FinishedRequest(
                id=str(entry.name),
                kind=kind,
                text=str(failed),
                ok=False,
                tries=self.tried,
                seconds=round(time.monotonic() - began, 3),
                latency_seconds=_since(entry),
                error={"what": error.what, "where": error.where, "todo": error.todo, "exit_code": error.exit_code},
            )
        )


def as_problem(error: BaseException) -> Problem:
    """An error in the form that is told."""
    if isinstance(error, Problem):
        return error
    return Failed(f"internal error: {type(error).__name__}", where=" ".join(str(error).split()))


def _shortened(text: str) -> str:
    """A text as it is noted with a failed request: three of them fit into `NOTE_BYTES`, whatever they hold."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - 2]} …"


def _since(entry: Entry) -> float:
    return round(max(time.time() - entry.put_time, 0.0), 3)
