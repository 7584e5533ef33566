"""The naive pipelines: simple programs with the PyPI `pravega` client and boto3.

Export: read events with a reader and put each as an object, one by one or with 32 threads. Import: get each object, one
by one or with 32 threads, and write it with a writer that has up to 1,000 events in flight. Copy: write what the reader
returns. They keep no pointers, verify nothing and cannot be resumed; only their speed is compared. Creating reader,
writer and clients is not timed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import botocore.config

from benchmarks.measuring import Arm, Measured
from benchmarks.processes import Moved, run_together
from benchmarks.setting import Setting
from benchmarks.workload import Workload
from streamvault.streamstore.model import StreamName
from testkit.servers.s3 import S3Server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


NAIVE = {1: "one by one", 32: "32 threads"}
WRITES_IN_FLIGHT = 1000
SECONDS_WITHOUT_EVENTS = 60.0

T = TypeVar("T")
R = TypeVar("R")


def naive_arms(setting: Setting, workload: Workload, source: StreamName, events: int) -> dict[str, list[Arm]]:
    """Return the naive pipelines that export and import some events: first one by one, then with 32 threads."""
    found: dict[str, list[Arm]] = {}
    for verb in ("export", "import"):
        for threads, how in NAIVE.items():
            peer = _Peer(setting, workload, source, events, threads)
            found.setdefault(verb, []).append(
                Arm(f"{verb} naive, {how}", peer.export if verb == "export" else peer.restore)
            )
    return found


def naive_copy(setting: Setting, workload: Workload, source: StreamName, events: int) -> Arm:
    """Return the naive copy of some events."""
    return Arm("naive: the client's reader and writer", _Peer(setting, workload, source, events, 1).copy)


@dataclass(frozen=True, slots=True)
class _Peer:
    """Naive export and import with a number of threads."""

    setting: Setting
    workload: Workload
    source: StreamName
    events: int
    threads: int

    def export(self, repeat: int) -> Measured:
        return self._measured(_export(self._job(self.source, repeat)))

    def restore(self, repeat: int) -> Measured:
        target = self.setting.stream(f"naive-{self.threads}-{repeat}")
        measured = self._measured(_restore(self._job(target, repeat)))
        self.setting.drop(target, measured.bytes)
        return measured

    def copy(self, repeat: int) -> Measured:
        target = self.setting.stream(f"naive-copy-{repeat}")
        measured = self._measured(run_together(_prepare_copy, [(self._job(self.source, repeat), target)]))
        self.setting.drop(target, measured.bytes)
        return measured

    def _job(self, stream: StreamName, repeat: int) -> _Job:
        return _Job(
            controller=self.setting.controller,
            stream=stream,
            server=self.setting.s3,
            bucket=self.setting.bucket,
            prefix=f"{repeat}/naive-{self.threads}",
            events=self.events,
            segments=self.workload.segments,
            threads=self.threads,
        )

    def _measured(self, moved: Moved) -> Measured:
        if moved.events != self.events:
            raise RuntimeError(f"{moved.events} events were moved instead of {self.events}")
        return Measured(self.events, self.events * self.workload.length, moved.seconds)


@dataclass(frozen=True, slots=True)
class _Job:
    """One run of the naive pipeline. It counts events, as the client's reader does not report the end of a stream."""

    controller: str
    stream: StreamName
    server: S3Server
    bucket: str
    prefix: str
    events: int
    segments: int
    threads: int

    def client(self) -> S3Client:
        """Return a boto3 client with a connection for each thread."""
        return self.server.session().client(
            "s3",
            endpoint_url=self.server.endpoint,
            config=botocore.config.Config(max_pool_connections=self.threads, s3={"addressing_style": "path"}),
        )


def _export(job: _Job) -> Moved:
    """Export the stream."""
    return run_together(_prepare_export, [job])


def _restore(job: _Job) -> Moved:
    """Import the objects into a new stream."""
    return run_together(_prepare_restore, [job])


def _prepare_export(job: _Job) -> Callable[[], int]:
    client = job.client()
    reader = _Reader(job)

    def put(item: tuple[int, bytes]) -> None:
        number, payload = item
        client.put_object(Bucket=job.bucket, Key=f"{job.prefix}/{number:012d}", Body=payload)

    return lambda: sum(1 for _ in _each(put, enumerate(reader.events(job.events)), job.threads))


def _prepare_restore(job: _Job) -> Callable[[], int]:
    client = job.client()
    writer = _Writer(job)

    def keys() -> Iterator[str]:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=job.bucket, Prefix=f"{job.prefix}/")
        return (entry["Key"] for page in pages for entry in page.get("Contents", ()))

    def get(key: str) -> bytes:
        return client.get_object(Bucket=job.bucket, Key=key)["Body"].read()

    def action() -> int:
        count = 0
        for payload in _each(get, keys(), job.threads):
            writer.write(payload)
            count += 1
        writer.flush()
        return count

    return action


def _prepare_copy(what: tuple[_Job, StreamName]) -> Callable[[], int]:
    job, target = what
    reader, writer = _Reader(job), _Writer(replace(job, stream=target))

    def action() -> int:
        count = 0
        for payload in reader.events(job.events):
            writer.write(payload)
            count += 1
        writer.flush()
        return count

    return action


class _Reader:
    """The client's reader, with its manager: it stops working when the manager is collected."""

    def __init__(self, job: _Job) -> None:
        self._manager = _manager(job)
        self._group = self._manager.create_reader_group(f"naive-{uuid4().hex}", job.stream.scope, job.stream.stream)
        self._reader = self._group.create_reader("reader")

    def events(self, count: int) -> Iterator[bytes]:
        """Yield the next ``count`` events; at the end of a stream the reader returns empty slices forever."""
        loop = asyncio.new_event_loop()
        try:
            while count:
                found = loop.run_until_complete(self._next())
                for event in found:
                    yield event.data()
                    count -= 1
                    if not count:
                        break
                self._reader.release_segment(found)
            self._reader.reader_offline()
        finally:
            loop.close()

    async def _next(self) -> Any:
        return await asyncio.wait_for(self._reader.get_segment_slice_async(), SECONDS_WITHOUT_EVENTS)


class _Writer:
    """The client's writer to a new stream, with its manager: it stops working when the manager is collected."""

    def __init__(self, job: _Job) -> None:
        self._manager = _manager(job)
        self._manager.create_scope(job.stream.scope)
        self._manager.create_stream(job.stream.scope, job.stream.stream, job.segments)
        self._writer = self._manager.create_writer(job.stream.scope, job.stream.stream, WRITES_IN_FLIGHT)

    def write(self, payload: bytes) -> None:
        self._writer.write_event_bytes(payload)

    def flush(self) -> None:
        self._writer.flush()


def _manager(job: _Job) -> Any:
    import pravega_client  # type: ignore[import-untyped]  # noqa: PLC0415  (it starts threads)

    return pravega_client.StreamManager(f"tcp://{job.controller}")


def _each(work: Callable[[T], R], items: Iterator[T], threads: int) -> Iterator[R]:
    """Yield the results in order, with twice as many items in flight as there are threads."""
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) == 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
