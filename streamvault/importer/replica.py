"""A replica: a mirror of a stream or an archive that goes on in rounds until it is promoted.

The target is an unfinished one like that of a copy, so nobody else writes to it. A lease beside it lets one process
bring it up to date at a time, and a ledger says what it repeats and how far it has come, for a promotion after the
source is gone. The ledger's newest record is replaced only by who has read it, so nothing follows a promotion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from streamvault.common.errors import Conflict, Failed
from streamvault.common.times import moment_text
from streamvault.importer.lease import incarnation, marked_work
from streamvault.importer.plan import fitting_configuration
from streamvault.importer.target import TargetTaken
from streamvault.manifests.model import Configuration
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, ScaleRefused
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.ledger import Ledger, LedgerConflict
from streamvault.streamstore.model import ANY_EVENT_BYTES, Retention, StreamConfiguration, StreamDescription, StreamName
from streamvault.streamstore.own import LONGEST_TAG, MOST_TAGS, REPLICA_OF, TARGET_LEDGER, stream_beside, users_tags
from streamvault.streamstore.splitting import EventSplitter
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress

__all__ = ["REPLICA", "NotAReplica", "Record", "Replica", "promoted_configuration", "replica_tag"]

REPLICA = "replica."
"""Prefix of a replica's name (`importer.plan.RestorePlan.work`)."""

ATTEMPTS = 10
"""How often a scale is tried if other scales are quicker."""


class NotAReplica(Conflict):
    """The stream is not a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The newest record of a replica's ledger.

    Attributes:
        work: see `importer.plan.RestorePlan`.
        source: URI of the source.
        stream: the source's scope and name.
        offsets: as for `replicate_stream`.
        numbers: likewise.
        filler_limit: likewise.
        keep_head: likewise.
        head: the cut at which the replica began; shifted offsets are relative to it.
        configuration: the source's configuration, see `manifests.model.Configuration`.
        sealed: whether the source was sealed by its user.
        tail: the source's tail that the replica has reached; None if it has reached none.
        ends: the replica's segment → its end (bytes) at that tail.
        taken: when that tail was taken, RFC 3339; empty if there is none.
        sealing: whether a promotion has begun to seal the source; if it is promoted, whether that was done.
        skipping: whether a round has begun to append filler in place of what the source has truncated.
        promoted: whether a promotion has begun to finish the replica.
        target: which stream was promoted (`importer.lease.incarnation`); empty if none was.
        closing: segments of the replica that a promotion replaces by new ones of the same key ranges.
        claim: which run was the last to begin a cut-over; a running replication then gives way to it.
        retention: the promoted stream's retention policy: the source's ("keep") or none ("off").
    """

    work: str
    source: str
    stream: str
    offsets: str
    numbers: str
    filler_limit: int
    keep_head: bool
    head: Mapping[str, int]
    configuration: Mapping[str, Any]
    sealed: bool
    tail: Mapping[str, int] | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    taken: str = ""
    sealing: bool = False
    skipping: bool = False
    promoted: bool = False
    target: str = ""
    closing: Sequence[str] = ()
    claim: str = ""
    retention: str = "keep"

    @property
    def source_configuration(self) -> StreamConfiguration:
        """The source's configuration."""
        return Configuration.model_validate_json(json.dumps(self.configuration)).value()

    @property
    def name(self) -> StreamName:
        """The source's name."""
        return StreamName.parse(self.stream)

    @property
    def taken_at(self) -> datetime | None:
        """When the tail was taken."""
        return datetime.fromisoformat(self.taken) if self.taken else None

    @property
    def taken_text(self) -> str:
        """The same for reports; empty if there is none."""
        return moment_text(self.taken_at) if self.taken_at else ""


class Replica:
    """An unfinished target with its ledger.

    Args:
        store: the target's store.
        address: the same store, for tasks.
        name: the target.

    Attributes:
        record: the newest record; None if it has none.
    """

    def __init__(self, store: StreamStore, address: StoreAddress, name: StreamName) -> None:
        self.store = store
        self.address = address
        self.name = name
        self.record: Record | None = None
        self._ledger = Ledger(store, stream_beside(name, TARGET_LEDGER), name)

    @property
    def uri(self) -> str:
        """The target's URI."""
        return f"{self.store.uri}/{self.name}"

    @property
    def newest(self) -> Record:
        """The newest record.

        Raises:
            NotAReplica: there is none.
        """
        if self.record is None:
            raise NotAReplica("the replica's ledger is gone", where=self.uri)
        return self.record

    def read(self, *, create: bool = False) -> Record | None:
        """Read the newest record; None if there is none.

        Args:
            create: create the ledger if it does not exist.
        """
        found = self._ledger.newest(create=create)
        self.record = Record(**found) if found is not None and "source" in found else None
        return self.record

    def note(self, begin: Record | None = None, **changes: Any) -> Record:
        """Append a record.

        Args:
            begin: the first record of a new replica; it must not have one.
            changes: what differs from the newest record.

        Raises:
            Conflict: the replica was promoted, or is another one now.
        """
        while True:
            base = begin or self.newest
            if base.sealing and changes.pop("sealed", False):
                changes.pop("configuration", None)  # both are those from before the seal, for which the store was asked
            record = replace(base, **changes)
            try:
                self._ledger.record(asdict(record))
            except (LedgerConflict, NoSuchStream, NoSuchScope, NoSuchSegment):
                newest = self.read()
                if newest is None or newest.work != record.work or newest.promoted or begin is not None:
                    raise Conflict("the replica was promoted or replaced meanwhile", where=self.uri) from None
                if changes.get("sealing") is False and newest.claim != base.claim:
                    return newest  # another run has begun a cut-over since
                if "taken" in changes and newest.taken != base.taken:  # of a round that is newer than this one
                    raise Conflict("another process brings the replica up to date", where=self.uri) from None
                continue
            self.record = record
            return record

    def forget(self) -> None:
        """Delete the ledger that was read."""
        self._ledger.delete()

    def finish(self, lease: Lease, *, complete: bool) -> None:
        """Give the replica the source's policies and tags, so that it is a stream like any other; seal it if need be.

        If the source may have more than the replica, a replication that was paused could still append that, or repeat a
        scale, after users have begun to read on. So every open segment is replaced by a new one: what comes late is
        refused. Each step is skipped if it was made before.

        Args:
            lease: the lease on it.
            complete: whether the source is sealed and the replica has all of it.

        Raises:
            Failed: as `check`.
            NotAReplica: its ledger is gone.
            StreamChanged: another process deleted or configured it.
            TargetTaken: another stream has its name.
        """
        work, described = self.newest.work, self.store.describe(self.name)
        self.read()  # others may have replicated, promoted or replaced it before the lease was taken
        record = self.newest
        if marked_work(described) == record.work == work:
            if not record.promoted:
                self.check(record)
                ends = {str(segment): end for segment, end in described.tail.offsets.items()}
                closing = [] if complete or (record.sealed and record.ends == ends) else list(ends)
                record = self.note(promoted=True, sealing=complete, target=incarnation(described), closing=closing)
            lease.finishing(incarnation(described))
            self._close_segments(record)
            wanted = promoted_configuration(record, len(described.tail.offsets))
            self.store.update_stream(self.name, wanted, was=described.configuration)
        elif record.work != work or record.target != incarnation(described):
            raise TargetTaken("another stream has the replica's name now", where=self.uri)
        if record.sealed and not described.sealed:
            lease.confirm()
            self.store.seal(self.name, first=described.epochs[0])

    def check(self, record: Record) -> None:
        """Check that the replica can be promoted as it is: it is not sealed, and holds nothing but whole events.

        Raises:
            TargetTaken: it was sealed.
            Failed: it ends inside an event, or may have filler that is still to be truncated.
        """
        described = self.store.describe(self.name)
        if described.sealed:
            todo = "It can still be read. If the source still exists, replicate into another stream."
            raise TargetTaken("the unfinished stream was sealed", where=self.uri, todo=todo)
        _check_whole(self.store, described, record)

    def _close_segments(self, record: Record) -> None:
        for _ in range(ATTEMPTS):
            current = self.store.describe(self.name).epochs[-1].segments
            left = [segment for segment in current if str(segment) in record.closing]
            if not left:
                return
            with suppress(ScaleRefused):  # a late scale was quicker
                self.store.scale(self.name, left, [current[segment] for segment in left])
        raise Failed("another process scales the replica", where=self.uri, todo="Run the same command again.")


def replica_tag(source: str) -> str:
    """Return what follows `REPLICA_OF` in a promoted replica's tag, given the source's URI; tags are limited."""
    return source[: LONGEST_TAG - len(REPLICA_OF)]


def promoted_configuration(record: Record, open_segments: int) -> StreamConfiguration:
    """Return the configuration of the promoted replica.

    If the source has as many tags as are possible, one of them gives way to ours: a source that is lost cannot be
    changed any more. A cut-over refuses that before it seals the source.
    """
    configuration = record.source_configuration
    tags = (*users_tags(configuration)[: MOST_TAGS - 1], REPLICA_OF + replica_tag(record.source))
    if record.retention == "off":
        configuration = replace(configuration, retention=Retention())
    return fitting_configuration(replace(configuration, tags=tags), open_segments)


def _check_whole(store: StreamStore, described: StreamDescription, record: Record) -> None:
    """Check that the replica holds nothing but whole events.

    Every tail of the source is an event boundary, so only what was appended after the recorded one is read.

    Raises:
        Failed: a segment ends inside an event, as a round that was appending a large one was killed; or it may have
            filler that is still to be truncated.
    """
    if record.tail is None or record.skipping:
        raise Failed(
            "the replica begins with filler, as no round has ended since it began, or since its source was truncated",
            where=f"{store.uri}/{described.name}",
            todo="Replicate once more when the source can be reached.",
        )
    infos = store.segment_info(described.name, list(described.tail.offsets))
    for info in infos:
        start = max(info.start_offset, record.ends.get(str(info.segment), 0))
        splitter = EventSplitter(start, info.segment.in_stream(described.name), largest=ANY_EVENT_BYTES)
        try:
            for block in store.read(described.name, info.segment, start, info.write_offset):
                for _ in splitter.feed(block):
                    pass
        except NotAnEvent:
            continue  # a byte stream
        try:
            splitter.finish()
        except NotAnEvent as error:
            raise Failed(
                "the replica ends inside an event, of which the rest is at the source",
                where=f"{store.uri}/{info.segment.in_stream(described.name)} offset {error.offset}",
                todo="Replicate once more when the source can be reached.",
            ) from None
