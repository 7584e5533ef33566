"""The format ``pravega`` in streaming queries: micro-batches between stream cuts, which are the offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from streamvault.common.times import now_utc
from streamvault.reading.identity import COMPARED_SEGMENTS, SourcePosition
from streamvault.reading.stream_source import LiveState
from streamvault.spark.advancing import advance, share_out
from streamvault.spark.batch_reader import PartPartition
from streamvault.spark.columns import arrow_schema
from streamvault.spark.reading import Reading
from streamvault.spark.segment_parts import (
    SegmentPart,
    as_cut,
    infos_if_there,
    known_parts,
    read_events,
    readable_parts,
)
from streamvault.streamstore.arithmetic.cuts import is_before
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.store import StreamStore

_KNOWN_BY = "recognized-by"
"""What an offset has beside segments' names."""


class PravegaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads them.

    An offset is a stream cut, as JSON: ``{"scope/stream/N.#epoch.E": offset}``. Besides, it has what the stream is
    recognized by (`SourcePosition`), which is compared before a batch goes on from there.

    Args:
        reading: the options.
        schema: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._schema = arrow_schema(schema)
        self._until: StreamCut | None = reading.to_cut if isinstance(reading.to_cut, StreamCut) else None
        self._boundaries: dict[tuple[SegmentId, int, int], list[int]] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return where a query without a checkpoint begins."""
        with self._reading.look() as (store, described):
            start = as_cut(described, self._reading.from_cut)
            readable_parts(self._reading, store, described, start, described.tail)
            return self._offset(store, described, start, None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit set by ``maxBytesPerTrigger``."""
        most = self._reading.max_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the batch that begins at ``start`` ends; ``start`` itself if there is nothing to read."""
        reading = self._reading
        with reading.look() as (store, described):
            begin = self._cut(store, described, start)
            infos = partial(infos_if_there, store, reading.stream)
            ahead = advance(described, infos, begin, self._until)
            end = StreamCut(reading.stream, ahead)
            # raise before Spark records the batch
            readable_parts(reading, store, described, begin, end)
            if isinstance(limit, ReadMaxBytes):
                end = StreamCut(reading.stream, self._bounded(store, begin, ahead, limit.max_bytes))
            return start if end == begin else self._offset(store, described, end, self._position(start))

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Return the stream's tail, for the query's progress."""
        with self._reading.look() as (_, described):
            return described.tail.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop the query at the stream's current tail."""
        with self._reading.look() as (_, described):
            # the query's own end may lie before the tail
            self._until = _earlier(described, self._until, described.tail)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a batch's parts, which contain the same events for the same two cuts."""
        reading = self._reading
        with reading.look() as (store, described):
            begin, until = self._cut(store, described, start, compare=False), self._cut(store, described, end)
            readable = readable_parts(reading, store, described, begin, until)
            size = reading.split_size(sum(whole.end - whole.start for whole in readable))
            return [PartPartition(part) for whole in readable for part in self._split(store, whole, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a part's events."""
        assert isinstance(partition, PartPartition)  # noqa: S101
        return read_events(self._reading, partition.part, self._schema)

    def _offset(
        self, store: StreamStore, described: StreamDescription, cut: StreamCut, before: SourcePosition | None
    ) -> dict[str, Any]:
        look = self._look(store, described)
        known = SourcePosition.at(look, cut, before, most=COMPARED_SEGMENTS).to_json()
        return {**known.pop("to"), _KNOWN_BY: known}

    def _cut(
        self, store: StreamStore, described: StreamDescription, offset: dict[str, Any], *, compare: bool = True
    ) -> StreamCut:
        """Return an offset's cut, after comparing the stream."""
        if not compare:
            return self._plain(offset)
        todo = "Start the query with another checkpoint to read this stream."
        return self._position(offset).reached(
            self._look(store, described), f"{self._reading.address.uri}/{described.name}", todo
        )

    def _plain(self, offset: dict[str, Any]) -> StreamCut:
        return StreamCut.from_json({name: at for name, at in offset.items() if name != _KNOWN_BY}, self._reading.stream)

    def _position(self, offset: dict[str, Any]) -> SourcePosition:
        return SourcePosition.from_json({"to": self._plain(offset).to_json(), **offset[_KNOWN_BY]})

    def _look(self, store: StreamStore, described: StreamDescription) -> LiveState:
        return LiveState(OpenStream(store, self._reading.address, self._reading.stream), described, now_utc())

    def _bounded(
        self, store: StreamStore, begin: StreamCut, ahead: dict[SegmentId, int], most: int
    ) -> dict[SegmentId, int]:
        """Return the batch's end, limited to ``most`` bytes.

        The end of the last event that fits is known only after reading up to it, so the driver reads the same bytes as
        the tasks will. It remembers event boundaries, so that the batch can have many tasks.
        """
        reading = self._reading
        lost = not reading.fail_on_data_loss
        infos = infos_if_there(store, reading.stream, list(ahead)) if lost else {}
        low: dict[SegmentId, int] = {}
        for segment in ahead:
            info = infos.get(segment)
            low[segment] = max(begin.offsets.get(segment, 0), info.start_offset if info else 0)
        shares = share_out({segment: max(0, end - low[segment]) for segment, end in ahead.items()}, most)
        ends = {segment: begin.offsets.get(segment, 0) for segment in ahead}
        apart = reading.split_size(sum(shares.values()))
        self._boundaries.clear()
        for segment, size in shares.items():
            start, end = low[segment], ahead[segment]
            part = SegmentPart(segment, start, min(start + size, end), end)
            boundaries = part.boundaries(store, reading.stream, apart)
            ends[segment] = boundaries[-1]
            self._boundaries[segment, start, ends[segment]] = boundaries
        return ends

    def _split(self, store: StreamStore, whole: SegmentPart, size: int) -> list[SegmentPart]:
        boundaries = self._boundaries.get((whole.segment, whole.start, whole.end))
        if boundaries is None and self._reading.boundaries == "walked":
            boundaries = whole.boundaries(store, self._reading.stream, size)
        return [whole] if boundaries is None else known_parts(whole.segment, boundaries)


def _earlier(described: StreamDescription, requested: StreamCut | None, tail: StreamCut) -> StreamCut:
    """Return the query's own end if it lies before the tail for every key; else the tail."""
    return requested if requested is not None and is_before(described, requested, tail) else tail
