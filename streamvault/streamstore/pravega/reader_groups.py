"""Reader groups of Pravega's Java client: listed, created, and their positions read from their state streams.

The controller knows a group's configuration, and nothing of its position; and it has no call that lists groups. So
groups are found by their state streams, ``_RG`` and the name. The Java client keeps a group's state there as a sequence
of records, each an event in the only segment: an initial state, then updates of it, and from time to time the whole
state again, before which the stream is truncated. Every reader applies all of them in order, so whoever does the same
knows where the group would go on if all of its readers were lost now: at the offsets of the segments that no reader
has, and, for the segments that a reader has, at those of that reader's last checkpoint.

Records are in the format of the client's ``VersionedSerializer``. A value is a format byte (0), for a value of several
kinds the kind's byte, a version byte, the number of revisions, and each revision: its number, its length as int32, its
fields. A revision adds fields to those of the revisions before it. Numbers are big-endian. What is not exactly as known
here is an error: a newer client may mean something else by it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from streamvault.streamstore.errors import (
    InvalidName,
    NoSuchSegment,
    NoSuchStream,
    OffsetConflict,
    SegmentTruncated,
    UnreadableReaderGroup,
)
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import NotAnEvent, frame
from streamvault.streamstore.model import SEGMENT_END, SegmentId, StreamCut, StreamName
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.appender import PravegaAppender
from streamvault.streamstore.pravega.controller import Controller, cut_from_map, cut_message, of_answer
from streamvault.streamstore.pravega.reader import BlockReader
from streamvault.streamstore.pravega.segments import SegmentName, SegmentStores
from streamvault.streamstore.store import GroupPosition, ReaderGroup, ReaderGroups

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TEXT = "surrogateescape"
"""Java's own UTF-8 differs for rare characters; a text that is only compared may hold any bytes."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class JavaFields:
    """The fields of a revision, or a whole serialized value, read from the beginning on.

    Every method raises `UnreadableReaderGroup` if the bytes are not what is asked for.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Number of bytes that were not read yet."""
        return len(self._data) - self._at

    def take(self, length: int) -> bytes:
        """Read so many bytes."""
        if not 0 <= length <= self.left:
            raise UnreadableReaderGroup(f"a serialized value ends {length - self.left} bytes too early")
        begin, self._at = self._at, self._at + length
        return self._data[begin : self._at]

    def byte(self) -> int:
        """Read an unsigned byte."""
        return self.take(1)[0]

    def int32(self) -> int:
        """Read an int."""
        return int(_INT32.unpack(self.take(4))[0])

    def int64(self) -> int:
        """Read a long."""
        return int(_INT64.unpack(self.take(8))[0])

    def text(self) -> str:
        """Read a text: its length as uint16, and its bytes."""
        return self.take(int.from_bytes(self.take(2), "big")).decode(errors=_TEXT)

    def count(self) -> int:
        """Read a compact int: 1, 2 or 4 bytes by its first bits."""
        first = self.byte()
        if first < 0x80:
            return first
        if first < 0xC0:
            return (first & 0x3F) << 8 | self.byte()
        return (first & 0x3F) << 24 | int.from_bytes(self.take(3), "big")

    def array(self) -> bytes:
        """Read bytes with their number before them."""
        return self.take(self.count())

    def mapping(self, key: Callable[[JavaFields], Key], value: Callable[[JavaFields], Value]) -> dict[Key, Value]:
        """Read a map, given what reads a key and a value."""
        return {key(self): value(self) for _ in range(self.count())}

    def longs(self) -> list[int]:
        """Read a collection of longs."""
        return [self.int64() for _ in range(self.count())]

    def format(self) -> None:
        """Read the format byte."""
        if found := self.byte():
            raise _newer(f"format {found}")

    def revisions(self, known: int, *, of: str) -> list[JavaFields]:
        """Read a value's version and revisions, up to the end.

        Args:
            known: number of revisions that are known here of version 0.
            of: what the value is, for the error.

        Returns:
            The fields of each revision; those that an older client has not written are absent.
        """
        if version := self.byte():
            raise _newer(f"version {version} of {of}")
        found = []
        for number in range(self.byte()):
            if (revision := self.byte()) != number or number >= known:
                raise _newer(f"revision {revision} of {of}")
            found.append(JavaFields(self.take(self.int32())))
        if not found:
            raise UnreadableReaderGroup(f"{of} without content")
        self.end()
        return found

    def end(self) -> None:
        """Check that nothing is left but zeros: the client pads an initial state with them."""
        if any(self.take(self.left)):
            raise _newer("more bytes than known")


def _newer(what: str) -> UnreadableReaderGroup:
    return UnreadableReaderGroup(f"serialized by a client that is not known here ({what})")


def value(*revisions: bytes, kind: int | None = None) -> bytes:
    """Serialize a value of version 0 from the fields of its revisions."""
    head = bytes([0] if kind is None else [0, kind]) + bytes([0, len(revisions)])
    return head + b"".join(
        bytes([number]) + _INT32.pack(len(fields)) + fields for number, fields in enumerate(revisions)
    )


int32: Callable[[int], bytes] = _INT32.pack
"""Serialize an int."""

int64: Callable[[int], bytes] = _INT64.pack
"""Serialize a long."""


def text(content: str) -> bytes:
    """Serialize a text of ASCII characters."""
    return len(content).to_bytes(2, "big") + content.encode("ascii")


def count(number: int) -> bytes:
    """Serialize a compact int (from 0 to 2^30 - 1)."""
    if number < 1 << 7:
        return bytes([number])
    if number < 1 << 14:
        return (1 << 15 | number).to_bytes(2, "big")
    return (3 << 30 | number).to_bytes(4, "big")


def compact(number: int) -> bytes:
    """Serialize a compact long (from 0 to 2^62 - 1)."""
    return _by_length(number, 6)


def compact_signed(number: int) -> bytes:
    """Serialize a compact signed long that is not negative (up to 2^61 - 1)."""
    return _by_length(number, 5)


def _by_length(number: int, bits: int) -> bytes:
    """Serialize a number in 1, 2, 4 or 8 bytes, as the bits right before the value's say; ``bits`` is for 1 byte."""
    power = next(power for power in range(4) if number < 1 << bits + 8 * ((1 << power) - 1))
    length = 1 << power
    return (power << bits + 8 * (length - 1) | number).to_bytes(length, "big")


def array(content: bytes) -> bytes:
    """Serialize bytes with their number before them."""
    return count(len(content)) + content


def mapping(entries: Mapping[bytes, bytes]) -> bytes:
    """Serialize a map from the serialized keys and values."""
    return count(len(entries)) + b"".join(key + content for key, content in entries.items())


_INITIAL, _UPDATES = 1, 2
"""The int before each record."""

_SILENT = "_SILENT_"
"""Part of the names of checkpoints that move no reader's position in the state."""

_REVISIONS = {0: 3, 1: 3, 2: 1, 3: 1, 4: 1, 5: 1, 6: 2, 7: 2, 8: 1, 9: 1, 10: 1, 11: 1, 12: 1, 13: 1}
"""Kind of an update → number of its revisions. 6 and 9 to 13 change nothing that is kept here."""

_NO_RANGE = struct.pack(">dd", -1.0, -1.0)
"""What is written for a segment's key range that the client has not asked for."""

_BEYOND = 0x7FFFFFFFFFFFFFFF


@dataclass(slots=True)
class GroupState:
    """The state of a reader group, as far as it says where the group goes on.

    Attributes:
        assigned: reader → full name of each segment that it has → offset of its last checkpoint.
        unassigned: full name of each segment that no reader has → offset.
        waiting: full name of each segment that cannot be read yet → ids of its predecessors that are still to be read
            to their ends.
        begun: whether there was an initial state.
    """

    assigned: dict[str, dict[str, int]] = field(default_factory=dict)
    unassigned: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, set[int]] = field(default_factory=dict)
    begun: bool = False

    def apply(self, record: bytes) -> None:
        """Apply one record: an event's content.

        Raises:
            UnreadableReaderGroup: its kind, version or revision is not known, or it does not follow from the state.
        """
        fields = JavaFields(record)
        kind = fields.int32()
        if kind == _INITIAL:
            self._update(JavaFields(fields.take(fields.left)), initial=True)
        elif kind == _UPDATES:
            while fields.left:
                self._update(JavaFields(fields.take(fields.int32())))
        else:
            raise UnreadableReaderGroup(f"a record of the unknown kind {kind}")

    def position(self, stream: StreamName) -> GroupPosition:
        """Return where the group goes on in one of its streams.

        Raises:
            UnreadableReaderGroup: a segment's name or offset is none, or a segment is in the state twice.
        """
        offsets: dict[SegmentId, int] = {}
        for held in (self.unassigned, *self.assigned.values()):
            for name, offset in held.items():
                owner, segment = _segment(name)
                if owner != str(stream):
                    continue
                if offset < SEGMENT_END or segment in offsets:
                    raise UnreadableReaderGroup(f"the state contradicts itself about {name}")
                offsets[segment] = offset
        waiting = {}
        for name, left in self.waiting.items():
            owner, segment = _segment(name)
            if owner == str(stream):
                waiting[segment] = frozenset(map(_segment_of, left))
        return GroupPosition(stream, offsets, waiting)

    def _update(self, fields: JavaFields, *, initial: bool = False) -> None:
        fields.format()
        kind = fields.byte()
        if kind not in _REVISIONS or (initial and kind > 1):
            raise UnreadableReaderGroup(f"an update of the unknown kind {kind}")
        first = fields.revisions(_REVISIONS[kind], of=f"an update of kind {kind}")[0]
        if kind > 1 and not self.begun:
            raise UnreadableReaderGroup("an update before the first state")
        applied: Mapping[int, Callable[[JavaFields], None]] = {
            0: self._begin,
            1: self._replace,
            2: self._add_reader,
            3: self._remove_reader,
            4: self._release,
            5: self._acquire,
            7: self._complete,
            8: self._checkpoint,
        }
        if kind in applied:
            applied[kind](first)

    def _begin(self, fields: JavaFields) -> None:
        fields.array()  # the configuration, which the controller has, too
        self.unassigned, self.assigned, self.waiting = _offsets(fields), {}, {}
        self.begun = True

    def _replace(self, fields: JavaFields) -> None:
        fields.array()
        fields.array()  # checkpoints
        _offsets(fields)  # how far each reader is behind
        self.waiting = {name: set(left) for name, left in fields.mapping(JavaFields.text, JavaFields.longs).items()}
        self.assigned = fields.mapping(JavaFields.text, _offsets)
        self.unassigned = _offsets(fields)
        self.begun = True

    def _add_reader(self, fields: JavaFields) -> None:
        if self.assigned.setdefault(fields.text(), {}):
            raise UnreadableReaderGroup("a reader is added that has segments")

    def _remove_reader(self, fields: JavaFields) -> None:
        reader, at = fields.text(), _offsets(fields)
        for name, offset in self.assigned.pop(reader, {}).items():
            self.unassigned[name] = at.get(name, offset)

    def _release(self, fields: JavaFields) -> None:
        reader, name = fields.text(), fields.text()
        self._taken_from(reader, name)
        self.unassigned[name] = fields.int64()

    def _acquire(self, fields: JavaFields) -> None:
        reader, name = fields.text(), fields.text()
        if name not in self.unassigned:
            raise UnreadableReaderGroup(f"a reader takes {name!r}, which is not free")
        self._of(reader)[name] = self.unassigned.pop(name)

    def _complete(self, fields: JavaFields) -> None:
        reader, name = fields.text(), fields.text()
        self._taken_from(reader, name)
        for successor, left in fields.mapping(JavaFields.text, JavaFields.longs).items():
            self.waiting.setdefault(successor, set(left))
        done = _segment(name)[1].value
        for successor, remaining in list(self.waiting.items()):
            remaining.discard(done)
            if not remaining:
                del self.waiting[successor]
                self.unassigned[successor] = 0

    def _checkpoint(self, fields: JavaFields) -> None:
        checkpoint, reader, at = fields.text(), fields.text(), _offsets(fields)
        if _SILENT not in checkpoint:
            held = self._of(reader)
            held.update({name: at[name] for name in held if name in at})

    def _of(self, reader: str) -> dict[str, int]:
        if reader not in self.assigned:
            raise UnreadableReaderGroup("an update of a reader that is not in the group")
        return self.assigned[reader]

    def _taken_from(self, reader: str, name: str) -> None:
        if self._of(reader).pop(name, None) is None:
            raise UnreadableReaderGroup(f"a reader gives back {name!r}, which it does not have")


def initial_record(group: ReaderGroup, start: StreamCut) -> bytes:
    """Return the record with which a group's state begins, as the Java client writes it.

    Args:
        group: the group as the controller has it.
        start: where it begins to read, in the only stream that it reads.
    """
    offsets = {text(segment.in_stream(start.stream)): at for segment, at in start.offsets.items()}
    ends = {
        text(segment.in_stream(cut.stream)): int64(_BEYOND if at == SEGMENT_END else at)
        for cut in group.ends.values()
        if cut is not None
        for segment, at in cut.offsets.items()
    }
    first = array(_configuration(group)) + mapping({name: int64(at) for name, at in offsets.items()}) + mapping(ends)
    second = mapping({name + _NO_RANGE: int64(at) for name, at in offsets.items()})
    return int32(_INITIAL) + value(first, second, b"\0", kind=0)


def _configuration(group: ReaderGroup) -> bytes:
    """Serialize a ``ReaderGroupConfig``; the first revision is what the oldest clients read."""
    oldest = int64(group.checkpoint_millis) + int64(group.refresh_millis)
    oldest += _cuts(group.starts) + _cuts(group.ends)
    newest = count(group.retention) + int64(group.generation) + group.id.bytes
    return value(oldest, oldest + int32(group.most_checkpoints), newest)


def _cuts(cuts: Mapping[StreamName, StreamCut | None]) -> bytes:
    return mapping({text(str(name)): array(_cut(cut)) for name, cut in cuts.items()})


def _cut(cut: StreamCut | None) -> bytes:
    """Serialize a cut (version 1); one that is not bounded is no bytes."""
    if cut is None:
        return b""
    offsets = {compact(s.value): compact_signed(at) for s, at in cut.offsets.items()}
    content = text(str(cut.stream)) + mapping(offsets)
    return bytes([0, 1, 1, 0]) + int32(len(content)) + content


def _offsets(fields: JavaFields) -> dict[str, int]:
    return fields.mapping(JavaFields.text, JavaFields.int64)


def _segment(name: str) -> tuple[str, SegmentId]:
    stream, _, segment = name.rpartition("/")
    try:
        return stream, SegmentId.parse(segment)
    except InvalidName as error:
        raise UnreadableReaderGroup(f"not a segment's name: {error.where}") from None


def _segment_of(value: int) -> SegmentId:
    try:
        return SegmentId.of(value)
    except InvalidName as error:
        raise UnreadableReaderGroup(f"not a segment's id: {error.where}") from None


PREFIX = "_RG"
"""What the name of a group's state stream begins with."""

ATTEMPTS = 10
"""How often a state is read that its readers truncate meanwhile."""


@dataclass(frozen=True, slots=True, order=True)
class _StateStream(StreamName):
    """The name of a group's state stream, which no user's stream may have."""

    def __post_init__(self) -> None:
        """Check the group's name."""
        StreamName(self.scope, self.stream.removeprefix(PREFIX))


class PravegaReaderGroups(ReaderGroups):
    """See `ReaderGroups`. Usable from all threads."""

    def __init__(self, controller: Controller, stores: SegmentStores) -> None:
        self._controller = controller
        self._stores = stores

    def names(self, scope: str) -> Iterator[str]:
        """See `ReaderGroups.names`."""
        yield from sorted(
            name.removeprefix(PREFIX) for name in self._controller.streams(scope) if name.startswith(PREFIX)
        )

    def find(self, scope: str, name: str) -> ReaderGroup | None:
        """See `ReaderGroups.find`."""
        StreamName(scope, name)  # validates the name
        answer = self._controller.reader_group(scope, name)
        return None if answer is None else _group_from(answer)

    def position(self, group: ReaderGroup, stream: StreamName) -> GroupPosition | None:
        """See `ReaderGroups.position`."""
        state = self._state(group)
        return state.position(stream) if state.begun else None

    def create(self, group: ReaderGroup, start: StreamCut) -> ReaderGroup:
        """See `ReaderGroups.create`.

        The controller creates the group and its state stream; then the first state is appended, as the Java client does
        it. Of two that begin a state, one is refused.
        """
        made = _group_from(self._controller.create_reader_group(_message(group)))
        if made.id != group.id:
            return made
        segment = self._segment(made)
        # an OffsetConflict: a client that opened the group right then has begun its state
        with suppress(OffsetConflict), PravegaAppender(self._stores, segment, in_flight=1) as appender:
            if appender.offset == 0:
                appender.append(frame(initial_record(made, start)))
                appender.flush()
        return made

    def _segment(self, group: ReaderGroup) -> SegmentName:
        """Return the only segment of a group's state stream."""
        name = _StateStream(group.scope, PREFIX + group.name)
        try:
            segments = self._controller.current_segments(name)
        except NoSuchStream:
            segments = {}
        if len(segments) != 1:
            todo = "Run the same command again."
            raise UnreadableReaderGroup("the reader group is being deleted", where=self._where(group), todo=todo)
        return SegmentName(name, next(iter(segments)))

    def _state(self, group: ReaderGroup) -> GroupState:
        """Read the state from where it was truncated to, which is where a whole state begins."""
        segment = self._segment(group)
        for attempts_left in reversed(range(ATTEMPTS)):
            state = GroupState()
            try:
                info = self._stores.infos(segment.stream, [segment.id])[0]
                splitter = EventSplitter(info.start_offset, self._where(group))
                for block in BlockReader(self._stores, segment, info.start_offset, info.write_offset).blocks():
                    for _, record in splitter.events(block):
                        state.apply(bytes(record))
                splitter.finish()
            except (SegmentTruncated, NoSuchSegment, NoSuchStream):
                if not attempts_left:
                    raise
                segment = self._segment(group)
                continue
            except (UnreadableReaderGroup, NotAnEvent) as error:
                raise UnreadableReaderGroup(
                    f"the position of the reader group cannot be read: {error.what}", where=self._where(group)
                ) from None
            return state
        raise AssertionError

    def _where(self, group: ReaderGroup) -> str:
        return f"{self._controller.uri}/{group}"


def _message(group: ReaderGroup) -> Any:
    """``ReaderGroupConfiguration``."""
    return pb.ReaderGroupConfiguration(
        scope=group.scope,
        readerGroupName=group.name,
        groupRefreshTimeMillis=group.refresh_millis,
        automaticCheckpointIntervalMillis=group.checkpoint_millis,
        maxOutstandingCheckpointRequest=group.most_checkpoints,
        retentionType=group.retention,
        generation=group.generation,
        readerGroupId=str(group.id),
        startingStreamCuts=[_bound_message(name, cut) for name, cut in group.starts.items()],
        endingStreamCuts=[_bound_message(name, cut) for name, cut in group.ends.items()],
    )


def _bound_message(stream: StreamName, cut: StreamCut | None) -> Any:
    return cut_message(StreamCut(stream, {}) if cut is None else cut)


@of_answer
def _group_from(message: Any) -> ReaderGroup:
    """A ``ReaderGroupConfiguration``."""
    return ReaderGroup(
        scope=message.scope,
        name=message.readerGroupName,
        starts=_bounds(message.startingStreamCuts),
        ends=_bounds(message.endingStreamCuts),
        refresh_millis=message.groupRefreshTimeMillis,
        checkpoint_millis=message.automaticCheckpointIntervalMillis,
        most_checkpoints=message.maxOutstandingCheckpointRequest,
        retention=message.retentionType,
        id=UUID(message.readerGroupId),
        generation=message.generation,
    )


def _bounds(messages: Iterable[Any]) -> dict[StreamName, StreamCut | None]:
    bounds: dict[StreamName, StreamCut | None] = {}
    for one in messages:
        name = StreamName(one.streamInfo.scope, one.streamInfo.stream)
        cut = cut_from_map(name, one.cut)
        bounds[name] = cut if cut.offsets else None
    return bounds
