"""The format ``pravega`` in streaming queries: micro-batches between stream cuts, which are the offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from streamvault.spark.advancing import advance, share_out
from streamvault.spark.columns import arrow_schema
from streamvault.spark.reading import Reading
from streamvault.spark.selecting import as_cut, infos_if_there, readable_parts
from streamvault.spark.slices import SegmentSlice, SlicePartition, known_slices, read_slice, walked_boundaries
from streamvault.streamstore.arithmetic.cuts import is_before
from streamvault.streamstore.arithmetic.walking import EventWalk
from streamvault.streamstore.model import LARGEST_EVENT_BYTES, SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.store import StreamStore


class PravegaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads them. An offset is a stream cut, as JSON: ``{"scope/stream/N.#epoch.E": offset}``.

    Args:
        reading: the options.
        schema: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._schema = arrow_schema(schema)
        self._until: StreamCut | None = reading.to_cut if isinstance(reading.to_cut, StreamCut) else None
        self._boundaries: dict[tuple[SegmentId, int, int], list[int]] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  (Spark's name)
        """Return where a query without a checkpoint begins."""
        with self._reading.address.lend() as store:
            described = store.describe(self._reading.stream)
            start = as_cut(described, self._reading.from_cut)
            fails = self._reading.fail_on_data_loss
            readable_parts(described, store, start, described.tail, fail_on_data_loss=fails)
            return start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit set by ``maxBytesPerTrigger``."""
        most = self._reading.max_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return where the batch that begins at ``start`` ends; ``start`` itself if there is nothing to read."""
        reading = self._reading
        with reading.address.lend() as store:
            described = store.describe(reading.stream)
            begin = StreamCut.from_json(start, reading.stream)
            infos = partial(infos_if_there, store, reading.stream)
            ahead = advance(described, infos, begin, self._until)
            end = StreamCut(reading.stream, ahead)
            # raise before Spark records the batch
            readable_parts(described, store, begin, end, fail_on_data_loss=reading.fail_on_data_loss)
            if isinstance(limit, ReadMaxBytes):
                end = StreamCut(reading.stream, self._bounded(store, begin, ahead, limit.max_bytes))
            return end.to_json()

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Return the stream's tail, for the query's progress."""
        with self._reading.address.lend() as store:
            return store.describe(self._reading.stream).tail.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop the query at the stream's current tail."""
        with self._reading.address.lend() as store:
            described = store.describe(self._reading.stream)
            # the query's own end may lie before the tail
            self._until = _earlier(described, self._until, described.tail)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return a batch's slices, which contain the same events for the same two cuts."""
        reading = self._reading
        with reading.address.lend() as store:
            described = store.describe(reading.stream)
            begin, until = (StreamCut.from_json(cut, reading.stream) for cut in (start, end))
            found = readable_parts(described, store, begin, until, fail_on_data_loss=reading.fail_on_data_loss)
            return [SlicePartition(one) for part in found for one in self._cut(store, *part)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a slice's events."""
        reading = self._reading
        assert isinstance(partition, SlicePartition)  # noqa: S101
        with reading.address.lend() as store:
            yield from read_slice(
                store, reading.stream, partition.part, self._schema, fail_on_data_loss=reading.fail_on_data_loss
            )

    def _bounded(
        self,
        store: StreamStore,
        begin: StreamCut,
        ahead: dict[SegmentId, int],
        most: int,
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
        self._boundaries.clear()
        for segment, size in shares.items():
            walk = EventWalk(
                store,
                reading.stream,
                segment,
                start=low[segment],
                high=min(low[segment] + size, ahead[segment]),
                segment_end=ahead[segment],
                largest=LARGEST_EVENT_BYTES,
            )
            found = walked_boundaries(walk, reading.range_size)
            ends[segment] = walk.end
            self._boundaries[segment, low[segment], walk.end] = found
        return ends

    def _cut(self, store: StreamStore, segment: SegmentId, start: int, end: int) -> list[SegmentSlice]:
        found = self._boundaries.get((segment, start, end))
        if found is None and self._reading.boundaries == "walked":
            walk = EventWalk(
                store,
                self._reading.stream,
                segment,
                start=start,
                high=end,
                segment_end=end,
                largest=LARGEST_EVENT_BYTES,
            )
            found = walked_boundaries(walk, self._reading.range_size)
        return known_slices(segment, found or [start, end])


def _earlier(described: StreamDescription, requested: StreamCut | None, tail: StreamCut) -> StreamCut:
    """Return the query's own end if it lies before the tail for every key; else the tail."""
    return requested if requested is not None and is_before(described, requested, tail) else tail
