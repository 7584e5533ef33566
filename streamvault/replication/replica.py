"""A replica: a mirror of a stream or an archive that goes on in rounds until it is promoted.

The target is an unfinished one like that of a copy, so nobody else writes to it. A lease beside it lets one process
bring it up to date at a time, and a ledger says what it repeats and how far it has come, for a promotion after the
source is gone. The ledger's newest record is replaced only by who has read it, so nothing follows a promotion.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from streamvault.common.errors import Conflict, Failed, Problem
from streamvault.common.units import moment_text
from streamvault.importer.plan import fitting_configuration
from streamvault.importer.reports import KeptRetention, TargetOptions
from streamvault.importer.target import TargetTaken, first_segment_id, look_again, marked_import, unfinished_import
from streamvault.manifests.manifest import Configuration
from streamvault.sources.identity import SourcePosition
from streamvault.sources.source import Source
from streamvault.sources.sources import StreamSource
from streamvault.streamstore.cuts import is_before, later_of, segments_between
from streamvault.streamstore.errors import (
    AccessDenied,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    ScaleRefused,
    SegmentTruncated,
    StreamChanged,
)
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.ledger import Ledger, LedgerConflict
from streamvault.streamstore.model import (
    ANY_EVENT_BYTES,
    HEADER_BYTES,
    MAX_EVENT_BYTES,
    Retention,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.own import (
    LONGEST_TAG,
    MOST_TAGS,
    REPLICA_OF,
    SOURCE_SEAL,
    TARGET_LEDGER,
    is_own,
    stream_beside,
    tag_of,
    users_tags,
)
from streamvault.streamstore.uri import OpenStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The newest record of a replica's ledger.

    Attributes:
        work: the replica's name, see `importer.plan.RestorePlan.import_id`.
        source: URI of the source.
        stream: the source's scope and name.
        offsets: as for `replicate_stream`.
        numbers: likewise.
        filler_limit: likewise.
        keep_head: likewise.
        head: the cut at which the replica began; shifted offsets are relative to it.
        configuration: the source's configuration, see `manifests.manifest.Configuration`.
        sealed: whether the source was sealed by its user.
        tail: the source's tail that the replica has reached; None if it has reached none.
        ends: the replica's segment → its end (bytes) at that tail.
        taken: when that tail was taken, RFC 3339; empty if there is none.
        sealing: whether a promotion has begun to seal the source; if it is promoted, whether that was done.
        skipping: whether a round has begun to append filler in place of what the source has truncated.
        promoted: whether a promotion has begun to finish the replica.
        target: which stream of the replica's name the record is about (`importer.target.first_segment_id`); empty
            while it is still to be created.
        source_head: the source's head when `tail` was taken; None if there is none.
        closing: segments of the replica that a promotion is replacing by new ones of the same key ranges.
        claim: which run was the last to begin a cut-over; a running replication then gives way to it.
        source_first: which stream of the source's name a cut-over seals (`importer.target.first_segment_id`); empty
            if none was begun.
        retention: the promoted stream's retention policy: the source's ("keep") or none ("off").
        reader_groups: the source's reader groups when `tail` was taken or before, see
            `replication.replica.NotedGroup`; None if they were never asked for.
        reading: by what the source is recognized of which a round may have appended bytes, taken before it read any;
            None if the newest round has ended.
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
    source_head: Mapping[str, int] | None = None
    closing: Sequence[str] = ()
    claim: str = ""
    source_first: str = ""
    retention: str = "keep"
    reader_groups: Sequence[Mapping[str, Any]] | None = None
    reading: SourcePosition | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Record:
        """Build from `to_json`."""
        reading = document.get("reading")
        return cls(**{**document, "reading": reading and SourcePosition.from_json(reading)})

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        plain = asdict(replace(self, reading=None))
        return plain if self.reading is None else {**plain, "reading": self.reading.to_json()}

    @property
    def source_configuration(self) -> StreamConfiguration:
        """The source's configuration."""
        return Configuration.model_validate_json(json.dumps(self.configuration)).value()

    @property
    def target_options(self) -> dict[str, Any]:
        """How the source became the replica, as `TargetOptions` has it."""
        return {"offsets": self.offsets, "numbers": self.numbers, "filler_limit": self.filler_limit}

    @property
    def taken_at(self) -> datetime | None:
        """When the tail was taken."""
        return datetime.fromisoformat(self.taken) if self.taken else None

    @property
    def taken_text(self) -> str:
        """The same for reports; empty if there is none."""
        return moment_text(self.taken_at) if self.taken_at else ""

    @property
    def is_promoting(self) -> bool:
        """Whether a promotion has begun to change the replica, so that no replication may."""
        return self.promoted or bool(self.closing)

    def is_about(self, described: StreamDescription) -> bool:
        """Whether this is the stream that the record is about, not one that was made again under its name."""
        known = {str(segment) for segment in described.ranges()}
        return self.target in ("", first_segment_id(described)) and self.ends.keys() <= known

    def end_cut(self, replica: StreamName) -> StreamCut:
        """Return `ends` as a cut of the replica."""
        return StreamCut(replica, {SegmentId.parse(segment): end for segment, end in self.ends.items()})


def configuration_document(described: StreamDescription) -> Mapping[str, Any]:
    """Return a source's configuration as `Record.configuration` has it."""
    return Configuration.of(described.configuration).document()


_HEADER = struct.Struct(">q")

REPLICATE_ONCE_MORE = "Replicate once more when the source can be reached."
KEEP = "It can still be read. If the source can be reached, replicate into another stream."


def check_ends(replica: OpenStream, record: Record) -> StreamDescription:
    """Check that a replica holds nothing but a beginning of its source; return it.

    Every tail of the source is an event boundary, so only what was appended after the recorded one is read.

    Args:
        replica: the replica.
        record: the newest record of its ledger.

    Raises:
        Failed: it may have filler that is still to be truncated; it has less than the ledger says; or it ends inside
            an event, as a round that was appending a large one was killed.
        NoSuchSegment, SegmentTruncated: it was truncated meanwhile.
    """
    todo = KEEP if record.is_promoting else REPLICATE_ONCE_MORE
    store, name, described = replica.store, replica.name, replica.describe()
    if record.tail is None or record.skipping or not record.is_about(described):
        raise Failed(
            "the replica begins with filler, as no round has finished since it began or its source was truncated",
            where=replica.uri,
            todo=todo,
        )
    reached = later_of(described, record.end_cut(name), described.head)
    short = Failed("the replica has fewer bytes than its ledger records", where=replica.uri, todo=KEEP)
    if not is_before(described, reached, described.tail):
        raise short
    between = segments_between(described, reached, described.tail)
    for info in store.segment_info(name, list(between)):
        start = max(info.start_offset, between[info.segment][0])
        where = f"{store.uri}/{info.segment.in_stream(name)}"
        if info.write_offset < start:
            raise short
        whole = _whole_up_to(replica, info, start, info.write_offset)
        if whole < info.write_offset and not _holds_bytes(replica, info, start, whole):
            raise Failed(
                "the replica ends inside an event, the rest of which is at the source",
                where=f"{where} offset {whole}",
                todo=todo,
            )
    return described


def _whole_up_to(replica: OpenStream, info: SegmentInfo, start: int, end: int) -> int:
    """Return up to where whole events follow one another from ``start`` on.

    Memory: a few blocks and an event of 8 MiB.
    """
    at = start
    while at < end:
        splitter = EventSplitter(at, info.segment.in_stream(replica.name))
        try:
            for block in replica.store.read(replica.name, info.segment, at, end):
                for _ in splitter.feed(block):
                    pass
        except NotAnEvent as error:
            if not error.length or error.offset + error.length > end:
                return error.offset
            at = error.offset + error.length
        else:
            return splitter.offset
    return at


def _holds_bytes(replica: OpenStream, info: SegmentInfo, start: int, torn: int) -> bool:
    """Whether a segment that ends inside an event, if it holds events, is one of a byte stream, which has none to tear.

    What the ledger has recorded of it tells: a source's tail never lies inside an event. Of a segment of which nothing
    was recorded, it is the event's size: only events of more than 8 MiB are appended in pieces.

    Args:
        replica: the replica.
        info: the segment.
        start: up to where the ledger has recorded it (bytes).
        torn: where the event would begin.
    """
    if start > info.start_offset:
        return _whole_up_to(replica, info, info.start_offset, start) < start
    if info.write_offset - torn < HEADER_BYTES:
        return True
    header = replica.store.read_bytes(replica.name, info.segment, torn, torn + HEADER_BYTES)
    return not MAX_EVENT_BYTES < _HEADER.unpack(header)[0] <= ANY_EVENT_BYTES


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
        return TargetTaken("a promotion of the replica has not finished", where=self.uri, todo=todo)

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
                if {"taken", "reading"} & changes.keys() and not _is_same_round(newest, base):
                    raise Conflict("another process is updating the replica", where=self.uri) from None

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

    def retire(self) -> None:
        """Delete the ledger that was read or written, unless another run has recorded something in it since."""
        with suppress(LedgerConflict):
            self._ledger.retire()

    def choose_retention(self, retention: KeptRetention) -> None:
        """Note that the promoted stream gets no retention policy, if `retention` is ``"off"``.

        Raises:
            Conflict: it has the source's already.
        """
        if retention != "off":
            return
        if marked_import(self.stream.describe()) != self.newest.work:
            todo = "Change the stream's policy, and run the same command without --retention off."
            raise Conflict("the promoted stream already has its source's retention policy", where=self.uri, todo=todo)
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
            Failed: as `replication.replica.check_ends`.
        """
        if self.stream.describe().sealed:
            todo = "It can still be read. If the source still exists, replicate into another stream."
            raise TargetTaken("the unfinished stream was sealed", where=self.uri, todo=todo)
        # a late run of the replication may truncate it
        return look_again(lambda: check_ends(self.stream, record), NoSuchSegment, SegmentTruncated)

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
        raise Failed("another process is changing the replica", where=self.uri, todo="Run the same command again.")

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


SEALING = "sealing"
"""Whether a cut-over seals the source, in the records of the ledger beside it."""


def seal_source(stream: OpenStream, described: StreamDescription) -> None:
    """Seal a stream for a cut-over, if it still is the one described, and say beside it that it was a cut-over.

    Raises:
        AccessDenied: the store refuses the seal, or the ledger that says who seals. The stream is open then.
        StreamChanged: it was deleted and created again.
    """
    ledger = _ledger(stream, first_segment_id(described))
    if not described.sealed:
        _note_seal(ledger)
    try:
        stream.store.seal(stream.name, first=described.epochs[0])
    except AccessDenied:
        with suppress(LedgerConflict):  # of another cut-over, which may seal it
            ledger.record({SEALING: False})  # who seals it later is its user
        raise


def is_sealed_by_user(source: Source, described: StreamDescription) -> bool:
    """Return whether a source is sealed, and not by a cut-over."""
    if not described.sealed or not isinstance(source, StreamSource):
        return described.sealed
    known = _ledger(source.stream, first_segment_id(described)).newest(create=False)
    return known is None or not known[SEALING]


def forget_seal(stream: OpenStream, first: str) -> None:
    """Delete the ledger that says who sealed a stream, once the stream is deleted.

    Args:
        stream: the stream.
        first: which stream of this name it was (`importer.target.first_segment_id`).
    """
    ledger = _ledger(stream, first)
    ledger.newest(create=False)
    ledger.delete()


def _ledger(stream: OpenStream, first: str) -> Ledger:
    """The ledger of who seals the stream; a stream that is created again has another one."""
    return Ledger(stream.store, stream_beside(stream.name, SOURCE_SEAL, first), stream.name)


def _note_seal(ledger: Ledger) -> None:
    """Record that a cut-over seals a source; each one has a record of its own, which only it takes back."""
    while True:
        ledger.newest()
        with suppress(LedgerConflict):  # another cut-over was quicker
            return ledger.record({SEALING: True})
