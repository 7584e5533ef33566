"""Time of export, rotation and import by the number of segments; processor time of one process, the embedded store."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.results import Results, table
from streamvault import export_stream, import_stream, rotate_stream
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from tests.streams import append_events

__all__ = ["HELP", "add_arguments", "run"]

HELP = "streams of many segments with a few events each"
NAME = StreamName("shop", "orders")
EVENTS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    numbers = [1_000, 2_000, 5_000, 10_000]
    parser.add_argument("--segments", type=int, nargs="+", default=numbers, metavar="N", help="how many (%(default)s)")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure each number of segments, and add the table."""
    rows = []
    for count in arguments.segments:
        with tempfile.TemporaryDirectory() as folder:
            rows.append([f"{count:,}", *(f"{seconds:.1f}" for seconds in _measure(Path(folder), count))])
    results.describe({"events of each segment": str(EVENTS)})
    results.add("segments", table(["segments", "export (s)", "rotate (s)", "import (s)"], rows), rows)


def _measure(base: Path, count: int) -> list[float]:
    source, root = f"local://{base}/source/{NAME}", f"file://{base}/vault"
    with LocalStore(base / "source") as store:
        store.create_scope(NAME.scope)
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=count)))
        for segment in store.describe(NAME).tail.offsets:
            append_events(store, NAME, segment, [b"a few bytes"] * EVENTS)
    return [
        _seconds(lambda: export_stream(source, root, layout="chunks", master="inline")),
        _seconds(lambda: rotate_stream(source, root, layout="chunks", truncate_source=True, master="inline")),
        _seconds(lambda: import_stream(f"{root}/{NAME}", f"local://{base}/target/{NAME}", master="inline")),
    ]


def _seconds(verb: Callable[[], object]) -> float:
    began = time.process_time()
    verb()
    return time.process_time() - began
