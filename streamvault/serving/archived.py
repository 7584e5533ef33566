"""An archive as a stream that is served; it may grow, be merged and expire while it is read."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from streamvault.common.errors import Damaged, Failed, Problem
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.history import Generation
from streamvault.manifests.noted_blocks import with_noted_blocks
from streamvault.serving.blocks import BLOCK_BYTES, WHOLE_RANGE_BYTES, KnownRange, blocks_of, compared_block, learn
from streamvault.serving.cache import FETCH_BYTES, BlockCache
from streamvault.sources.sources import ArchiveSource, ArchiveState
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamDescription

_log = logging.getLogger(__name__)

AHEAD = 8
"""Blocks that are fetched ahead of a reader that reads on."""

CHAIN = -1
"""Stands for a range's chain of objects where else is a block's number."""

_Key = tuple[str, SegmentId, int, int]


@dataclass(frozen=True, slots=True)
class Moment:
    """An archive at one moment.

    Attributes:
        state: its generations.
        described: the stream.
        infos: segment → its offsets.
        parts: segment → its ranges, in order.
        starts: segment → the starts of these ranges.
    """

    state: ArchiveState
    described: StreamDescription
    infos: Mapping[SegmentId, SegmentInfo]
    parts: Mapping[SegmentId, Sequence[ArchivedPart]]
    starts: Mapping[SegmentId, Sequence[int]]

    @classmethod
    def of(cls, state: ArchiveState, noted: Callable[[Generation], Generation]) -> Moment:
        """Return the moment of an archive's generations; ``noted`` adds the checksums of blocks that were noted."""
        described, address = state.described, state.archive.address
        open_ = set() if described.sealed else set(described.tail.offsets)
        between = state.between(described.head, described.tail)
        infos = {s: SegmentInfo(s, start, end, sealed=s not in open_) for s, (start, end) in between.items()}
        parts: dict[SegmentId, list[ArchivedPart]] = {}
        for one in map(noted, state.history.generations):
            for segment, rows in one.rows.items():
                parts.setdefault(segment, []).extend(ArchivedPart.all_of(address, one.layout, row) for row in rows)
        return cls(state, described, infos, parts, {s: [one.row.start for one in some] for s, some in parts.items()})

    def find(self, segment: SegmentId, offset: int) -> tuple[ArchivedPart, int]:
        """Return the range that holds a byte of a segment, and the number of its block that does.

        Raises:
            SegmentTruncated: it has expired.
            Failed: it is in a gap, or beyond the segment's end.
        """
        parts = self.parts.get(segment, ())
        at = bisect_right(self.starts.get(segment, ()), offset) - 1
        if at >= 0 and offset < parts[at].end:
            return parts[at], (offset - parts[at].start) // BLOCK_BYTES
        info, where = self.info(segment), segment.in_stream(self.described.name)
        if offset < info.start_offset:
            raise SegmentTruncated("expired", where=where, start_offset=info.start_offset)
        after = parts[at + 1].start if at + 1 < len(parts) else info.write_offset
        self.state.check_gap(segment, offset, after)
        # a reader that is told of a truncation begins at the segment's head again
        raise Failed(f"the archive has a gap from {offset} to {after}", where=where, todo="Read from behind it.")

    def inside(self, segment: SegmentId, offset: int) -> int:
        """Return where in the block that holds a byte of a segment the byte is."""
        part, number = self.find(segment, offset)
        return offset - part.start - number * BLOCK_BYTES

    def info(self, segment: SegmentId) -> SegmentInfo:
        """Return a segment's offsets.

        Raises:
            NoSuchSegment: the archive does not have it.
        """
        try:
            return self.infos[segment]
        except KeyError:
            where = segment.in_stream(self.described.name)
            raise NoSuchSegment("the archive does not have the segment", where=where) from None


class ServedArchive:
    """An archive that is served. Thread-safe.

    Args:
        uri: the archive.
        cache: where its blocks are kept.
        generation: serve the stream as it was at this generation, instead of all that follow.
        whole: compare every range whole with its SHA-256 first, also one that has checksums of its blocks.

    Attributes:
        name: the stream.
        uri: the archive's URI.
        now: the archive as it was looked at last.
        learned: how many ranges were read whole.
        looked: when the archive was looked at last (seconds since 1970); 0 if it is served as of a generation.
    """

    def __init__(self, uri: str, cache: BlockCache, generation: int | None = None, *, whole: bool = False) -> None:
        self._source, self._archive = ArchiveSource(uri), Archive.open(uri)
        self.uri, self.name = self._source.uri, self._source.name
        self._cache, self._generation, self._whole = cache, generation, whole
        self._known: dict[_Key, KnownRange] = {}
        self._noted: dict[str, Generation] = {}
        self._learning: dict[_Key, threading.Lock] = {}
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self.learned, self._problem, self.looked = 0, "", 0.0
        self.now = self._look()

    def held(self, now: Moment, segment: SegmentId, offset: int) -> memoryview | None:
        """Return the block that holds a byte if it is in memory; errors as for `begin`."""
        part, number = now.find(segment, offset)
        found = self._cache.held(self._key(part, number))
        if found is not None:
            self._begin_ahead(now, part, number, offset)
        return found

    def begin(self, now: Moment, segment: SegmentId, offset: int) -> Future[memoryview]:
        """Begin to fetch what is there from an offset on, to the end of the block that holds it.

        Raises:
            SegmentTruncated, Failed: as `Moment.find`.
        """
        part, number = now.find(segment, offset)
        found = self._cache.begin(self._key(part, number), partial(self._block, part, number))
        self._begin_ahead(now, part, number, offset)
        return found

    def renewed(self, before: Moment | None = None) -> bool:
        """Look again; return whether the archive is now another than before.

        Raises:
            Problem: it cannot be read.
        """
        with self._looking:
            before = before or self.now
            if self.now is before:
                self.now = self._look()
            return self.now is not before

    def refresh(self) -> bool:
        """Do the same; if the archive cannot be read, what was served goes on, and the log says so once."""
        try:
            found = self._generation is None and self.renewed()
        except Problem as error:
            if str(error) != self._problem:
                _log.warning("%s", error)
            self._problem = str(error)
            return False
        self._problem = ""
        return found

    def _look(self) -> Moment:
        if self._generation is not None:
            state = ArchiveState(self._archive, self._archive.history(self._generation))
            return Moment.of(state, self._with_notes)
        state, now = self._source.look(), getattr(self, "now", None)
        self.looked = time.time()
        return now if now is not None and state.history is now.state.history else Moment.of(state, self._with_notes)

    def _with_notes(self, generation: Generation) -> Generation:
        """Return a generation with the checksums of its blocks; without, if what was noted cannot be used."""
        found = self._noted.get(generation.fingerprint)
        if found is None:
            try:
                found = with_noted_blocks(self._archive.place, generation)
            except Damaged as error:
                _log.warning("%s", error)
                found = generation
            self._noted[generation.fingerprint] = found
        return found

    def _block(self, part: ArchivedPart, number: int) -> memoryview:
        key = self._range(part)
        if (known := self._known_range(part)) is not None:
            try:
                return self._compared(known, number)
            except Damaged:
                if not known.edges:
                    raise
                # several chains of objects may have grown since: the range's digest decides
                self._known.pop(key, None)
        with self._lock:
            lock = self._learning.setdefault(key, threading.Lock())
        block = None
        with lock:
            if (known := self._known.get(key)) is None:
                known, block = self._learn(part, number)
        return block or self._compared(known, number)

    def _compared(self, known: KnownRange, number: int) -> memoryview:
        with self._cache.room(FETCH_BYTES):
            return compared_block(known, number, self._cache.held(self._key(known.part, CHAIN)))

    def _known_range(self, part: ArchivedPart) -> KnownRange | None:
        is_noted = part.row.block_checksums and not self._whole
        return KnownRange(part) if is_noted else self._known.get(self._range(part))

    def _learn(self, part: ArchivedPart, number: int) -> tuple[KnownRange, memoryview | None]:
        """Read a range whole; keep what there is room for, and return one of its blocks if it is among that."""
        taken = 0

        def room(size: int) -> bool:
            nonlocal taken
            fits = taken + size <= self._cache.most_of_range and self._cache.take(size)
            taken += size if fits else 0
            return fits

        try:
            with self._cache.room(WHOLE_RANGE_BYTES):
                learned = learn(part, room, number)
        except BaseException:
            self._cache.give_back(taken)
            raise
        self.learned += 1
        self._known[self._range(part)] = learned.known
        self._learning.pop(self._range(part), None)
        for each, block in learned.blocks.items():
            self._cache.put(self._key(part, each), block)
        if learned.chain and self._cache.take(len(learned.chain)):
            self._cache.put(self._key(part, CHAIN), learned.chain)
        return learned.known, learned.blocks.get(number)

    def _begin_ahead(self, now: Moment, part: ArchivedPart, number: int, offset: int) -> None:
        """Fetch the next blocks of the range for a reader that reads on: not for one that wants a single event."""
        inside = offset - part.start - number * BLOCK_BYTES
        if (inside or number) and not self._cache.has(self._key(part, max(number - 1, 0))):
            return
        following = range(number + 1, min(number + 1 + AHEAD, blocks_of(part.row)))
        if self._known_range(part) is not None:
            for after in following:
                self._cache.begin_ahead(self._key(part, after), partial(self._block, part, after))
        if len(following) < AHEAD:
            at = bisect_right(now.starts[part.segment], part.start)
            for later in now.parts[part.segment][at : at + 1]:
                self._cache.begin_ahead(self._key(later, 0), partial(self._block, later, 0))

    def _range(self, part: ArchivedPart) -> _Key:
        return part.layout, part.segment, part.start, part.end

    def _key(self, part: ArchivedPart, number: int) -> tuple[str, _Key, int]:
        return self.uri, self._range(part), number
