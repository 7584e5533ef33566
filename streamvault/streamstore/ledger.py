"""A ledger: records of what a writer has done to a stream, in a small stream beside it.

Each record is an event of JSON, and only the newest counts; older ones are truncated from time to time. A record is
appended at exactly the end that its writer has read, so of two writers one is refused. Each has an id of its own: a
writer that did not get the answer to an append finds out whether the record is there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from streamvault.common.errors import Conflict
from streamvault.streamstore.errors import (
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    OffsetConflict,
    SegmentSealed,
    SegmentTruncated,
    StreamExists,
)
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.own import LONGEST_TAG, OWN, OwnSegment, is_own
from streamvault.streamstore.store import StreamStore

ID = "id"
"""What is added to each record."""

RETIRED = "retired"
"""In the record that ends a ledger; nothing follows it."""

LONGEST_BYTES = 256 * 1024
"""Size of a ledger above which older records are truncated (bytes)."""


ATTEMPTS = 5
"""How often a ledger that another process deletes is created before it is a conflict."""


class LedgerConflict(Conflict):
    """Another process has appended a record, or deleted the ledger."""


class LedgerNameTaken(Conflict):
    """A user's stream has the ledger's name."""


class Ledger:
    """The records of one writer to one stream.

    Args:
        store: the store of the stream, and of the ledger.
        name: the ledger's stream; see `newest`.
        about: the stream that the records are about.
    """

    def __init__(self, store: StreamStore, name: StreamName, about: StreamName) -> None:
        self._store = store
        self.name = name
        self._tag = f"of:{about}"[:LONGEST_TAG]
        self._segment: OwnSegment | None = None  # of the stream that was read
        self._start = self._end = 0
        self._unanswered = b""  # what was appended, or was not
        self._is_retired = False

    def newest(self, *, create: bool = True) -> dict[str, Any] | None:
        """Return the newest record; None if there is none.

        Args:
            create: create the ledger if it does not exist.

        Raises:
            LedgerNameTaken: another stream has the ledger's name.
            LedgerConflict: another process deletes the ledger.
            StreamStoreError: the ledger cannot be read.
        """
        self._segment = None
        for _ in range(ATTEMPTS):
            if create and not self._store.exists(self.name):
                # another process may create it at the same time
                with suppress(StreamExists):
                    self._store.create_stream_and_scope(self.name, StreamConfiguration(tags=(OWN, self._tag)))
            try:
                described = self._store.describe(self.name)
                if not is_own(described.configuration) or self._tag not in described.configuration.tags:
                    raise self.taken()
                segment = OwnSegment(self._store, described)
                found = None if described.sealed else self._read(segment)
                self._segment = segment
                self._is_retired = described.sealed or (found is not None and RETIRED in found)
                if not self._is_retired:
                    return found
                # its deletion was interrupted
                if create:
                    self.delete()
            except SegmentTruncated:
                continue  # its writer truncated older records
            except (NoSuchStream, NoSuchScope, NoSuchSegment):
                self._segment = None
            if not create:
                return None
        raise self._conflict()

    def delete(self) -> None:
        """Delete the ledger that `newest` has read; another one of its name stays."""
        if self._segment is not None:
            self._segment.delete()

    def retire(self) -> None:
        """Delete the ledger that `newest` has read, unless it has got another record since.

        The record that ends it comes first: from then on nobody uses this ledger, so it can be deleted at any time.

        Raises:
            LedgerConflict: another process has appended a record.
        """
        if self._segment is not None and not self._is_retired:
            self.record({RETIRED: True})
        self.delete()

    def _read(self, segment: OwnSegment) -> dict[str, Any] | None:
        info = segment.info()
        self._start, self._end = info.start_offset, info.write_offset
        self._unanswered = b""
        splitter, last = EventSplitter(self._start, str(self.name)), None
        for _, payload in splitter.events(segment.read(self._start, self._end)):
            last = bytes(payload)
        splitter.finish()
        if last is None:
            return None
        try:
            record = json.loads(last)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise self.taken()
        record.pop(ID, None)
        return record

    def record(self, record: Mapping[str, Any]) -> None:
        """Append a record after the newest one, which must have been read before.

        Args:
            record: plain values.

        Raises:
            LedgerConflict: another process has appended one, or deleted the ledger.
        """
        segment = self._segment
        if segment is None or self._is_retired:
            raise self._conflict()
        data = frame(json.dumps({**record, ID: secrets.token_hex(8)}).encode())
        try:
            with segment.appender() as appender:
                if appender.offset != self._end:
                    self._find_unanswered(segment, appender.offset)
                self._unanswered = data
                appender.append(data)
        except (OffsetConflict, SegmentSealed, NoSuchSegment, NoSuchStream, NoSuchScope):
            raise self._conflict() from None
        self._unanswered = b""
        before, self._end = self._end, self._end + len(data)
        if self._end - self._start > LONGEST_BYTES:
            segment.truncate(before)
            self._start = before

    def _find_unanswered(self, segment: OwnSegment, end: int) -> None:
        """Take a record for the newest one that was read if it is this writer's own, of which it got no answer.

        Args:
            segment: the ledger's segment.
            end: its end, which is not where that record was appended.

        Raises:
            LedgerConflict: it is another process's.
        """
        held = b""
        if self._unanswered and end == self._end + len(self._unanswered):
            held = segment.read(self._end, end)
        if held != self._unanswered or not held:
            raise self._conflict()
        self._end = end

    def taken(self) -> LedgerNameTaken:
        """Return the error for another stream of this name."""
        what = "the name of a ledger is taken by another stream"
        return LedgerNameTaken(what, where=f"{self._store.uri}/{self.name}", todo="Rename or delete it.")

    def _conflict(self) -> LedgerConflict:
        return LedgerConflict("another process is writing to the ledger", where=f"{self._store.uri}/{self.name}")
