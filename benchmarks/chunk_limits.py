"""The limit for chunks: a loop that moves the same bytes, without Spark, plan, proof or digests.

It uses as many processes as Spark runs tasks at once. Export: read a range of a segment, put it with obstore. Import:
get it with obstore, append it in conditional blocks. The stream client is the product's own, because no other Python
client reads byte ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import obstore

from benchmarks.limits import open_alone
from benchmarks.processes import run_together
from benchmarks.workload import Workload
from layouts.keys import archive_prefix, chunk_key
from streamstore.framing import MAX_BLOCK_BYTES
from streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamstore.uri import parse_stream
from tests.servers.s3 import S3Server

__all__ = ["RANGE_BYTES", "ChunksJob", "get_and_append", "read_and_put"]

RANGE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChunksJob:
    """Ranges of a stream whose events are all of one size.

    Attributes:
        uri: URI of the stream.
        server: the S3 server.
        bucket: the bucket.
        root: the archive's root in the bucket.
        stream: the archived stream.
        workload: contents of the stream.
        processes: number of processes that share the work.
        index: number of this process.
    """

    uri: str
    server: S3Server
    bucket: str
    root: str
    stream: StreamName
    workload: Workload
    processes: int
    index: int = 0

    def ranges(self, segment: int) -> list[tuple[int, int]]:
        """Return a segment's ranges, split as in an export."""
        length, end = self.workload.length, self.workload.share(segment) * self.workload.length
        edges = [-(-low // length) * length for low in range(0, end, RANGE_BYTES)]
        return list(zip(edges, [*edges[1:], end], strict=True))

    def key(self, segment: int, start: int, end: int) -> str:
        """Return a range's key, as in an archive."""
        prefix = archive_prefix(self.stream.scope, self.stream.stream)
        return prefix + chunk_key(SegmentId(0, segment), start, end - start)


def read_and_put(job: ChunksJob) -> tuple[int, float]:
    """Export the stream; return events and seconds."""
    return run_together(_prepare_out, _split(job))


def get_and_append(job: ChunksJob) -> tuple[int, float]:
    """Import the chunks into a new stream, the job's `uri`; return events and seconds."""
    target, name = parse_stream(job.uri)
    with target.open() as store:
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=job.workload.segments)))
    return run_together(_prepare_back, _split(job))


def _split(job: ChunksJob) -> list[ChunksJob]:
    return [replace(job, index=index) for index in range(job.processes)]


def _prepare_out(job: ChunksJob) -> Callable[[], int]:
    address, name = parse_stream(job.uri)
    source, bucket = address.open(), open_alone(job.server, job.bucket, job.root, job.index)
    every = [(s, start, end) for s in range(job.workload.segments) for start, end in job.ranges(s)]
    mine = every[job.index :: job.processes]
    source.segment_info(name, [SegmentId(0, 0)])

    def action() -> int:
        moved = 0
        for segment, start, end in mine:
            data = bytearray()
            for block in source.read(name, SegmentId(0, segment), start, end):
                data += block
            obstore.put(bucket, job.key(segment, start, end), data, use_multipart=False)
            moved += len(data)
        return moved // job.workload.length

    return action


def _prepare_back(job: ChunksJob) -> Callable[[], int]:
    address, name = parse_stream(job.uri)
    target, bucket = address.open(), open_alone(job.server, job.bucket, job.root, job.index)
    target.segment_info(name, [SegmentId(0, 0)])

    def action() -> int:
        moved = 0
        for segment in range(job.index, job.workload.segments, job.processes):
            with target.appender(name, SegmentId(0, segment)) as appender:
                for start, end in job.ranges(segment):
                    data = memoryview(obstore.get(bucket, job.key(segment, start, end)).bytes())
                    for low in range(0, len(data), MAX_BLOCK_BYTES):
                        appender.append(data[low : low + MAX_BLOCK_BYTES])
                    moved += len(data)
        return moved // job.workload.length

    return action
