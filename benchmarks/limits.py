"""The limits: loops that move the same objects or the same bytes, and do nothing else.

They use as many processes as Spark runs tasks at once. Events: each process puts and gets with as many threads as a
task has concurrent requests; payloads are views into memory, and keys are made beforehand. Requests are signed like the
product's; unlike those, they may overwrite. Chunks: read a range of a segment, put it; get it, append it in conditional
blocks. Their stream client is the product's own, because no other Python client reads byte ranges.
"""

from __future__ import annotations

import hashlib
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import obstore
from obstore.store import S3Store

from benchmarks.processes import Moved, run_together
from benchmarks.workload import Workload
from streamvault.layouts.keys import EVENT_KEYS, chunk_key
from streamvault.streamstore.framing import MAX_BLOCK_BYTES
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.servers.s3 import S3Server

RANGE_BYTES = 64 * 1024 * 1024
THREADS = 32
LISTED_AHEAD = 4000


@dataclass(frozen=True, slots=True)
class LimitJob:
    """The objects of one archive, of which process ``index`` moves its share.

    For chunks, ``uri`` is the stream, and ``digest`` says whether the bytes' SHA-256 is computed on the way.
    """

    server: S3Server
    bucket: str
    root: str
    stream: StreamName
    workload: Workload
    processes: int
    uri: str = ""
    index: int = 0
    digest: bool = False

    @property
    def segments(self) -> range:
        """Return the segments that this process moves."""
        return range(self.index, self.workload.segments, self.processes)

    def open(self) -> S3Store:
        """Open the root with obstore alone and an established connection."""
        store = open_bucket(self.server, self.bucket, self.root)
        obstore.put(store, f"warm-up-{self.index}", b"")
        return store

    def ranges(self, segment: int) -> list[tuple[int, int]]:
        """Return a segment's ranges, split as in an export of chunks."""
        length, end = self.workload.length, self.workload.share(segment) * self.workload.length
        edges = [-(-low // length) * length for low in range(0, end, RANGE_BYTES)]
        return list(zip(edges, [*edges[1:], end], strict=True))

    def key(self, segment: int, start: int, end: int) -> str:
        """Return a range's key, as in an archive of chunks."""
        prefix = f"{self.stream}/"
        return prefix + chunk_key(SegmentId(0, segment), start, end - start)


def open_bucket(server: S3Server, bucket: str, root: str) -> S3Store:
    """Open a root with obstore alone."""
    return S3Store(
        bucket,
        prefix=root,
        config={
            "endpoint": server.endpoint,
            "region": server.region,
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
            "virtual_hosted_style_request": False,
        },
        client_options={"allow_http": True, "timeout": "300s"},
    )


def put_alone(job: LimitJob) -> Moved:
    """Put the events' objects."""
    return run_together(prepare_put, _split(job))


def get_alone(job: LimitJob) -> Moved:
    """List and get the events' objects."""
    return run_together(prepare_get, _split(job))


def read_and_put(job: LimitJob) -> Moved:
    """Read the ranges and put them as chunks."""
    return run_together(_prepare_out, _split(job))


def get_and_append(job: LimitJob) -> Moved:
    """Get the chunks and append them to a new stream, the job's `uri`."""
    target, name = parse_stream(job.uri)
    with target.open() as store:
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=job.workload.segments)))
    return run_together(_prepare_back, _split(job))


def read_and_append(source: str, target: str, workload: Workload, processes: int, *, digest: bool) -> Moved:
    """Read the segments of a stream and append them to a new one.

    Args:
        source: URI of the stream.
        target: URI of the new stream.
        workload: what the stream holds.
        processes: number of processes, each of which takes its share of the segments.
        digest: whether the bytes' SHA-256 is computed on the way.
    """
    address, name = parse_stream(target)
    with address.open() as store:
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=workload.segments)))
    shares = [
        (source, target, workload, range(index, workload.segments, processes), digest) for index in range(processes)
    ]
    return run_together(_prepare_copy, shares)


def _split(job: LimitJob) -> list[LimitJob]:
    return [replace(job, index=index) for index in range(job.processes)]


def prepare_put(job: LimitJob) -> Callable[[], int]:
    """Connect and make the keys; return the timed part of one process of `put_alone`."""
    store = job.open()
    items = [item for segment in job.segments for item in job.workload.objects(job.stream, segment)]

    def put(thread: int) -> int:
        mine = items[thread::THREADS]
        for key, data in mine:
            obstore.put(store, key, data, use_multipart=False)
        return len(mine)

    return lambda: _in_threads(put)


def prepare_get(job: LimitJob) -> Callable[[], int]:
    """Connect; return the timed part of one process of `get_alone`."""
    store = job.open()
    keys: queue.Queue[str | None] = queue.Queue(LISTED_AHEAD)

    def list_() -> None:
        for segment in job.segments:
            folder = f"{job.stream}/" + EVENT_KEYS.folder(SegmentId(0, segment))
            for page in obstore.list(store, folder, chunk_size=1000):
                for entry in page:
                    keys.put(entry["path"])
        for _ in range(THREADS):
            keys.put(None)

    def get(_: int) -> int:
        count = 0
        while (key := keys.get()) is not None:
            size = len(obstore.get(store, key).bytes())
            if size != job.workload.size:
                raise RuntimeError(f"{key} has {size} bytes")
            count += 1
        return count

    def action() -> int:
        with ThreadPoolExecutor(1) as lister:
            listed = lister.submit(list_)
            count = _in_threads(get)
            listed.result()
        return count

    return action


def _in_threads(work: Callable[[int], int]) -> int:
    with ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(work, range(THREADS)))


def _prepare_out(job: LimitJob) -> Callable[[], int]:
    address, name = parse_stream(job.uri)
    source, bucket = address.open(), job.open()
    every = [(s, start, end) for s in range(job.workload.segments) for start, end in job.ranges(s)]
    mine = every[job.index :: job.processes]
    source.segment_info(name, [SegmentId(0, 0)])

    def action() -> int:
        moved = 0
        for segment, start, end in mine:
            data = bytearray()
            for block in source.read(name, SegmentId(0, segment), start, end):
                data += block
            if job.digest:
                hashlib.sha256(data).hexdigest()
            obstore.put(bucket, job.key(segment, start, end), data, use_multipart=False)
            moved += len(data)
        return moved // job.workload.length

    return action


def _prepare_back(job: LimitJob) -> Callable[[], int]:
    address, name = parse_stream(job.uri)
    target, bucket = address.open(), job.open()
    target.segment_info(name, [SegmentId(0, 0)])

    def action() -> int:
        moved = 0
        for segment in range(job.index, job.workload.segments, job.processes):
            with target.appender(name, SegmentId(0, segment)) as appender:
                for start, end in job.ranges(segment):
                    data = memoryview(obstore.get(bucket, job.key(segment, start, end)).bytes())
                    if job.digest:
                        hashlib.sha256(data).hexdigest()
                    for low in range(0, len(data), MAX_BLOCK_BYTES):
                        appender.append(data[low : low + MAX_BLOCK_BYTES])
                    moved += len(data)
        return moved // job.workload.length

    return action


def _prepare_copy(share: tuple[str, str, Workload, range, bool]) -> Callable[[], int]:
    source, target, workload, segments, is_digested = share
    (address, name), (target_address, target_name) = parse_stream(source), parse_stream(target)
    reader, writer = address.open(), target_address.open()
    reader.segment_info(name, [SegmentId(0, 0)])
    writer.segment_info(target_name, [SegmentId(0, 0)])

    def action() -> int:
        moved = 0
        for number in segments:
            segment, digest = SegmentId(0, number), hashlib.sha256()
            end = workload.share(number) * workload.length
            with writer.appender(target_name, segment) as appender:
                for block in reader.read(name, segment, 0, end):
                    data = bytes(block)
                    if is_digested:
                        digest.update(data)
                    appender.append(data)
            moved += end
        return moved // workload.length

    return action
