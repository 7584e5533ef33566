"""An object store and a stream store in memory, which ask a gate before each call.

Both keep the contracts of the real ones (`tests/contract`), in microseconds. Streams behave as Pravega does: nobody
keeps another from appending, and an append at a wrong offset is refused.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from threading import Lock
from typing import Protocol, TypeVar
from uuid import UUID

from streamvault.objectstore.store import (
    SMALL,
    AlreadyExists,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
    TooLarge,
    WrongSize,
    check_key,
    check_prefix,
)
from streamvault.streamstore.cuts import is_before, validate_cut
from streamvault.streamstore.errors import (
    InvalidCut,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    OffsetConflict,
    ScaleRefused,
    ScopeNotEmpty,
    SegmentSealed,
    SegmentTruncated,
    StreamChanged,
    StreamExists,
    StreamSealed,
)
from streamvault.streamstore.framing import MAX_APPEND_BYTES
from streamvault.streamstore.local.folder import (
    StreamRecord,
    TransactionRecord,
    check_first,
    check_live,
    decided,
    first_of_kind,
    renumbered,
)
from streamvault.streamstore.local.store import check_lease, open_one
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

T = TypeVar("T")
READ_BYTES = 1024 * 1024
PAGE = 3
"""Keys in a page of a listing."""
_ONE_AT_A_TIME = Lock()


class Gate(Protocol):
    """Called before each call of a store: it may run other commands meanwhile.

    It raises what the call is to fail with; what it returns is raised once the call has taken effect.
    """

    def __call__(self, call: str, what: str) -> BaseException | None: ...


class Late(Exception):
    """Raised by a gate: the request is pending, and the client gives it up.

    Args:
        answer: what the client is told. keep: receives the request's effect, which takes place later or never.
    """

    def __init__(self, answer: BaseException, keep: Callable[[Callable[[], object]], None]) -> None:
        super().__init__(answer)
        self.answer = answer
        self.keep = keep


def open_gate(call: str, what: str) -> BaseException | None:
    """A gate that does nothing."""
    return None


def _changed(key: str, data: bytes | None) -> None:
    """A listener that ignores everything."""


@dataclass
class Bucket:
    """Objects, and the listener that is called at each change with the key, and the new object or None."""

    objects: dict[str, bytes] = field(default_factory=dict)
    changed: Callable[[str, bytes | None], None] = _changed
    _sorted: list[str] | None = None

    def copy(self) -> Bucket:
        return Bucket(dict(self.objects), _sorted=self._sorted)

    def put(self, key: str, data: bytes) -> None:
        """Store an object under a new key."""
        self.objects[key] = data
        self._sorted = None
        self.changed(key, data)

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        if self.objects.pop(key, None) is not None:
            self._sorted = None
            self.changed(key, None)

    def keys(self, prefix: str) -> Iterator[str]:
        """Those that begin with a prefix, in order."""
        if self._sorted is None:
            self._sorted = sorted(self.objects)
        first = bisect_left(self._sorted, prefix)
        return takewhile(lambda key: key.startswith(prefix), islice(self._sorted, first, None))


class MemoryObjects(ObjectStore):
    """The objects of a bucket."""

    def __init__(self, bucket: Bucket, uri: str, prefix: str = "", gate: Gate = open_gate) -> None:
        self._bucket = bucket
        self._uri = uri
        self._base = f"{prefix}/" if prefix else ""
        self._gate = gate

    @property
    def uri(self) -> str:
        return self._uri

    def put(self, key: str, data: bytes | memoryview) -> None:
        check_key(key)
        full, held = self._base + key, bytes(data)  # a late request has what its buffer held when it was sent

        def put() -> None:
            if full in self._bucket.objects:
                raise AlreadyExists("the object exists", where=f"{self._uri}/{key}")
            self._bucket.put(full, held)

        _call(self._gate, "put", key, put)

    def get(self, key: str, at_most: int = SMALL) -> bytes:
        check_key(key)

        def get() -> bytes:
            data = self._find(key)
            if len(data) > at_most:
                raise TooLarge.of(len(data), at_most, f"{self._uri}/{key}")
            return data

        return _call(self._gate, "get", key, get)

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        check_key(key)

        def get() -> memoryview:
            data = self._find(key)
            if end > len(data) or start > len(data):
                raise WrongSize(f"the object is too short for bytes {start} to {end}", where=f"{self._uri}/{key}")
            return memoryview(data)[start:end].toreadonly()

        return _call(self._gate, "get", key, get)

    def size(self, key: str) -> int:
        check_key(key)
        return _call(self._gate, "head", key, lambda: len(self._find(key)))

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        full, skip = self._base + prefix, len(self._base)

        def look() -> list[tuple[str, int]]:
            return [(key, len(self._bucket.objects[key])) for key in self._bucket.keys(full)]

        for key, size in _call(self._gate, "list", prefix, look):
            if key[skip:] > after:
                yield ObjectInfo(key[skip:], size)

    def names(self, prefix: str, skip: int) -> list[str]:
        """The keys that `list` returns, each without its first `skip` characters; the same call for the gate."""
        check_prefix(prefix)
        full, drop = self._base + prefix, len(self._base) + skip
        return _call(self._gate, "list", prefix, lambda: [key[drop:] for key in self._bucket.keys(full)])

    def folders(self, prefix: str) -> Sequence[str]:
        check_prefix(prefix)
        full = self._base + prefix

        def look() -> Sequence[str]:
            below = (key[len(full) :] for key in self._bucket.keys(full))
            return sorted({name for name, slash, _ in (rest.partition("/") for rest in below) if name and slash})

        return _call(self._gate, "list", prefix, look)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        if not keys:
            return

        def delete() -> None:
            for key in keys:
                self._bucket.delete(self._base + key)

        _call(self._gate, "delete", "\n".join(keys), delete)

    def _find(self, key: str) -> bytes:
        data = self._bucket.objects.get(self._base + key)
        if data is None:
            raise NoSuchObject("no such object", where=f"{self._uri}/{key}")
        return data


class PagedObjects(MemoryObjects):
    """Objects that are listed in pages, as S3 does; between two of them others may change what is listed."""

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        full, skip = self._base + prefix, len(self._base)

        def look() -> list[tuple[str, int]]:
            rest = (key for key in self._bucket.keys(full) if key[skip:] > after)
            return [(key[skip:], len(self._bucket.objects[key])) for key in islice(rest, PAGE)]

        while True:
            page = _call(self._gate, "list", prefix, look)
            yield from (ObjectInfo(key, size) for key, size in page)
            if len(page) < PAGE:
                return
            after = page[-1][0]


def _call(gate: Gate, call: str, what: str, effect: Callable[[], T]) -> T:
    try:
        after = gate(call, what)
    except Late as late:
        late.keep(effect)
        raise late.answer from None
    with _ONE_AT_A_TIME:  # the contracts' tests use threads
        result = effect()
    if after is not None:
        raise after
    return result


@dataclass(frozen=True)
class StreamState:
    """A stream. Acknowledged data is never forgotten: truncated data is only hidden.

    Attributes:
        number: tells it from others that had its name.
        record: as the embedded store keeps it. data: all bytes ever, by segment. starts: of truncated segments.
        parts: the bytes of transactions, by transaction and number of the segment.
    """

    number: int
    record: StreamRecord
    data: dict[SegmentId, bytes]
    starts: dict[SegmentId, int] = field(default_factory=dict)
    parts: dict[tuple[UUID, int], bytes] = field(default_factory=dict)

    def info(self, segment: SegmentId) -> SegmentInfo:
        check_live(self.record, segment)
        start = max(self.starts.get(segment, 0), self.record.head.offsets.get(segment, 0))
        end = len(self.data.get(segment, b""))
        return SegmentInfo(segment, start, end, sealed=not self.record.is_open(segment))

    def describe(self) -> StreamDescription:
        ends = {segment: len(self.data.get(segment, b"")) for segment in self.record.current.segments}
        return self.record.describe(StreamCut(self.record.stream, ends))

    def readable(self) -> dict[SegmentId, int]:
        """The offset from which each segment can be read; deleted segments are absent."""
        return {segment: self.info(segment).start_offset for segment in self.record.live}


def _told(name: StreamName, before: StreamState | None, after: StreamState | None) -> None:
    """For who does not want to know."""


@dataclass
class Cluster:
    """Streams by scope and name.

    Attributes:
        numbers: where the numbers of segments go on once a stream of this name is made again.
        made: how many streams there ever were. begun: how many transactions.
        lost: told when a stream is truncated or deleted: what it was and what is left.
        changed: told at each change of a stream: what it was (None if it is new) and is (None if it was deleted).
    """

    scopes: dict[str, dict[str, StreamState]] = field(default_factory=dict)
    numbers: dict[StreamName, int] = field(default_factory=dict)
    made: int = 0
    begun: int = 0
    lost: Callable[[StreamName, StreamState, StreamState | None], None] = _told
    changed: Callable[[StreamName, StreamState | None, StreamState | None], None] = _told

    def copy(self) -> Cluster:
        return Cluster(
            {name: dict(held) for name, held in self.scopes.items()}, dict(self.numbers), self.made, self.begun
        )

    def find(self, name: StreamName) -> StreamState:
        held = self.scopes.get(name.scope)
        if held is None:
            raise NoSuchScope("no such scope", where=str(name))
        state = held.get(name.stream)
        if state is None:
            raise NoSuchStream("no such stream", where=str(name))
        return state

    def keep(self, name: StreamName, state: StreamState) -> None:
        before = self.scopes[name.scope].get(name.stream)
        self.scopes[name.scope][name.stream] = state
        self.changed(name, before, state)


class MemoryStreams(StreamStore):
    """The streams of a cluster."""

    def __init__(
        self, cluster: Cluster, uri: str, gate: Gate = open_gate, clock: Callable[[], float] = time.time
    ) -> None:
        self._cluster = cluster
        self._uri = uri
        self._gate = gate
        self._clock = clock
        self._appenders: list[MemoryAppender] = []

    @property
    def uri(self) -> str:
        return self._uri

    def list_scopes(self) -> Iterator[str]:
        yield from _call(self._gate, "list scopes", "", lambda: sorted(self._cluster.scopes))

    def list_streams(self, scope: str, *, own: bool = False) -> Iterator[StreamName]:
        StreamName(scope, "stream")

        def look() -> list[StreamName]:
            if scope not in self._cluster.scopes:
                raise NoSuchScope("no such scope", where=scope)
            held = sorted(self._cluster.scopes[scope].items())
            return [StreamName(scope, name) for name, state in held if own or is_listed(state.record.configuration)]

        yield from _call(self._gate, "list streams", scope, look)

    def describe(self, stream: StreamName) -> StreamDescription:
        return _call(self._gate, "describe", str(stream), lambda: self._cluster.find(stream).describe())

    def exists(self, stream: StreamName) -> bool:
        return _call(
            self._gate, "exists", str(stream), lambda: stream.stream in self._cluster.scopes.get(stream.scope, ())
        )

    def segment_info(self, stream: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        def look() -> list[SegmentInfo]:
            state = self._cluster.find(stream)
            return [state.info(segment) for segment in segments]

        return _call(self._gate, "segment info", str(stream), look)

    def read(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        where = segment.in_stream(stream)
        began = False
        while not began or start < end:
            block = _call(self._gate, "read", f"{where}:{start}", lambda at=start: self._read(stream, segment, at, end))
            began = True
            if block:
                yield memoryview(block)
            start += len(block)

    def _read(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> bytes:
        state = self._cluster.find(stream)
        info = state.info(segment)
        where = segment.in_stream(stream)
        info.check_range(start, end, where)
        if start < end and start < info.start_offset:
            raise SegmentTruncated(
                f"the segment was truncated to offset {info.start_offset}", where=where, start_offset=info.start_offset
            )
        return state.data.get(segment, b"")[start : min(end, start + READ_BYTES)]

    def create_scope(self, scope: str) -> bool:
        StreamName(scope, "stream")

        def create() -> bool:
            is_new = scope not in self._cluster.scopes
            self._cluster.scopes.setdefault(scope, {})
            return is_new

        return _call(self._gate, "create scope", scope, create)

    def create_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        count = configuration.scaling.min_segments
        if count < 1:
            raise ValueError(f"a stream has one segment at least, not {count}")

        def create() -> None:
            held = self._cluster.scopes.get(stream.scope)
            if held is None:
                raise NoSuchScope("no such scope", where=str(stream))
            if stream.stream in held:
                raise StreamExists("the stream exists", where=str(stream))
            first = self._cluster.numbers.get(stream, 0)
            width = 1.0 / count
            segments = {SegmentId(0, first + i): KeyRange(i * width, (i + 1) * width) for i in range(count)}
            head = StreamCut(stream, dict.fromkeys(segments, 0))
            self._cluster.made += 1
            record = StreamRecord(stream, configuration, Epochs([Epoch(0, segments)]), head)
            self._cluster.keep(stream, StreamState(self._cluster.made, record, {}))

        _call(self._gate, "create stream", str(stream), create)

    def update_stream(
        self, stream: StreamName, configuration: StreamConfiguration, *, was: StreamConfiguration | None = None
    ) -> None:
        def updated(record: StreamRecord) -> StreamRecord:
            if was is not None and record.configuration not in (was, configuration):
                raise StreamChanged("the stream's configuration was changed concurrently", where=str(stream))
            return replace(record, configuration=configuration)

        self._change("update", stream, updated)

    def scale(self, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> Epoch:
        def scaled(record: StreamRecord) -> StreamRecord:
            current = record.current
            check_replaces(seal, ranges, current.segments)
            if len(current.segments) - len(seal) + len(ranges) < record.configuration.scaling.min_segments:
                raise ScaleRefused("a scale would leave too few segments", where=str(stream))
            number = max(segment.number for segment in current.segments) + 1
            segments = {segment: held for segment, held in current.segments.items() if segment not in seal}
            for place, index in enumerate(predict_order(ranges)):
                segments[SegmentId(current.number + 1, number + place)] = ranges[index]
            return replace(record, epochs=record.epochs.then(Epoch(current.number + 1, segments)))

        return self._change("scale", stream, scaled).current

    def _change(self, call: str, stream: StreamName, change: Callable[[StreamRecord], StreamRecord]) -> StreamRecord:
        def do() -> StreamRecord:
            state = self._cluster.find(stream)
            if state.record.sealed:
                raise StreamSealed("the stream is sealed and cannot be changed", where=str(stream))
            record = change(state.record)
            self._cluster.keep(stream, replace(state, record=record))
            return record

        return _call(self._gate, call, str(stream), do)

    def appender(
        self,
        stream: StreamName,
        segment: SegmentId,
        *,
        in_flight: int = 4,  # noqa: ARG002  (what is appended is acknowledged at once)
    ) -> SegmentAppender:
        def look() -> int:
            state = self._cluster.find(stream)
            info = state.info(segment)
            if info.sealed:
                raise SegmentSealed("the segment is sealed", where=segment.in_stream(stream))
            return info.write_offset

        offset = _call(self._gate, "open appender", segment.in_stream(stream), look)
        appender = MemoryAppender(self._cluster, stream, segment, offset, self._gate)
        self._appenders.append(appender)
        return appender

    def transactions(self) -> Transactions:
        return MemoryTransactions(self._cluster, self._gate, self._clock)

    def truncate_segment(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        def truncate() -> None:
            state = self._cluster.find(stream)
            info = state.info(segment)
            if offset > info.write_offset:
                raise InvalidCut("beyond the segment", where=segment.in_stream(stream))
            if offset > info.start_offset:
                after = replace(state, starts={**state.starts, segment: offset})
                self._cluster.keep(stream, after)
                self._cluster.lost(stream, state, after)

        _call(self._gate, "truncate segment", segment.in_stream(stream), truncate)

    def truncate(self, cut: StreamCut) -> None:
        def truncate() -> None:
            state = self._cluster.find(cut.stream)
            described = state.describe()
            if is_before(described, cut, described.head):
                return
            if state.record.sealed:
                raise StreamSealed("the stream is sealed and cannot be changed", where=str(cut.stream))
            validate_cut(described, cut)
            for segment, offset in cut.offsets.items():
                if offset > state.info(segment).write_offset:
                    raise InvalidCut("beyond the segment", where=segment.in_stream(cut.stream))
            after = replace(state, record=replace(state.record, head=cut))
            self._cluster.keep(cut.stream, after)
            self._cluster.lost(cut.stream, state, after)

        _call(self._gate, "truncate", str(cut.stream), truncate)

    def seal(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        def seal() -> None:
            state = self._cluster.find(stream)
            check_first(state.record, first)
            transactions = state.record.transactions.dropped(*state.record.transactions.going)
            sealed = replace(state.record, sealed=True, transactions=transactions)
            self._cluster.keep(stream, replace(state, record=sealed, parts={}))

        _call(self._gate, "seal", str(stream), seal)

    def delete(self, stream: StreamName, *, first: Epoch | None = None, only_sealed: bool = False) -> None:
        def delete() -> None:
            state = self._cluster.find(stream)
            check_first(state.record, first, only_sealed=only_sealed)
            self._cluster.numbers[stream] = max(segment.number for segment in state.record.current.segments) + 1
            del self._cluster.scopes[stream.scope][stream.stream]
            self._cluster.lost(stream, state, None)
            self._cluster.changed(stream, state, None)

        _call(self._gate, "delete stream", str(stream), delete)

    def delete_scope(self, scope: str) -> None:
        StreamName(scope, "stream")

        def delete() -> None:
            if scope not in self._cluster.scopes:
                raise NoSuchScope("no such scope", where=scope)
            if self._cluster.scopes[scope]:
                raise ScopeNotEmpty("the scope is not empty", where=scope)
            del self._cluster.scopes[scope]

        _call(self._gate, "delete scope", scope, delete)

    def close(self) -> None:
        for appender in self._appenders:
            appender.close()


class MemoryAppender(SegmentAppender):
    """Appends to a segment at the end found when the appender was opened; an append by another writer is a conflict."""

    def __init__(self, cluster: Cluster, stream: StreamName, segment: SegmentId, offset: int, gate: Gate) -> None:
        self._cluster = cluster
        self._stream = stream
        self._segment = segment
        self._where = segment.in_stream(stream)
        self._offset = offset
        self._gate = gate
        self._is_open = True

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def acknowledged(self) -> int:
        return self._offset

    def append(self, block: bytes | bytearray | memoryview) -> None:
        data = bytes(memoryview(block).cast("B"))
        if not 0 < len(data) <= MAX_APPEND_BYTES:
            raise ValueError(f"a block has 1 byte to {MAX_APPEND_BYTES} bytes, not {len(data)}")
        if not self._is_open:
            raise ValueError("the appender is closed")
        offset = self._offset
        _call(self._gate, "append", f"{self._where}:{offset}", lambda: self._append(data, offset))

    def _append(self, data: bytes, offset: int) -> None:
        where = self._where
        state = self._cluster.find(self._stream)
        try:
            info = state.info(self._segment)
        except NoSuchSegment:
            raise SegmentSealed("the segment is sealed and gone", where=where) from None
        if info.sealed:
            raise SegmentSealed("the segment is sealed", where=where)
        if info.write_offset != offset:
            raise OffsetConflict(
                f"another writer appended to the segment: it ends at {info.write_offset}, not at {offset}",
                where=where,
                write_offset=info.write_offset,
            )
        held = state.data.get(self._segment, b"")
        self._cluster.keep(self._stream, replace(state, data={**state.data, self._segment: held + data}))
        self._offset = offset + len(data)

    def flush(self) -> int:
        if not self._is_open:
            raise ValueError("the appender is closed")
        return self._offset

    def close(self) -> None:
        self._is_open = False


class MemoryTransactions(Transactions):
    """Transactions of a cluster's streams; a commit takes effect at once."""

    def __init__(self, cluster: Cluster, gate: Gate, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._gate = gate
        self._clock = clock

    def begin(self, stream: StreamName, lease: float) -> Transaction:
        check_lease(stream, lease)

        def begin() -> Transaction:
            state = self._judged(stream)
            if state.record.sealed:
                raise StreamSealed("the stream is sealed and cannot be changed", where=str(stream))
            self._cluster.begun += 1
            id_, epoch = UUID(int=self._cluster.begun), first_of_kind(state.record)
            self._note(state, id_, TransactionRecord(epoch.number, self._clock() + lease))
            return Transaction(stream, id_, renumbered(epoch, epoch.number))

        return _call(self._gate, "begin transaction", str(stream), begin)

    def ping(self, transaction: Transaction, lease: float) -> None:
        check_lease(transaction.stream, lease)

        def ping() -> None:
            state = self._judged(transaction.stream)
            longer = replace(open_one(state.record, transaction), expires=self._clock() + lease)
            self._note(state, transaction.id, longer)

        _call(self._gate, "ping transaction", _name(transaction), ping)

    def appender(
        self,
        transaction: Transaction,
        segment: SegmentId,
        *,
        in_flight: int = 4,  # noqa: ARG002  (what is appended is acknowledged at once)
    ) -> SegmentAppender:
        def look() -> int:
            return len(self.part(transaction, segment))

        offset = _call(self._gate, "open appender", f"{segment} of {_name(transaction)}", look)
        appender = PartAppender(self._cluster, transaction.stream, segment, offset, self._gate)
        appender.into(self, transaction)
        return appender

    def read(self, transaction: Transaction, segment: SegmentId, end: int) -> Iterator[memoryview]:
        start = 0
        while start < end:
            at, until = start, min(start + READ_BYTES, end)
            what = f"{segment} of {_name(transaction)}:{start}"
            block = _call(self._gate, "read", what, lambda at=at, to=until: self.part(transaction, segment)[at:to])
            yield memoryview(block)
            start += len(block)

    def commit(self, transaction: Transaction) -> TransactionState:
        def commit() -> TransactionState:
            state = self._judged(transaction.stream)
            record, id_ = state.record, transaction.id
            if record.transactions.state(id_) is not TransactionState.OPEN:
                return record.transactions.state(id_)
            lengths = {number: len(part) for (owner, number), part in state.parts.items() if owner == id_}
            record = decided(record, id_, lengths, state.describe().tail.offsets)
            data = dict(state.data)
            for segment in record.transactions.going[id_].into or ():
                data[segment] = data.get(segment, b"") + state.parts[id_, segment.number]
            record = replace(record, transactions=record.transactions.finished(id_))
            self._keep(replace(state, record=record, data=data))
            return TransactionState.COMMITTED

        return _call(self._gate, "commit transaction", _name(transaction), commit)

    def abort(self, transaction: Transaction) -> None:
        def abort() -> None:
            state = self._judged(transaction.stream)
            record = replace(state.record, transactions=state.record.transactions.dropped(transaction.id))
            self._keep(replace(state, record=record))

        _call(self._gate, "abort transaction", _name(transaction), abort)

    def state(self, transaction: Transaction) -> TransactionState:
        def look() -> TransactionState:
            return self._judged(transaction.stream).record.transactions.state(transaction.id)

        return _call(self._gate, "transaction state", _name(transaction), look)

    def lengths(self, transaction: Transaction) -> Mapping[SegmentId, int]:
        def look() -> Mapping[SegmentId, int]:
            parts = self._judged(transaction.stream).parts
            return {segment: len(parts.get((transaction.id, segment.number), b"")) for segment in transaction.segments}

        return _call(self._gate, "transaction lengths", _name(transaction), look)

    def _merge(self, target: Transaction, source: Transaction, segments: Sequence[SegmentId]) -> None:
        def merge() -> None:
            state = self._judged(target.stream)
            if {target.id, source.id} <= state.record.transactions.going.keys():
                parts = dict(state.parts)
                for number in (segment.number for segment in segments):
                    moved = parts.pop((source.id, number), b"")
                    parts[target.id, number] = parts.get((target.id, number), b"") + moved
                self._cluster.keep(target.stream, replace(state, parts=parts))

        _call(self._gate, "merge transactions", f"{_name(source)} into {target.id}", merge)

    def extend(self, transaction: Transaction, segment: SegmentId, data: bytes, offset: int) -> None:
        """Append to a part; the caller has asked the gate."""
        held = self.part(transaction, segment)
        if len(held) != offset:
            raise OffsetConflict(
                "another writer appended to the part", where=_name(transaction), write_offset=len(held)
            )
        state = self._cluster.find(transaction.stream)
        parts = {**state.parts, (transaction.id, segment.number): held + data}
        self._cluster.keep(transaction.stream, replace(state, parts=parts))

    def part(self, transaction: Transaction, segment: SegmentId) -> bytes:
        """The bytes of a part of an open transaction."""
        state = self._judged(transaction.stream)
        told = state.record.transactions.state(transaction.id)
        if told is not TransactionState.OPEN or segment not in transaction.segments:
            raise NoSuchSegment(f"the transaction has no such part; it is {told}", where=_name(transaction))
        return state.parts.get((transaction.id, segment.number), b"")

    def _judged(self, stream: StreamName) -> StreamState:
        state = self._cluster.find(stream)
        judged = state.record.transactions.judged(self._clock())
        if judged != state.record.transactions:
            state = self._keep(replace(state, record=replace(state.record, transactions=judged)))
        return state

    def _note(self, state: StreamState, id_: UUID, noted: TransactionRecord) -> None:
        transactions = state.record.transactions.changed(id_, noted)
        self._keep(replace(state, record=replace(state.record, transactions=transactions)))

    def _keep(self, state: StreamState) -> StreamState:
        """Keep a stream, and of parts those of open transactions."""
        going = state.record.transactions.going
        state = replace(state, parts={key: part for key, part in state.parts.items() if key[0] in going})
        self._cluster.keep(state.record.stream, state)
        return state


class PartAppender(MemoryAppender):
    """Appends to a part of a transaction."""

    _transactions: MemoryTransactions
    _transaction: Transaction

    def into(self, transactions: MemoryTransactions, transaction: Transaction) -> None:
        self._transactions, self._transaction = transactions, transaction
        self._where = f"{self._segment} of {_name(transaction)}"

    def _append(self, data: bytes, offset: int) -> None:
        self._transactions.extend(self._transaction, self._segment, data, offset)
        self._offset = offset + len(data)


def _name(transaction: Transaction) -> str:
    return f"{transaction.stream}, transaction {transaction.id}"
