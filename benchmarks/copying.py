"""Copies and appends of streams beside a plain loop over the same bytes; copies' memory; a resume near the end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial

from benchmarks.limits import read_and_append
from benchmarks.measuring import Arm, Measured, interleave, say, spread
from benchmarks.naive import naive_copy
from benchmarks.product import PEAKS, Outcome, run_command
from benchmarks.results import Results, beside, size_text, spread_text, table
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


def _append(setting: Setting, workload: Workload, repeats: int, results: Results) -> None:
    """Measure an append to an empty stream of the source's shape beside the bare loop into a new stream."""
    copies, loop, commits = _Copies(setting, workload), "the loop: read, append", []
    workload.fill(setting.store, copies.source)
    copies.loop(-1, digest=False)  # as in `_compare`

    def append(repeat: int, *, whole: bool) -> Measured:
        target = setting.stream(f"appended-{whole}-{repeat}")
        setting.store.create_stream(target, StreamConfiguration(scaling=Scaling(min_segments=SEGMENTS)))
        uris = [setting.stream_uri(stream) for stream in (copies.source, target)]
        outcome = run_command("append", uris[0], "--into", uris[1], environment={}, head_start=whole)
        setting.drop(target, workload.bytes)
        commits.append(outcome.report["commit_seconds"])
        return copies.measured(outcome.report["bytes"], outcome.seconds if whole else outcome.report["seconds"])

    arms = [
        Arm(loop, partial(copies.loop, digest=False)),
        Arm("the loop with a digest", partial(copies.loop, digest=True)),
        Arm("**streamvault append**, on Spark", partial(append, whole=False)),
        Arm("the whole command `streamvault append`", partial(append, whole=True)),
    ]
    found = interleave(arms, repeats, setting.settle)
    rows = [
        (
            *beside(found, arm.name, loop, (arms[1].name,)),
            spread_text(spread([one.megabytes_per_second for one in found[arm.name]]), 0),
        )
        for arm in arms
    ]
    title = f"appends, {workload.bytes / MB:,.0f} MB; a commit takes {spread_text(spread(commits), 2)} s"
    figures = {name: [asdict(measured) for measured in found[name]] for name in found}
    results.add("append", table((title, "of the loop", "of it with a digest", "MB/s"), rows), figures)


def _memory(setting: Setting, streams: tuple[int, ...], results: Results) -> None:
    """Measure peak memory by the stream's length, with four segments."""
    rows, figures = [], []
    for length in streams:
        workload = Workload(length // SIZE, SIZE, SEGMENTS)
        source, target = setting.stream(f"source-{length}"), setting.stream(f"target-{length}")
        workload.fill(setting.store, source)
        setting.settle()
        uris = [setting.stream_uri(stream) for stream in (source, target)]
        peaks = run_command("copy", *uris, environment={}, watch=True).peaks
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
        whole.append(run_command("copy", *uris, environment={}, head_start=True).report["seconds"])
        setting.drop(setting.stream(f"whole-{repeat}"), workload.bytes)
        target = setting.stream(f"resumed-{repeat}")
        setting.settle()
        uris[1] = setting.stream_uri(target)
        done.append(_kill(setting, uris, target, workload.bytes))
        setting.settle()
        report = run_command("copy", *uris, environment={}, head_start=True).report
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
        return self.measured(report["bytes"], report["seconds"])

    def copy_whole(self, repeat: int) -> Measured:
        """Copy; the total time of the command with its default options."""
        outcome = self._copied(f"copied-whole-{repeat}", head_start=True)
        return self.measured(outcome.report["bytes"], outcome.seconds)

    def detour(self, repeat: int) -> Measured:
        """Export chunks, and import them; the time of Spark's tasks."""
        setting, root, target = self._setting, f"{repeat}/detour", self._setting.stream(f"detour-{repeat}")
        exported = setting.export(self.source, root, "--layout", "chunks").report
        restored = setting.restore(self.source, root, target, self._workload.bytes).report
        return self.measured(restored["bytes"], exported["seconds"] + restored["seconds"])

    def _copied(self, name: str, *, head_start: bool) -> Outcome:
        target = self._setting.stream(name)
        uris = [self._setting.stream_uri(stream) for stream in (self.source, target)]
        outcome = run_command("copy", *uris, environment={}, head_start=head_start)
        self._setting.drop(target, self._workload.bytes)
        return outcome

    def measured(self, size: int, seconds: float) -> Measured:
        """Return what was measured of a command that moved so many bytes."""
        return self._workload.measured(size // self._workload.length, size, seconds)
