"""An archive as a stream that is served; it may grow, be merged and expire while it is read."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from streamvault.common.errors import Conflict, Damaged, Failed, Problem
from streamvault.layouts.keys import GenerationSpan, ranges_key
from streamvault.layouts.layout import LAYOUTS, open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.history import Generation
from streamvault.manifests.index_pages import IndexPage, IndexPages
from streamvault.serving.blocks import BLOCK_BYTES, WHOLE_RANGE_BYTES, KnownRange, blocks_of, compared_block, learn
from streamvault.serving.cache import FETCH_BYTES, BlockCache, shared
from streamvault.sources.sources import ArchiveSource, ArchiveState
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamDescription

_log = logging.getLogger(__name__)

AHEAD = 8
"""Blocks that are fetched ahead of a reader that reads on."""

CHAIN, KNOWN = -1, -2
"""Stand for a range's chain of objects, and for what is known of it, where else is a block's number."""

_Key = tuple[str, SegmentId, int, int, str]


@dataclass(frozen=True, slots=True)
class PageKey:
    """Where the row of a byte is, if there is one.

    Attributes:
        generation: fingerprint of the generation.
        index: its index.
        number: of the page.
        layout: of the generation.
        end: where its part of the segment ends.
    """

    generation: str
    index: IndexPages = field(compare=False)
    number: int
    layout: str = field(compare=False)
    end: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a byte is.

    Attributes:
        part: all of its range.
        number: of the block of the range.
        inside: where it is in the block.
        now: the archive when it was looked for.
    """

    part: ArchivedPart
    number: int
    inside: int
    now: Moment


@dataclass(frozen=True, slots=True)
class Moment:
    """An archive at one moment.

    Attributes:
        state: its generations; their ranges are in the indexes.
        described: the stream.
        infos: segment → its offsets.
        spans: segment → where it is in each generation, in order: start, end, generation.
        indexes: fingerprint of a generation → its index.
        endless: the sealed segments that the source no longer had when their last bytes were to be archived: how many
            there were is not known, which their manifest says by an empty gap.
        since: when it was first looked at (seconds since 1970).
    """

    state: ArchiveState
    described: StreamDescription
    infos: Mapping[SegmentId, SegmentInfo]
    spans: Mapping[SegmentId, Sequence[tuple[int, int, Generation]]]
    indexes: Mapping[str, IndexPages]
    endless: frozenset[SegmentId]
    since: float = field(default_factory=time.time)

    @classmethod
    def of(cls, state: ArchiveState, indexes: Mapping[str, IndexPages]) -> Moment:
        """Return the moment of an archive's generations."""
        described = state.described
        open_ = set() if described.sealed else set(described.tail.offsets)
        between = state.between(described.head, described.tail)
        infos = {s: SegmentInfo(s, start, end, sealed=s not in open_) for s, (start, end) in between.items()}
        spans: dict[SegmentId, list[tuple[int, int, Generation]]] = {}
        for one in state.history.generations:
            for entry in one.manifest.segments:
                if entry.start < entry.end:
                    spans.setdefault(entry.id, []).append((entry.start, entry.end, one))
        held = {one.fingerprint: indexes[one.fingerprint] for one in state.history.generations}
        gaps = (gap for one in state.history.generations for gap in one.manifest.gaps)
        endless = frozenset(gap.id for gap in gaps if gap.start == gap.end)
        return cls(state, described, infos, spans, held, endless)

    def page_of(self, segment: SegmentId, offset: int) -> PageKey:
        """Return the page of an index that says where a byte of a segment is.

        Raises:
            SegmentTruncated: it has expired.
            Failed: it is in a gap, or beyond the segment's end.
        """
        spans = self.spans.get(segment, ())
        at = bisect_right(spans, offset, key=lambda span: span[0]) - 1
        if at >= 0 and offset < spans[at][1]:
            _, end, one = spans[at]
            index = self.indexes[one.fingerprint]
            if (number := index.page_of(segment, offset)) is not None:
                return PageKey(one.fingerprint, index, number, one.layout, end)
        raise self._absent(segment, offset, spans[at][1] if at >= 0 and offset < spans[at][1] else None)

    def spot(self, key: PageKey, page: IndexPage, segment: SegmentId, offset: int) -> Spot:
        """Return where a byte of a segment is; errors as for `page_of`."""
        row, then = page.find(segment, offset)
        if row is None:
            raise self._absent(segment, offset, key.end if then is None else then)
        number, inside = divmod(offset - row.start, BLOCK_BYTES)
        return Spot(ArchivedPart.all_of(self.state.archive.address, key.layout, row), number, inside, self)

    def _absent(self, segment: SegmentId, offset: int, after: int | None) -> Problem:
        info, where = self.info(segment), segment.in_stream(self.described.name)
        if offset < info.start_offset:
            return SegmentTruncated("expired", where=where, start_offset=info.start_offset)
        after = info.write_offset if after is None else after
        self.state.check_gap(segment, offset, after)
        # a reader that is told of a truncation begins at the segment's head again
        return Failed(
            f"the archive has a gap from {offset} to {after}", where=where, todo="Read from the end of the gap."
        )

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

    def check_end(self, segment: SegmentId) -> None:
        """Check that nothing of a sealed segment may have come after what the archive has of it.

        Raises:
            Failed: that is not known; a reader that went on with the successors might miss events.
        """
        if segment in self.endless:
            raise Failed(
                f"the stream no longer had the end of {segment} when it was archived",
                where=f"{self.state.archive.uri}, after {self.infos[segment].write_offset}",
                todo="Continue with the segment's successors.",
            )


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
        problem: why it could not be looked at again the last time; empty if it could.
        learned: how many ranges were read whole.
        looked: when the archive was looked at last (seconds since 1970); 0 if it is served as of a generation.
    """

    def __init__(self, uri: str, cache: BlockCache, generation: int | None = None, *, whole: bool = False) -> None:
        self._source, self._archive = ArchiveSource(uri, self._load), Archive.open(uri)
        self.uri, self.name = self._source.uri, self._source.name
        self._cache, self._generation, self._whole = cache, generation, whole
        self._indexes: dict[str, IndexPages] = {}
        self._learning: dict[_Key, threading.Lock] = {}
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self.learned, self.problem, self.looked = 0, "", 0.0
        self.now = self._told = self._look()

    async def read_block(self, now: Moment, segment: SegmentId, offset: int, fetching: asyncio.Semaphore) -> memoryview:
        """See `Served.read_block`."""
        key = now.page_of(segment, offset)
        if (page := self._cache.held((self.uri, key))) is None:
            page = await shared(self._cache.begin((self.uri, key), partial(self._page, key)))
        spot = now.spot(key, page, segment, offset)
        wanted = self._key(spot.part, spot.number)
        if (block := self._cache.held(wanted)) is not None:
            self._begin_ahead(spot)
        else:
            async with fetching:
                coming = self._cache.begin(wanted, partial(self._block, spot.part, spot.number))
                self._begin_ahead(spot)
                block = await shared(coming)
        found: memoryview = block[spot.inside :]
        return found

    def renewed(self, before: Moment | None = None) -> bool:
        """Look again; return whether the archive has changed.

        Args:
            before: the moment of a read that has failed; None if none has.

        Raises:
            Conflict: another archive has replaced it.
            Problem: it cannot be read.
        """
        with self._looking:
            was, failed = before or self.now, before is not None
            if self.now is was:
                self.now = self._look(failed=failed)
            return self.now is not was

    def refresh(self) -> bool:
        """Look again; return whether the archive is another than the last time, also if a reader found that first.

        If it cannot be read, what was served goes on, and the log says so once.
        """
        try:
            if self._generation is None:
                self.renewed()
            self.problem = ""
        except Problem as error:
            if str(error) != self.problem:
                _log.warning("%s", error)
            self.problem = str(error)
        told, self._told = self._told, self.now
        return self._told is not told

    def _look(self, *, failed: bool = False) -> Moment:
        now: Moment | None = getattr(self, "now", None)
        if self._generation is not None:
            state = ArchiveState(self._archive, self._archive.history(self._generation, self._load))
            if now is not None and _fingerprints(state) == _fingerprints(now.state):
                return now
        else:
            state = self._source.look()
            self.looked = time.time()
            if now is not None and state.history is now.state.history:
                if failed:
                    self._check_newest(now.state)
                return now
        if now is not None:
            _check_same(now.state, state)
        found = Moment.of(state, self._indexes)
        self._indexes = dict(found.indexes)
        return found

    def _check_newest(self, state: ArchiveState) -> None:
        """Check that the newest generation still has the same manifest; errors as for `_check_same`."""
        newest = state.history.generations[-1]
        if self._archive.read_fingerprinted(newest.manifest.span)[1] != newest.fingerprint:
            raise _replaced(self.uri)

    def _load(self, span: GenerationSpan) -> Generation:
        """Return a generation without its ranges; its index is opened."""
        archive = self._archive
        manifest, fingerprint = archive.read_fingerprinted(span)
        layout = archive.reader_of(manifest)
        if fingerprint not in self._indexes:
            index = IndexPages(archive.place, ranges_key(span), manifest, fingerprint)
            try:
                if not (layout in LAYOUTS and open_layout(layout).one_object_per_event):
                    index.use_noted()
            except Damaged as error:
                _log.warning("%s", error)
            self._indexes[fingerprint] = index
        return Generation(manifest, {}, layout, fingerprint)

    def _page(self, key: PageKey) -> IndexPage:
        with self._cache.room(FETCH_BYTES):
            return key.index.page(key.number)

    def _block(self, part: ArchivedPart, number: int) -> memoryview:
        key = self._range(part)
        if (known := self._known_range(part)) is not None:
            try:
                return self._compared(known, number)
            except Damaged:
                if not known.edges:
                    raise
                # several chains of objects may have grown since: the range's digest decides
                self._cache.drop(self._key(part, KNOWN))
        with self._lock:
            lock = self._learning.setdefault(key, threading.Lock())
        block = None
        with lock:
            if (known := self._known_range(part)) is None:
                known, block = self._learn(part, number)
        return block or self._compared(known, number)

    def _compared(self, known: KnownRange, number: int) -> memoryview:
        with self._cache.room(FETCH_BYTES):
            return compared_block(known, number, self._cache.held(self._key(known.part, CHAIN)))

    def _known_range(self, part: ArchivedPart) -> KnownRange | None:
        is_noted = part.row.block_checksums and not self._whole
        found: KnownRange | None = KnownRange(part) if is_noted else self._cache.held(self._key(part, KNOWN))
        return found

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
        if self._cache.take(learned.known.nbytes):
            self._cache.put(self._key(part, KNOWN), learned.known, costly=True)
        self._learning.pop(self._range(part), None)
        for each, block in learned.blocks.items():
            self._cache.put(self._key(part, each), block)
        if learned.chain and self._cache.take(len(learned.chain)):
            self._cache.put(self._key(part, CHAIN), learned.chain)
        return learned.known, learned.blocks.get(number)

    def _begin_ahead(self, spot: Spot) -> None:
        """Fetch the next blocks of the range for a reader that reads on: not for one that wants a single event."""
        part, number, key = spot.part, spot.number, self._range(spot.part)
        if (spot.inside or number) and not self._cache.has((self.uri, key, max(number - 1, 0))):
            return
        following = range(number + 1, min(number + 1 + AHEAD, blocks_of(part.row)))
        if self._known_range(part) is not None:
            for after in following:
                self._cache.begin_ahead((self.uri, key, after), partial(self._block, part, after))
        if len(following) < AHEAD and part.end < spot.now.info(part.segment).write_offset:
            with suppress(Problem):  # a gap
                self._begin_next(spot.now, part.segment, part.end)

    def _begin_next(self, now: Moment, segment: SegmentId, offset: int) -> None:
        key = now.page_of(segment, offset)
        if (page := self._cache.held((self.uri, key))) is None:
            self._cache.begin_ahead((self.uri, key), partial(self._page, key))
            return
        later = now.spot(key, page, segment, offset).part
        self._cache.begin_ahead(self._key(later, 0), partial(self._block, later, 0))

    def _range(self, part: ArchivedPart) -> _Key:
        # with the digest: an archive that replaces another one may have ranges with the same offsets
        return part.layout, part.segment, part.start, part.end, part.row.digest

    def _key(self, part: ArchivedPart, number: int) -> tuple[str, _Key, int]:
        return self.uri, self._range(part), number


def _check_same(before: ArchiveState, after: ArchiveState) -> None:
    """Check that an archive is the one that was served: readers must not get some bytes of each.

    Raises:
        Conflict: it has replaced the one that was served, as a generation of both differs.
    """
    known, found = (
        {number: end for one in state.history.generations for number, end in one.manifest.ends.items()}
        for state in (before, after)
    )
    if any(found[number] != known[number] for number in known.keys() & found.keys()):
        raise _replaced(after.archive.uri)


def _replaced(uri: str) -> Conflict:
    what = "another archive has replaced the one that is served"
    return Conflict(what, where=uri, todo="Restart the server to serve it.")


def _fingerprints(state: ArchiveState) -> list[str]:
    return [one.fingerprint for one in state.history.generations]
