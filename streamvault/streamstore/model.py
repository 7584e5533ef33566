"""Data model of a stream: segment, key range, epoch, stream cut, event pointer.

Terms and numbers are Pravega's. All values are immutable, hashable where useful, and small, as they are sent in Spark's
task specifications and stored in manifests. Nothing here accesses a store.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal, NamedTuple, Self, overload

from streamvault.streamstore.errors import InvalidCut, InvalidName, SegmentTooShort

_BEGIN = "H4sI"
_LONGEST = 16 * 1024 * 1024  # bytes; about 500,000 segments


def is_java_cut(text: str) -> bool:
    """Return whether a text begins as the Java client's text of a stream cut does: it is gzipped, in base64."""
    return text.lstrip().startswith(_BEGIN)


def offsets_of_java_cut(text: str) -> dict[str, int]:
    """Return what ``io.pravega.client.stream.StreamCut.asText`` of the Java client 0.13 has printed.

    That is ``0:scope/stream:numbers:epochs:offsets``; the last three are lists with commas.

    Returns:
        Segment, as ``scope/stream/N.#epoch.E`` → offset (bytes). The stream and the offsets may be invalid.

    Raises:
        InvalidCut: it is no such text, or not the whole.
    """
    try:
        unzip = zlib.decompressobj(wbits=31)
        plain = unzip.decompress(base64.b64decode(text.strip(), validate=True), _LONGEST)
        version, stream, *lists = plain.decode().split(":")
        numbers, epochs, offsets = ([int(one) for one in each.split(",")] for each in lists)
        if version != "0" or not unzip.eof or min(*numbers, *epochs) < 0:
            raise ValueError  # noqa: TRY301  (as for any other text)
        cut = zip(numbers, epochs, offsets, strict=True)
        return {f"{stream}/{number}.#epoch.{epoch}": offset for number, epoch, offset in cut}
    except (ValueError, zlib.error):
        todo = "Give the whole text that asText prints."
        raise InvalidCut("not a whole stream cut of the Java client", where=text[:80], todo=todo) from None


ContentKind = Literal["events", "bytes"]
"""What segments hold: events, each with a header, or bytes without structure (a byte stream)."""

HEADER_BYTES = 8
"""An event in a segment starts with int32 type = 0 and int32 payload length, big-endian."""

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""The largest payload (bytes) a Pravega client writes as one event unless large events are enabled."""

LARGEST_EVENT_BYTES = 256 * 1024 * 1024
"""The largest payload (bytes) accepted by default where event boundaries are known."""

_INT31 = 0x7FFFFFFF

ANY_EVENT_BYTES = _INT31
"""The largest payload (bytes) a header can state, for data already bounded by an archive's index."""

MOST_SEGMENTS = 1_000_000
"""Segments that a stream can have had, and epochs; no manifest could have more."""

KEY_SLACK = 1e-12
"""Tolerance for a key space that ends below 1.0: Pravega's default ranges for 49 segments end an ulp below it."""

SEGMENT_END = -1
"""The offset that Pravega's Java reader groups write in a stream cut for a segment that was read to its end."""

_INT63 = 0x7FFFFFFFFFFFFFFF
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-]{0,254}\Z")
_POINTER = re.compile(r".+/.+/.+:[0-9]+-[0-9]+\Z")
_EXACT_POINTER = re.compile(r"(.*)/([^/]*):(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})\Z", re.DOTALL)
_SEGMENT = re.compile(r"(0|[1-9][0-9]{0,9})\.#epoch\.(0|[1-9][0-9]{0,9})\Z")


@dataclass(frozen=True, slots=True, order=True)
class StreamName:
    """A stream in its scope, text form ``scope/stream``.

    Raises:
        InvalidName: a part is empty, too long (255 characters), or has characters other than letters, digits, ``.``
            and ``-`` (Pravega's rule for users' names).
    """

    scope: str
    stream: str

    def __post_init__(self) -> None:
        for kind, part in (("scope", self.scope), ("stream", self.stream)):
            if not self.is_valid(part):
                raise InvalidName(
                    f"invalid {kind} name", where=repr(part), todo="Use letters, digits, '.' and '-', at most 255."
                )

    def __str__(self) -> str:
        return f"{self.scope}/{self.stream}"

    @staticmethod
    def is_valid(part: str) -> bool:
        """Return whether a scope or a stream can have this name."""
        return _NAME.match(part) is not None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``scope/stream``."""
        scope, slash, stream = text.partition("/")
        if not slash:
            raise InvalidName("not SCOPE/STREAM", where=repr(text))
        return cls(scope, stream)


class _SegmentId(NamedTuple):
    epoch: int
    number: int


class SegmentId(_SegmentId):
    """A segment's id inside its stream: creation epoch and number, each an int32 >= 0.

    Sorting by (epoch, number) never puts a successor before its predecessor. It is a tuple, as segments are looked up
    and compared often.
    """

    __slots__ = ()

    def __new__(cls, epoch: int, number: int) -> Self:
        """Check the numbers."""
        if not (0 <= epoch <= _INT31 and 0 <= number <= _INT31):
            raise InvalidName(
                "a segment's epoch and number must be from 0 to 2^31 - 1", where=f"{number}.#epoch.{epoch}"
            )
        return super().__new__(cls, epoch, number)

    @property
    def value(self) -> int:
        """The int64 id that Pravega's controller uses: ``epoch << 32 | number``."""
        return self.epoch << 32 | self.number

    @classmethod
    def of(cls, value: int) -> Self:
        """Build from an int64 id."""
        return cls(value >> 32, value & 0xFFFFFFFF)

    def __str__(self) -> str:
        return f"{self.number}.#epoch.{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``N.#epoch.E`` (decimal, no padding)."""
        match = _SEGMENT.match(text)
        if not match:
            raise InvalidName("not a segment name (N.#epoch.E)", where=repr(text))
        return cls(int(match[2]), int(match[1]))

    def in_stream(self, stream: StreamName) -> str:
        """Return the full name ``scope/stream/N.#epoch.E``."""
        return f"{stream}/{self}"


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The bytes of a segment between two offsets; of events, both are boundaries.

    Attributes:
        segment: the segment's id.
        start: offset of the first byte.
        end: offset after the last one.
    """

    segment: SegmentId
    start: int
    end: int


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """A half-open range ``[low, high)`` of the key space [0, 1)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0:
            raise InvalidName("not a range of the key space [0, 1)", where=f"[{self.low!r}, {self.high!r})")

    def overlaps(self, other: KeyRange) -> bool:
        """Return whether the two ranges share a key."""
        return self.low < other.high and other.low < self.high


@dataclass(frozen=True, slots=True)
class Epoch:
    """The segments open between two scales; they cover the key space once.

    Attributes:
        number: 0 for the stream's first.
        segments: id → key range, iterated in order of the key range.
    """

    number: int
    segments: Mapping[SegmentId, KeyRange]

    def __post_init__(self) -> None:
        ordered = dict(sorted(self.segments.items(), key=lambda item: item[1].low))
        object.__setattr__(self, "segments", ordered)


@dataclass(frozen=True, slots=True)
class EpochChange:
    """What begins an epoch: some segments are sealed, and others opened for the same keys.

    Attributes:
        seals: id → key range, iterated in order of the key range; empty for epoch 0.
        opens: the same.
    """

    seals: Mapping[SegmentId, KeyRange]
    opens: Mapping[SegmentId, KeyRange]

    def __post_init__(self) -> None:
        for name, held in (("seals", self.seals), ("opens", self.opens)):
            if len(held) > 1:
                object.__setattr__(self, name, dict(sorted(held.items(), key=lambda item: item[1].low)))

    @classmethod
    def between(cls, before: Mapping[SegmentId, KeyRange], after: Mapping[SegmentId, KeyRange]) -> Self:
        """Return what leads from one epoch's segments to the next one's.

        Raises:
            ValueError: a segment that both have has other keys.
        """
        if changed := next((s for s, held in after.items() if before.get(s, held) != held), None):
            raise ValueError(f"segment {changed} has other keys than in the epoch before")
        return cls(
            {segment: held for segment, held in before.items() if segment not in after},
            {segment: held for segment, held in after.items() if segment not in before},
        )


class TooManySegments(ValueError):
    """A history is too long to be held."""


class SegmentLife(NamedTuple):
    """A segment, its keys, and the numbers of the first and the last epoch that has it."""

    segment: SegmentId
    keys: KeyRange
    first: int
    last: int


class Epochs(Sequence[Epoch]):
    """Every epoch of a stream from 0 on, kept as what each of them changes.

    As a sequence, it makes each `Epoch` when it is asked for, in time in proportion to the changes up to it; to iterate
    takes as much for each epoch as the stream has open segments. Whoever needs all of them uses `changes`.

    Attributes:
        changes: what begins each epoch, in order.
        lives: every segment that ever was, in order of (epoch, number).
    """

    def __init__(self, epochs: Iterable[Epoch]) -> None:
        """Take the changes between epochs, which may be made one after the other.

        Raises:
            TooManySegments: there are more than `MOST_SEGMENTS`, or as many epochs.
            ValueError: they are not numbered from 0 on, or as for `of`.
        """
        changes: list[EpochChange] = []
        before: Mapping[SegmentId, KeyRange] = {}
        opened = 0
        for epoch in epochs:
            if epoch.number != len(changes):
                raise ValueError("epochs are not numbered consecutively from 0")
            changes.append(EpochChange.between(before, epoch.segments))
            before = epoch.segments
            opened += len(changes[-1].opens)
            if max(opened, len(changes)) > MOST_SEGMENTS:
                raise TooManySegments(f"the stream's history has more than {MOST_SEGMENTS} segments or epochs")
        self._take(changes)

    @classmethod
    def of(cls, changes: Iterable[EpochChange]) -> Self:
        """Take changes.

        Raises:
            ValueError: there are none, or one seals a segment that is not open, or opens one that was open before.
        """
        made = cls.__new__(cls)
        made._take(changes)  # noqa: SLF001  (of the same class)
        return made

    def _take(self, changes: Iterable[EpochChange]) -> None:
        self.changes = tuple(changes)
        if not self.changes:
            raise ValueError("there is no epoch")
        lives: list[SegmentLife] = []
        held: dict[SegmentId, tuple[KeyRange, int]] = {}  # of those that are open
        known: set[SegmentId] = set()
        for number, change in enumerate(self.changes):
            for segment in change.seals:
                if segment not in held:
                    raise ValueError(f"epoch {number} seals segment {segment}, which is not open")
                lives.append(SegmentLife(segment, *held.pop(segment), number - 1))
            for segment, keys in change.opens.items():
                if segment in known:
                    raise ValueError(f"epoch {number} opens segment {segment}, which was open before")
                held[segment] = keys, number
                known.add(segment)
        newest = len(self.changes) - 1
        self._last = Epoch(newest, {segment: keys for segment, (keys, _) in held.items()})
        lives += [SegmentLife(segment, *of, newest) for segment, of in held.items()]
        self.lives = tuple(sorted(lives, key=lambda life: life.segment.value))

    def then(self, epoch: Epoch) -> Epochs:
        """Return these epochs and the one after them.

        Raises:
            ValueError: as for a new object.
        """
        if epoch.number != len(self):
            raise ValueError("epochs are not numbered consecutively from 0")
        return Epochs.of((*self.changes, EpochChange.between(self._last.segments, epoch.segments)))

    def upto(self, count: int) -> Epochs:
        """Return the first so many epochs, at least one."""
        return self if count >= len(self) else Epochs.of(self.changes[: max(count, 1)])

    def starts_with(self, other: Epochs) -> bool:
        """Return whether its first epochs are all of another stream's."""
        return self.changes[: len(other)] == other.changes

    @cached_property
    def ranges(self) -> Mapping[SegmentId, KeyRange]:
        """Every segment with its key range, in order of (epoch, number)."""
        return {life.segment: life.keys for life in self.lives}

    @cached_property
    def _lives(self) -> Mapping[SegmentId, SegmentLife]:
        return {life.segment: life for life in self.lives}

    def life(self, segment: SegmentId) -> SegmentLife:
        """Return which epochs have a segment.

        Raises:
            KeyError: none has.
        """
        return self._lives[segment]

    def __len__(self) -> int:
        return len(self.changes)

    @overload
    def __getitem__(self, index: int) -> Epoch: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Epoch, ...]: ...
    def __getitem__(self, index: int | slice) -> Epoch | tuple[Epoch, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        number = range(len(self))[index]
        if number == len(self) - 1:
            return self._last
        now: dict[SegmentId, KeyRange] = {}
        for change in self.changes[: number + 1]:
            _apply(now, change)
        return Epoch(number, now)

    def __iter__(self) -> Iterator[Epoch]:
        now: dict[SegmentId, KeyRange] = {}
        for number, change in enumerate(self.changes):
            _apply(now, change)
            yield Epoch(number, now)  # which copies

    def __reversed__(self) -> Iterator[Epoch]:
        now = dict(self._last.segments)
        for number, change in reversed(list(enumerate(self.changes))):
            yield Epoch(number, now)  # which copies
            now = {segment: held for segment, held in now.items() if segment not in change.opens} | dict(change.seals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epochs) and self.changes == other.changes

    def __hash__(self) -> int:
        return hash((len(self), tuple(self._last.segments)))

    def __repr__(self) -> str:
        return f"Epochs({list(self)!r})"


def _apply(segments: dict[SegmentId, KeyRange], change: EpochChange) -> None:
    """Turn an epoch's segments into the next one's."""
    for segment in change.seals:
        del segments[segment]
    segments.update(change.opens)


class ScaleKind(StrEnum):
    """The kind of a scaling policy."""

    FIXED = "fixed"
    BY_EVENTS = "events"
    BY_KBYTES = "kbytes"


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaling policy.

    Attributes:
        kind: fixed, by events per second, or by kilobytes per second.
        target: events or KB per second and segment; 0 if fixed.
        factor: number of segments one is split into; 0 if fixed.
        min_segments: initial and minimum number of segments, >= 1.
    """

    kind: ScaleKind = ScaleKind.FIXED
    target: int = 0
    factor: int = 0
    min_segments: int = 1

    @classmethod
    def never(cls, min_segments: int = 1) -> Self:
        """Return a rate that is never reached: the store scales nothing, and accepts scales to that many segments.

        Pravega scales a stream by itself if it is given a fixed number of segments other than the open ones.
        """
        return cls(ScaleKind.BY_EVENTS, 2**31 - 1, 2, min_segments)


class RetentionKind(StrEnum):
    """The unit of a retention policy."""

    NONE = "none"
    TIME = "time"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention policy.

    Attributes:
        kind: none, by time or by size.
        minimum: minimum milliseconds or bytes to keep.
        maximum: maximum milliseconds or bytes to keep; 0 for no maximum (as the controller sends it).
    """

    kind: RetentionKind = RetentionKind.NONE
    minimum: int = 0
    maximum: int = 0


@dataclass(frozen=True, slots=True)
class StreamConfiguration:
    """A stream's configuration.

    Attributes:
        scaling: the scaling policy.
        retention: the retention policy.
        tags: sorted, without duplicates; each at most 256 characters.
        rollover_bytes: size at which a segment's stored chunks roll over; 0 for the store's default.
        timestamp_aggregation_timeout: milliseconds; 0 for the store's default.
    """

    scaling: Scaling = field(default_factory=Scaling)
    retention: Retention = field(default_factory=Retention)
    tags: tuple[str, ...] = ()
    rollover_bytes: int = 0
    timestamp_aggregation_timeout: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", tuple(sorted(set(self.tags))))


@dataclass(frozen=True, slots=True)
class StreamCut:
    """Segments that together cover the key space, each with an offset (bytes).

    Attributes:
        stream: the stream it belongs to.
        offsets: segment → offset; iterated in order of the segment.
    """

    stream: StreamName
    offsets: Mapping[SegmentId, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", dict(sorted(self.offsets.items())))

    def __hash__(self) -> int:
        return hash((self.stream, tuple(self.offsets.items())))

    def to_json(self) -> dict[str, int]:
        """``{"scope/stream/N.#epoch.E": offset}``."""
        return {segment.in_stream(self.stream): offset for segment, offset in self.offsets.items()}

    @classmethod
    def from_json(cls, value: object, stream: StreamName | None = None, *, ends: bool = False) -> Self:
        """Parse the output of `to_json`, or a stream cut as the Java client prints it.

        Args:
            value: a mapping of full segment names to offsets, the same as JSON text, or the text of ``asText``.
            stream: the stream the cut must belong to; None to take it from the segment names.
            ends: accept `SEGMENT_END` as an offset; `streamstore.cuts.with_ends` replaces it.

        Raises:
            InvalidCut: not such a mapping or text, a negative offset, or a segment of another stream.
        """
        if isinstance(value, str) and is_java_cut(value):
            value = offsets_of_java_cut(value)
        elif isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise InvalidCut("a stream cut is not JSON", where=str(error)) from None
        if not isinstance(value, Mapping) or not value:
            raise InvalidCut(
                'a stream cut is a JSON object {"scope/stream/N.#epoch.E": offset, …} with at least one entry'
            )
        offsets: dict[SegmentId, int] = {}
        for name, offset in value.items():
            owner, _, segment = str(name).rpartition("/")
            try:
                found, segment_id = StreamName.parse(owner), SegmentId.parse(segment)
            except InvalidName as error:
                raise InvalidCut("a key of the stream cut is not a segment name", where=str(error)) from None
            stream = stream or found
            if found != stream:
                raise InvalidCut(f"a stream cut of {stream} names a segment of another stream", where=str(name))
            least = SEGMENT_END if ends else 0
            if not isinstance(offset, int) or isinstance(offset, bool) or not least <= offset <= _INT63:
                raise InvalidCut(
                    "an offset in the stream cut is not a non-negative integer", where=f"{name}: {offset!r}"
                )
            offsets[segment_id] = offset
        assert stream is not None  # noqa: S101  (there is an entry)
        return cls(stream, offsets)


@dataclass(frozen=True, slots=True, order=True)
class EventPointer:
    """The position and identity of an event.

    Sorts in the stream's order: creation epoch, number, offset.

    Attributes:
        stream: the stream.
        segment: the segment.
        offset: segment offset of the event's header (bytes).
        length: header and payload (bytes), >= 8.
    """

    stream: StreamName
    segment: SegmentId
    offset: int
    length: int

    def __post_init__(self) -> None:
        if not (0 <= self.offset <= _INT63 and HEADER_BYTES <= self.length <= _INT31):
            raise InvalidName("not an event pointer", where=f"{self.segment}:{self.offset}-{self.length}")

    def __str__(self) -> str:
        """The text form of the Java client: ``scope/stream/N.#epoch.E:offset-length``."""
        return f"{self.stream}/{self.segment}:{self.offset}-{self.length}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form.

        Raises:
            InvalidName: the text is not an event pointer.
        """
        match = _EXACT_POINTER.match(text)
        if not match:
            raise InvalidName("not an event pointer (scope/stream/N.#epoch.E:offset-length)", where=repr(text))
        stream, segment, offset, length = match.groups()
        return cls(StreamName.parse(stream), SegmentId.parse(segment), int(offset), int(length))


def is_pointer(text: str) -> bool:
    """Return whether a text has the form of an event pointer; it may still be invalid."""
    return bool(_POINTER.match(text))


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The current state of a segment.

    Attributes:
        segment: the segment.
        start_offset: first readable offset (bytes).
        write_offset: offset of the next append (bytes).
        sealed: whether the segment is permanently closed to appends.
    """

    segment: SegmentId
    start_offset: int
    write_offset: int
    sealed: bool

    def check_range(self, start: int, end: int, where: str) -> None:
        """Check that the bytes ``[start, end)`` are not beyond the end; ``where`` is the segment, for the message.

        Raises:
            SegmentTooShort: they are.
            ValueError: there is no such range.
        """
        if not 0 <= start <= end:
            raise ValueError(f"[{start}, {end}) is not a range")
        if end > self.write_offset:
            raise SegmentTooShort(
                f"the segment ends at {self.write_offset}, but was to be read up to {end}",
                where=where,
                todo="The stream was replaced: it was deleted and recreated, or its server's data were put back.",
            )


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A snapshot of a stream.

    Attributes:
        name: the stream.
        configuration: policies and tags.
        epochs: every epoch from 0 to the current one, including those whose segments are truncated.
        head: the first readable cut.
        tail: the end of the current epoch's segments at that moment (final for a sealed stream).
        sealed: whether the whole stream is sealed.
    """

    name: StreamName
    configuration: StreamConfiguration
    epochs: Epochs
    head: StreamCut
    tail: StreamCut
    sealed: bool

    def ranges(self) -> Mapping[SegmentId, KeyRange]:
        """Return every segment ever created with its key range, in order of (epoch, number)."""
        return self.epochs.ranges
