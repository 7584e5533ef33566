"""A table written with pyarrow and obstore alone, from an archive's chunks: the limit of a handoff.

It reads the same objects, computes the same digests and writes the same rows, decoded or not: with pyarrow's own
defaults but for the compression, in as many processes as Spark runs tasks. It compares no digest, handles no payload
that does not parse, and publishes nothing. An event's own columns are computed by the product, or they would differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.json
import pyarrow.parquet as pq

from benchmarks.limits import open_bucket
from benchmarks.processes import Moved, run_together
from streamvault.lake.read import EVENT_SCHEMA, event_batches
from streamvault.layouts.keys import CHUNK_KEYS
from streamvault.streamstore.model import SegmentId, StreamName
from testkit.servers.s3 import S3Server

FILE_CHUNKS = 4
"""Chunks in a file: 256 MiB, as in a handoff; each is a row group."""

FIELDS = pa.schema([("id", pa.int64()), ("country", pa.string()), ("x", pa.float64()), ("text", pa.string())])
"""The fields that are decoded."""

SCHEMA = pa.schema([*EVENT_SCHEMA, *FIELDS])
"""Columns of both tables, without those for undecodable payloads and for the generation."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """The table of an archive of chunks, of which process ``index`` writes its share of the files."""

    server: S3Server
    bucket: str
    root: str
    stream: StreamName
    segments: int
    folder: str
    is_decoded: bool
    processes: int
    index: int = 0


def write_by_hand(job: ByHand) -> Moved:
    """Write the table."""
    return run_together(_prepare, [replace(job, index=index) for index in range(job.processes)])


def _prepare(job: ByHand) -> Callable[[], int]:
    """Connect and list the chunks; return the timed part of one process."""
    source = open_bucket(job.server, job.bucket, job.root)
    target = pa.fs.S3FileSystem(**_access(job.server))
    _decoded(pa.array([b"{}"]))  # loads what a table needs
    files = []
    for number in range(job.segments):
        folder = f"{job.stream}/" + CHUNK_KEYS.folder(SegmentId(0, number))
        keys = sorted(entry["path"] for page in obstore.list(source, folder) for entry in page)
        files += [(number, keys[at : at + FILE_CHUNKS]) for at in range(0, len(keys), FILE_CHUNKS)]

    def action() -> int:
        rows = 0
        for place in range(job.index, len(files), job.processes):
            number, keys = files[place]
            name = f"{job.bucket}/{job.folder}/part-{place:05d}.parquet"
            schema = SCHEMA if job.is_decoded else EVENT_SCHEMA
            with pq.ParquetWriter(name, schema, compression="zstd", filesystem=target) as writer:
                for key in keys:
                    chunk = _rows(job, SegmentId(0, number), key, memoryview(obstore.get(source, key).bytes()))
                    writer.write_table(chunk, row_group_size=len(chunk))
                    rows += len(chunk)
        return rows

    return action


def _access(server: S3Server) -> dict[str, str]:
    """Return the arguments with which pyarrow opens the server."""
    return {
        "access_key": server.access_key,
        "secret_key": server.secret_key,
        "endpoint_override": server.endpoint,
        "region": server.region,
    }


def _rows(job: ByHand, segment: SegmentId, key: str, data: memoryview) -> pa.Table:
    hashlib.sha256(data).hexdigest()
    start = int(key.rpartition("/")[2].partition("-")[0])
    batches = list(event_batches(job.stream, segment, start, [data]))
    if not job.is_decoded:
        return pa.Table.from_batches(batches)
    return pa.concat_tables(
        pa.Table.from_arrays([*batch.columns, *_decoded(batch["payload"]).columns], schema=SCHEMA) for batch in batches
    )


def _decoded(payloads: pa.Array) -> pa.Table:
    texts = payloads.cast(pa.string())
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
    return pyarrow.json.read_json(
        pa.BufferReader(joined),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(joined) + 1024),
        pyarrow.json.ParseOptions(explicit_schema=FIELDS, unexpected_field_behavior="ignore"),
    )
