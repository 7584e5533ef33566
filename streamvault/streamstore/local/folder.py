"""A stream's folder in the embedded store: its lock, its record, its segments and transactions.

A commit is decided by one change of the stream's record. Until the record says so, nothing of a transaction is in a
segment. Afterwards nobody sees the stream before all of it is: whoever reads the record next copies what a killed
process did not.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from uuid import UUID

from pydantic import PlainSerializer, TypeAdapter, ValidationError

from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.errors import (
    InvalidName,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    SegmentTruncated,
    StreamChanged,
    StreamNotSealed,
    StreamStoreError,
)
from streamvault.streamstore.local.segment_files import (
    SegmentFiles,
    locked,
    punch_hole,
    read_beginning,
    read_state,
    replace_file,
    system_errors,
)
from streamvault.streamstore.model import (
    Epoch,
    EpochChange,
    Epochs,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import Segment, TransactionState

_KEPT = 256
"""Ids of committed transactions that are kept, and as many of aborted ones; older ones are unknown."""


Id = Annotated[UUID, PlainSerializer(lambda id_: id_.hex)]


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
    into: Mapping[Segment, tuple[int, int]] | None = None


@dataclass(frozen=True, slots=True)
class StreamTransactions:
    """A stream's transactions.

    Attributes:
        going: those that have not ended; the commit of at most one is decided.
        committed: the last ones that were committed.
        aborted: the last ones that were aborted.
    """

    going: Mapping[Id, TransactionRecord] = field(default_factory=dict)
    committed: tuple[Id, ...] = ()
    aborted: tuple[Id, ...] = ()

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


_TRANSACTIONS = TypeAdapter(StreamTransactions)
_CONFIGURATION = TypeAdapter(StreamConfiguration)

RECORD = "stream.json"
_FORMAT = 1
_COMMITTING_FORMAT = 2
"""While a commit is to be finished, so that an earlier version does not overlook it."""
_REVISION_BYTES = 64
_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class StreamRecord:
    """A stream's configuration and history; it says which segments are open.

    Attributes:
        transactions: those that are open, and how the last ones ended.
        revision: the beginning of the file it was read from; another one with each change.
    """

    stream: StreamName
    configuration: StreamConfiguration
    epochs: Epochs
    head: StreamCut
    sealed: bool = False
    transactions: StreamTransactions = field(default_factory=StreamTransactions)
    revision: bytes = field(default=b"", compare=False)

    @property
    def current(self) -> Epoch:
        """The newest epoch; its segments are open unless the stream is sealed."""
        return self.epochs[-1]

    def is_open(self, segment: SegmentId) -> bool:
        """Return whether a segment accepts appends."""
        return not self.sealed and segment in self.current.segments

    @cached_property
    def live(self) -> frozenset[SegmentId]:
        """The segments that the head has not passed."""
        end = StreamCut(self.stream, dict.fromkeys(self.current.segments, _NO_LIMIT))
        return frozenset(segments_between(self.describe(end), self.head, end))

    def describe(self, tail: StreamCut) -> StreamDescription:
        """The description, with a tail."""
        return StreamDescription(self.stream, self.configuration, self.epochs, self.head, tail, self.sealed)


def load_record(folder: Path, stream: StreamName) -> StreamRecord:
    """Read a stream's record.

    Raises:
        FileNotFoundError: there is no such stream.
        StreamStoreError: the file is damaged, or has an unsupported format.
    """
    content = (folder / RECORD).read_bytes()
    try:
        value = json.loads(content)
        if value["format"] not in {_FORMAT, _COMMITTING_FORMAT}:
            raise StreamStoreError(
                f"the stream has format {value['format']!r}, but this version supports 1 and 2", where=str(folder)
            )
        return StreamRecord(
            stream=stream,
            configuration=_CONFIGURATION.validate_python(value["configuration"], extra="forbid"),
            epochs=_epochs(value["epochs"]),
            head=StreamCut(stream, {SegmentId.parse(name): offset for name, offset in value["head"].items()}),
            sealed=value["sealed"],
            transactions=_TRANSACTIONS.validate_python(value.get("transactions", {}), extra="forbid"),
            revision=content[:_REVISION_BYTES],
        )
    except (ValueError, KeyError, TypeError, AttributeError, InvalidName) as error:
        why = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
        raise StreamStoreError(f"the stream's record is damaged ({why})", where=str(folder / RECORD)) from None


def save_record(folder: Path, record: StreamRecord) -> None:
    """Replace a stream's record."""
    epochs = [
        {
            "epoch": number,
            "seals": [str(segment) for segment in change.seals],
            "opens": {str(segment): [held.low, held.high] for segment, held in change.opens.items()},
        }
        for number, change in enumerate(record.epochs.changes)
    ]
    value = {
        "revision": secrets.token_hex(20),  # first, and so among the bytes that `StreamFolder.revision` reads
        "format": _FORMAT if record.transactions.committing is None else _COMMITTING_FORMAT,
        "sealed": record.sealed,
        "configuration": asdict(record.configuration),
        "head": {str(segment): offset for segment, offset in record.head.offsets.items()},
        "epochs": epochs,
    }
    if record.transactions != StreamTransactions():
        value["transactions"] = _TRANSACTIONS.dump_python(record.transactions, mode="json", exclude_none=True)
    replace_file(folder / RECORD, json.dumps(value, indent=1).encode() + b"\n")


def _epochs(value: list[dict[str, Any]]) -> Epochs:
    changes: list[EpochChange] = []
    known: dict[str, tuple[SegmentId, KeyRange]] = {}
    for number, entry in enumerate(value):
        if entry["epoch"] != number:
            raise ValueError("epochs are not numbered consecutively from 0")
        seals = dict(known[name] for name in entry["seals"])
        opens = {name: (SegmentId.parse(name), KeyRange(low, high)) for name, (low, high) in entry["opens"].items()}
        changes.append(EpochChange(seals, dict(opens.values())))
        known.update(opens)
    return Epochs.of(changes)


_PART = re.compile(r"([0-9a-f]{32})-[0-9]+\.part(-state)?\Z")


def decided(record: StreamRecord, id_: UUID, lengths: Mapping[int, int], ends: Mapping[SegmentId, int]) -> StreamRecord:
    """Return a stream's record with the commit of an open transaction decided.

    If the stream was scaled since the transaction began, there are two more epochs, as on Pravega: one for the
    transaction, whose segments are sealed at once, and one that repeats the epoch that was current.

    Args:
        record: the record.
        id_: the transaction.
        lengths: the parts' bytes by the number of their segment.
        ends: the ends of the open segments (bytes).
    """
    transaction, current = record.transactions.going[id_], record.current
    began = record.epochs[transaction.epoch]
    epochs, rolls = record.epochs, _numbers(began) != _numbers(current)
    if rolls:
        own = renumbered(began, current.number + 1)
        epochs = epochs.then(Epoch(current.number + 1, own))
        epochs = epochs.then(Epoch(current.number + 2, renumbered(current, current.number + 2)))
    into = {}
    for segment in own if rolls else current.segments:
        if length := lengths.get(segment.number, 0):
            into[segment] = 0 if rolls else ends[segment], length
    noted = record.transactions.changed(id_, replace(transaction, into=into))
    return replace(record, epochs=epochs, transactions=noted)


def first_of_kind(record: StreamRecord) -> Epoch:
    """Return the current epoch, or the one that it repeats: a transaction's parts are named after that."""
    numbers = _numbers(record.current)
    return next(epoch for epoch in record.epochs if _numbers(epoch) == numbers)


def renumbered(epoch: Epoch, number: int) -> dict[SegmentId, KeyRange]:
    """Return an epoch's segments as another epoch names them."""
    return {SegmentId(number, segment.number): held for segment, held in epoch.segments.items()}


def reserve(folder: Path, record: StreamRecord, id_: UUID) -> None:
    """Take the room on the disk that a commit needs, before it is decided."""
    for segment, (offset, length) in (record.transactions.going[id_].into or {}).items():
        SegmentFiles.of_segment(folder, segment).reserve(offset, length)


def finish_commit(folder: Path, record: StreamRecord) -> None:
    """Finish the commit that is decided, if there is one; the stream's lock is held alone."""
    id_ = record.transactions.committing
    if id_ is None:
        return
    for segment, (offset, length) in (record.transactions.going[id_].into or {}).items():
        part = SegmentFiles.of_part(folder, id_, segment.number)
        files = SegmentFiles.of_segment(folder, segment)
        files.take(part, offset, length)
    transactions = record.transactions.finished(id_)
    save_record(folder, replace(record, transactions=transactions))
    remove_ended(folder, transactions)


def remove_ended(folder: Path, transactions: StreamTransactions) -> None:
    """Remove the parts of transactions that have ended, and what a kill left of them."""
    for path in folder.iterdir():
        if (match := _PART.match(path.name)) and UUID(hex=match[1]) not in transactions.going:
            path.unlink(missing_ok=True)


def _numbers(epoch: Epoch) -> set[int]:
    """An epoch has the numbers of another one only if a rolled transaction repeated it."""
    return {segment.number for segment in epoch.segments}


_Seen = TypeVar("_Seen")

_KEPT_RECORDS = 16

_records: dict[Path, StreamRecord] = {}
"""The records read last by this process: every task opens a store, and a record names all of its stream's segments."""


class StreamFolder:
    """The folder of a stream, which need not exist. The record is cached, and reread when it has changed."""

    def __init__(self, root: Path, stream: StreamName) -> None:
        self.root = root
        self.stream = stream
        self.path = root / stream.scope / stream.stream  # below the root: names have no slash and no leading dot

    def files(self, segment: SegmentId) -> SegmentFiles:
        """Return a segment's files, which need not exist."""
        return SegmentFiles.of_segment(self.path, segment)

    def exists(self) -> bool:
        """Return whether the stream exists."""
        try:
            self.revision()
        except (NoSuchScope, NoSuchStream):
            return False
        return True

    def revision(self) -> bytes:
        """Another value after each change of the record.

        Raises:
            NoSuchScope: the scope does not exist.
            NoSuchStream: the stream does not exist.
        """
        try:
            return read_beginning(f"{self.path}/{RECORD}", _REVISION_BYTES)
        except OSError:
            with self._errors():
                raise

    def record(self) -> StreamRecord:
        """The stream's record now; a commit that is decided is finished before.

        Raises:
            NoSuchScope: the scope does not exist.
            NoSuchStream: the stream does not exist.
        """
        record = self._recorded()
        if record.transactions.committing is None:
            return record
        with self.locked() as finished:
            return finished

    def _recorded(self) -> StreamRecord:
        last = _records.get(self.path)
        if last is not None and last.revision == self.revision():
            return last
        with self._errors():
            record = load_record(self.path, self.stream)
        if len(_records) >= _KEPT_RECORDS:
            _records.clear()
        _records[self.path] = record
        return record

    @contextlib.contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[StreamRecord]:
        """Hold the stream's lock: shared to acknowledge bytes, alone to change the record.

        Raises:
            NoSuchScope: the scope does not exist.
            NoSuchStream: the stream does not exist.
        """
        while True:
            with contextlib.ExitStack() as held:
                with self._errors():
                    held.enter_context(locked(self.path, shared=shared))
                record = self._recorded()
                with self._file_errors():
                    if record.transactions.committing is None:
                        yield record
                        return
                    if not shared:
                        finish_commit(self.path, record)
            if shared:
                self.record()  # which finishes the commit

    def settled(self, look: Callable[[StreamRecord], _Seen]) -> _Seen:
        """Look at the stream's files without its lock; again if the stream was changed or deleted in the meantime."""
        while True:
            record = self.record()
            seen = look(record)
            if self.revision() == record.revision:
                return seen

    def info(self, record: StreamRecord, segment: SegmentId) -> SegmentInfo:
        """Return a segment's current state.

        Raises:
            NoSuchSegment: it never was, or the head has passed it.
        """
        check_live(record, segment)
        state = read_state(self.files(segment).state)
        start = max(state.start, record.head.offsets.get(segment, 0))
        return SegmentInfo(segment, start, state.write, sealed=not record.is_open(segment))

    def tail(self, record: StreamRecord) -> StreamCut:
        """The ends of the current epoch's segments."""
        return StreamCut(self.stream, {s: self.files(s).end() for s in record.current.segments})

    def read(self, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        """The acknowledged bytes ``[start, end)``, in blocks that are valid until the next one is asked for.

        The stream is not locked. Truncation moves the segment's start before it takes bytes away, so what was read is
        good if it lies above the start afterwards.
        """
        for block in self.files(segment).read(start, end):
            readable = self.info(self.record(), segment).start_offset
            if start < readable:
                raise truncated(segment.in_stream(self.stream), readable)
            yield block
            start += len(block)

    def free_passed(self, record: StreamRecord) -> None:
        """Remove what the head has passed, and drafts that a kill left."""
        for path in self.path.iterdir():
            if path.name.startswith(".") or _is_passed(path, record):
                path.unlink()
        for segment, offset in record.head.offsets.items():
            self.free(segment, offset)

    def free(self, segment: SegmentId, length: int) -> None:
        """Give the room of a segment's first bytes back to the disk."""
        path = self.files(segment).data
        if length > 0 and path.exists():
            with path.open("r+b", buffering=0) as file:
                punch_hole(file.fileno(), length)

    @contextlib.contextmanager
    def _file_errors(self) -> Iterator[None]:
        try:
            with system_errors(self.path):
                yield
        except FileNotFoundError as error:
            raise StreamStoreError("a file of the stream was removed", where=str(error.filename)) from None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with system_errors(self.path):
                yield
        except FileNotFoundError:
            if not self.path.parent.is_dir():
                raise NoSuchScope("no such scope", where=f"local://{self.root}/{self.stream.scope}") from None
            raise NoSuchStream("no such stream", where=f"local://{self.root}/{self.stream}") from None


def check_first(record: StreamRecord, first: Epoch | None, *, only_sealed: bool = False) -> None:
    """Reject a stream that was recreated since the caller read it, or that is open although it was sealed then.

    Raises:
        StreamChanged: its first epoch is another one than given.
        StreamNotSealed: with ``only_sealed``, it is open.
    """
    if first is not None and first != record.epochs[0]:
        raise StreamChanged("the stream was deleted and recreated", where=str(record.stream))
    if only_sealed and not record.sealed:
        raise StreamNotSealed("the stream is not sealed", where=str(record.stream), todo="Seal it first.")


def check_live(record: StreamRecord, segment: SegmentId) -> None:
    """Reject a segment that never existed or was truncated.

    Raises:
        NoSuchSegment: says which of the two.
    """
    if segment not in record.live:
        what = "the segment was truncated" if segment in record.epochs.ranges else "the stream never had this segment"
        raise NoSuchSegment(what, where=segment.in_stream(record.stream))


def truncated(where: str, start: int) -> SegmentTruncated:
    """Return the error for a read below a segment's start."""
    return SegmentTruncated(f"the segment was truncated to offset {start}", where=where, start_offset=start)


def _is_passed(path: Path, record: StreamRecord) -> bool:
    """Return whether a file belongs to a segment that the head has passed."""
    try:
        return path.suffix in {".data", ".state"} and SegmentId.parse(path.stem) not in record.live
    except InvalidName:
        return False
