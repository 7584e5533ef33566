"""Where a benchmark runs: the servers, and what has to be said of the machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import psutil

from benchmarks.measuring import say
from streamstore.model import StreamName
from streamstore.store import StreamStore
from streamstore.uri import parse_stream
from tests.servers.minio import MinioServer
from tests.servers.pravega import PravegaServer
from tests.servers.s3 import S3Server
from tests.servers.versitygw import VersityServer

__all__ = ["S3_SERVERS", "Setting", "open_setting", "parallelism"]

SCOPE = "benchmark"
SETTLE_SECONDS = 20.0
CACHE_MIB = 4096
"""Of Pravega's cache. With 1 GiB, and 4 of heap, it stops taking data for seconds while a gigabyte is written: that is
what would be measured then."""

IDLE_SHARE = 0.25
"""Servers that take less of one core than this are idle: a Pravega that nobody asks for anything takes 0.1 to 0.2."""

S3_SERVERS = {"minio": MinioServer, "versitygw": VersityServer}


def parallelism() -> int:
    """How many tasks Spark's ``local[*]`` runs at once here."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Setting:
    """Running servers, both new and empty.

    Attributes:
        pravega: the streams' server. s3, s3_pid: the objects' server. bucket: one that is there.
        store: our client of the streams' server.
        quick: whether it is only to be seen that a benchmark runs, so that nothing need come to rest.
    """

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
        """The name of a stream of the benchmark."""
        return StreamName(SCOPE, name)

    def stream_uri(self, stream: StreamName) -> str:
        """As the command takes it."""
        return f"{self.pravega.uri}/{stream}"

    def root_uri(self, root: str) -> str:
        """As the command takes it."""
        return f"s3://{self.bucket}/{root}"

    def settle(self) -> None:
        """Wait until the servers have finished what they were given: flushed, moved to long-term storage, deleted."""
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
        """What the figures depend on."""
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
def open_setting(s3: str, heap: str = "10g", *, quick: bool = False) -> Iterator[Setting]:
    """Start a Pravega with room for the benchmarks and an S3 server.

    Args:
        s3: ``minio`` or ``versitygw``.
        heap: of Pravega's Java; this server keeps its log in memory.
        quick: as of `Setting`; and Pravega is started quickly.

    Raises:
        Unavailable: a server can't be had.
    """
    say(f"starting Pravega and {s3}")
    program = S3_SERVERS[s3]()
    with PravegaServer(heap=heap, cache_mib=CACHE_MIB, quick=quick) as pravega, program as server:
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
