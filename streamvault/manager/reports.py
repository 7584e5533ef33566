"""Reports and options of the verbs over the streams of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from streamvault.common.options import DURATION, Rehearsed
from streamvault.common.report import Report, RunReport

StreamRole = Literal[
    "stream", "ephemeral", "lease", "ledger", "queue", "unfinished", "replica", "tombstone", "swept", "internal"
]
"""What a stream is: a user's, an ephemeral one of a user's, or one of Streamvault's kinds of internal streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary(Report):
    """A stream of a store.

    Attributes:
        stream: the stream's URI.
        role: "stream" for a user's stream; "ephemeral" for one that exists only while a program uses it. The others are
            internal streams of Streamvault: "lease", "ledger", "queue", "unfinished" (the target of an import or a copy
            that is not finished), "replica", "tombstone" (what `move` leaves), "swept" (being deleted), "internal".
        segments: open segments; of a sealed stream, those of its end.
        epochs: epochs.
        bytes: bytes from the stream's head to its tail, with event headers.
        sealed: whether the stream is sealed.
        problem: why the stream could not be read; empty if it was. The figures are 0 then.
    """

    stream: str
    role: StreamRole
    segments: int = 0
    epochs: int = 0
    bytes: int = 0
    sealed: bool = False
    problem: str = ""

    @property
    def own(self) -> bool:
        """Whether it is an internal stream of Streamvault."""
        return self.role not in {"stream", "ephemeral"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamListing(Report):
    """The streams of a scope, or of all scopes of a store.

    Attributes:
        streams: the streams.
    """

    streams: tuple[StreamSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEntry(Report):
    """An internal or ephemeral stream that a sweep has looked at.

    Attributes:
        stream: the stream's URI.
        role: what it is, as in `StreamSummary`.
        swept: whether it was deleted; in a dry run, whether it would be.
        reason: why it was not; empty if it was.
    """

    stream: str
    role: StreamRole
    swept: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport(RunReport):
    """Result of a sweep.

    Attributes:
        scope: the scope's URI.
        leftovers: the internal and ephemeral streams of the scope, without queues and tombstones.
        scaled: URIs of the streams that an append had scaled before it was killed, and that have got their key ranges
            and their policies back; in a dry run, of those that would unless the append goes on.
    """

    scope: str
    leftovers: tuple[SweepEntry, ...]
    scaled: tuple[str, ...] = ()


class SweepOptions(Rehearsed):
    """Options of *sweep*."""

    older_than: Annotated[
        float,
        Field(
            ge=0,
            description="Delete what sweeps have found unchanged for this long: 1d, 1h, 15m or 30s; 0s: at once.",
        ),
        DURATION.destroying(),
    ] = 3600.0
