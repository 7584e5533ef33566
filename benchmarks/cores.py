"""How long a core works for a gigabyte, and for a million objects: the constants of ``streamvault plan``.

Processor seconds hardly depend on what else the machine does. Each figure is the difference of a long run and one of a
few events, so that a command's start is not in it.
"""

from __future__ import annotations

import argparse
from statistics import median

from benchmarks.measuring import say
from benchmarks.product import run_command
from benchmarks.results import Results, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting
from benchmarks.workload import Workload

HELP = "seconds of a core for a gigabyte and for a million objects"
FEW = Workload(4, 1024, 1)
VERBS = ("export", "import", "check --read-data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--s3", choices=S3_SERVERS, default="minio")
    parser.add_argument("--chunks", default="250000x1024", metavar="EVENTSxBYTES")
    parser.add_argument("--events", default="8000x1024", metavar="EVENTSxBYTES")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Run the benchmark."""
    long = {"chunks": Workload.parse(arguments.chunks, 2), "events": Workload.parse(arguments.events, 2)}
    repeats = arguments.repeats
    if arguments.quick:
        long, repeats = {"chunks": Workload(1000, 1024, 2), "events": Workload(100, 1024, 2)}, 1
    with open_setting(arguments.s3, "4g", cache_mib=1024, quick=arguments.quick) as setting:
        rows, figures = [], {}
        for layout, workload in long.items():
            unit = workload.bytes / 1e9 if layout == "chunks" else workload.events / 1e6
            turns = [_difference(setting, layout, workload, turn) for turn in range(repeats)]
            of = "a gigabyte, chunks" if layout == "chunks" else "a million objects of 1 KiB, events"
            rows.append((of, *(f"{median(turn[verb] for turn in turns) / unit:.2f}" for verb in VERBS)))
            figures[layout] = turns
        results.describe(setting.describe())
        results.add("seconds of a core", table(["seconds of a core for", *VERBS], rows), figures)


def _difference(setting: Setting, layout: str, workload: Workload, turn: int) -> dict[str, float]:
    one, few = (_used(setting, layout, each, f"{layout}-{turn}-{each.events}") for each in (workload, FEW))
    return {verb: one[verb] - few[verb] for verb in VERBS}


def _used(setting: Setting, layout: str, workload: Workload, name: str) -> dict[str, float]:
    say(name)
    stream = setting.stream(name)
    workload.fill(setting.store, stream)
    exported = setting.export(stream, name, "--layout", layout, "--master", "inline[2]")
    restored = setting.restore(
        stream, name, setting.stream(f"{name}-restored"), workload.bytes, "--master", "inline[2]"
    )
    archive = f"{setting.root_uri(name)}/{stream}"
    checked = run_command(
        "check", archive, "--read-data", "--master", "inline[2]", environment=setting.s3.environment()
    )
    setting.store.delete(stream)
    found = (exported, restored, checked)
    return {verb: outcome.processor_seconds for verb, outcome in zip(VERBS, found, strict=True)}
