"""Export and import of chunks compared with a plain loop over the same bytes, in one run on real servers."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from benchmarks.limits import LimitJob, get_and_append, read_and_put
from benchmarks.measuring import Arm, Measured, interleave, ratio, spread
from benchmarks.naive import naive_arms
from benchmarks.product import Outcome
from benchmarks.results import BESIDE_LOOPS, Results, beside_loops, size_text, spread_text, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting, parallelism
from benchmarks.workload import Workload
from streamvault.streamstore.model import StreamName

HELP = "chunks beside the bare loop over the same bytes"
SEGMENTS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks chunks``."""
    parser.add_argument(
        "--workload",
        nargs="+",
        default=("1000000x100", "400000x1024"),
        metavar="EVENTSxBYTES",
        help="streams of 4 segments (1000000x100 400000x1024)",
    )
    parser.add_argument("--naive-events", type=int, default=4000, help="how many the naive pipelines move (4000)")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, interleaved (default 3)")
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="minio", help="S3 server (default minio)")
    parser.add_argument(
        "--beside", type=Path, metavar="DIR", help="another checkout, after its bin/setup, to compare with instead"
    )
    parser.add_argument("--quick", action="store_true", help="20 MB, one repeat: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure each stream on new servers; add a table for each."""
    if arguments.quick:
        arguments.workload, arguments.naive_events, arguments.repeats = ("20000x1024",), 500, 1
    for text in arguments.workload:
        workload = Workload.parse(text, SEGMENTS)
        with open_setting(arguments.s3, quick=arguments.quick) as setting:
            results.describe(setting.describe())
            comparison = _Comparison(setting, workload, arguments.naive_events)
            workload.fill(setting.store, comparison.source)
            if arguments.beside is None:
                comparison.run(arguments.repeats, results)
            else:
                comparison.run_beside(arguments.beside.resolve(), arguments.repeats, results)


class _Comparison:
    """Comparison for one stream."""

    def __init__(self, setting: Setting, workload: Workload, naive_events: int) -> None:
        self._setting = setting
        self._workload = workload
        self._naive_events = naive_events
        self.source = setting.stream("source")
        self._few = Workload(SEGMENTS, workload.size, SEGMENTS)
        self._source_of_few = setting.stream("few")

    def run(self, repeats: int, results: Results) -> None:
        self._few.fill(self._setting.store, self._source_of_few)
        self._export(-1)  # reads the source once, so that its data are equally cached for all arms
        naive = naive_arms(self._setting, self._workload, self.source, self._naive_events)
        arms = {
            verb: (
                Arm(f"the loop: {loop}", partial(move, digest=False)),
                Arm(f"the loop of the {verb} with a digest", partial(move, digest=True)),
                Arm(f"`streamvault {verb}`", command),
                Arm(f"`streamvault {verb}` of {self._few.events} events", of_few),
            )
            for verb, loop, move, command, of_few in (
                ("export", "read, put by obstore", self._loop_out, self._export, self._export_few),
                ("import", "get by obstore, append", self._loop_back, self._import, self._import_few),
            )
        }
        each = [arm for verb in arms for arm in (*arms[verb], *naive[verb])]
        found = interleave(each, repeats, self._setting.settle)
        rows, fixed = [], []
        for verb, (loop, digested, command, few) in arms.items():
            names = (loop.name, digested.name)
            rows += [beside_loops(found, arm.name, *names) for arm in (loop, digested)]
            rows.append(beside_loops(found, command.name, *names, few.name))
            rows += [beside_loops(found, arm.name, *names) for arm in naive[verb]]
            for measure, digits in (("seconds", 2), ("processor_seconds", 2)):
                fixed.append(spread_text(spread([getattr(one, measure) for one in found[few.name]]), digits))
        title = f"chunks, {self._workload.events:,} events of {size_text(self._workload.size)}"
        text = table((title, *BESIDE_LOOPS), rows) + (
            f"\n\nA command for {self._few.events} events: export {fixed[0]} s, {fixed[1]} processor seconds; "
            f"import {fixed[2]} s, {fixed[3]} processor seconds."
        )
        results.add(title, text, {name: [asdict(measured) for measured in found[name]] for name in found})

    def run_beside(self, checkout: Path, repeats: int, results: Results) -> None:
        """Run whole commands of this checkout and of another one in turns on the same servers."""
        sides = {"this checkout": None, "the other": checkout}
        outcomes: dict[str, list[Outcome]] = {f"{verb}, {side}": [] for verb in ("export", "import") for side in sides}

        def command(name: str, repeat: int) -> Measured:
            verb, _, side = name.partition(", ")
            root, how = f"{repeat + 1}/{side.replace(' ', '-')}", {"checkout": sides[side]}
            if verb == "export":
                outcome = self._setting.export(self.source, root, "--layout", "chunks", **how)
            else:
                target = self._setting.stream(root.replace("/", "-"))
                outcome = self._setting.restore(self.source, root, target, self._workload.bytes, **how)
            outcomes[name].append(outcome)
            return _whole(self._workload, outcome)

        arms = [Arm(name, partial(command, name)) for name in outcomes]
        for arm in arms:  # the stream and the server's files are equally cached for all arms
            arm.run(-1)
        for found in outcomes.values():
            found.clear()
        measured = interleave(arms, repeats, self._setting.settle, pairs=True)
        title = f"beside the other checkout: {self._workload.events:,} events of {size_text(self._workload.size)}"
        rows = []
        for verb in ("export", "import"):
            mine, other = (f"{verb}, {side}" for side in sides)
            used = {name: [one.processor_seconds for one in outcomes[name]] for name in (mine, other)}
            moving = [
                there.report["seconds"] / here.report["seconds"]
                for here, there in zip(outcomes[mine], outcomes[other], strict=True)
            ]
            rows.append(
                (
                    verb,
                    spread_text(ratio(measured, mine, other), 2),
                    spread_text(spread(moving), 2),
                    spread_text(spread([a / b for a, b in zip(used[mine], used[other], strict=True)]), 2),
                    *(spread_text(spread(used[name]), 1) for name in (mine, other)),
                )
            )
        heads = (
            title,
            "speed, whole command",
            "speed, without the start",
            "processor seconds",
            "here (s)",
            "there (s)",
        )
        figures = {name: [asdict(one) for one in measured[name]] for name in measured}
        results.add(title, table(heads, rows), figures)

    def _loop_out(self, repeat: int, *, digest: bool) -> Measured:
        return self._workload.moved(read_and_put(self._job(self.source, repeat, digest=digest)))

    def _loop_back(self, repeat: int, *, digest: bool) -> Measured:
        target = self._setting.stream(f"looped-{digest}-{repeat}")
        moved = get_and_append(self._job(target, repeat, digest=digest))
        self._setting.store.delete(target)
        return self._workload.moved(moved)

    def _job(self, stream: StreamName, repeat: int, *, digest: bool) -> LimitJob:
        setting, uri, root = self._setting, self._setting.stream_uri(stream), f"{repeat}/loop-{digest}"
        return LimitJob(
            setting.s3, setting.bucket, root, self.source, self._workload, parallelism(), uri, digest=digest
        )

    def _export(self, repeat: int) -> Measured:
        return _whole(self._workload, self._setting.export(self.source, f"{repeat}/vault", "--layout", "chunks"))

    def _import(self, repeat: int) -> Measured:
        target, size = self._setting.stream(f"restored-{repeat}"), self._workload.bytes
        return _whole(self._workload, self._setting.restore(self.source, f"{repeat}/vault", target, size))

    def _export_few(self, repeat: int) -> Measured:
        return _whole(self._few, self._setting.export(self._source_of_few, f"{repeat}/few", "--layout", "chunks"))

    def _import_few(self, repeat: int) -> Measured:
        target, size = self._setting.stream(f"few-restored-{repeat}"), self._few.bytes
        return _whole(self._few, self._setting.restore(self._source_of_few, f"{repeat}/few", target, size))


def _whole(workload: Workload, outcome: Outcome) -> Measured:
    """Measure a whole command, from the start of its process to its end."""
    report = outcome.report
    measured = workload.measured(report["events"], report["bytes"], outcome.seconds, outcome.processor_seconds)
    return replace(measured, work_seconds=report["seconds"])
