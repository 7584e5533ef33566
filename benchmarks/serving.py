"""Memory of `serve` under many readers, each somewhere else in the archive; its speed beside a real Pravega's."""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.measuring import Arm, Measured, interleave, ratio, say, spread
from benchmarks.product import PeakWatch
from benchmarks.results import Results, spread_text, table
from benchmarks.setting import open_setting
from benchmarks.workload import Workload
from streamvault import check_archive, export_stream
from streamvault.serving.cache import LEAST_CACHE
from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import HEADER_BYTES, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Connection, Endpoint, PravegaSettings
from streamvault.streamstore.pravega.controller import Controller
from testkit.servers.java_client import JavaClient, server_at

HELP = "memory of a server under many readers at different places; reads by the Java client beside a real Pravega's"

PARTS = ("memory", "speed")

NAME, SEGMENT = StreamName("benchmark", "source"), SegmentId(0, 0)

MIB = 1024 * 1024

ARCHIVES: dict[str, dict[str, Any]] = {
    "chunks, checksums in the index": {"layout": "chunks"},
    "chunks, checksums noted by a check": {"layout": "chunks", "old": True, "check": True},
    "chunks without checksums": {"layout": "chunks", "old": True},
    "zstd chunks without checksums": {"layout": "chunks", "compress": "zstd", "old": True},
    "chunks, `--verify sha256`": {"layout": "chunks", "verify": "sha256"},
    "events": {"layout": "events"},
}
"""What is served; as an earlier release has archived it if ``old``, so without checksums of blocks in the index."""


SEGMENTS = 4
PRAVEGA = "a real Pravega"
SERVED: dict[str, tuple[list[str], list[str]]] = {
    "serve, all in its cache": (["--layout", "chunks"], ["--cache", "2GiB"]),
    "serve, chunks": (["--layout", "chunks"], []),
    "serve, zstd chunks": (["--layout", "chunks", "--compress", "zstd"], []),
}
"""The archives whose speed is measured, with the options of their export and of `serve`; the first is read before."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a server took.

    Attributes:
        began: its memory before anybody read (bytes).
        peak: most of its memory (bytes).
        budget: most of the budget that was taken, as it counts itself (bytes).
        read: bytes that all readers got.
        ranges: how often a range was read whole.
    """

    began: int
    peak: int
    budget: int
    read: int
    ranges: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="what is measured (both)")
    parser.add_argument("--mib", type=int, default=1024, metavar="N", help="size of the stream (1024)")
    parser.add_argument("--readers", type=int, default=100, metavar="N", help="connections (100)")
    parser.add_argument("--seconds", type=float, default=60, metavar="N", help="of each archive (60)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each read, in turns (3)")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add a table for each part."""
    if "memory" in arguments.part:
        _memory(arguments, results)
    if "speed" in arguments.part:
        _speed(arguments, results)


def _memory(arguments: argparse.Namespace, results: Results) -> None:
    size, readers, seconds = arguments.mib, arguments.readers, arguments.seconds
    if arguments.quick:
        size, readers, seconds = 8, 5, 1
    results.describe({"server": f"`--cache {LEAST_CACHE // MIB}MiB`", "readers": f"{readers}, of {size} MiB"})
    event = frame(random.Random(0).randbytes(64 * 1024 - 8))
    rows, figures = [], {}
    with TemporaryDirectory() as folder:
        with LocalStore(Path(folder) / "streams") as store:
            store.create_stream_and_scope(NAME, StreamConfiguration())
            with store.appender(NAME, SEGMENT) as appender:
                for _ in range(size):
                    appender.append(event * (MIB // len(event)))
        for number, (title, how) in enumerate(ARCHIVES.items()):
            options = _archive(folder, f"{folder}/{number}", how)
            held = _measured(options, size * MIB, readers, seconds, event)
            say(f"  {title}: {held}")
            figures[title] = asdict(held)
            more = held.peak - LEAST_CACHE
            cells = (f"{value / MIB:,.0f}" for value in (held.began, held.peak, more, held.budget, held.read))
            rows.append((title, *cells, f"{held.ranges:,}"))
    heads = ("archive", "MiB at first", "at most", "above `--cache`", "of the budget", "MiB read", "ranges read whole")
    results.add("serving", table(heads, rows), figures)


def _speed(arguments: argparse.Namespace, results: Results) -> None:
    """Read a stream of 1 KiB events by the Java client, from Pravega, which has all in its cache, and from archives."""
    events, repeats = (1_000, 1) if arguments.quick else (arguments.mib * 1024, arguments.repeats)
    with ExitStack() as stack:
        setting = stack.enter_context(open_setting("minio", quick=arguments.quick))
        results.describe(setting.describe())
        stream, workload = setting.stream("source"), Workload(events, 1024 - HEADER_BYTES, SEGMENTS)
        workload.fill(setting.store, stream)
        java = JavaClient.compile(Path(stack.enter_context(TemporaryDirectory())))
        uris = {PRAVEGA: setting.pravega.uri}
        for number, (name, (exported, options)) in enumerate(SERVED.items()):
            root = f"vault{number}"
            setting.export(stream, root, *exported)
            served = _server([f"{setting.root_uri(root)}/{stream}", *options], setting.s3.environment())
            uris[name] = stack.enter_context(served).uri

        def read(uri: str, how: str, _: int) -> Measured:
            at = server_at(uri, setting.pravega.classpath)
            count, _size, seconds = java.run("ReadSpeed", at, stream, how, events)[-1].split()
            return workload.measured(int(count), workload.bytes, float(seconds))

        for uri in (setting.pravega.uri, uris[next(iter(SERVED))]):
            read(uri, "batch", 0)
        kinds = ("batch", "group")
        arms = [Arm(f"{name}, {how}", partial(read, uri, how)) for how in kinds for name, uri in uris.items()]
        found = interleave(arms, repeats, setting.settle)
    rows = []
    for how in kinds:
        for name in uris:
            speeds = spread([one.megabytes_per_second for one in found[f"{name}, {how}"]])
            of = spread_text(ratio(found, f"{name}, {how}", f"{PRAVEGA}, {how}"), 2)
            rows.append((f"{name}, {how}", "1" if name == PRAVEGA else of, spread_text(speeds, 0)))
    figures = {name: [asdict(one) for one in held] for name, held in found.items()}
    results.add("speed", table((f"{events:,} events of 1 KiB", "of Pravega's speed", "MB/s"), rows), figures)


def _archive(folder: str, root: str, how: dict[str, Any]) -> list[str]:
    """Archive the stream; return the arguments with which it is served."""
    Path(root).mkdir()
    with patch("streamvault.manifests.index.MAX_WITH_BLOCKS", 0 if how.get("old") else 1 << 40):
        what = {"layout": how["layout"], "compress": how.get("compress", "")}
        export_stream(f"local://{folder}/streams/{NAME}", root, master="inline[2]", **what)
    if how.get("check") and not check_archive(f"{root}/{NAME}", read_data=True, master="inline[2]").ok:
        raise RuntimeError("the archive is damaged")
    return [f"{root}/{NAME}", "--verify", how.get("verify", "blocks")]


def _measured(options: list[str], size: int, readers: int, seconds: float, event: bytes) -> Held:
    with _server([*options, "--cache", str(LEAST_CACHE)]) as served, PeakWatch(served.process.pid) as watch:
        process, endpoint = served.process, served.endpoint(NAME, SEGMENT)
        time.sleep(1)
        began, most = watch.peaks.driver, 0
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(readers) as pool:
            reading = [pool.submit(_read, endpoint, size, end, event, number) for number in range(readers)]
            while time.monotonic() < end:
                most = max(most, served.budget())
                time.sleep(0.2)
            read = sum(one.result() for one in reading)
        time.sleep(1)
        process.terminate()
        report = json.loads(process.communicate()[0])
        return Held(began, watch.peaks.driver, most, read, report["ranges_read"])


@dataclass(frozen=True, slots=True)
class _Served:
    """A server that runs; `metrics` is the port of its metrics."""

    process: subprocess.Popen[str]
    uri: str
    metrics: int

    def endpoint(self, stream: StreamName, segment: SegmentId) -> Endpoint:
        with closing(Controller(PravegaSettings.from_environment(self.uri))) as controller:
            return controller.endpoint(stream, segment)

    def budget(self) -> int:
        """Return how much of the budget is taken (bytes)."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/status", timeout=60) as answer:
            return int(json.load(answer)["cache_bytes"])


@contextmanager
def _server(options: list[str], environment: Mapping[str, str] | None = None) -> Iterator[_Served]:
    """Serve an archive while the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamvault", "serve", *options, "--json"]
    command += ["--listen", "0", "--metrics-port", str(port)]
    variables = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            yield _Served(process, json.loads((process.stdout or sys.stdin).readline())["uri"], port)
        finally:
            process.terminate()


def _read(endpoint: Endpoint, size: int, end: float, event: bytes, seed: int) -> int:
    """Begin anywhere and read on for a few MiB, again and again; return how many bytes were read.

    Raises:
        RuntimeError: other bytes than those of the stream.
    """
    chance, read = random.Random(seed), 0
    twice = memoryview(event * (2 + MIB // len(event)))
    with closing(Connection(endpoint, timeout=600)) as connection:
        while time.monotonic() < end:
            at = chance.randrange(size)
            for _ in range(chance.randrange(1, 16)):
                connection.send(
                    wire.encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", at, MIB, "", connection.request_id()))
                )
                answer = connection.receive()
                data = answer.data if isinstance(answer, wire.SegmentRead) else b""
                if not data or data != twice[at % len(event) :][: len(data)]:
                    raise RuntimeError(f"other bytes at {at}: {answer!r:.300}")
                at, read = at + len(data), read + len(data)
                if at == size or time.monotonic() >= end:
                    break
    return read
