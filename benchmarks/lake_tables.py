"""The peer of a handoff: the same rows, written by pyarrow from memory, and a table registered over them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.setting import Setting
from lake.batches import EVENT_SCHEMA
from streamstore.framing import frame_many
from streamstore.model import HEADER_BYTES, Scaling, SegmentId, StreamConfiguration, StreamName

__all__ = ["SCHEMA", "Readings", "rows_in_memory", "write_by_hand"]

COUNTRIES = ("CH", "DE", "FR", "IT", "AT", "LI")
SCHEMA = pa.schema(
    [*EVENT_SCHEMA, ("id", pa.int64()), ("country", pa.string()), ("x", pa.float64()), ("text", pa.string())]
)
"""Columns of both tables, without those for undecodable payloads and for the generation."""

ROW_GROUP_ROWS = 256 * 1024
FILE_ROWS = 1_000_000


class Readings:
    """A stream of JSON events.

    Args:
        events: number of events.
        size: approximate payload size (bytes).
        segments: number of segments.
    """

    def __init__(self, events: int, size: int, segments: int) -> None:
        self.events = events
        self.size = size
        self.segments = segments

    def numbers(self, segment: int) -> range:
        """Return the numbers of a segment's events."""
        return range(segment, self.events, self.segments)

    def fill(self, setting: Setting, stream: StreamName) -> int:
        """Create the stream; return the bytes of its segments."""
        store, size = setting.store, 0
        store.create_scope(stream.scope)
        store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=self.segments)))
        for segment in range(self.segments):
            with store.appender(stream, SegmentId(0, segment)) as appender:
                for block in frame_many(self.payload(number) for number in self.numbers(segment)):
                    appender.append(block)
                size += appender.flush()
        return size

    def payload(self, number: int) -> bytes:
        """Return an event's payload."""
        return json.dumps(self.fields(number)).encode()

    def fields(self, number: int) -> dict[str, object]:
        """Return an event's fields; the text does not compress well."""
        text = f"{number * 2654435761 % 2**64:x}" * (self.size // 16)
        return {"id": number, "country": COUNTRIES[number % 6], "x": number % 1009 / 8, "text": text[: self.size - 60]}


def rows_in_memory(readings: Readings, stream: StreamName) -> Iterator[pa.Table]:
    """Yield all rows, already decoded, about a million at a time."""
    for segment in range(readings.segments):
        offset, rows = 0, []
        for number in readings.numbers(segment):
            payload = readings.payload(number)
            length = HEADER_BYTES + len(payload)
            own = {
                "scope": stream.scope,
                "stream": stream.stream,
                "epoch": 0,
                "segment": segment,
                "offset": offset,
                "length": length,
                "pointer": f"{stream}/{segment}.#epoch.0:{offset}-{length}",
                "payload": payload,
            }
            rows.append({**own, **readings.fields(number)})
            offset += length
            if len(rows) == 50_000:
                yield pa.Table.from_pylist(rows, SCHEMA)
                rows = []
        if rows:
            yield pa.Table.from_pylist(rows, SCHEMA)


def write_by_hand(tables: list[pa.Table], folder: str, filesystem: pa.fs.FileSystem) -> float:
    """Write rows with pyarrow's fastest method, one file per `FILE_ROWS` rows; return the seconds."""
    began = time.monotonic()
    held = pa.concat_tables(tables)
    for number, start in enumerate(range(0, len(held), FILE_ROWS)):
        pq.write_table(
            held.slice(start, FILE_ROWS),
            f"{folder}/part-{number:05d}.parquet",
            row_group_size=ROW_GROUP_ROWS,
            compression="zstd",
            filesystem=filesystem,
        )
    return time.monotonic() - began
