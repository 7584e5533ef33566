"""Export and import compared with the limit and the naive pipeline, in one run on real servers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.limits import LimitJob, get_alone, put_alone
from benchmarks.measuring import Arm, Measured, interleave, spread
from benchmarks.naive import naive_arms
from benchmarks.processes import Moved
from benchmarks.results import Results, beside, size_text, spread_text, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting, parallelism
from benchmarks.workload import Workload
from streamvault.streamstore.model import StreamName

HELP = "export and import beside the limit and the naive pipeline"

SIZES = (100, 1024)
SEGMENTS_PER_TASK = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks export_import``."""
    parser.add_argument("--events", type=int, default=40_000, help="events of the stream (default 40000)")
    parser.add_argument("--naive-events", type=int, default=4000, help="how many the naive pipelines move (4000)")
    parser.add_argument("--size", type=int, nargs="+", default=SIZES, metavar="BYTES", help="payloads (100 1024)")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, interleaved (default 3)")
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="minio", help="S3 server (default minio)")
    parser.add_argument("--quick", action="store_true", help="2000 events, one repeat: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure each payload size on new servers; add two tables for each."""
    if arguments.quick:
        arguments.events, arguments.naive_events, arguments.repeats = 2000, 500, 1
    for size in arguments.size:
        with open_setting(arguments.s3, quick=arguments.quick) as setting:
            results.describe(setting.describe())
            workload = Workload(arguments.events, size, SEGMENTS_PER_TASK * parallelism())
            naive_events = min(arguments.naive_events, workload.events)
            _Comparison(setting, workload, naive_events, quick=arguments.quick).run(arguments.repeats, results)


class _Comparison:
    """Comparison for one payload size."""

    def __init__(self, setting: Setting, workload: Workload, naive_events: int, *, quick: bool) -> None:
        self._setting = setting
        self._workload = workload
        self._naive_events = naive_events
        self._source = setting.stream("source")
        self._few = Workload(workload.segments, workload.size, workload.segments)
        self._source_of_few = setting.stream("few")
        self._quick = quick
        self._limit = f"obstore alone, {parallelism()} processes with 32 threads each"

    def run(self, repeats: int, results: Results) -> None:
        self._workload.fill(self._setting.store, self._source)
        self._few.fill(self._setting.store, self._source_of_few)
        naive = naive_arms(self._setting, self._workload, self._source, self._naive_events)
        export, restore = "**streamvault export**", "**streamvault import**"
        put, get = f"the limit: put by {self._limit}", f"the limit: list and get by {self._limit}"
        arms = [
            Arm(put, self._put_alone),
            Arm(export, partial(self._export, self._source, self._workload)),
            *naive["export"],
            Arm(get, self._get_alone),
            Arm(restore, partial(self._import, self._source, self._workload)),
            *naive["import"],
        ]
        if not self._quick:
            few = (self._source_of_few, self._few)
            arms += [Arm(_few("export"), partial(self._export, *few)), Arm(_few("import"), partial(self._import, *few))]
        found = interleave(arms, repeats, self._setting.settle)
        size = size_text(self._workload.size)
        for verb, ours, limit in (("export", export, put), ("import", restore, get)):
            peers = [arm.name for arm in reversed(naive[verb])]
            rows = [_row(found, name, limit=limit, peers=peers) for name in (limit, ours, *peers)]
            title, times = f"{verb}, {size} events", [f"times {name.removeprefix(f'{verb} ')}" for name in peers]
            heads = (title, "of the limit", *times, "events/s", "MB/s")
            names = [name for name in (limit, ours, *peers, _few(verb)) if name in found]
            figures = {name: [asdict(measured) for measured in found[name]] for name in names}
            text = table(heads, rows)
            if not self._quick:
                fixed = spread_text(spread([one.seconds for one in found[_few(verb)]]), 1)
                text += f"\n\nWhat every {verb} costs beside its events (one of {self._few.events} events): {fixed} s."
            results.add(title, text, figures)

    def _objects(self, root: str) -> LimitJob:
        setting = self._setting
        return LimitJob(setting.s3, setting.bucket, root, self._source, self._workload, parallelism())

    def _put_alone(self, repeat: int) -> Measured:
        return self._moved(put_alone(self._objects(f"{repeat}/limit")))

    def _get_alone(self, repeat: int) -> Measured:
        return self._moved(get_alone(self._objects(f"{repeat}/vault")))

    def _export(self, source: StreamName, workload: Workload, repeat: int) -> Measured:
        return _reported(self._setting.export(source, f"{repeat}/vault").report, workload)

    def _import(self, source: StreamName, workload: Workload, repeat: int) -> Measured:
        target = self._setting.stream(f"{source.stream}-restored-{repeat}")
        return _reported(self._setting.restore(source, f"{repeat}/vault", target, workload.bytes).report, workload)

    def _moved(self, moved: Moved) -> Measured:
        return self._workload.moved(moved)


def _few(verb: str) -> str:
    return f"streamvault {verb} of a few events"


def _reported(report: dict[str, Any], workload: Workload) -> Measured:
    return workload.measured(report["events"], report["bytes"], report["seconds"])


def _row(found: dict[str, list[Measured]], name: str, *, limit: str, peers: Sequence[str]) -> list[str]:
    return [
        *beside(found, name, limit, peers),
        spread_text(spread([one.events_per_second for one in found[name]]), 0),
        spread_text(spread([one.megabytes_per_second for one in found[name]]), 2),
    ]
