"""Copies and appends of streams beside a plain loop over the same bytes; copies' memory; a resume near the end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from benchmarks.limits import read_and_append
from benchmarks.measuring import Arm, Measured, interleave, say, spread
from benchmarks.naive import naive_copy
from benchmarks.product import PEAKS, run_command
from benchmarks.results import BESIDE_LOOPS, Results, beside_loops, size_text, spread_text, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting, parallelism
from benchmarks.workload import Workload
from streamvault.streamstore.errors import NoSuchSegment, NoSuchStream
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName

HELP = "copies and appends of streams beside the bare loop over the same bytes, their memory, a resume"
SEGMENTS = 4
MB = 1_000_000
SIZE = 1024
KILLED_AT = 0.98
"""Share of the bytes at which a copy is killed; some more are appended until then."""
POLL_SECONDS = 0.02
LOOPS = ("the loop: read, append", "the loop with a digest")
FIXED = ("seconds", "processor_seconds")
PARTS = ("speed", "append", "memory", "resume")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks copying``."""
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="tables (default: all)")
    parser.add_argument(
        "--workload",
        nargs="+",
        default=("1000000x100", "400000x1024", "1000000x1024"),
        metavar="EVENTSxBYTES",
        help="streams of 4 segments (1000000x100 400000x1024 1000000x1024)",
    )
    parser.add_argument(
        "--stream",
        type=int,
        nargs="+",
        default=(10 * MB, 1000 * MB, 4000 * MB),
        metavar="BYTES",
        help="streams for the memory (10 MB, 1 GB, 4 GB); the second is resumed, too",
    )
    parser.add_argument("--naive-events", type=int, default=20000, help="how many the naive copy moves (20000)")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, interleaved (default 3)")
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="minio", help="S3 server (default minio)")
    parser.add_argument("--quick", action="store_true", help="20 MB, one repeat: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure each stream on new servers; add a table for each."""
    if arguments.quick:
        arguments.workload, arguments.naive_events, arguments.repeats = ("20000x1024",), 500, 1
        arguments.stream = (10 * MB, 40 * MB)
    if "speed" in arguments.part:
        for text in arguments.workload:
            workload = Workload.parse(text, SEGMENTS)
            with open_setting(arguments.s3, quick=arguments.quick) as setting:
                results.describe(setting.describe())
                _compare(setting, workload, arguments.naive_events, arguments.repeats, results)
    if "append" in arguments.part:
        workload = Workload.parse(arguments.workload[min(1, len(arguments.workload) - 1)], SEGMENTS)
        with open_setting(arguments.s3, quick=arguments.quick) as setting:
            results.describe(setting.describe())
            _append(setting, workload, arguments.repeats, results)
    if {"memory", "resume"} & set(arguments.part):
        with open_setting(arguments.s3, "4g" if arguments.quick else "12g", quick=arguments.quick) as setting:
            results.describe(setting.describe())
            if "resume" in arguments.part:
                _resume(setting, arguments.stream[1], arguments.repeats, results)
            if "memory" in arguments.part:
                _memory(setting, arguments.stream, results)


def _compare(setting: Setting, workload: Workload, naive_events: int, repeats: int, results: Results) -> None:
    copies = _Copies(setting, workload)
    naive = naive_copy(setting, workload, copies.source, naive_events)
    found = copies.beside_loops("copy", copies.copy, [Arm("export and import", copies.detour), naive], repeats)
    title = f"copies, {workload.events:,} events of {size_text(workload.size)}"
    copies.add(title, found, results)


def _append(setting: Setting, workload: Workload, repeats: int, results: Results) -> None:
    """Measure appends to an empty stream of the source's shape beside the bare loop into a new stream."""
    copies = _Copies(setting, workload)
    found = copies.beside_loops("append", copies.append, [], repeats)
    title = f"appends, {workload.events:,} events of {size_text(workload.size)}"
    copies.add(title, found, results, f"A commit takes {spread_text(spread(copies.commits), 2)} s.")


def _memory(setting: Setting, streams: tuple[int, ...], results: Results) -> None:
    """Measure peak memory by the stream's length, with four segments."""
    rows, figures = [], []
    for length in streams:
        workload = Workload(length // SIZE, SIZE, SEGMENTS)
        source, target = setting.stream(f"source-{length}"), setting.stream(f"target-{length}")
        workload.fill(setting.store, source)
        setting.settle()
        uris = [setting.stream_uri(stream) for stream in (source, target)]
        peaks = run_command("copy", *uris, "--master", "local[*]", environment={}, watch=True).peaks
        setting.drop(target, workload.bytes)
        setting.store.delete(source)
        rows.append((f"copy of {workload.bytes / MB:,.0f} MB", *peaks.cells))
        say(f"  {rows[-1]}")
        figures.append({"bytes": workload.bytes, **asdict(peaks)})
    results.add("memory", table(("", *PEAKS), rows), figures)


def _resume(setting: Setting, length: int, repeats: int, results: Results) -> None:
    """Measure a whole copy, and the resume of one that was killed close to its end."""
    workload = Workload(length // SIZE, SIZE, SEGMENTS)
    source = setting.stream("resumed")
    workload.fill(setting.store, source)
    whole, rest, done = [], [], []
    for repeat in range(repeats):
        uris = [setting.stream_uri(stream) for stream in (source, setting.stream(f"whole-{repeat}"))]
        setting.settle()
        whole.append(run_command("copy", *uris, environment={}).report["seconds"])
        setting.drop(setting.stream(f"whole-{repeat}"), workload.bytes)
        target = setting.stream(f"resumed-{repeat}")
        setting.settle()
        uris[1] = setting.stream_uri(target)
        done.append(_kill(setting, uris, target, workload.bytes))
        setting.settle()
        report = run_command("copy", *uris, environment={}).report
        if not report["resumed"]:
            raise RuntimeError(f"the copy was not resumed: {report}")
        rest.append(report["seconds"])
        setting.drop(target, workload.bytes)
        say(f"  {repeat + 1}/{repeats} whole {whole[-1]:.1f} s, resumed at {done[-1]:.1%} {rest[-1]:.1f} s")
    setting.store.delete(source)
    ratios = [mine / one for mine, one in zip(rest, whole, strict=True)]
    rows = [
        ("whole", "1", spread_text(spread(whole), 2)),
        (f"resumed with {min(done):.1%} done or more", spread_text(spread(ratios), 3), spread_text(spread(rest), 2)),
    ]
    heads = (f"copy of {workload.bytes / MB:,.0f} MB", "of the whole", "seconds")
    results.add("resume", table(heads, rows), {"whole": whole, "resumed": rest, "done": done})


def _kill(setting: Setting, uris: list[str], target: StreamName, size: int) -> float:
    """Begin a copy and kill it close to its end; return the share that it has copied."""
    process = subprocess.Popen(
        [sys.executable, "-m", "streamvault", "copy", *uris], env=os.environ, stderr=subprocess.DEVNULL
    )
    segments, held = [SegmentId(0, number) for number in range(SEGMENTS)], 0
    while process.poll() is None and held < KILLED_AT * size:
        time.sleep(POLL_SECONDS)
        with suppress(NoSuchSegment, NoSuchStream):  # not created yet
            held = sum(info.write_offset for info in setting.store.segment_info(target, segments))
    process.kill()
    process.wait()
    held = sum(setting.store.describe(target).tail.offsets.values())
    return held / size


class _Copies:
    """The arms, over one stream.

    Attributes:
        source: the stream.
        commits: how long the commit of each append took (seconds).
    """

    def __init__(self, setting: Setting, workload: Workload) -> None:
        self._setting = setting
        self._workload = workload
        self._few = Workload(SEGMENTS, workload.size, SEGMENTS)
        self.source = setting.stream("source")
        self.commits: list[float] = []

    def beside_loops(
        self, verb: str, move: Callable[[Workload, int], Measured], others: Sequence[Arm], repeats: int
    ) -> dict[str, list[Measured]]:
        """Measure a command beside the loops, and the command for a few events; `LOOPS` name the loops."""
        for workload in (self._workload, self._few):
            workload.fill(self._setting.store, self._stream(workload))
        self._loop(-1, digest=False)  # reads the source once, so that its data are equally cached for all arms
        arms = [
            Arm(LOOPS[0], partial(self._loop, digest=False)),
            Arm(LOOPS[1], partial(self._loop, digest=True)),
            Arm(f"`streamvault {verb}`", partial(move, self._workload)),
            Arm(f"`streamvault {verb}` of {self._few.events} events", partial(move, self._few)),
            *others,
        ]
        return interleave(arms, repeats, self._setting.settle)

    def add(self, title: str, found: Mapping[str, Sequence[Measured]], results: Results, more: str = "") -> None:
        """Add the table of what `beside_loops` has measured."""
        command, few = list(found)[2:4]
        rows = [beside_loops(found, name, *LOOPS, few if name == command else "") for name in found if name != few]
        fixed = [spread_text(spread([getattr(one, name) for one in found[few]]), 2) for name in FIXED]
        text = f"{few}: {fixed[0]} s, {fixed[1]} processor seconds. {more}".rstrip()
        figures = {name: [asdict(measured) for measured in found[name]] for name in found}
        results.add(title, f"{table((title, *BESIDE_LOOPS), rows)}\n\n{text}", figures)

    def copy(self, workload: Workload, repeat: int) -> Measured:
        """Copy a stream."""
        target = self._setting.stream(f"copied-{workload.events}-{repeat}")
        return self._command(workload, "copy", self._uri(self._stream(workload)), self._uri(target), target=target)[0]

    def append(self, workload: Workload, repeat: int) -> Measured:
        """Append a stream to an empty one."""
        target = self._setting.stream(f"appended-{workload.events}-{repeat}")
        self._setting.store.create_stream(target, StreamConfiguration(scaling=Scaling(min_segments=SEGMENTS)))
        source = self._uri(self._stream(workload))
        measured, report = self._command(workload, "append", source, "--into", self._uri(target), target=target)
        if workload is self._workload:
            self.commits.append(report["commit_seconds"])
        return measured

    def detour(self, repeat: int) -> Measured:
        """Export chunks, and import them."""
        setting, root, target = self._setting, f"{repeat}/detour", self._setting.stream(f"detour-{repeat}")
        exported = setting.export(self.source, root, "--layout", "chunks")
        restored = setting.restore(self.source, root, target, self._workload.bytes)
        return self._workload.measured(
            self._workload.events,
            restored.report["bytes"],
            exported.seconds + restored.seconds,
            exported.processor_seconds + restored.processor_seconds,
        )

    def _loop(self, repeat: int, *, digest: bool) -> Measured:
        target = self._setting.stream(f"looped-{digest}-{repeat}")
        moved = read_and_append(self._uri(self.source), self._uri(target), self._workload, parallelism(), digest=digest)
        self._setting.drop(target, self._workload.bytes)
        return self._workload.moved(moved)

    def _command(self, workload: Workload, *arguments: str, target: StreamName) -> tuple[Measured, Mapping[str, Any]]:
        """Run a command that moves a workload into a stream, which is then deleted; return the report, too."""
        outcome = run_command(*arguments, environment={})
        self._setting.drop(target, workload.bytes)
        moved, report = outcome.report["bytes"], outcome.report
        measured = workload.measured(moved // workload.length, moved, outcome.seconds, outcome.processor_seconds)
        return replace(measured, work_seconds=report["seconds"]), report

    def _stream(self, workload: Workload) -> StreamName:
        return self.source if workload is self._workload else self._setting.stream("few")

    def _uri(self, stream: StreamName) -> str:
        return self._setting.stream_uri(stream)
