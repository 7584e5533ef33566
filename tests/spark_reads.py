"""Batch reads of Spark's data sources, simulated without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from streamvault.spark.pravega_source import PravegaDataSource
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import HEADER_BYTES, EventPointer, Scaling, SegmentId, StreamConfiguration, StreamCut
from testkit.small_archives import NAME
from testkit.streams import append_events

FIRST = SegmentId(0, 0)
Events = list[tuple[EventPointer, bytes]]


def uri(tmp_path: Path) -> str:
    return f"local://{tmp_path}/streams/{NAME}"


def text(cut: StreamCut) -> str:
    return json.dumps(cut.to_json())


def schema_of(columns: str) -> StructType:
    kinds = {"binary": BinaryType(), "string": StringType(), "int": IntegerType()}
    pairs = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


def single(store: LocalStore, events: list[bytes], segments: int = 1) -> None:
    store.create_scope(NAME.scope)
    store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=segments)))
    for number in range(segments):
        append_events(store, NAME, SegmentId(0, number), events)


def source(tmp_path: Path, **options: str) -> PravegaDataSource:
    return PravegaDataSource({"path": uri(tmp_path), **options})


def read(source: Any, filters: list[Filter] | None = None) -> tuple[list[Any], Events]:
    """The partitions of a batch read, and all rows that they return."""
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(filters or [])) == (filters or [])
    partitions = reader.partitions()
    return partitions, [event for one in partitions for event in events_in(reader.read(one))]


def events_in(batches: Iterator[pa.RecordBatch]) -> Events:
    """The events in batches of all columns, each of which must say the same of an event."""
    return [
        (_pointer_in(row), row["payload"]) for batch in batches for row in pa.Table.from_batches([batch]).to_pylist()
    ]


def _pointer_in(row: dict[str, Any]) -> EventPointer:
    pointer = EventPointer.parse(row["pointer"])
    segment, length = pointer.segment, HEADER_BYTES + len(row["payload"])
    named = {"scope": pointer.stream.scope, "stream": pointer.stream.stream, "pointer": str(pointer)}
    placed = {"epoch": segment.epoch, "segment": segment.number, "offset": pointer.offset, "length": length}
    assert row == {**named, **placed, "payload": row["payload"]}
    assert pointer.length == length
    return pointer
