"""Copies of streams compared with a plain loop over the same bytes, with an export and an import, and with a client."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial

from benchmarks.limits import read_and_append
from benchmarks.measuring import Arm, Measured, interleave, spread
from benchmarks.naive import naive_copy
from benchmarks.product import Outcome, run_command
from benchmarks.results import Results, beside, size_text, spread_text, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting, parallelism
from benchmarks.workload import Workload

__all__ = ["HELP", "add_arguments", "run"]

HELP = "copies of streams beside the bare loop over the same bytes"
SEGMENTS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks copying``."""
    parser.add_argument(
        "--workload",
        nargs="+",
        default=("1000000x100", "400000x1024", "1000000x1024"),
        metavar="EVENTSxBYTES",
        help="streams of 4 segments (1000000x100 400000x1024 1000000x1024)",
    )
    parser.add_argument("--naive-events", type=int, default=20000, help="how many the naive copy moves (20000)")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, interleaved (default 3)")
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="minio", help="S3 server (default minio)")
    parser.add_argument("--quick", action="store_true", help="20 MB, one repeat: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure each stream on new servers; add a table for each."""
    if arguments.quick:
        arguments.workload, arguments.naive_events, arguments.repeats = ("20000x1024",), 500, 1
    for text in arguments.workload:
        workload = Workload.parse(text, SEGMENTS)
        with open_setting(arguments.s3, quick=arguments.quick) as setting:
            results.describe(setting.describe())
            _compare(setting, workload, arguments.naive_events, arguments.repeats, results)


def _compare(setting: Setting, workload: Workload, naive_events: int, repeats: int, results: Results) -> None:
    copies = _Copies(setting, workload)
    workload.fill(setting.store, copies.source)
    copies.loop(-1, digest=False)  # reads the source once, so that its data are equally cached for all arms
    loop, digested = "the loop: read, append", "the loop with a digest"
    detour, naive = "export and import, on Spark", naive_copy(setting, workload, copies.source, naive_events)
    arms = [
        Arm(loop, partial(copies.loop, digest=False)),
        Arm(digested, partial(copies.loop, digest=True)),
        Arm("**streamvault copy**, on Spark", copies.copy),
        Arm("the whole command `streamvault copy`", copies.copy_whole),
        Arm(detour, copies.detour),
        naive,
    ]
    found = interleave(arms, repeats, setting.settle)
    title = f"copies, {workload.events:,} events of {size_text(workload.size)}"
    rows = [
        (
            *beside(found, arm.name, loop, (digested, detour, naive.name)),
            spread_text(spread([one.megabytes_per_second for one in found[arm.name]]), 0),
        )
        for arm in arms
    ]
    heads = (title, "of the loop", "of it with a digest", "times export and import", "times naive", "MB/s")
    figures = {name: [asdict(measured) for measured in found[name]] for name in found}
    results.add(title, table(heads, rows), figures)


class _Copies:
    """The arms, over one stream."""

    def __init__(self, setting: Setting, workload: Workload) -> None:
        self._setting = setting
        self._workload = workload
        self.source = setting.stream("source")

    def loop(self, repeat: int, *, digest: bool) -> Measured:
        """Copy by the bare loop."""
        target = self._setting.stream(f"looped-{digest}-{repeat}")
        source_uri, target_uri = (self._setting.stream_uri(stream) for stream in (self.source, target))
        events, seconds = read_and_append(source_uri, target_uri, self._workload, parallelism(), digest=digest)
        self._setting.drop(target, self._workload.bytes)
        return self._workload.measured(events, events * self._workload.length, seconds)

    def copy(self, repeat: int) -> Measured:
        """Copy; the time of Spark's tasks, without Spark's start."""
        report = self._copied(f"copied-{repeat}", head_start=False).report
        return self._measured(report["bytes"], report["seconds"])

    def copy_whole(self, repeat: int) -> Measured:
        """Copy; the total time of the command with its default options."""
        outcome = self._copied(f"copied-whole-{repeat}", head_start=True)
        return self._measured(outcome.report["bytes"], outcome.seconds)

    def detour(self, repeat: int) -> Measured:
        """Export chunks, and import them; the time of Spark's tasks."""
        setting, root, target = self._setting, f"{repeat}/detour", self._setting.stream(f"detour-{repeat}")
        exported = setting.export(self.source, root, "--layout", "chunks").report
        restored = setting.restore(self.source, root, target, self._workload.bytes).report
        return self._measured(restored["bytes"], exported["seconds"] + restored["seconds"])

    def _copied(self, name: str, *, head_start: bool) -> Outcome:
        target = self._setting.stream(name)
        uris = [self._setting.stream_uri(stream) for stream in (self.source, target)]
        outcome = run_command("copy", *uris, environment={}, head_start=head_start)
        self._setting.drop(target, self._workload.bytes)
        return outcome

    def _measured(self, size: int, seconds: float) -> Measured:
        return self._workload.measured(size // self._workload.length, size, seconds)
