"""The report of a verb that ran for each stream of a scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from streamvault.common.errors import Failed, Problem
from streamvault.common.report import TimedReport

R = TypeVar("R")
"""What a verb reports for one stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFailure:
    """Why a verb failed for a stream.

    Attributes:
        what: what happened.
        where: the object concerned, or empty.
        todo: the next step, or empty.
        retriable: whether the same command may succeed later without any change.
    """

    what: str
    where: str = ""
    todo: str = ""
    retriable: bool = False

    def __str__(self) -> str:
        return str(Problem(self.what, where=self.where, todo=self.todo))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOutcome(Generic[R]):
    """How a verb ended for a stream of a scope.

    Attributes:
        stream: URI of the stream or the archive.
        status: "done", "failed", or "gone" if the stream was deleted meanwhile.
        exit_code: the exit code of the command for this stream alone; 0 if it is gone.
        result: what the verb reports for this stream; None if it failed or is gone.
        failure: why it failed; None if it did not, or if the report says why.
        seconds: how long it took, with waiting.
    """

    stream: str
    status: Literal["done", "failed", "gone"]
    exit_code: int = 0
    result: R | None = None
    failure: StreamFailure | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OmittedStream:
    """A stream of a scope for which a verb was not run.

    Attributes:
        stream: URI of the stream or the archive.
        reason: why.
    """

    stream: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeReport(TimedReport, Generic[R]):
    """Result of a verb for the streams of a scope.

    Attributes:
        scope: the scope or the pattern, as given.
        outcomes: how it ended for each stream, in the order of their names.
        omitted: the streams that were left out.
        key_value_tables: URIs of the scope's key-value tables, which are not migrated.
        dry_run: whether it was a dry run: nothing was changed.
    """

    scope: str
    outcomes: tuple[StreamOutcome[R], ...]
    omitted: tuple[OmittedStream, ...] = ()
    key_value_tables: tuple[str, ...] = ()
    dry_run: bool = False

    @classmethod
    def of(cls, report: R) -> ScopeReport[R]:
        """Return the report of a verb that was called for a scope, as type checkers must be told.

        Raises:
            TypeError: it is the report of a single stream.
        """
        found: Any = report
        if not isinstance(found, ScopeReport):
            raise TypeError(f"{type(report).__name__} is the report of one stream; a scope's URI ends in '/'")
        return found

    @property
    def exit_code(self) -> int:
        """The exit code of the streams that failed if they agree, else 1."""
        codes = {each.exit_code for each in self.outcomes} - {0}
        return next(iter(codes), 0) if len(codes) < 2 else Failed.exit_code
