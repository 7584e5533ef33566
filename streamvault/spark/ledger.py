"""What a named write has committed, so that the same one again writes nothing: a small stream beside the target.

A write prepares (its transaction holds all of its events), notes that down, commits, and notes that down too. Whoever
comes after a kill finds one of: nothing, so nothing was committed; a prepared transaction, which is committed or
aborted for good, or still open and then committed now; or a committed one.

A note counts for the same query and the same target only. A query whose checkpoint was lost numbers its batches from 0
again, and a target that was deleted and made again has none of what was committed: taking new events for written would
lose them without a word, so both are refused.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from common.errors import Conflict
from streamstore.errors import OffsetConflict, StreamExists
from streamstore.framing import frame
from streamstore.model import SegmentId, StreamConfiguration, StreamCut, StreamName
from streamstore.own import OWN, is_own
from streamstore.splitting import EventSplitter
from streamstore.store import StreamStore
from streamstore.transactions import Transaction

__all__ = ["Ledger", "Note"]

_LONGEST_BYTES = 256 * 1024
"""Older notes are truncated away when there are so many bytes of them."""


@dataclass(frozen=True, slots=True)
class Note:
    """The newest thing that is known of a named write.

    Attributes:
        version: of the write. transaction: what holds its events.
        committed: whether it is known that they are committed.
        query: the id of the streaming query that writes, which its checkpoint holds; empty for a batch job.
    """

    version: int
    transaction: Transaction
    committed: bool
    query: str = ""


class Ledger:
    """The notes of one writer to one stream.

    Args:
        store: holds the target, and the ledger beside it in the same scope.
        target: the stream that is written to. app: names the writer.
    """

    def __init__(self, store: StreamStore, target: StreamName, app: str) -> None:
        self._store = store
        self._target = target
        self._app = app
        name = hashlib.sha256(f"{target}\n{app}".encode()).hexdigest()[:24]
        self.stream = StreamName(target.scope, f"spark-writes-{name}")
        self._segment = SegmentId(0, 0)
        self._first = self._end = 0
        self._incarnation = ""

    def newest(self, query: str = "") -> Note | None:
        """The newest note; None if there is none.

        Args:
            query: as of `Note`: the one that wants to write.

        Raises:
            Conflict: the newest note is of another query, or of an earlier stream of the target's name; or a user's
                stream has the ledger's name.
            StreamStoreError: the ledger cannot be read.
        """
        self._incarnation = _incarnation(self._store, self._target)
        if not self._store.exists(self.stream):
            # of several at once, one makes it
            with suppress(StreamExists):
                self._store.create_stream(self.stream, StreamConfiguration(tags=(OWN, f"of:{self._target}"[:256])))
        # one that was deleted and made again numbers its segment on
        described = self._store.describe(self.stream)
        if not is_own(described.configuration):
            raise Conflict(
                "a stream has the name that the notes of this write need",
                where=f"{self._store.uri}/{self.stream}",
                todo="Rename or delete it, or give the write another txnAppId.",
            )
        segment = next(iter(described.tail.offsets))
        info = self._store.segment_info(self.stream, [segment])[0]
        self._segment, self._first, self._end = info.segment, info.start_offset, info.write_offset
        splitter, last = EventSplitter(info.start_offset, str(self.stream)), None
        for block in self._store.read(self.stream, info.segment, info.start_offset, info.write_offset):
            for _, payload in splitter.events(block):
                last = json.loads(bytes(payload))
        splitter.finish()
        if last is None:
            return None
        if last["target"] != self._incarnation:
            raise Conflict(
                "the target was deleted and made again since the last write under this name",
                where=f"{self._app}, to {self._target}",
                todo=f"Delete the stream {self.stream} to go on with the new target, or write under another txnAppId.",
            )
        if last["query"] != query:
            writer = f"query {last['query']}" if last["query"] else "a batch job"
            raise Conflict(
                f"{writer} has written under this name, up to version {last['version']}, and this is another one; "
                "so is a query whose checkpoint was lost",
                where=f"{self._app}, to {self._target}",
                todo="Use the checkpoint that it was written with, or another txnAppId.",
            )
        transaction = Transaction(self._target, UUID(last["transaction"]), {})
        return Note(last["version"], transaction, last["committed"], last["query"])

    def note(self, note: Note) -> None:
        """Add a note behind the newest one, which was asked for before.

        Raises:
            Conflict: somebody else has added one meanwhile: another run of the same query is alive.
        """
        document = {
            "app": self._app,
            "query": note.query,
            "target": self._incarnation,
            "version": note.version,
            "transaction": note.transaction.id.hex,
            "committed": note.committed,
        }
        data = frame(json.dumps(document).encode())
        try:
            with self._store.appender(self.stream, self._segment) as appender:
                if appender.offset != self._end:
                    raise self._other()
                appender.append(data)
        except OffsetConflict:
            raise self._other() from None
        before, self._end = self._end, self._end + len(data)
        if self._end - self._first > _LONGEST_BYTES:
            self._store.truncate(StreamCut(self.stream, {self._segment: before}))
            self._first = before

    def _other(self) -> Conflict:
        return Conflict(
            "somebody else writes under the same name",
            where=f"{self._app}, to {self._target}",
            todo="Run one query at a time, or give each its own txnAppId.",
        )


def _incarnation(store: StreamStore, target: StreamName) -> str:
    """What tells a stream from one of the same name that was deleted: stores number on the segments of a new one."""
    return str(min(store.describe(target).epochs[0].segments))
