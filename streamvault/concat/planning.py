"""Decides what is appended: which bytes of the sources, after what was appended before, and where they go.

All stretches of bytes that may have events of one key go into one segment of the target, one behind the other, so
that the events of each key stay in order. So if a source's segment covers the keys of several segments of the target,
these must become one first. Two boundaries of key ranges are the same if no key is hashed between them.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from streamvault.common.errors import Conflict, Usage
from streamvault.common.progress import task_progress
from streamvault.importer.fill import FOREIGN_APPENDS
from streamvault.importer.target import look_again
from streamvault.layouts.archived_range import digest_of
from streamvault.manifests.manifest import SchemaGroup
from streamvault.runner.opening import Tasks
from streamvault.sources.identity import LastBytes, Position, SourcePosition, another_source, bytes_differ
from streamvault.sources.source import Source, SourcePart, SourceState
from streamvault.sources.sources import ArchiveState, open_source
from streamvault.streamstore.byte_source import SourceTruncated, StoredBytes
from streamvault.streamstore.cuts import Cut as PlanningCut
from streamvault.streamstore.cuts import is_before, later_of, parse_cut
from streamvault.streamstore.errors import OffsetConflict, SegmentTooShort
from streamvault.streamstore.framing import pieces
from streamvault.streamstore.ledger import LedgerConflict
from streamvault.streamstore.model import KeyRange, SegmentId, StreamCut, StreamName
from streamvault.streamstore.own import ScaleNote
from streamvault.streamstore.store import Segment, StreamStore, Transaction, Transactions
from streamvault.streamstore.transaction_log import Bytes, Cut, Entry, Stage, TransactionLog
from streamvault.streamstore.uri import StoreAddress

HASHES = 1 << 52
"""The hash of a routing key is a multiple of 1 / 2^52."""


@dataclass(frozen=True, slots=True)
class TargetScale:
    """A scale of the target.

    Attributes:
        seal: the segments that it replaces.
        ranges: the key ranges of the new ones.
    """

    seal: tuple[SegmentId, ...]
    ranges: tuple[KeyRange, ...]


class Places:
    """Finds the segments of an epoch that share keys with a range.

    Args:
        segments: open segments, which cover the key space once.
    """

    def __init__(self, segments: Mapping[SegmentId, KeyRange]) -> None:
        self._ordered = sorted(segments.items(), key=lambda item: item[1].low)
        self._firsts = [_first_hash(held.low) for _, held in self._ordered]

    def of(self, held: KeyRange) -> Sequence[SegmentId]:
        """Return the segments to which a key of a range may be hashed, in order; at least one."""
        first, last = self._indexes(held)
        return [segment for segment, _ in self._ordered[first : last + 1]]

    def scale_for(self, ranges: Iterable[KeyRange]) -> TargetScale | None:
        """Return the scale after which each range lies in one segment; None if each does already."""
        groups: list[tuple[int, int]] = []
        for first, last in sorted(map(self._indexes, ranges)):
            if groups and first <= groups[-1][1]:
                groups[-1] = groups[-1][0], max(last, groups[-1][1])
            else:
                groups.append((first, last))
        joined = [self._ordered[first : last + 1] for first, last in groups if last > first]
        if not joined:
            return None
        return TargetScale(
            tuple(segment for group in joined for segment, _ in group),
            tuple(KeyRange(group[0][1].low, group[-1][1].high) for group in joined),
        )

    def _indexes(self, held: KeyRange) -> tuple[int, int]:
        first = max(bisect_right(self._firsts, _first_hash(held.low)) - 1, 0)
        return first, max(bisect_left(self._firsts, _first_hash(held.high)) - 1, first)


def shared_ranges(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return the smallest ranges that cover the key space, and of which each given range lies in one."""
    given = list(ranges)
    bounds = {0: 0.0, HASHES: 1.0}
    for held in given:
        bounds.setdefault(_first_hash(held.low), held.low)
        bounds.setdefault(_first_hash(held.high), held.high)
    lows = [bounds[at] for at in sorted(bounds)]
    pieces = [KeyRange(low, high) for low, high in pairwise(lows)]
    segments = {SegmentId(0, number): piece for number, piece in enumerate(pieces)}
    scale = Places(segments).scale_for(given)
    if scale is None:
        return pieces
    kept = [held for segment, held in segments.items() if segment not in scale.seal]
    return sorted([*kept, *scale.ranges])


def _first_hash(position: float) -> int:
    """Return the first hash, in steps of 1 / 2^52, that is not below a position; exact, as it moves no bit."""
    return math.ceil(position * HASHES)


Ranges = Mapping[SegmentId, KeyRange]


def choose_count(stream: StreamName, ranges: Ranges, current: int, asked: int | None) -> int:
    """Return the number of segments of a target for which no key is known: an event's source segment tells its place.

    Args:
        stream: the source.
        ranges: the source's segments that are copied.
        current: how many segments the source has now; the target gets at most as many if nothing is asked for.
        asked: the user's wish.

    Raises:
        Usage: a segment of the source does not fit into one of the target.
    """
    divided, fitting = _divided(ranges, asked or current), fitting_count(ranges, asked or current)
    if asked is None or divided is None:
        return asked or fitting
    held = ranges[divided]
    raise Usage(
        f"the keys of a segment, {held.low:g} to {held.high:g}, lie in several of {asked} segments, and without a key "
        "it is unknown which event goes where",
        where=divided.in_stream(stream),
        todo=f"Give --key, or --segments {fitting}.",
    )


def fitting_count(ranges: Ranges, most: int) -> int:
    """Return the largest number of segments, up to ``most``, into one of which each of the source's fits."""
    return next(count for count in range(most, 0, -1) if _divided(ranges, count) is None)


def _divided(ranges: Ranges, count: int) -> SegmentId | None:
    """Return a segment whose keys lie in several of as many segments of equal width; None if there is none."""
    width = 1.0 / count
    places = Places({SegmentId(0, i): KeyRange(i * width, (i + 1) * width) for i in range(count)})
    return next((segment for segment, held in ranges.items() if len(places.of(held)) > 1), None)


UNKNOWN = "the store no longer knows the transaction, so it is unknown whether an earlier run has appended the sources"

LeftOut = frozenset[tuple[int, Segment]]
"""Segments that are left out, each with the index of its source."""


@dataclass(frozen=True, slots=True)
class SourceCuts:
    """What is appended of a source.

    Attributes:
        uri: the source.
        from_cut: from here on; use `between` to read it.
        to: up to here.
    """

    uri: str
    from_cut: Cut
    to: Position

    def between(self, look: SourceState) -> tuple[StreamCut, StreamCut]:
        """Return the two cuts, after comparing the source; errors as `SourcePosition.reached`."""
        return self.from_cut, self.to.reached(look, self.uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class StitchRecord(Entry):
    """The newest state of a stitch.

    Attributes:
        parts: what is appended, in this order.
        distinct: whether segments that another source gave already are left out.
        left_out: those segments.
        lengths: the bytes that each of the transaction's segments gets; empty before it is complete.
        ends: where each segment of the target ended to which the transaction would be appended, shortly before the
            commit (bytes).
        note: the newest scale of the target for this stitch; None if there was none. It is known here even if the
            target's user has replaced its tags, and the note with them.
    """

    parts: tuple[SourceCuts, ...]
    distinct: bool
    left_out: LeftOut = frozenset()
    lengths: Bytes = field(default_factory=dict)
    ends: Bytes = field(default_factory=dict)
    note: Annotated[ScaleNote, PlainValidator(ScaleNote.parse), PlainSerializer(ScaleNote.tag)] | None = None


class StitchLog(TransactionLog[StitchRecord]):
    """The log of a stitch.

    Args:
        store: the store of the target, and of the log beside it.
        name: the log's stream.
        target: the stream that is appended to.
    """

    def __init__(self, store: StreamStore, name: StreamName, target: StreamName) -> None:
        conflict = LedgerConflict("another process has continued", where=str(name))
        super().__init__(store, name, target, StitchRecord, conflict)

    @property
    def note(self) -> ScaleNote | None:
        """The note in the newest record that this process has read or appended; None if there is none."""
        return None if self.last is None else self.last.note

    def note_scale(self, note: ScaleNote) -> None:
        """Append the newest record again, with a note. Errors as `record`."""
        if self.last is None:
            raise LedgerConflict("the ledger was deleted", where=str(self.name))
        self.advance(self.last, self.last.stage, note=note)

    def is_there(self, entry: StitchRecord) -> bool:
        """See `TransactionLog.is_there`: others write to the target, so it cannot be known."""
        raise self.failed(entry, UNKNOWN, f"To append again, delete the stream {self.name} first.")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive bytes of one segment of a source.

    Attributes:
        uri: the source.
        segment: the segment's full name.
        keys: its key range.
        parts: where the bytes are, in order, without holes; at least one.
        last: the last of them, as they were when the stitch was planned; None if that is not known.
    """

    uri: str
    segment: str
    keys: KeyRange
    parts: tuple[SourcePart, ...]
    last: LastBytes | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from the others of a stitch."""
        return self.uri, self.segment, self.start

    @property
    def start(self) -> int:
        """Offset of the first byte (bytes)."""
        return self.parts[0].start

    @property
    def end(self) -> int:
        """Offset after the last byte (bytes)."""
        return self.parts[-1].end

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.end - self.start

    def blocks(self, window: int) -> Iterator[bytes | memoryview]:
        """Yield its bytes, as blocks that may split events.

        The last ones are compared with those that were planned. It is too late to compare the source with them when all
        is read: what was read may be of another one, which has lost these bytes since.

        Args:
            window: maximum data buffered in memory (bytes).

        Raises:
            AnotherSource: after the last block: the last bytes differ; or the segment is shorter.
            Damaged, SourceTruncated, StreamStoreError: as `SourcePart.blocks`.
        """
        at, digest = self.start, hashlib.sha256()
        try:
            for part in self.parts:
                for block in part.blocks(part.start, part.end, window):
                    if self.last:
                        digest.update(memoryview(block)[max(self.last.offset - at, 0) :])
                    at += len(block)
                    yield block
        except SegmentTooShort as error:
            raise another_source(error.what, self.uri) from None
        if self.last and digest.hexdigest() != self.last.digest:
            raise another_source(bytes_differ(self.last.segment, self.last.offset, self.end), self.uri)


class Sources:
    """The sources of a stitch, in the order in which they are appended, as they are at one moment.

    Args:
        sources: the sources, none of which is given twice.
        identified: look at them twice, so that `position` can compare what it takes with the earlier look; False if it
            is not called.

    Raises:
        NoSuchStream, NoSuchArchive: one does not exist.
        OwnStream: one is an internal stream.
        Usage: one is the archive of a byte stream, which has no events.
    """

    def __init__(self, sources: Sequence[Source], *, identified: bool = True) -> None:
        self.sources = sources
        self._seen = [look_again(partial(_tail_of, source), SourceTruncated) for source in sources if identified]
        self.looks: Sequence[SourceState] = [source.look() for source in sources]
        for source, look in zip(sources, self.looks, strict=True):
            if look.content == "bytes":
                raise Usage("an archive of a byte stream has no events to append", where=source.uri)

    def position(self, index: int, cut: StreamCut, before: SourcePosition | None) -> SourcePosition:
        """Return the position of a cut in an identified source; see `SourcePosition.at`.

        Args:
            index: the source's place among the sources.
            cut: the cut.
            before: the position that it is continued from, if any.
        """
        uri = self.sources[index].uri
        return SourcePosition.at(self.looks[index], cut, before, earlier=self._seen[index], uri=uri)

    def look_at(self, part: SourceCuts) -> SourceState:
        """Return the source of a part as it was looked at."""
        return next(look for source, look in zip(self.sources, self.looks, strict=True) if source.uri == part.uri)

    def stretches(self, part: SourceCuts) -> dict[SegmentId, list[Stretch]]:
        """Return what a source has of a part, whose cuts are known to lie between events.

        Returns:
            Segment → its stretches in order, of each segment that has bytes there; in the stream's order. There are
            several where an archive has gaps.

        Raises:
            Damaged: an archive lacks bytes, and does not declare it.
            SourceTruncated: the source was truncated since this look.
            AnotherSource: it is not the source of the part.
        """
        look = self.look_at(part)
        from_cut, to_cut = part.between(look)
        if not is_before(look.described, look.described.head, from_cut):
            raise SourceTruncated(
                "the source was truncated meanwhile", where=part.uri, todo="Run the same command again."
            )
        ranges = look.described.ranges()
        found: dict[SegmentId, list[Stretch]] = {}
        for segment, parts in look.parts(from_cut, to_cut, known=(from_cut, to_cut)).items():
            pieces = list(_without_holes(parts))
            for before, after in pairwise(pieces):
                look.check_gap(segment, before[-1].end, after[0].start)
            name = segment.in_stream(look.described.name)
            if pieces:
                found[segment] = [
                    Stretch(part.uri, name, ranges[segment], tuple(piece), _last(part.to, segment, piece))
                    for piece in pieces
                ]
        return dict(sorted(found.items()))


def _tail_of(source: Source) -> SourcePosition:
    look = source.look()
    return SourcePosition.at(look, look.described.tail, None, earlier=None)


def _last(planned: SourcePosition, segment: SegmentId, parts: Sequence[SourcePart]) -> LastBytes | None:
    """Return what the last bytes are compared with; None in an archive, whose ranges have digests."""
    return None if parts[-1].is_verified else planned.last_in(segment, parts[0].start, parts[-1].end)


def _without_holes(parts: Iterable[SourcePart]) -> Iterator[list[SourcePart]]:
    """Group consecutive parts; empty ones are left out."""
    group: list[SourcePart] = []
    for part in parts:
        if part.start == part.end:
            continue
        if group and group[-1].end != part.start:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def open_sources(uris: Sequence[str], stack: ExitStack) -> list[Source]:
    """Open the sources; ``stack`` closes them.

    Raises:
        InvalidName: a URI is not valid.
        Usage: there is none, one is given twice, or a text is given instead of a list.
    """
    if isinstance(uris, str):
        raise Usage("the sources must be a list of URIs", where=repr(uris))
    if not uris:
        raise Usage("no source is given")
    found: list[Source] = []
    for uri in uris:
        source = open_source(uri, stack)
        if any(one.uri == source.uri for one in found):
            raise Usage("the sources overlap: one is given twice", where=source.uri, todo="Give each source once.")
        found.append(source)
    return found


class OtherBytes(Conflict):
    """A transaction has other bytes than the sources: it must not be committed."""


@dataclass(frozen=True, slots=True)
class StitchTask:
    """Specification of a task that fills one segment of a transaction.

    Attributes:
        address: the target's store.
        transaction: the transaction.
        segment: its segment.
        stretches: what the segment gets, in order.
        window: maximum data buffered in memory (bytes).
    """

    address: StoreAddress
    transaction: Transaction
    segment: SegmentId
    stretches: tuple[Stretch, ...]
    window: int

    @property
    def size(self) -> int:
        """How many bytes the segment gets."""
        return sum(stretch.size for stretch in self.stretches)


def fill_transaction(task: StitchTask) -> tuple[int, Sequence[str]]:
    """Append what the transaction's segment does not have yet.

    What it has already, another run has appended, which perhaps ended before it had compared it with its digest. So
    that is read back, and compared with the sources, whose digests are compared now.

    Returns:
        The bytes that this run appended, and the SHA-256 of each stretch, hexadecimal.

    Raises:
        OtherBytes: the segment has other bytes than the sources, or more.
        Conflict: another process appends to it.
        Damaged: an object of an archive is missing or has the wrong size or digest.
        SourceTruncated: a source was truncated meanwhile.
        NoSuchSegment, SegmentSealed, TransactionEnded: the transaction has ended.
    """
    with task.address.lend() as store:
        for _ in range(FOREIGN_APPENDS):
            try:
                return _append_rest(task, store.transactions())
            except OffsetConflict:
                continue
    raise Conflict("another process is appending to the transaction", where=_where(task))


def _append_rest(task: StitchTask, transactions: Transactions) -> tuple[int, Sequence[str]]:
    with transactions.appender(task.transaction, task.segment) as appender:
        begun = appender.offset
        if begun > task.size:
            raise OtherBytes(f"the transaction has {begun} bytes instead of {task.size}", where=_where(task))
        stored = StoredBytes(transactions.read(task.transaction, task.segment, begun) if begun else ())
        at, counted, digests = 0, begun, []
        for stretch in task.stretches:
            digest = hashlib.sha256()
            for block in stretch.blocks(task.window):
                if stored.difference(block) is not None:
                    raise OtherBytes("the transaction's bytes differ from the sources'", where=_where(task))
                digest.update(block)
                for piece in pieces(memoryview(block)[max(begun - at, 0) :]):
                    appender.append(piece)
                    task_progress().acknowledge(appender.acknowledged - counted)
                    counted = appender.acknowledged
                at += len(block)
            digests.append(digest.hexdigest())
        return appender.flush() - begun, digests


def _where(task: StitchTask) -> str:
    return f"{task.address.uri}/{task.segment.in_stream(task.transaction.stream)}, {task.transaction.id}"


def digest_stretch(spec: tuple[Stretch, int]) -> str:
    """Return the SHA-256 of a stretch, hexadecimal; ``spec`` is the stretch and the window of the task (bytes)."""
    stretch, window = spec
    return digest_of(stretch.blocks(window))


BySegment = Mapping[SegmentId, Sequence[Stretch]]


class StitchPlanner:
    """Plans stitches of some sources.

    Args:
        sources: the sources, in the order in which they are appended.
        distinct: whether to leave out a segment that an earlier source's segment is equal to.
        to_cut: append only what comes before this cut of the only source; None for its tail.
        window: maximum data a task buffers in memory (bytes).
        joins: whether the target is made for this stitch, and gets nothing after it.

    Attributes:
        sources: the sources as they were when they were last looked at.
        distinct, joins: see above.
        warnings: what the user is to be warned of.

    Raises:
        Usage: a cut is given for several sources.
        InvalidCut: the cut is not one of the source.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        distinct: bool,
        window: int,
        to_cut: PlanningCut | None = None,
        joins: bool = False,
    ) -> None:
        if to_cut is not None and len(sources) > 1:
            raise Usage("--to is a stream cut of one source, but several are given")
        self.sources = Sources(sources)
        self.joins = joins
        self.warnings: list[str] = []
        self.distinct = distinct
        self._to_cut = parse_cut(to_cut, sources[0].name, sources[0].end_of)
        self._window = window
        self._known: tuple[tuple[Sequence[SourceCuts], LeftOut], list[Stretch]] | None = None

    def keeps(self, record: StitchRecord) -> bool:
        """Return whether a record's plan is to be finished: it has this run's sources and options, or is too far."""
        if record.stage is Stage.COMMITTING or record.is_committed:
            return True
        return self.is_asked(record) and (self._to_cut is None or record.parts[0].to.is_at(self._to_cut))

    def check_sources(self, record: StitchRecord, *, again: bool = False) -> None:
        """Check that the sources are those of a record, if so asked as they are now; errors as `Sources.stretches`."""
        looks = Sources(self.sources.sources, identified=False) if again else self.sources
        for part in record.parts:
            part.between(looks.look_at(part))

    def is_asked(self, record: StitchRecord) -> bool:
        """Return whether a record is of this run's sources, in this order, and of its options."""
        order = list(dict.fromkeys(part.uri for part in record.parts))
        return (order, record.distinct) == (self.order, self.distinct)

    @property
    def order(self) -> list[str]:
        """The URIs of the sources, in the order in which they are appended."""
        return [source.uri for source in self.sources.sources]

    def plan(self, newest: StitchRecord | None, tasks: Tasks) -> StitchRecord | None:
        """Plan what the sources have now and was not appended yet; None if that is nothing.

        Args:
            newest: the newest record; if it is not committed, its plan is replaced.
            tasks: run what reads segments of equal length, if equal ones are to be left out.

        Raises:
            AnotherSource: a source is not the one that was appended before.
            InvalidCut: the cut lies inside an event, or before what was appended already.
        """
        self.sources = Sources(self.sources.sources)
        self._known = None
        self.warnings = self._other_schemas()
        parts = tuple(self._parts(newest))
        held = self._by_source(parts)
        if not any(held) and not self.joins:
            return None
        left_out = self._equal(held, tasks) if self.distinct else frozenset()
        return StitchRecord(stage=Stage.PLANNED, parts=parts, distinct=self.distinct, left_out=left_out)

    @property
    def names(self) -> list[str]:
        """What tells a stitch of these sources from others into the same target."""
        return sorted(self.order)

    def ranges(self) -> list[KeyRange]:
        """Return the key ranges of all segments that have bytes to append, whether or not they are left out."""
        held = self._by_source(self._parts(None))
        return [stretch.keys for some in held for stretches in some.values() for stretch in stretches]

    def stretches(self, record: StitchRecord) -> list[Stretch]:
        """Return what a record's plan appends, in order. Errors as `Sources.stretches`."""
        plan = record.parts, record.left_out
        if self._known is None or self._known[0] != plan:
            by_source = enumerate(self._by_source(record.parts))
            left = [
                stretch
                for index, held in by_source
                for segment, some in held.items()
                if (index, segment) not in record.left_out
                for stretch in some
            ]
            self._known = plan, left
        return self._known[1]

    def left_out(self, record: StitchRecord) -> list[str]:
        """Return the URI of each segment that a plan leaves out: that of its source, and the segment's name."""
        return [f"{record.parts[index].uri}/{segment}" for index, segment in sorted(record.left_out)]

    def _other_schemas(self) -> list[str]:
        """Return a warning if the archives among the sources have recorded different schemas."""
        looks = self.sources.looks
        try:
            SchemaGroup.union(
                look.history.generations[-1].manifest.schemas for look in looks if isinstance(look, ArchiveState)
            )
        except ValueError as error:
            return [f"the ids in the events' headers mean other schemas in each archive: {error}"]
        return []

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context in which the sources are read; see `SourceState.reading`."""
        with ExitStack() as stack:
            for look in self.sources.looks:
                stack.enter_context(look.reading("appended"))
            yield

    def _parts(self, newest: StitchRecord | None) -> list[SourceCuts]:
        """Return what each source has after what was appended."""
        before = {part.uri: part for part in newest.parts} if newest else {}
        begun = newest is not None and not newest.is_committed
        sources = self.sources.sources
        return [self._cuts(index, before.get(source.uri), begun=begun) for index, source in enumerate(sources)]

    def _cuts(self, index: int, before: SourceCuts | None, *, begun: bool) -> SourceCuts:
        look, source = self.sources.looks[index], self.sources.sources[index]
        described = look.described
        begin = described.head
        if before is not None:
            from_cut, to_cut = before.between(look)
            reached = from_cut if begun else to_cut
            begin = later_of(described, reached, described.head)
            if begin != reached:
                self.warnings.append(
                    f"{source.uri} was truncated beyond what was appended; what is missing is left out"
                )
        if self._to_cut is not None:
            look.parts(begin, self._to_cut, known=(begin,))  # checks the cut
        end = self.sources.position(index, self._to_cut or described.tail, before.to if before else None)
        return SourceCuts(source.uri, begin, end)

    def _by_source(self, parts: Iterable[SourceCuts]) -> list[dict[SegmentId, list[Stretch]]]:
        """Return what each part has, by segment."""
        return [self.sources.stretches(part) for part in parts]

    def _equal(self, held: Sequence[BySegment], tasks: Tasks) -> LeftOut:
        """Return the segments that have the same bytes as one of an earlier source; only those of one size are read."""
        sizes: dict[int, list[tuple[int, SegmentId]]] = {}
        for index, by_segment in enumerate(held):
            for segment, stretches in by_segment.items():
                sizes.setdefault(sum(stretch.size for stretch in stretches), []).append((index, segment))
        asked = [one for some in sizes.values() if len({index for index, _ in some}) > 1 for one in some]
        specs = [(stretch, self._window) for index, segment in asked for stretch in held[index][segment]]
        digests = {}
        with self.reading():
            for at, digest in tasks.runner.run(digest_stretch, specs):
                digests[specs[at][0].key] = digest
        first: dict[tuple[str, ...], int] = {}
        left_out = set()
        for index, segment in sorted(asked):
            content = tuple(f"{stretch.size} {digests[stretch.key]}" for stretch in held[index][segment])
            if first.setdefault(content, index) != index:
                left_out.add((index, segment))
        return frozenset(left_out)
