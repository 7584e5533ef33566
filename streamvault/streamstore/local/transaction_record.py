"""What a stream's record says of its transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self
from uuid import UUID

from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.transactions import TransactionState

_KEPT = 256
"""Ids of committed transactions that are kept, and as many of aborted ones; older ones are unknown."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transaction that has not ended.

    Attributes:
        epoch: the epoch in which it began.
        expires: when its lease runs out (POSIX time, seconds).
        into: once its commit is decided, where its bytes go: segment → (offset, bytes). None while it is open.
    """

    epoch: int
    expires: float
    into: Mapping[SegmentId, tuple[int, int]] | None = None


@dataclass(frozen=True, slots=True)
class StreamTransactions:
    """A stream's transactions.

    Attributes:
        going: those that have not ended; the commit of at most one is decided.
        committed: the last ones that were committed.
        aborted: the last ones that were aborted.
    """

    going: Mapping[UUID, TransactionRecord] = field(default_factory=dict)
    committed: tuple[UUID, ...] = ()
    aborted: tuple[UUID, ...] = ()

    @property
    def committing(self) -> UUID | None:
        """The one whose commit is decided but not finished."""
        return next((id_ for id_, record in self.going.items() if record.into is not None), None)

    def state(self, id_: UUID) -> TransactionState:
        """The recorded state; one that is open may have expired."""
        if id_ in self.going:
            return TransactionState.OPEN if self.going[id_].into is None else TransactionState.COMMITTING
        if id_ in self.committed:
            return TransactionState.COMMITTED
        return TransactionState.ABORTED if id_ in self.aborted else TransactionState.UNKNOWN

    def changed(self, id_: UUID, record: TransactionRecord) -> Self:
        """Return them with this one begun or changed."""
        return replace(self, going={**self.going, id_: record})

    def finished(self, id_: UUID) -> Self:
        """Return them with this one committed."""
        going = {other: record for other, record in self.going.items() if other != id_}
        return replace(self, going=going, committed=(*self.committed, id_)[-_KEPT:])

    def dropped(self, *ids: UUID) -> Self:
        """Return them with these aborted, as far as they are open."""
        ended = [id_ for id_ in ids if self.state(id_) is TransactionState.OPEN]
        going = {id_: record for id_, record in self.going.items() if id_ not in ended}
        return replace(self, going=going, aborted=(*self.aborted, *ended)[-_KEPT:])

    def judged(self, now: float) -> Self:
        """Return them with those aborted whose lease has run out."""
        return self.dropped(*(id_ for id_, record in self.going.items() if record.expires < now))

    def to_json(self) -> dict[str, Any]:
        """As in the stream's record."""
        going = {}
        for id_, record in self.going.items():
            entry: dict[str, Any] = {"epoch": record.epoch, "expires": record.expires}
            if record.into is not None:
                entry["into"] = {str(segment): list(stretch) for segment, stretch in record.into.items()}
            going[id_.hex] = entry
        return {
            "going": going,
            "committed": [id_.hex for id_ in self.committed],
            "aborted": [id_.hex for id_ in self.aborted],
        }

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Parse the output of `to_json`; raises what wrong JSON raises."""
        going = {}
        for id_, entry in value["going"].items():
            into = entry.get("into")
            if into is not None:
                into = {SegmentId.parse(name): (int(offset), int(length)) for name, (offset, length) in into.items()}
            going[UUID(hex=id_)] = TransactionRecord(entry["epoch"], entry["expires"], into)
        committed, aborted = (tuple(UUID(hex=id_) for id_ in value[name]) for name in ("committed", "aborted"))
        return cls(going, committed, aborted)
