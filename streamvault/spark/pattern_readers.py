"""Read all streams of a scope whose names match a pattern, for the format ``pravega``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from streamvault.sources.identity import AnotherSource
from streamvault.spark.batch_reader import BatchReader, PartPartition
from streamvault.spark.columns import EventColumns
from streamvault.spark.options import Reading
from streamvault.spark.pravega_reader import (
    DataLoss,
    PravegaReader,
    PravegaStreamReader,
    SegmentPart,
    cut_in,
    limit_of,
    read_events,
    share_out,
)
from streamvault.streamstore.errors import NoSuchStream
from streamvault.streamstore.model import StreamCut, StreamName


class PatternReader(BatchReader[tuple[Reading, SegmentPart]]):
    """Plans and reads parts of segments of all streams of a scope whose names match a pattern.

    Args:
        reading: the options.
        columns: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, columns: EventColumns) -> None:
        super().__init__(columns)
        self._reading = reading

    def parts(self) -> Iterator[tuple[Reading, SegmentPart]]:
        """Yield the parts in which events may pass the filters, each with the options for its stream."""
        for reading in self._reading.matching().values():
            for part in PravegaReader(reading, self._columns, self._bounds).parts():
                yield reading, part

    def _events(self, part: tuple[Reading, SegmentPart]) -> Iterator[pa.RecordBatch]:
        return read_events(*part, self._columns.own)


@dataclass
class _Limits(ReadLimit):
    """Both limits of a stream that shares them with others."""

    max_bytes: int
    max_rows: int


class PatternStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows all streams of a scope whose names match a pattern.

    An offset is the offset of each stream, by its full name. A stream that is new joins with its head, in a batch that
    has none of its events yet, so that the checkpoint says where it begins. One that is not listed keeps its offset as
    long as it exists: if it joined again, its events would be read twice. If the query goes on after losses, one that
    was deleted leaves, and joins again if it was created again.

    Args:
        reading: the options.
        columns: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, columns: EventColumns) -> None:
        self._reading = reading
        self._columns = columns
        self._readers: dict[str, PravegaStreamReader] = {}
        self._names: set[str] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return where a query without a checkpoint begins, in each stream that there is."""
        return {name: self._of(name).initialOffset() for name in self._reading.matching()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """See `PravegaStreamReader`; the streams share the limit."""
        return limit_of(self._reading)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the batch that begins at ``start`` ends; ``start`` itself if there is nothing to read.

        Raises:
            DataLoss, AnotherSource: a stream was deleted, or created again, and the query fails if so.
        """
        reading, there = self._reading, self._reading.matching()
        gone = [name for name in start if name not in there]
        if gone and reading.fail_on_data_loss:
            todo = "Set failOnDataLoss to false to continue without it."
            raise DataLoss("the stream was deleted, or is no longer matched", where=gone[0], todo=todo)
        ends = {name: start[name] for name in gone if self._exists(name)}
        for name, at in start.items():
            if name in there:
                with self._without_it(name):
                    ends[name] = self._of(name).latestOffset(at, ReadAllAvailable())
        if not isinstance(limit, ReadAllAvailable):
            available = {name: size for name, end in ends.items() if (size := self._size(name, start[name], end))}
            total = sum(available.values())
            sizes = share_out(available, total if reading.max_bytes is None else reading.max_bytes)
            counts = share_out(sizes, total if reading.max_events is None else reading.max_events)
            for name, size in sizes.items():
                del ends[name]
                with self._without_it(name):
                    ends[name] = self._of(name).latestOffset(start[name], _Limits(size, counts[name]))
        for name, one in there.items():
            if name not in start and (self._names is None or name in self._names):
                with self._without_it(name):
                    new = PravegaStreamReader(replace(one, from_cut="earliest"), self._columns)
                    ends[name] = new.initialOffset()
        return start if ends == start else ends

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the streams' tails, for the query's progress."""
        return {name: self._of(name).reportLatestOffset() for name in self._reading.matching()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop the query at the current tails of the streams that there are."""
        self._names = set(self._reading.matching())
        for name in self._names:
            self._of(name).prepareForTriggerAvailableNow()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a batch's parts, which contain the same events for the same two offsets."""
        parts: list[InputPartition] = []
        for name in sorted(start.keys() & end.keys()):
            if start[name] != end[name]:
                with self._without_it(name):
                    found = self._of(name).partitions(start[name], end[name])
                    parts += [PartPartition((self._reading.of(name), one.part)) for one in found]  # type: ignore[attr-defined]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a part's events."""
        assert isinstance(partition, PartPartition)  # noqa: S101
        reading, part = partition.part
        return self._columns.of(read_events(reading, part, self._columns.own))

    @contextmanager
    def _without_it(self, name: str) -> Iterator[None]:
        """Leave a stream out that was deleted, or created again, unless the query fails if so."""
        try:
            yield
        except (NoSuchStream, AnotherSource):
            self._readers.pop(name, None)
            if self._reading.fail_on_data_loss:
                raise

    def _exists(self, name: str) -> bool:
        with self._reading.address.lend() as store:
            return store.exists(StreamName.parse(name))

    def _of(self, name: str) -> PravegaStreamReader:
        if name not in self._readers:
            self._readers[name] = PravegaStreamReader(self._reading.of(name), self._columns)
        return self._readers[name]

    def _size(self, name: str, start: dict[str, Any], end: dict[str, Any]) -> int:
        """Return how many bytes a stream has between two offsets, unless some were truncated."""
        before, after = (StreamCut.from_json(cut_in(at), self._reading.of(name).stream).offsets for at in (start, end))
        return sum(at - before.get(segment, 0) for segment, at in after.items())
