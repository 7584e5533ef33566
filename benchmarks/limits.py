"""The limit: the same client library that puts and gets the same objects, and does nothing else.

It uses as many processes as Spark runs tasks at once, each with as many threads as a task has concurrent requests.
Payloads are views into memory, and keys are made beforehand. Requests are signed like the product's; unlike those, they
may overwrite.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import obstore
from obstore.store import S3Store

from benchmarks.processes import run_together
from benchmarks.workload import Workload
from layouts.keys import EVENT_KEYS, archive_prefix
from streamstore.model import SegmentId, StreamName
from tests.servers.s3 import S3Server

__all__ = ["ObjectsJob", "get_alone", "open_alone", "prepare_get", "prepare_put", "put_alone"]

THREADS = 32
LISTED_AHEAD = 4000


@dataclass(frozen=True, slots=True)
class ObjectsJob:
    """The objects of some segments of one archive.

    Attributes:
        server: the S3 server.
        bucket: the bucket.
        root: the archive's root in the bucket.
        stream: the archived stream.
        workload: contents of the stream.
        processes: number of processes that share the work.
        index: number of this process.
    """

    server: S3Server
    bucket: str
    root: str
    stream: StreamName
    workload: Workload
    processes: int
    index: int = 0

    @property
    def segments(self) -> range:
        """Return the segments that this process moves."""
        return range(self.index, self.workload.segments, self.processes)

    def open(self) -> S3Store:
        """Open the root with an established connection."""
        return open_alone(self.server, self.bucket, self.root, self.index)


def open_alone(server: S3Server, bucket: str, root: str, index: int) -> S3Store:
    """Open a root with obstore alone and an established connection."""
    store = S3Store(
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
    obstore.put(store, f"warm-up-{index}", b"")
    return store


def put_alone(job: ObjectsJob) -> tuple[int, float]:
    """Put the archive's objects; return their number and the seconds."""
    return run_together(prepare_put, _split(job))


def get_alone(job: ObjectsJob) -> tuple[int, float]:
    """List and get the archive's objects; return their number and the seconds."""
    return run_together(prepare_get, _split(job))


def _split(job: ObjectsJob) -> list[ObjectsJob]:
    return [
        ObjectsJob(job.server, job.bucket, job.root, job.stream, job.workload, job.processes, index)
        for index in range(job.processes)
    ]


def prepare_put(job: ObjectsJob) -> Callable[[], int]:
    """Connect and make the keys; return the timed part of one process of `put_alone`."""
    store = job.open()
    items = [item for segment in job.segments for item in job.workload.objects(job.stream, segment)]

    def put(thread: int) -> int:
        mine = items[thread::THREADS]
        for key, data in mine:
            obstore.put(store, key, data, use_multipart=False)
        return len(mine)

    return lambda: _in_threads(put)


def prepare_get(job: ObjectsJob) -> Callable[[], int]:
    """Connect; return the timed part of one process of `get_alone`."""
    store = job.open()
    keys: queue.Queue[str | None] = queue.Queue(LISTED_AHEAD)

    def list_() -> None:
        for segment in job.segments:
            folder = archive_prefix(job.stream.scope, job.stream.stream) + EVENT_KEYS.folder(SegmentId(0, segment))
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
