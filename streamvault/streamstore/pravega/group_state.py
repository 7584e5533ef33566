"""The records of a reader group's state stream, ``_RG`` and the group's name.

Pravega's Java client keeps a group's state as a sequence of records, each an event in the only segment of that stream:
an initial state, then updates of it, and from time to time the whole state again, before which the stream is truncated.
Every reader applies all of them in order, so whoever does the same knows where the group would go on if all of its
readers were lost now: at the offsets of the segments that no reader has, and, for the segments that a reader has, at
those of that reader's last checkpoint.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamvault.streamstore.errors import InvalidName, UnreadableReaderGroup
from streamvault.streamstore.model import SEGMENT_END, SegmentId, StreamCut, StreamName
from streamvault.streamstore.pravega import versioned
from streamvault.streamstore.pravega.versioned import JavaFields
from streamvault.streamstore.reader_groups import GroupPosition, ReaderGroup

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
    offsets = {versioned.text(segment.in_stream(start.stream)): at for segment, at in start.offsets.items()}
    ends = {
        versioned.text(segment.in_stream(cut.stream)): versioned.int64(_BEYOND if at == SEGMENT_END else at)
        for cut in group.ends.values()
        if cut is not None
        for segment, at in cut.offsets.items()
    }
    first = (
        versioned.array(_configuration(group))
        + versioned.mapping({name: versioned.int64(at) for name, at in offsets.items()})
        + versioned.mapping(ends)
    )
    second = versioned.mapping({name + _NO_RANGE: versioned.int64(at) for name, at in offsets.items()})
    return versioned.int32(_INITIAL) + versioned.value(first, second, b"\0", kind=0)


def _configuration(group: ReaderGroup) -> bytes:
    """Serialize a ``ReaderGroupConfig``; the first revision is what the oldest clients read."""
    oldest = versioned.int64(group.checkpoint_millis) + versioned.int64(group.refresh_millis)
    oldest += _cuts(group.starts) + _cuts(group.ends)
    newest = versioned.count(group.retention) + versioned.int64(group.generation) + group.id.bytes
    return versioned.value(oldest, oldest + versioned.int32(group.most_checkpoints), newest)


def _cuts(cuts: Mapping[StreamName, StreamCut | None]) -> bytes:
    return versioned.mapping({versioned.text(str(name)): versioned.array(_cut(cut)) for name, cut in cuts.items()})


def _cut(cut: StreamCut | None) -> bytes:
    """Serialize a cut (version 1); one that is not bounded is no bytes."""
    if cut is None:
        return b""
    offsets = {versioned.compact(s.value): versioned.compact_signed(at) for s, at in cut.offsets.items()}
    content = versioned.text(str(cut.stream)) + versioned.mapping(offsets)
    return bytes([0, 1, 1, 0]) + versioned.int32(len(content)) + content


def _offsets(fields: JavaFields) -> dict[str, int]:
    return fields.mapping(JavaFields.text, JavaFields.int64)


def _segment(name: str) -> tuple[str, SegmentId]:
    stream, _, segment = name.rpartition("/")
    try:
        return stream, SegmentId.parse(segment)
    except InvalidName as error:
        raise UnreadableReaderGroup(f"a segment's name is none: {error.where}") from None


def _segment_of(value: int) -> SegmentId:
    try:
        return SegmentId.of(value)
    except InvalidName as error:
        raise UnreadableReaderGroup(f"a segment's id is none: {error.where}") from None
