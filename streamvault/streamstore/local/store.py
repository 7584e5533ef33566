"""The embedded store: the interface of `StreamStore` over one folder.

An append writes first the data, then the state.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from uuid import UUID, uuid4
from weakref import WeakSet

from streamvault.common import processes
from streamvault.common.errors import Problem
from streamvault.common.processes import open_file, sync_folder, write_all
from streamvault.streamstore.cuts import is_before, validate_cut
from streamvault.streamstore.errors import (
    InvalidCut,
    InvalidName,
    NoSuchScope,
    NoSuchSegment,
    OffsetConflict,
    RequestFailed,
    ScaleRefused,
    ScopeNotEmpty,
    SegmentSealed,
    StoreBusy,
    StreamChanged,
    StreamExists,
    StreamSealed,
    StreamStoreError,
    StreamStoreUnavailable,
    TransactionEnded,
)
from streamvault.streamstore.local.folder import (
    RECORD,
    StreamFolder,
    StreamRecord,
    TransactionRecord,
    check_first,
    check_live,
    decided,
    finish_commit,
    first_of_kind,
    remove_ended,
    renumbered,
    reserve,
    save_record,
    truncated,
)
from streamvault.streamstore.local.segment_files import (
    SegmentFiles,
    SegmentState,
    locked,
    make_folder,
    read_state,
    replace_file,
    system_errors,
    write_state,
)
from streamvault.streamstore.model import (
    Epoch,
    Epochs,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.numbering import check_replaces, predict_order
from streamvault.streamstore.own import is_listed
from streamvault.streamstore.store import SegmentAppender, StreamStore, Transaction, Transactions, TransactionState


@dataclass(frozen=True, slots=True)
class AppendTarget:
    """A segment, or a transaction's part of one.

    Attributes:
        where: its name, for messages.
        files: its files.
        check: raises if the stream's record says that it takes no appends.
    """

    where: str
    files: SegmentFiles
    check: Callable[[StreamRecord], None]


class LocalAppender(SegmentAppender):
    """Holds the segment's lock from opening to `close`.

    Blocks go to the file as they come. They are acknowledged together, after ``in_flight`` blocks or at `flush`: the
    file is synced, then the segment's state says that it goes further, under a lock that keeps the stream from being
    scaled, sealed or deleted meanwhile. What lies in the file beyond that was never acknowledged; the next appender
    cuts it off. A commit may move the segment's end meanwhile: each append checks the end, under the lock that a commit
    holds while it writes.
    """

    def __init__(self, folder: StreamFolder, target: AppendTarget, in_flight: int) -> None:
        self._folder = folder
        self._target = target
        self._path = target.files.data
        self._in_flight = max(in_flight, 1)
        self._unsynced = 0
        self._broken: Problem | None = None
        # without it, `close` in another thread would let the next appender cut off what is just being acknowledged
        self._acknowledging = threading.RLock()
        with folder.locked(shared=True) as record:
            target.check(record)
            self._file = self._open()
            try:
                self.acknowledged = self.offset = self._cut_torn_tail()
            except BaseException:
                self._file.close()
                raise

    def append(self, block: bytes | bytearray | memoryview) -> None:
        """See `SegmentAppender.append`. After `StoreFull`, the blocks before this one can still be flushed."""
        block = self.checked(block)
        self._check_usable()
        if self._unsynced >= self._in_flight:
            self._acknowledge()
        try:
            with system_errors(self._path), self._target.files.writing() as state:
                self._check_end(state)
                self._write(block)
        except FileNotFoundError:
            with self._folder.locked(shared=True) as record:
                self._target.check(record)  # raises if it was truncated, deleted or ended in the meantime
            raise StreamStoreError("a segment's file was removed", where=str(self._target.files.state)) from None
        self.offset += len(block)
        self._unsynced += 1

    def flush(self) -> int:
        """Wait until all is on disk."""
        self._check_usable()
        if self._unsynced:
            self._acknowledge()
        return self.acknowledged

    def close(self) -> None:
        """Free the lock.

        The next appender cuts off what was not acknowledged: here, an interrupt may have come after the segment's state
        was written and before this appender took note of it.
        """
        with self._acknowledging:
            if self._file.closed:
                return
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)  # also for copies of the file in processes forked off
            with contextlib.suppress(OSError):
                self._file.close()

    def _write(self, block: memoryview) -> None:
        try:
            write_all(self._file.fileno(), block, self.offset)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self.offset)
            raise

    def _open(self) -> FileIO:
        """Open the segment's file exclusively, creating it for the first append."""
        file = FileIO(open_file(self._path), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StoreBusy(
                "another process appends to the segment",
                where=self._target.where,
                todo="Wait for it to end, or stop it.",
            ) from None
        return file

    def _cut_torn_tail(self) -> int:
        """Drop what was written and never acknowledged; returns how far the segment goes."""
        self._target.files.prepare()
        write = self._target.files.end()
        size = os.fstat(self._file.fileno()).st_size
        if size < write:
            raise StreamStoreError(f"the segment's file ends at {size} instead of {write}", where=str(self._path))
        self._file.truncate(write)
        return write

    def _acknowledge(self) -> None:
        """Sync the bytes, then say how far they go."""
        with self._acknowledging:
            self._check_usable()
            try:
                with system_errors(self._path):
                    os.fdatasync(self._file.fileno())
                with self._folder.locked(shared=True) as record:
                    self._target.check(record)
                    path = self._target.files.state
                    state = read_state(path)
                    self._check_end(state)
                    write_state(path, start=state.start, write=self.offset)
            except Problem as problem:
                self._broken = problem
                raise
            self.acknowledged = self.offset
            self._unsynced = 0

    def _check_end(self, state: SegmentState) -> None:
        if state.write != self.acknowledged:
            self._broken = OffsetConflict(
                f"another writer appended to the segment: it ends at {state.write}, not {self.acknowledged}",
                where=self._target.where,
                write_offset=state.write,
            )
            raise self._broken

    def _check_usable(self) -> None:
        if self._file.closed:
            raise ValueError("the appender is closed")
        if self._broken is not None:
            raise self._broken


LONGEST_LEASE = 600.0
"""As Pravega's controller allows by default (seconds)."""


class LocalTransactions(Transactions):
    """See `Transactions`. A lease that has run out aborts the transaction with the next look at it."""

    def __init__(self, root: Path, opened: Callable[[LocalAppender], LocalAppender]) -> None:
        self._root = root
        self._opened = opened

    def begin(self, stream: StreamName, lease: float) -> Transaction:
        """See `Transactions.begin`; a lease has 600 s at most."""
        check_lease(stream, lease)
        id_ = uuid4()
        with self._judged(stream) as (folder, record):
            if record.sealed:
                raise StreamSealed("the stream is sealed and cannot be changed", where=str(stream))
            remove_ended(folder.path, record.transactions)  # what a kill left
            epoch = first_of_kind(record)
            noted = TransactionRecord(epoch.number, time.time() + lease)
            save_record(folder.path, replace(record, transactions=record.transactions.changed(id_, noted)))
        return Transaction(stream, id_, renumbered(epoch, epoch.number))

    def ping(self, transaction: Transaction, lease: float) -> None:
        """See `Transactions.ping`."""
        check_lease(transaction.stream, lease)
        with self._judged(transaction.stream) as (folder, record):
            longer = replace(open_one(record, transaction), expires=time.time() + lease)
            transactions = record.transactions.changed(transaction.id, longer)
            save_record(folder.path, replace(record, transactions=transactions))

    def read(self, transaction: Transaction, segment: SegmentId, end: int) -> Iterator[memoryview]:
        """See `Transactions.read`."""
        files = _part(self._folder(transaction.stream), transaction.id, segment)
        try:
            yield from files.read(0, end)
        except FileNotFoundError:
            raise NoSuchSegment("the transaction has no such part", where=_where(transaction, segment)) from None

    def appender(self, transaction: Transaction, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """See `Transactions.appender`."""
        folder = self._folder(transaction.stream)
        where = _where(transaction, segment)

        def check(record: StreamRecord) -> None:
            state = record.transactions.judged(time.time()).state(transaction.id)
            if state is not TransactionState.OPEN or segment not in transaction.segments:
                raise NoSuchSegment(f"the transaction has no such part; it is {state}", where=where)

        files = _part(folder, transaction.id, segment)
        return self._opened(LocalAppender(folder, AppendTarget(where, files, check), in_flight))

    def commit(self, transaction: Transaction) -> TransactionState:
        """See `Transactions.commit`."""
        with self._judged(transaction.stream) as (folder, record):
            state = record.transactions.state(transaction.id)
            if state is not TransactionState.OPEN:
                return state
            lengths = {segment.number: _part(folder, transaction.id, segment).end() for segment in transaction.segments}
            noted = decided(record, transaction.id, lengths, folder.tail(record).offsets)
            reserve(folder.path, noted, transaction.id)
            save_record(folder.path, noted)
            finish_commit(folder.path, noted)
        return TransactionState.COMMITTED

    def abort(self, transaction: Transaction) -> None:
        """See `Transactions.abort`."""
        with self._judged(transaction.stream) as (folder, record):
            if record.transactions.state(transaction.id) is TransactionState.OPEN:
                transactions = record.transactions.dropped(transaction.id)
                save_record(folder.path, replace(record, transactions=transactions))
                remove_ended(folder.path, transactions)

    def state(self, transaction: Transaction) -> TransactionState:
        """See `Transactions.state`."""
        transactions = self._folder(transaction.stream).record().transactions
        if transactions.judged(time.time()) == transactions:
            return transactions.state(transaction.id)
        with self._judged(transaction.stream) as (_, record):
            return record.transactions.state(transaction.id)

    def lengths(self, transaction: Transaction) -> Mapping[SegmentId, int]:
        """See `Transactions.lengths`."""
        folder = self._folder(transaction.stream)
        return {segment: _part(folder, transaction.id, segment).end() for segment in transaction.segments}

    def _merge(self, target: Transaction, source: Transaction, segments: Sequence[SegmentId]) -> None:
        with self._judged(target.stream) as (folder, record):
            if not {target.id, source.id} <= record.transactions.going.keys():
                return
            for segment in segments:
                into, part = (_part(folder, transaction.id, segment) for transaction in (target, source))
                base, length = into.end(), part.end()
                into.reserve(base, length)
                into.take(part, base, length)
                part.remove()

    @contextlib.contextmanager
    def _judged(self, stream: StreamName) -> Iterator[tuple[StreamFolder, StreamRecord]]:
        """Hold a stream's lock; the transactions whose lease has run out are aborted."""
        folder = self._folder(stream)
        with folder.locked() as record:
            judged = replace(record, transactions=record.transactions.judged(time.time()))
            if judged != record:
                save_record(folder.path, judged)
                remove_ended(folder.path, judged.transactions)
            yield folder, judged

    def _folder(self, stream: StreamName) -> StreamFolder:
        return StreamFolder(self._root, stream)


def check_lease(stream: StreamName, lease: float) -> None:
    """Reject a lease that is not allowed.

    Raises:
        RequestFailed: it is too long.
    """
    if not 0 < lease <= LONGEST_LEASE:
        raise RequestFailed(f"a lease has up to {LONGEST_LEASE:.0f} s, not {lease:.0f}", where=str(stream))


def open_one(record: StreamRecord, transaction: Transaction) -> TransactionRecord:
    """Return what a stream's record says of an open transaction.

    Raises:
        TransactionEnded: it is not open any more.
    """
    state = record.transactions.state(transaction.id)
    if state is not TransactionState.OPEN:
        where = f"{transaction.stream}, {transaction.id}"
        raise TransactionEnded(f"the transaction cannot be kept open ({state})", where=where)
    return record.transactions.going[transaction.id]


def _where(transaction: Transaction, segment: SegmentId) -> str:
    return f"{segment.in_stream(transaction.stream)}, transaction {transaction.id}"


def _part(folder: StreamFolder, id_: UUID, segment: SegmentId) -> SegmentFiles:
    return SegmentFiles.of_part(folder.path, id_, segment.number)


DRAFT = ".new-"
REMAINS = ".deleted-"


class LocalStore(StreamStore):
    """Streams in a folder of this machine, named by its absolute path; several processes may use it at once.

    Reading creates nothing: the folder is created with its first scope.

    Raises:
        InvalidName: the path is not absolute.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._root = Path(folder)
        if not self._root.is_absolute():
            raise InvalidName("the folder of a local store must be absolute", where=repr(os.fspath(folder)))
        self.uri = f"local://{self._root}"
        self._appenders: WeakSet[LocalAppender] = WeakSet()
        self._mutex = threading.Lock()

    def list_scopes(self) -> Iterator[str]:
        """Every scope, sorted; none if the store's folder is not there.

        Raises:
            InvalidName: the folder is a scope's.
        """
        try:
            with system_errors(self._root):
                entries = sorted(entry.name for entry in self._root.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return
        if any((self._root / name / RECORD).exists() for name in entries):
            todo = f"For the streams of this scope, write {self.uri}/, with a slash at the end."
            raise InvalidName("the folder is a scope, not a store", where=self.uri, todo=todo)
        yield from (name for name in entries if StreamName.is_valid(name))

    def list_streams(self, scope: str, *, own: bool = False) -> Iterator[StreamName]:
        """Every user's stream of a scope, sorted; with ``own`` also Streamvault's."""
        with self._scope(scope) as folder:
            entries = sorted(entry.name for entry in folder.iterdir())
        for name in (StreamName(scope, entry) for entry in entries if StreamName.is_valid(entry)):
            if self.exists(name) and (own or self._is_listed(name)):
                yield name

    def describe(self, stream: StreamName) -> StreamDescription:
        """Configuration, epochs, head, tail and whether it is sealed."""
        folder = self._folder(stream)
        return folder.settled(lambda record: record.describe(folder.tail(record)))

    def exists(self, stream: StreamName) -> bool:
        """See `StreamStore.exists`."""
        return self._folder(stream).exists()

    def segment_info(self, stream: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        """See `StreamStore.segment_info`."""
        folder = self._folder(stream)
        return folder.settled(lambda record: [folder.info(record, segment) for segment in segments])

    def read(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        """The bytes of a segment's range as blocks; see `StreamStore.read`."""
        folder = self._folder(stream)
        where = segment.in_stream(stream)
        info = folder.settled(lambda record: folder.info(record, segment))
        info.check_range(start, end, f"{self.uri}/{where}")
        if start == end:
            return
        if start < info.start_offset:
            raise truncated(where, info.start_offset)
        try:
            yield from folder.read(segment, start, end)
        except FileNotFoundError:
            check_live(folder.record(), segment)  # raises if it was truncated or deleted in the meantime
            raise StreamStoreError("a segment's file was removed", where=str(folder.files(segment).data)) from None

    def create_scope(self, scope: str) -> bool:
        """Make a scope, and the store's folder if missing; False if it was there."""
        folder = self._root / _checked(scope)
        try:
            with system_errors(folder):
                return make_folder(folder)
        except FileNotFoundError as error:  # a file system on which no folder can be made
            why = error.strerror
            raise StreamStoreUnavailable(f"the store's folder cannot be used ({why})", where=str(folder)) from None

    def create_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Make a stream of segments of equal width."""
        count = configuration.scaling.min_segments
        if count < 1:
            raise ValueError(f"a stream needs at least one segment, not {count}")
        path = self._folder(stream).path
        with self._scope(stream.scope) as scope, locked(scope):
            if path.exists():
                raise StreamExists("the stream exists", where=f"{self.uri}/{stream}")
            _sweep(scope)
            first = self._numbers(stream.scope).get(stream.stream, 0)
            segments = {SegmentId(0, first + i): held for i, held in enumerate(_equal_ranges(count))}
            head = StreamCut(stream, dict.fromkeys(segments, 0))
            draft = scope / f"{DRAFT}{secrets.token_hex(8)}"
            processes.make_folder(draft)
            save_record(draft, StreamRecord(stream, configuration, Epochs([Epoch(0, segments)]), head))
            draft.rename(path)
            sync_folder(scope)

    def update_stream(
        self, stream: StreamName, configuration: StreamConfiguration, *, was: StreamConfiguration | None = None
    ) -> None:
        """See `StreamStore.update_stream`."""
        folder = self._folder(stream)
        with folder.locked() as record:
            _check_not_sealed(record)
            if record.configuration == configuration:
                return
            if was is not None and was != record.configuration:
                raise StreamChanged.configured(f"{self.uri}/{stream}")
            save_record(folder.path, replace(record, configuration=configuration))

    def scale(self, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> Epoch:
        """See `StreamStore.scale`."""
        folder = self._folder(stream)
        with folder.locked() as record:
            _check_not_sealed(record)
            current = record.current
            check_replaces(seal, ranges, current.segments)
            _check_enough(record, len(current.segments) - len(seal) + len(ranges))
            number = max(segment.number for segment in current.segments) + 1
            segments = {segment: held for segment, held in current.segments.items() if segment not in seal}
            for place, index in enumerate(predict_order(ranges)):
                segments[SegmentId(current.number + 1, number + place)] = ranges[index]
            epoch = Epoch(current.number + 1, segments)
            save_record(folder.path, replace(record, epochs=record.epochs.then(epoch)))
            return epoch

    def appender(self, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """Open a segment for appending, exclusively until the appender is closed or its process ends."""
        folder, where = self._folder(stream), segment.in_stream(stream)

        def check(record: StreamRecord) -> None:
            check_live(record, segment)
            if not record.is_open(segment):
                raise SegmentSealed("the segment is sealed", where=where)

        return self._opened(LocalAppender(folder, AppendTarget(where, folder.files(segment), check), in_flight))

    def transactions(self) -> Transactions:
        """See `StreamStore.transactions`."""
        return LocalTransactions(self._root, self._opened)

    def truncate_segment(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        """See `StreamStore.truncate_segment`."""
        folder = self._folder(stream)
        with folder.locked() as record:
            info = folder.info(record, segment)
            _check_offset(info, offset, stream)
            if offset > info.start_offset:
                write_state(folder.files(segment).state, start=offset, write=info.write_offset)
                folder.free(segment, offset)

    def truncate(self, cut: StreamCut) -> None:
        """See `StreamStore.truncate`."""
        folder = self._folder(cut.stream)
        with folder.locked() as record:
            described = record.describe(folder.tail(record))
            if is_before(described, cut, described.head):
                return
            _check_not_sealed(record)
            validate_cut(described, cut)
            for segment, offset in cut.offsets.items():
                _check_offset(folder.info(record, segment), offset, cut.stream)
            shorter = replace(record, head=cut)
            save_record(folder.path, shorter)
            folder.free_passed(shorter)

    def seal(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """See `StreamStore.seal`."""
        folder = self._folder(stream)
        with folder.locked() as record:
            check_first(record, first)
            if not record.sealed:
                transactions = record.transactions.dropped(*record.transactions.going)
                save_record(folder.path, replace(record, sealed=True, transactions=transactions))
                remove_ended(folder.path, transactions)

    def delete(self, stream: StreamName, *, first: Epoch | None = None, only_sealed: bool = False) -> None:
        """See `StreamStore.delete`; a later stream of this name continues the segment numbers."""
        folder = self._folder(stream)
        with self._scope(stream.scope) as scope, locked(scope):
            with folder.locked() as record:
                check_first(record, first, only_sealed=only_sealed)
                numbers = self._numbers(stream.scope)
                numbers[stream.stream] = max(segment.number for segment in record.current.segments) + 1
                path = self._numbers_path(stream.scope)
                make_folder(path.parent)
                replace_file(path, json.dumps(numbers, indent=1, sort_keys=True).encode() + b"\n")
                folder.path.rename(scope / f"{REMAINS}{secrets.token_hex(8)}")
                sync_folder(scope)
            _sweep(scope)

    def delete_scope(self, scope: str) -> None:
        """Delete an empty scope."""
        with self._scope(scope) as folder, locked(folder):
            if any(not _is_remains(entry.name) for entry in folder.iterdir()):
                raise ScopeNotEmpty(
                    "the scope is not empty", where=f"{self.uri}/{scope}", todo="Delete its streams first."
                )
            folder.rename(self._root / f"{REMAINS}{secrets.token_hex(8)}")
            sync_folder(self._root)
        _sweep(self._root)

    def close(self) -> None:
        """Close the appenders that are still open."""
        with self._mutex:
            appenders = list(self._appenders)
        for appender in appenders:
            appender.close()

    @contextmanager
    def _scope(self, scope: str) -> Iterator[Path]:
        """The folder of a scope.

        Raises:
            NoSuchScope: something is not there.
        """
        folder = self._root / _checked(scope)
        try:
            with system_errors(folder):
                yield folder
        except FileNotFoundError:
            raise NoSuchScope("no such scope", where=f"{self.uri}/{scope}") from None

    def _numbers_path(self, scope: str) -> Path:
        """The file of a scope's deleted streams. It outlasts the scope: Pravega's numbers do."""
        return self._root / ".numbers" / scope

    def _numbers(self, scope: str) -> dict[str, int]:
        """Return the first segment number for each deleted stream of the scope."""
        path = self._numbers_path(scope)
        try:
            return {str(name): int(number) for name, number in json.loads(path.read_bytes()).items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError):
            raise StreamStoreError("the numbers of deleted streams are damaged", where=str(path)) from None

    def _is_listed(self, stream: StreamName) -> bool:
        try:
            return is_listed(self._folder(stream).record().configuration)
        except StreamStoreError:
            return True  # damaged or gone; using it raises the error

    def _opened(self, appender: LocalAppender) -> LocalAppender:
        with self._mutex:
            self._appenders.add(appender)
        return appender

    def _folder(self, stream: StreamName) -> StreamFolder:
        return StreamFolder(self._root, stream)


def _check_not_sealed(record: StreamRecord) -> None:
    if record.sealed:
        raise StreamSealed("the stream is sealed and cannot be changed", where=str(record.stream))


def _check_enough(record: StreamRecord, count: int) -> None:
    least = record.configuration.scaling.min_segments
    if count < least:
        raise ScaleRefused(
            f"the scale would leave {count} segments, but the stream's policy requires at least {least}",
            where=str(record.stream),
        )


def _check_offset(info: SegmentInfo, offset: int, stream: StreamName) -> None:
    if offset > info.write_offset:
        raise InvalidCut(
            f"offset {offset} lies beyond the segment, which ends at {info.write_offset}",
            where=info.segment.in_stream(stream),
        )


def _equal_ranges(count: int) -> Iterator[KeyRange]:
    """As Pravega cuts the key space; of 49, the last one ends an ulp below 1.0."""
    width = 1.0 / count
    return (KeyRange(i * width, (i + 1) * width) for i in range(count))


def _sweep(folder: Path) -> None:
    """Remove what a kill left of streams or scopes that were made or deleted."""
    for entry in folder.iterdir():
        if _is_remains(entry.name):
            shutil.rmtree(entry, ignore_errors=True)


def _is_remains(name: str) -> bool:
    return name.startswith((DRAFT, REMAINS))


def _checked(scope: str) -> str:
    StreamName(scope, "stream")  # raises if it is not a scope's name
    return scope
