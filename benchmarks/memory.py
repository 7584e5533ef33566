"""Peak memory of a task, for small and large events, short and long streams."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from itertools import product

from benchmarks.measuring import say
from benchmarks.product import PEAKS, Outcome
from benchmarks.results import Results, size_text, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting, parallelism
from benchmarks.workload import Workload

__all__ = ["HELP", "add_arguments", "move", "run"]

HELP = "the greatest memory of a task"

MB = 1_000_000
MIB = 1024 * 1024
SIZES = (1024, 8 * MIB)
LAYOUTS: dict[str, tuple[str, ...]] = {
    "events": (),
    "chunks": ("--layout", "chunks"),
    "zstd": ("--layout", "chunks", "--compress", "zstd"),
}
STREAMS = (10 * MB, 1000 * MB)
SEGMENT_BYTES = 64 * MIB
"""Longer streams get more segments: versitygw lists folders of several 100,000 objects slowly."""
QUICK_STREAMS = (10 * MB, 100 * MB)
QUICK_SIZES = (8 * MIB,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks memory``."""
    parser.add_argument("--size", type=int, nargs="+", default=SIZES, metavar="BYTES", help="payloads (1024 8388608)")
    parser.add_argument("--stream", type=int, nargs="+", default=STREAMS, metavar="BYTES", help="streams (10 MB, 1 GB)")
    parser.add_argument(
        "--layout", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="layouts (default: events chunks zstd)"
    )
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="versitygw", help="S3 server (default versitygw)")
    parser.add_argument("--quick", action="store_true", help="only the large events, 10 and 100 MB of stream")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Export and import each combination; add one table."""
    if arguments.quick:
        arguments.size, arguments.stream = QUICK_SIZES, QUICK_STREAMS
    rows, figures = [], []
    with open_setting(arguments.s3, quick=arguments.quick) as setting:
        results.describe(setting.describe())
        for size, length, layout in product(arguments.size, arguments.stream, arguments.layout):
            segments = max(parallelism(), length // SEGMENT_BYTES)
            workload = Workload(max(length // size, segments), size, segments)
            for verb, outcome in move(setting, workload, f"{size}-{length}-{layout}", LAYOUTS[layout]):
                peaks = outcome.peaks
                say(f"  {verb} {layout} {workload.events:,} of {size_text(size)}: {peaks}")
                figures.append(
                    {"verb": verb, "layout": layout, "size": size, "events": workload.events, **asdict(peaks)}
                )
                rows.append(
                    (
                        f"{verb}, {layout}, {size_text(size)} events",
                        f"{workload.bytes / MB:,.0f} MB",
                        *peaks.cells,
                    )
                )
    heads = ("", "stream", *PEAKS)
    results.add("memory", table(heads, rows), figures)


def move(setting: Setting, workload: Workload, name: str, options: tuple[str, ...]) -> list[tuple[str, Outcome]]:
    """Export and import a new stream while watching the commands' memory; return both outcomes with their verbs."""
    source, target = setting.stream(f"source-{name}"), setting.stream(f"target-{name}")
    workload.fill(setting.store, source)
    setting.settle()
    exported = setting.export(source, name, *options, watch=True)
    setting.settle()
    setting.store.delete(source)
    imported = setting.restore(source, name, target, workload.bytes, watch=True)
    for outcome in (exported, imported):
        if outcome.report["events"] != workload.events:
            raise RuntimeError(f"the command moved something else: {outcome.report}")
        if not outcome.peaks.task:
            raise RuntimeError("no process of a task was seen")
    return [("export", exported), ("import", imported)]
