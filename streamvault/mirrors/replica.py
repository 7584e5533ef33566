"""A replica: a mirror of a stream or an archive that goes on in rounds until it is promoted.

The target is an unfinished one like that of a copy, so nobody else writes to it. A lease beside it lets one process
bring it up to date at a time, and a ledger says what it repeats and how far it has come, for a promotion after the
source is gone. The ledger's newest record is replaced only by who has read it, so nothing follows a promotion.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from streamvault.common.errors import Conflict, Failed, Problem
from streamvault.importer.options import KeptRetention, TargetOptions
from streamvault.importer.ownership import first_segment_id, marked_import, unfinished_import
from streamvault.importer.plan import fitting_configuration
from streamvault.importer.target import TargetTaken
from streamvault.mirrors.ends import check_ends
from streamvault.mirrors.record import Record
from streamvault.reading.source import Source
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, ScaleRefused, StreamChanged
from streamvault.streamstore.model import Retention, StreamConfiguration, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import (
    LONGEST_TAG,
    MOST_TAGS,
    REPLICA_OF,
    TARGET_LEDGER,
    is_own,
    stream_beside,
    tag_of,
    users_tags,
)
from streamvault.streamstore.services.lease import Lease
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict

REPLICA = "replica."
"""Prefix of a replica's name (`importer.plan.RestorePlan.import_id`)."""

ATTEMPTS = 10
"""How often a promotion is tried if other processes change the replica meanwhile."""


class NotAReplica(Conflict):
    """The stream is not a replica."""


class ReplicaPromoted(TargetTaken):
    """The replica was promoted, or its promotion has begun: there is nothing left to replicate to. Exit code 6."""

    exit_code = 6


class Replica:
    """An unfinished target with its ledger.

    Attributes:
        stream: the target.
        uri: its URI.
        record: the newest record; None if it has none.
    """

    def __init__(self, stream: OpenStream) -> None:
        self.stream = stream
        self.uri = stream.uri
        self.record: Record | None = None
        self._ledger = Ledger(stream.store, stream_beside(stream.name, TARGET_LEDGER), stream.name)

    @property
    def newest(self) -> Record:
        """The newest record.

        Raises:
            NotAReplica: there is none.
        """
        if self.record is None:
            raise NotAReplica("the replica's ledger is gone", where=self.uri)
        return self.record

    def is_promoted(self, source: str) -> bool:
        """Whether a source's replica was promoted, or its promotion has begun; False if it cannot be told.

        Args:
            source: URI of the source.
        """
        with suppress(Problem):
            if not self.stream.exists():
                return False
            described = self.stream.describe()
            if not is_own(described.configuration):
                return tag_of(described.configuration, REPLICA_OF) == replica_tag(source)
            record = self.read()
            known = record is not None and (record.work, record.source) == (marked_import(described), source)
            return known and self.newest.is_promoting
        return False

    def check_promoting(self) -> None:
        """Check that no promotion of the target was killed, whatever it is a replica of.

        Raises:
            TargetTaken: one was.
        """
        begun = unfinished_import(self.stream)
        if begun is not None and begun.startswith(REPLICA):
            record = self.read()
            begins = record is not None and record.work == begun and record.is_promoting
            if begins or not is_own(self.stream.describe().configuration):
                raise self.promoting_error()

    def promoting_error(self) -> TargetTaken:
        """Build the error for a replica whose promotion has begun."""
        todo = "Run the same 'promote' or 'move' again."
        return TargetTaken("a promotion of the replica has not ended", where=self.uri, todo=todo)

    def read(self, *, create: bool = False) -> Record | None:
        """Read the newest record; None if there is none.

        Args:
            create: create the ledger if it does not exist.
        """
        found = self._ledger.newest(create=create)
        self.record = Record.from_json(found) if found is not None and "source" in found else None
        return self.record

    def note(self, begin: Record | None = None, *, of_sealed: bool = False, **changes: Any) -> Record:
        """Append a record.

        Args:
            begin: the first record of a new replica; it must not have one.
            of_sealed: the changes are of a source that is sealed. If a cut-over has sealed it, `sealed` and
                `configuration` stay those from before the seal, for which the store was asked.
            changes: what differs from the newest record.

        Raises:
            Conflict: the replica was promoted, or is another one now.
        """
        while True:
            base = begin or self.newest
            if base.sealing and of_sealed:
                changes = {name: value for name, value in changes.items() if name not in {"sealed", "configuration"}}
            try:
                return self._follow(base, **changes)
            except _NOT_NEWEST:
                newest = self.read()
                if newest is None or newest.work != base.work or newest.is_promoting or begin is not None:
                    raise Conflict("the replica was promoted or replaced meanwhile", where=self.uri) from None
                if changes.get("sealing") is False and newest.claim != base.claim:
                    return newest  # another run has begun a cut-over since
                if "taken" in changes and not _is_same_round(newest, base):
                    raise Conflict("another process brings the replica up to date", where=self.uri) from None

    def _follow(self, base: Record, **changes: Any) -> Record:
        """Append a record after the newest one, which must be the one that `read` has returned.

        Raises:
            LedgerConflict: another process has appended one.
            NoSuchStream, NoSuchScope, NoSuchSegment: the ledger is gone.
        """
        record = replace(base, **changes)
        self._ledger.record(record.to_json())
        self.record = record
        return record

    def forget(self) -> None:
        """Delete the ledger that was read."""
        self._ledger.delete()

    def choose_retention(self, retention: KeptRetention) -> None:
        """Note that the promoted stream gets no retention policy, if `retention` is ``"off"``.

        Raises:
            Conflict: it has the source's already.
        """
        if retention != "off":
            return
        if marked_import(self.stream.describe()) != self.newest.work:
            todo = "Change the stream's policy, and run the same command without --retention off."
            raise Conflict("the promoted stream has its source's retention policy already", where=self.uri, todo=todo)
        self.note(retention=retention)

    def finish(self, lease: Lease, *, complete: bool) -> None:
        """Give the replica the source's policies and tags, so that it is a stream like any other; seal it if need be.

        Each step is skipped if it was made before.

        Args:
            lease: the lease on it.
            complete: whether the source is sealed and the replica has all of it.

        Raises:
            Failed: as `check`.
            NotAReplica: its ledger is gone.
            StreamChanged: another process deleted or configured it.
            TargetTaken: another stream has its name.
        """
        work = self.newest.work
        self.read()  # others may have replicated, promoted or replaced it before the lease was taken
        record, described = self.newest, self.stream.describe()
        if marked_import(described) == record.work == work:
            if not record.promoted or record.closing:
                record = self._settle(lease, complete=complete)
            lease.finishing(record.target)
            described = self._configure(record)
        elif record.work != work or not record.promoted or record.target != first_segment_id(described):
            raise TargetTaken("another stream has the replica's name now", where=self.uri)
        if record.sealed and not described.sealed:
            lease.confirm()
            self.stream.store.seal(self.stream.name, first=described.epochs[0])

    def check(self, record: Record) -> StreamDescription:
        """Check that the replica can be promoted as it is: it is not sealed, and holds nothing but whole events.

        Args:
            record: the newest record.

        Returns:
            The replica.

        Raises:
            TargetTaken: it was sealed.
            Failed: as `mirrors.ends.check_ends`.
        """
        if self.stream.describe().sealed:
            todo = "It can still be read. If the source still exists, replicate into another stream."
            raise TargetTaken("the unfinished stream was sealed", where=self.uri, todo=todo)
        return check_ends(self.stream, record)

    def _settle(self, lease: Lease, *, complete: bool) -> Record:
        """Fence the replica, check it, and then record that it is promoted; return that record.

        Each record follows the one that was read before the check, so none is of a replica that changed since: where
        another process was quicker, everything is repeated. What can fail is tried before the fence, too, because a
        replica whose segments were replaced cannot be replicated any further.
        """
        for _ in range(ATTEMPTS):
            self.read()
            record = self.newest
            if record.promoted and not record.closing:
                return record  # by another run of the promotion
            described = self.check(record)
            try:
                if record.closing or not (complete or _has_all(record, described)):
                    record = self._fence(lease, record, described)
                    described = self.check(record)
                target = first_segment_id(described)
                return self._follow(record, promoted=True, sealing=complete, target=target, closing=())
            except (*_NOT_NEWEST, ScaleRefused):
                continue
        raise Failed("another process changes the replica", where=self.uri, todo="Run the same command again.")

    def _fence(self, lease: Lease, record: Record, described: StreamDescription) -> Record:
        """Replace all open segments at once by new ones, of which no replication knows; return the newest record.

        A replication that was paused could still append to the segments that it knows, or repeat a scale that seals
        some of them, after users have begun to read on. After this, both are refused. The record comes first: from then
        on no replication can record a round or a truncation, and no other promotion that it is done.

        Args:
            lease: the lease on the replica.
            record: the newest record when the replica was described.
            described: the replica.

        Raises:
            ScaleRefused: another scale was quicker.
            LedgerConflict: another record was.
        """
        current = described.epochs[-1].segments
        closing = [str(segment) for segment in current]
        fencing = self._follow(record, sealing=False, target=first_segment_id(described), closing=closing)
        lease.confirm()
        self.stream.store.scale(self.stream.name, list(current), list(current.values()))
        return fencing

    def _configure(self, record: Record) -> StreamDescription:
        """Give the replica its policies and tags, which removes the mark; return it.

        A replication that was paused before it scales may change the scaling policy meanwhile.
        """
        for attempt in range(ATTEMPTS):
            described = self.stream.describe()
            if marked_import(described) != record.work:
                break  # another run of the promotion was quicker
            promoted = promoted_configuration(record, len(described.tail.offsets))
            try:
                self.stream.store.update_stream(self.stream.name, promoted, was=described.configuration)
                break
            except StreamChanged:
                if attempt == ATTEMPTS - 1:
                    raise
        return described


_NOT_NEWEST = (LedgerConflict, NoSuchStream, NoSuchScope, NoSuchSegment)
"""What appending to a ledger raises that has a newer record, or is gone."""


_OF_NO_ROUND = {"sealing", "sealed", "keep_head", "claim", "source_first", "retention"}
"""What others than a round note in a record."""


def _is_same_round(newest: Record, base: Record) -> bool:
    """Whether no round was recorded, or began to append filler, between two records."""
    ours, theirs = (json.loads(json.dumps(record.to_json())) for record in (base, newest))
    return all(ours[name] == theirs[name] for name in ours.keys() - _OF_NO_ROUND)


def _has_all(record: Record, described: StreamDescription) -> bool:
    """Whether the source was sealed by its user, and the replica has all of it."""
    return record.sealed and record.ends == {str(segment): end for segment, end in described.tail.offsets.items()}


def replica_id(
    source: Source, described: StreamDescription, options: TargetOptions, *more: Any, kind: str = REPLICA
) -> str:
    """Return a replica's name (`RestorePlan.import_id`), or a copy's: the same for the same source and options.

    A source that was deleted and created again is another one.

    Args:
        source: the source.
        described: the source as it is now.
        options: how it becomes a new stream.
        more: what else the name depends on, as plain values.
        kind: what the name begins with.
    """
    first = [segment.value for segment in described.epochs[0].segments]
    content = [source.uri, str(described.name), first, options.offsets, options.numbers, *more]
    return kind + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


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
