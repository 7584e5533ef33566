"""Memory of `serve` under many readers, each somewhere else in the archive, without other servers."""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.measuring import say
from benchmarks.product import PeakWatch
from benchmarks.results import Results, table
from streamvault import check_archive, export_stream
from streamvault.serving.cache import LEAST_CACHE
from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Connection, Endpoint, PravegaSettings
from streamvault.streamstore.pravega.controller import Controller

HELP = "memory of a server under many readers at different places; needs no other server"

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
    parser.add_argument("--mib", type=int, default=1024, metavar="N", help="size of the stream (1024)")
    parser.add_argument("--readers", type=int, default=100, metavar="N", help="connections (100)")
    parser.add_argument("--seconds", type=float, default=60, metavar="N", help="of each archive (60)")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add a table."""
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
    with _server(options) as (process, endpoint, budget), PeakWatch(process.pid) as watch:
        time.sleep(1)
        began, most = watch.peaks.driver, 0
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(readers) as pool:
            reading = [pool.submit(_read, endpoint, size, end, event, number) for number in range(readers)]
            while time.monotonic() < end:
                most = max(most, budget())
                time.sleep(0.2)
            read = sum(one.result() for one in reading)
        time.sleep(1)
        process.terminate()
        report = json.loads(process.communicate()[0])
        return Held(began, watch.peaks.driver, most, read, report["ranges_read"])


@contextmanager
def _server(options: list[str]) -> Iterator[tuple[subprocess.Popen[str], Endpoint, Callable[[], int]]]:
    """Serve an archive; yield the process, its segment store, and what asks how much of the budget is taken."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamvault", "serve", *options, "--cache", str(LEAST_CACHE), "--json"]
    command += ["--listen", "0", "--metrics-port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            uri = json.loads((process.stdout or sys.stdin).readline())["uri"]
            with closing(Controller(PravegaSettings.from_environment(uri))) as controller:
                endpoint = controller.endpoint(NAME, SEGMENT)

            def budget() -> int:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=60) as answer:
                    return int(json.load(answer)["cache_bytes"])

            yield process, endpoint, budget
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
