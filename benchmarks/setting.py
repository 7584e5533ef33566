"""Environment of a benchmark: the servers, and a description of the machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from benchmarks.measuring import say
from benchmarks.product import Outcome, run_command
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.minio import MinioServer
from testkit.servers.pravega import PravegaServer
from testkit.servers.s3 import S3Server
from testkit.servers.versitygw import VersityServer

SCOPE = "benchmark"
SETTLE_SECONDS = 20.0
CACHE_MIB = 4096
"""Size of Pravega's cache. With 1 GiB, and a heap of 4 GiB, Pravega stops accepting data for seconds while a gigabyte
is written, which would dominate the measurement."""

IDLE_SHARE = 0.25
"""Servers that use less than this share of one core are idle: Pravega without requests uses 0.1 to 0.2."""

S3_SERVERS = {"minio": MinioServer, "versitygw": VersityServer}


def parallelism() -> int:
    """Return the number of tasks that Spark's ``local[*]`` runs at once on this machine."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Setting:
    """Running servers, new and empty; a ``quick`` setting does not wait until they are idle."""

    pravega: PravegaServer
    s3: S3Server
    s3_pid: int
    bucket: str
    store: StreamStore
    quick: bool = False

    @property
    def controller(self) -> str:
        """``HOST:PORT`` of Pravega's controller."""
        return self.pravega.uri.partition("://")[2]

    def stream(self, name: str) -> StreamName:
        """Return the full name of a stream of the benchmark."""
        return StreamName(SCOPE, name)

    def stream_uri(self, stream: StreamName) -> str:
        """Return a stream's URI for the command."""
        return f"{self.pravega.uri}/{stream}"

    def root_uri(self, root: str) -> str:
        """Return a root's URI for the command."""
        return f"s3://{self.bucket}/{root}"

    def export(self, source: StreamName, root: str, *options: str, **how: Any) -> Outcome:
        """Run ``streamvault export`` to a root; ``how`` is as for `run_command`."""
        arguments = (self.stream_uri(source), self.root_uri(root), *options)
        return run_command("export", *arguments, environment=self.s3.environment(), **how)

    def restore(
        self, source: StreamName, root: str, target: StreamName, size: int, *options: str, **how: Any
    ) -> Outcome:
        """Run ``streamvault import`` into a new stream, check its size (bytes) and delete it; see `export`."""
        arguments = (f"{self.root_uri(root)}/{source}", self.stream_uri(target), *options)
        outcome = run_command("import", *arguments, environment=self.s3.environment(), **how)
        self.drop(target, size)
        return outcome

    def drop(self, stream: StreamName, expected: int) -> None:
        """Check a restored stream's size (bytes), and delete the stream."""
        held = sum(self.store.describe(stream).tail.offsets.values())
        if held != expected:
            raise RuntimeError(f"{stream} holds {held} bytes instead of {expected}")
        self.store.delete(stream)

    def settle(self) -> None:
        """Wait until the servers have finished background work: flushes, moves to long-term storage, deletions."""
        if self.quick:
            return
        servers = [psutil.Process(pid) for pid in (self.s3_pid, self.pravega.process.pid)]
        deadline = time.monotonic() + SETTLE_SECONDS
        os.sync()
        while time.monotonic() < deadline:
            before = _cpu_seconds(servers)
            time.sleep(1)
            if _cpu_seconds(servers) - before < IDLE_SHARE:
                return

    def describe(self) -> dict[str, str]:
        """Return the properties on which the figures depend."""
        memory = psutil.virtual_memory().total / 2**30
        return {
            "machine": f"{parallelism()} cores ({_processor()}), {memory:.0f} GiB, {platform.system()}",
            "servers": f"Pravega 0.13.0 and {self.s3.name}, on the same machine",
            "clients": ", ".join(
                f"{name} {version(name)}" for name in ("streamvault", "pyspark", "obstore", "boto3", "pravega")
            )
            + f", Python {platform.python_version()}",
            "load": f"{os.getloadavg()[0]:.1f} runnable processes in the minute before",
        }


@contextmanager
def open_setting(s3: str, heap: str = "10g", *, cache_mib: int = CACHE_MIB, quick: bool = False) -> Iterator[Setting]:
    """Start a Pravega with room for the benchmarks and an S3 server.

    Args:
        s3: ``minio`` or ``versitygw``.
        heap: Java heap of Pravega, which keeps its log in memory here.
        cache_mib: its cache outside the heap (MiB).
        quick: as for `Setting`; also starts Pravega faster.

    Raises:
        Unavailable: a server is not available.
    """
    say(f"starting Pravega and {s3}")
    program = S3_SERVERS[s3]()
    with PravegaServer(heap=heap, cache_mib=cache_mib, quick=quick) as pravega, program as server:
        bucket = server.make_bucket(f"benchmark-{uuid4().hex[:8]}")
        address, _ = parse_stream(f"{pravega.uri}/{SCOPE}/any")
        with address.open() as store:
            yield Setting(pravega, server, program.process.pid, bucket, store, quick)


def _cpu_seconds(servers: Sequence[psutil.Process]) -> float:
    times = [server.cpu_times() for server in servers]
    return sum(float(one.user + one.system) for one in times)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
