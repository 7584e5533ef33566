"""The format ``pravega``: reads a stream in batches or continuously, and writes to it.

Determine the end of the next micro-batch of a stream.

A batch never contains both a segment and one of its successors: Spark reads a batch in parallel, so events of one key
would arrive in any order. A successor begins after earlier batches have read the segments before it to their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from streamvault.common.units import now_utc
from streamvault.sources.identity import COMPARED_SEGMENTS, SourcePosition
from streamvault.sources.sources import LiveState
from streamvault.spark.batch_reader import BatchReader, PartPartition
from streamvault.spark.columns import arrow_schema
from streamvault.spark.options import Reading, options_for, read_options, schema_for, write_options
from streamvault.spark.pravega_sink import PravegaSink, PravegaStreamSink
from streamvault.spark.segment_parts import SegmentPart, as_cut, known_parts, read_events, readable_parts
from streamvault.streamstore.cuts import infos_if_there, is_before, segments_between
from streamvault.streamstore.model import Epoch, SegmentId, SegmentInfo, StreamCut, StreamDescription
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import OpenStream

Infos = Callable[[Sequence[SegmentId]], Mapping[SegmentId, SegmentInfo | None]]


def advance(
    described: StreamDescription, infos: Infos, start: StreamCut, limit: StreamCut | None = None
) -> dict[SegmentId, int]:
    """Return the end of each segment in the next batch if nothing else limits it, which is a stream cut.

    Args:
        described: the stream now.
        infos: returns information on segments; None for a deleted one, which counts as read to its end.
        start: where the batch begins.
        limit: a cut to stop at, which may lie beyond the tail; None for no limit.

    Returns:
        Segment → offset to read up to. Segments that were read to their ends are replaced by their successors, which
        begin at 0.
    """
    between = {} if limit is None else segments_between(described, start, limit)
    front = dict(start.offsets)
    known = dict(infos(list(front)))
    for before, after in pairwise(described.epochs):
        for left, entered in _replaced(before, after):
            if not left <= front.keys() or not (limit is None or entered <= between.keys()):
                continue
            if all(_is_read(known[segment], front[segment]) for segment in left):
                for segment in left:
                    del front[segment]
                known |= infos(sorted(entered))
                front |= dict.fromkeys(entered, 0)
    limits = {segment: end for segment, (_, end) in between.items()}
    return {segment: _until(known[segment], offset, limits.get(segment)) for segment, offset in front.items()}


def share_out(available: Mapping[SegmentId, int], limit: int) -> dict[SegmentId, int]:
    """Limit the segments' bytes to ``limit`` in total, in proportion, but to no less than one byte each.

    Args:
        available: available bytes of each segment; segments without any are omitted from the result.
        limit: maximum total (bytes).
    """
    total = sum(available.values())
    if total <= limit:
        return {segment: size for segment, size in available.items() if size}
    return {segment: max(1, size * limit // total) for segment, size in available.items() if size}


def _replaced(before: Epoch, after: Epoch) -> list[tuple[set[SegmentId], set[SegmentId]]]:
    """Group the segments that a scale seals and opens by key range, so that each group is replaced at once."""
    sealed = [(segment, held) for segment, held in before.segments.items() if segment not in after.segments]
    opened = [(segment, held) for segment, held in after.segments.items() if segment not in before.segments]
    groups: list[tuple[set[SegmentId], set[SegmentId]]] = []
    reach = -1.0
    for old, (segment, held) in sorted(
        [(True, one) for one in sealed] + [(False, one) for one in opened], key=lambda item: (item[1][1].low, item[0])
    ):
        if held.low >= reach:
            groups.append((set(), set()))
        groups[-1][0 if old else 1].add(segment)
        reach = max(reach, held.high)
    return groups


def _is_read(info: SegmentInfo | None, offset: int) -> bool:
    return info is None or (info.sealed and offset >= info.write_offset)


def _until(info: SegmentInfo | None, offset: int, limit: int | None) -> int:
    end = offset if info is None else info.write_offset
    return max(offset, end if limit is None else min(end, limit))


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


class PravegaDataSource(DataSource):
    """The data source ``pravega``; its options are described in docs/reference/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pravega"

    def schema(self) -> StructType:
        """Return an event's columns."""
        return schema_for(self.options, lambda given: read_options(given).columns)

    def reader(self, schema: StructType) -> PravegaReader:
        """Return a reader up to the tail that the stream has when the query is planned."""
        return PravegaReader(read_options(options_for(self.options, schema), streaming=False), schema)

    def streamReader(self, schema: StructType) -> PravegaStreamReader:  # noqa: N802  (Spark's name)
        """Return a reader of micro-batches, from one stream cut to the next."""
        return PravegaStreamReader(read_options(options_for(self.options, schema), streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> PravegaSink:
        """Return a sink that appends a data frame atomically."""
        return PravegaSink(write_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PravegaStreamSink:  # noqa: N802
        """Return a sink that appends each micro-batch exactly once."""
        return PravegaStreamSink(write_options(self.options, schema, overwrite=overwrite, streaming=True))


class PravegaReader(BatchReader[SegmentPart]):
    """Plans and reads parts of segments.

    Args:
        reading: the options.
        schema: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, schema: StructType) -> None:
        super().__init__(schema)
        self._reading = reading

    def _parts(self) -> list[SegmentPart]:
        reading = self._reading
        with reading.look() as (store, described):
            start, end = (as_cut(described, cut) for cut in (reading.from_cut, reading.to_cut))
            readable = readable_parts(reading, store, described, start, end)
            size = reading.split_size(sum(whole.end - whole.start for whole in readable))
            return [part for whole in readable for part in self._split(store, whole, size)]

    def _events(self, part: SegmentPart) -> Iterator[pa.RecordBatch]:
        return read_events(self._reading, part, self._schema)

    def _split(self, store: StreamStore, whole: SegmentPart, size: int) -> list[SegmentPart]:
        """Split a part of a segment, and leave out the parts in which no event can pass the filters."""
        segment = whole.segment
        if not self._bounds.meet(segment, whole.start, whole.end):
            return []
        high = self._bounds.stop_at(whole.end)
        part = replace(whole, high=high, emit_from=self._bounds.start_at)
        match self._reading.boundaries:
            case "walked":
                parts = known_parts(segment, part.boundaries(store, self._reading.stream, size))
                return [one for one in parts if self._bounds.meet(segment, one.start, one.high)]
            case "guessed":
                # only parts at the end may be omitted, as each proves the next
                return [one for one in part.guessed(size) if one.start < high]
            case _:
                return [part]
