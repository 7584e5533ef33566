"""An archive and the live stream that it is of, as one stream: the cluster may truncate what the archive has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TypeVar

from streamvault.common.errors import Conflict, Failed, Problem, Usage
from streamvault.serving.archived import Moment, ServedArchive
from streamvault.serving.cache import LARGEST_ANSWER, BlockCache
from streamvault.sources.identity import another_source, check_same_stream
from streamvault.streamstore.cuts import earlier_of, is_before, segments_between
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamCut, StreamDescription
from streamvault.streamstore.pravega.segments import lifetime
from streamvault.streamstore.pravega.store import PravegaStore
from streamvault.streamstore.uri import StoreAddress, parse_stream

_log = logging.getLogger(__name__)

T = TypeVar("T")

LIMIT_SECONDS = 10.0
"""How long the cluster may be silent; clients try again for longer."""

LOOK_SECONDS = 0.1
"""How often to look for what was appended, while readers wait for it."""

CHECK_SECONDS = 60.0
"""How often to compare the stream with the archive, besides each time that the archive has grown."""

JUDGED_SECONDS = 10.0
"""How long a token that the cluster has accepted is accepted; no longer than its own lifetime."""

REFUSED_SECONDS = 1.0
"""How long one is refused that the cluster has refused: a right that was granted counts soon."""

MOST_TOKENS = 10_000


@dataclass(frozen=True, slots=True)
class LiveAddress:
    """A stream on a Pravega cluster.

    Attributes:
        uri: the stream's URI.
        store: its cluster.
    """

    uri: str
    store: StoreAddress

    @property
    def read_only(self) -> str:
        """What a writer is told."""
        return f"this address is for readers; write to {self.store}"

    @classmethod
    def parse(cls, uri: str) -> LiveAddress:
        """Parse the URI of a stream.

        Raises:
            InvalidName: it is not valid.
            Usage: it is not of a Pravega cluster.
        """
        address, name = parse_stream(uri)
        if address.scheme == "local":
            raise Usage("--over requires a stream on a Pravega cluster", where=uri, todo="Give pravega://HOST:PORT/…")
        return cls(f"{address.uri}/{name}", address.limited(LIMIT_SECONDS))


class LiveStream:
    """A live stream, and the archive that has what was truncated from it. Thread-safe.

    The live stream is asked first. Only what it has truncated is read from the archive, and truncation is final: it is
    noted by segment, and no such byte is asked for again.

    Args:
        address: the stream.
        store: its open cluster.
        archive: the archive.
        cache: where its blocks are kept.

    Attributes:
        address: see above.
        name: the stream.

    Raises:
        Conflict: the archive is of another stream, or lacks bytes that the stream has truncated.
        Problem: the stream cannot be described.
    """

    def __init__(self, address: LiveAddress, store: PravegaStore, archive: ServedArchive, cache: BlockCache) -> None:
        self.address, self.name = address, archive.name
        self._store, self._archive, self._cache = store, archive, cache
        self._seen: dict[SegmentId, SegmentInfo] = {}
        self._starts, self._ends = dict[SegmentId, int](), dict[SegmentId, int]()
        self._gone: set[SegmentId] = set()
        self._judged: dict[bytes, tuple[float, int | None]] = {}
        self._another: Conflict | None = None
        # for good: it may have all of the archive's bytes, and others behind them
        self._replaced: Conflict | None = None
        self._said, self._check_at = "", 0.0
        self._check()
        if not self._reaches_head():
            archive.renewed()
            if not self._reaches_head():
                raise Conflict(
                    "the archive ends before the live stream begins, so what is between them is lost",
                    where=f"{archive.uri}, {address.uri}",
                    todo="Serve the archive without --over.",
                )

    def refresh(self) -> bool:
        """Look at the archive again; compare it with the stream if it has grown, or from time to time."""
        grown = self._archive.refresh()
        if grown or time.monotonic() >= self._check_at:
            try:
                self._check()
                self._said = ""
            except Problem as error:
                if str(error) != self._said:
                    _log.warning("%s", error)
                self._said = str(error)
        return grown

    @property
    def problem(self) -> str:
        """Why nothing is read, or why the stream could not be compared with the archive the last time; else empty."""
        return str(self._replaced or self._another or self._said)

    def head(self) -> StreamCut:
        """Return where the stream begins: with the archive, where that begins earlier.

        Raises:
            Conflict: the archive is of another stream.
            Problem: the stream cannot be described.
        """
        return self._compared(lambda now: earlier_of(now, self._archive.now.described.head, now.head))

    def is_head(self, cut: StreamCut) -> bool:
        """Return whether nothing before a cut can be read in the live stream; errors as for `head`."""
        return self._compared(lambda now: is_before(now, cut, now.head))

    def _compared(self, ask: Callable[[StreamDescription], T]) -> T:
        """Return what is asked of the live stream's state."""
        self._require_same()
        try:
            return ask(self._store.describe(self.name))
        except InvalidCut:  # a segment that the stream never had
            self._check()
            raise

    def info(self, segment: SegmentId, offset: int | None = None) -> SegmentInfo:
        """Return a segment's offsets; older ones if an offset lies below the end that was seen last.

        Raises:
            NoSuchSegment: neither the stream nor the archive has the segment.
            Failed: the stream has truncated bytes that the archive lacks.
            Conflict: the archive is of another stream.
        """
        self._require_same()
        seen = self._seen.get(segment)
        if seen is None or offset is None or offset >= seen.write_offset:
            seen = self._look(segment, offset)
            self._seen[segment] = seen
        return seen

    def begin(self, segment: SegmentId, offset: int) -> Future[memoryview] | None:
        """Begin to fetch what the stream has from an offset on; None if it has truncated that.

        The result raises `SegmentTruncated` or `NoSuchSegment` if it has done so meanwhile: call `truncated`.
        """
        self._require_same()
        if segment in self._gone or offset < self._starts.get(segment, 0):
            return None
        end = min(offset + LARGEST_ANSWER, self.info(segment, offset).write_offset)
        return self._cache.begin((self.address.uri, segment, offset), partial(self._fetch, segment, offset, end))

    def truncated(self, segment: SegmentId, error: SegmentTruncated | NoSuchSegment) -> None:
        """Note that the stream has truncated bytes of a segment, so that they are read from the archive."""
        if isinstance(error, SegmentTruncated):
            self._starts[segment] = max(error.start_offset, self._starts.get(segment, 0))
        elif segment in self._archive.now.infos:  # it was there, and ids are given once
            self._gone.add(segment)

    def absent(self, segment: SegmentId, offset: int) -> Problem:
        """Return the error for a byte that was found neither in the stream nor in the archive.

        Raises:
            Problem: as `info`.
        """
        start = self.info(segment).start_offset
        if offset < start:
            return SegmentTruncated("truncated", where=segment.in_stream(self.name), start_offset=start)
        return self.lacks(segment, offset)

    def lacks(self, segment: SegmentId, offset: int) -> Failed:
        """Return the error for bytes that the stream has truncated and the archive never had."""
        return Failed(
            f"the live stream has truncated byte {offset} of {segment}, and the archive does not have it",
            where=f"{self._archive.uri}, {self.address.uri}",
            todo="Archive before you truncate; read from the end of the gap.",
        )

    def judged(self, token: str) -> tuple[int | None] | None:
        """Return why the cluster has refused a token a short while ago, as `refusal` does; None if it was not asked."""
        until, why = self._judged.get(_digest(token), (0.0, None))
        return (why,) if time.monotonic() < until else None

    def refusal(self, token: str) -> int | None:
        """Ask the cluster; return why it refuses a token, as it numbers that, or None if it accepts it."""
        now = time.monotonic()
        segment = next(iter(self._archive.now.described.tail.offsets))
        why = self._store.token_refusal(self.name, segment, token)
        if len(self._judged) >= MOST_TOKENS:
            self._judged.clear()
        held = min(JUDGED_SECONDS, lifetime(token)) if why is None else REFUSED_SECONDS
        self._judged[_digest(token)] = now + held, why
        return why

    def _check(self) -> None:
        """Compare the stream with the archive.

        Raises:
            Conflict: they are not the same stream; nothing is read until they are.
            Problem: the stream cannot be described.
        """
        try:
            newest = self._archive.now.state.history.generations[-1].manifest
            described = self._store.describe(self.name)
            check_same_stream(described, self._store, newest)
            self._another = None
            # whoever said that one of these is gone was wrong, if only for a moment
            self._gone.difference_update(segments_between(described, described.head, described.tail))
        except Conflict as error:
            self._another = error
            raise
        finally:
            self._check_at = time.monotonic() + CHECK_SECONDS

    def _require_same(self) -> None:
        if error := self._replaced or self._another:
            raise error

    def _reaches_head(self) -> bool:
        return self._compared(lambda now: is_before(now, now.head, self._archive.now.described.tail))

    def _look(self, segment: SegmentId, offset: int | None) -> SegmentInfo:
        live, now = self._live(segment), self._archive.now
        if live is None and not _has_all(now, segment):
            self._archive.renewed(now)
            now = self._archive.now
        archived = now.infos.get(segment)
        if live is None:
            # without its end, what the archive has of it can be read nevertheless
            if archived and (_has_all(now, segment) or (offset is not None and offset < archived.write_offset)):
                return archived
            if archived is not None or self._is_behind(segment, now):
                raise self.lacks(segment, archived.write_offset if archived else 0)
            return now.info(segment)
        if archived is not None:
            return replace(live, start_offset=min(archived.start_offset, live.start_offset))
        # what was truncated behind the archive's end is lacking, and readers must not go on after it
        return replace(live, start_offset=0) if live.start_offset and self._is_behind(segment, now) else live

    def _is_behind(self, segment: SegmentId, now: Moment) -> bool:
        """Return whether a segment that the archive does not have was opened behind its end, not before its head."""
        ranges = now.described.ranges()
        if segment not in ranges:
            return segment in self._store.describe(self.name).ranges()
        ends = now.described.tail.offsets
        return any(end.epoch < segment.epoch and ranges[end].overlaps(ranges[segment]) for end in ends)

    def _live(self, segment: SegmentId) -> SegmentInfo | None:
        """Return a segment's offsets in the live stream; None if that has truncated all of it."""
        if segment in self._gone:
            return None
        for attempt in range(2):
            start, end = self._starts.get(segment, 0), self._ends.get(segment, 0)
            try:
                [found] = self._store.segment_info(self.name, [segment])
            except NoSuchSegment as error:
                self.truncated(segment, error)
                return None
            if found.start_offset >= start and found.write_offset >= end:
                break
            if attempt:  # an answer to what was asked after these were seen, so not one that was overtaken
                self._replaced = another_source(f"{segment} was longer, or truncated further", self.address.uri)
                raise self._replaced
        self._starts[segment] = max(found.start_offset, self._starts.get(segment, 0))
        self._ends[segment] = max(found.write_offset, self._ends.get(segment, 0))
        return found

    def _fetch(self, segment: SegmentId, offset: int, end: int) -> memoryview:
        with self._cache.room(2 * (end - offset)):
            return memoryview(self._store.read_bytes(self.name, segment, offset, end))


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()  # a token may have 16 KiB


def _has_all(now: Moment, segment: SegmentId) -> bool:
    """Return whether an archive has a segment's end, so nothing of the segment comes after it."""
    found = now.infos.get(segment)
    return found is not None and found.sealed and segment not in now.endless
