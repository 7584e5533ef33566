"""Reads a stream's archive, and then the stream, as one streaming query of the format ``pravega``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from streamvault.common.errors import Conflict
from streamvault.lake.read import Expired, read_part
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.history import check_boundaries, parts_by_segment, select_parts
from streamvault.sources.archive_comparison import check_continues
from streamvault.sources.identity import history_digest
from streamvault.sources.sources import ArchiveSource, ArchiveState
from streamvault.spark.batch_reader import PartPartition
from streamvault.spark.columns import EventColumns
from streamvault.spark.options import Reading
from streamvault.spark.pravega_reader import (
    ARCHIVED,
    DataLoss,
    PravegaStreamReader,
    advance,
    as_cut,
    offset_of,
    share_out,
)
from streamvault.streamstore.cuts import is_before, later_of
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamCut, StreamDescription
from streamvault.streamstore.store import StreamStore

_ANOTHER = "Give the archive of this stream, or start the query with another checkpoint."
_REMAINING = "Start the query again with failOnDataLoss false to read the remaining events."


class ArchiveFirstReader(PravegaStreamReader):
    """Reads a stream's archive up to its end, and the stream from there on.

    The archive has the stream's own segments and offsets, so a batch has the same events wherever their bytes come
    from, and what one batch leaves begins the next: nothing is read twice or left out at the seam. An offset up to
    which the archive was read is marked with `ARCHIVED`, so that a batch that ends there is read from the archive
    again. Ranges are not split, so a batch has at least one of them, and limits are kept by whole ranges.

    Args:
        reading: the options.
        columns: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, columns: EventColumns) -> None:
        super().__init__(reading, columns)
        self._source: ArchiveSource | None = None
        self._compared: tuple[str, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need: they look at no archive."""
        return {**vars(self), "_source": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return where a query without a checkpoint begins: in the archive."""
        state = self._archive()  # before the stream, which has all that an archive has that is older
        with self._reading.look() as (store, described):
            self._check(store, described, state)
            start = as_cut(state.described, self._reading.from_cut)
            return {**offset_of(state, self._kept(state, start), None, earlier=None), ARCHIVED: True}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the batch that begins at ``start`` ends; once the archive is read, as of the stream alone."""
        if ARCHIVED not in start:
            return super().latestOffset(start, limit)
        state, position = self._archive(), self._position(start)
        with self._reading.look() as (store, described):
            begin = position.reached(state, state.archive.uri, _ANOTHER)
            if begin == state.history.tail:
                # what the stream is recognized by is taken before it is compared with the archive
                seam = offset_of(self._look(store, described), begin, position, earlier=None)
                self._compared = None
                self._check(store, described, state)
                return super().latestOffset(seam, limit)
            self._check(store, described, state)
            end = self._end(described, state, self._kept(state, begin), limit)
            return start if end == begin else {**offset_of(state, end, position, earlier=position), ARCHIVED: True}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a batch's parts, which contain the same events for the same two cuts."""
        if ARCHIVED not in end:
            return super().partitions(start, end)
        state, begin = self._archive(), self._plain(start)
        until = self._position(end).reached(state, state.archive.uri, _ANOTHER)
        kept = (self._kept(state, begin), self._kept(state, until))
        parts = select_parts(state.archive.address, state.history, *kept)
        check_boundaries(self._reading.stream, parts)
        return [PartPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a part's events."""
        if isinstance(partition, PartPartition) and isinstance(partition.part, ArchivedPart):
            return self._archived(partition.part)
        return super().read(partition)

    def _archived(self, part: ArchivedPart) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._columns.of(read_part(self._reading.stream, part, schema=self._columns.own))
        except Expired as expired:
            if self._reading.fail_on_data_loss:
                raise DataLoss(expired.what, where=expired.where, todo=_REMAINING) from None

    def _archive(self) -> ArchiveState:
        """Return the archive as it is now; its manifests are read only if there is another generation."""
        self._source = self._source or ArchiveSource(self._reading.archive)
        state = self._source.look()
        state.history.generations[-1].manifest.require_events(state.archive.uri)
        return state

    def _end(self, described: StreamDescription, state: ArchiveState, begin: StreamCut, limit: ReadLimit) -> StreamCut:
        """Return the end of a batch that is read from the archive: as far as the archive, the query and limits go."""
        reading, history, tail = self._reading, state.history, state.history.tail.offsets

        def infos(segments: Sequence[SegmentId]) -> dict[SegmentId, SegmentInfo | None]:
            ends = {segment: tail.get(segment, history.end(segment)) for segment in segments}
            return {s: None if end is None else SegmentInfo(s, 0, end, s not in tail) for s, end in ends.items()}

        # what the stream has besides is behind segments that are open here
        ahead = advance(described, infos, begin, self._until)
        if isinstance(limit, ReadAllAvailable):
            return StreamCut(reading.stream, ahead)
        parts = parts_by_segment(select_parts(state.archive.address, history, begin, StreamCut(reading.stream, ahead)))
        sizes, counts = (
            share_out(available, sum(available.values()) if most is None else most)
            for most, available in (
                (reading.max_bytes, {s: sum(part.end - part.start for part in held) for s, held in parts.items()}),
                (reading.max_events, {s: sum(part.row.events for part in held) for s, held in parts.items()}),
            )
        )
        ends = dict(ahead)
        for segment, held in parts.items():
            size, count = sizes[segment], counts[segment]
            for part in held:
                size, count = size - (part.end - part.start), count - part.row.events
                if min(size, count) < 0:
                    ends[segment] = part.start
                    break
        if parts and StreamCut(reading.stream, ends) == begin:
            first = next(iter(parts.values()))[0]
            ends[first.segment] = first.end
        return StreamCut(reading.stream, ends)

    def _check(self, store: StreamStore, described: StreamDescription, state: ArchiveState) -> None:
        """Check that the stream is the archived one and has all that the archive does not have; not twice the same.

        Raises:
            Conflict: it is another stream.
            DataLoss: its head is beyond the archive's end, and the query fails if so.
        """
        newest, history = state.history.generations[-1], history_digest(described.epochs)
        if self._compared == (newest.fingerprint, history):
            return
        try:
            is_gap = not is_before(described, described.head, state.history.tail)
        except InvalidCut:
            is_gap = False  # it is another stream
        if is_gap and self._reading.fail_on_data_loss:
            raise DataLoss(
                "the stream begins after its archive's end, so the events between are in neither",
                where=f"{store.uri}/{described.name}, {state.archive.uri}",
                todo="Set failOnDataLoss to false to continue without them.",
            )
        try:
            check_continues(described, store, state.archive, newest.manifest, same_stream=is_gap)
        except Conflict as conflict:
            raise Conflict(conflict.what, where=conflict.where, todo=_ANOTHER) from None
        self._compared = newest.fingerprint, history

    def _kept(self, state: ArchiveState, begin: StreamCut) -> StreamCut:
        """Return where a batch begins: if the archive's first generations have expired, behind them.

        Raises:
            DataLoss: they have, and the query fails if so.
        """
        head = state.history.head
        if self._reading.fail_on_data_loss and not is_before(state.described, head, begin):
            raise DataLoss(
                "events to be read have expired from the archive, or were never in it",
                where=f"{state.archive.uri}, which begins at {head.to_json()}",
                todo=_REMAINING,
            )
        return later_of(state.described, begin, head)
