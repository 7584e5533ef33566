"""Archives of streams that were scaled often: the manifest's size, seconds and memory, without servers.

The streams are in the embedded store, which writes its record of all scales anew with each one; so their records are
made at once. Each open segment has an event.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.product import Outcome, run_command
from benchmarks.results import Results, table
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.folder import load_record, save_record
from streamvault.streamstore.model import (
    EpochChange,
    Epochs,
    KeyRange,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamName,
)
from testkit.streams import append_events

HELP = "time, memory and the manifest's size of streams with many epochs; needs no server"

NAME = StreamName("benchmark", "source")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--epochs", type=int, nargs="+", default=[100, 1_000, 10_000], metavar="N", help="scales")
    parser.add_argument("--segments", type=int, default=1_000, metavar="N", help="segments of each epoch (1000)")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add a table."""
    segments, counts = (10, [20]) if arguments.quick else (arguments.segments, arguments.epochs)
    results.describe({"stream": f"about {segments} segments in each epoch"})
    rows, figures = [], {}
    for count in counts:
        size, found = _measured(segments, count)
        figures[str(count)] = {name: [one.seconds, one.processor_seconds] for name, one in found.items()}
        for name, one in found.items():
            wrote = f"{size[name] / 1e6:.2f} MB" if name in size else ""
            cells = f"{one.processor_seconds:.1f}", f"{one.seconds:.1f}", f"{one.peaks.driver / 2**20:.0f} MiB", wrote
            rows.append((f"{count:,}", name, *cells))
    heads = ("epochs", "command", "processor seconds", "seconds", "memory", "manifest")
    results.add("epochs", table(heads, rows), figures)


def _measured(segments: int, count: int) -> tuple[dict[str, int], dict[str, Outcome]]:
    with TemporaryDirectory() as folder:
        streams, root = Path(folder) / "streams", f"file://{folder}/vault"
        stream, archive = f"local://{streams}/{NAME}", f"{root}/{NAME}"
        with LocalStore(streams) as store:
            store.create_scope(NAME.scope)
            store.create_stream(NAME, StreamConfiguration(Scaling.never(segments)))
            record = load_record(streams / str(NAME), NAME)
            save_record(streams / str(NAME), replace(record, epochs=scaled(record.epochs, count)))
            for segment in store.describe(NAME).epochs[-1].segments:
                append_events(store, NAME, segment, [b"x" * 200])

        def ran(*words: str) -> Outcome:
            return run_command(*words, environment={}, watch=True)

        found = {"export, the first": ran("export", stream, root, "--master", "inline[2]")}
        with LocalStore(streams) as store:
            segment, keys = next(iter(store.describe(NAME).epochs[-1].segments.items()))
            middle = (keys.low + keys.high) / 2
            store.scale(NAME, [segment], [KeyRange(keys.low, middle), KeyRange(middle, keys.high)])
        found["export, after one more scale"] = ran("export", stream, root, "--master", "inline[2]")
        found["check"] = ran("check", archive)
        found["ls"] = ran("ls", root)
        manifests = sorted((Path(folder) / "vault" / str(NAME) / "_manifest").glob("*0[12].json"))
        return {name: one.stat().st_size for name, one in zip(found, manifests, strict=False)}, found


def scaled(epochs: Epochs, count: int) -> Epochs:
    """Return epochs with further ones, which split a segment and merge two in turn."""
    rng = random.Random(1)
    changes, current = list(epochs.changes), list(epochs[-1].segments.items())
    number = max(segment.number for segment, _ in current) + 1
    for epoch in range(len(changes), len(changes) + count):
        at = rng.randrange(len(current) - 1)
        low, high = current[at][1].low, current[at][1].high
        middle = low + (high - low) * rng.uniform(0.4, 0.6)
        old, new = (1, [(low, middle), (middle, high)]) if epoch % 2 else (2, [(low, current[at + 1][1].high)])
        opened = [(SegmentId(epoch, number + place), KeyRange(*keys)) for place, keys in enumerate(new)]
        changes.append(EpochChange(dict(current[at : at + old]), dict(opened)))
        current[at : at + old], number = opened, number + len(opened)
    return Epochs.of(changes)
