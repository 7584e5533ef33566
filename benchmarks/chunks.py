"""Export and import of chunks compared with a plain loop over the same bytes, in one run on real servers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.limits import LimitJob, get_and_append, read_and_put
from benchmarks.measuring import Arm, Measured, interleave, ratio, spread
from benchmarks.naive import naive_arms
from benchmarks.product import Outcome
from benchmarks.results import Results, beside, size_text, spread_text, table
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
        self._starts: dict[str, list[float]] = {"export": [], "import": []}

    def run(self, repeats: int, results: Results) -> None:
        out, back = "the loop: read, put by obstore", "the loop: get by obstore, append"
        export, restore = "**streamvault export**, on Spark", "**streamvault import**, on Spark"
        command_out, command_back = "the whole command `streamvault export`", "the whole command `streamvault import`"
        self._export(-1)  # reads the source once, so that its data are equally cached for all arms
        naive = naive_arms(self._setting, self._workload, self.source, self._naive_events)
        found = interleave(
            [
                Arm(out, self._loop_out),
                Arm(export, self._export),
                Arm(command_out, self._export_whole),
                Arm(back, self._loop_back),
                Arm(restore, self._import),
                Arm(command_back, self._import_whole),
                *naive["export"],
                *naive["import"],
            ],
            repeats,
            self._setting.settle,
        )
        title = f"chunks, {self._workload.events:,} events of {size_text(self._workload.size)}"
        rows: list[tuple[str, ...]] = []
        for limit, ours, whole, verb in ((out, export, command_out, "export"), (back, restore, command_back, "import")):
            peers = [arm.name for arm in reversed(naive[verb])]
            rows += [
                (
                    *beside(found, name, limit, peers),
                    spread_text(spread([one.megabytes_per_second for one in found[name]]), 0),
                    spread_text(spread(self._starts[verb][-repeats:]), 1) if name == ours else "",
                )
                for name in (limit, ours, whole, *peers)
            ]
        figures = {name: [asdict(measured) for measured in found[name]] for name in found}
        against_peers = ("times naive, 32 threads", "times naive, one by one")
        heads = (title, "of the loop", *against_peers, "MB/s", "Spark's start and the rest (s)")
        results.add(title, table(heads, rows), figures)

    def run_beside(self, checkout: Path, repeats: int, results: Results) -> None:
        """Run whole commands of this checkout and of another one in turns on the same servers."""
        sides = {"this checkout": None, "the other": checkout}
        outcomes: dict[str, list[Outcome]] = {f"{verb}, {side}": [] for verb in ("export", "import") for side in sides}

        def command(name: str, repeat: int) -> Measured:
            verb, _, side = name.partition(", ")
            root, how = f"{repeat + 1}/{side.replace(' ', '-')}", {"head_start": True, "checkout": sides[side]}
            if verb == "export":
                outcome = self._setting.export(self.source, root, "--layout", "chunks", **how)
            else:
                target = self._setting.stream(root.replace("/", "-"))
                outcome = self._setting.restore(self.source, root, target, self._workload.bytes, **how)
            outcomes[name].append(outcome)
            return self._whole(outcome)

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

    def _job(self, stream: StreamName, repeat: int) -> LimitJob:
        setting, uri = self._setting, self._setting.stream_uri(stream)
        root = f"{repeat}/loop"
        return LimitJob(setting.s3, setting.bucket, root, self.source, self._workload, parallelism(), uri)

    def _loop_out(self, repeat: int) -> Measured:
        return self._looped(read_and_put, self._job(self.source, repeat))

    def _loop_back(self, repeat: int) -> Measured:
        target = self._setting.stream(f"looped-{repeat}")
        measured = self._looped(get_and_append, self._job(target, repeat))
        self._setting.store.delete(target)
        return measured

    def _looped(self, move: Callable[[LimitJob], tuple[int, float]], job: LimitJob) -> Measured:
        events, seconds = move(job)
        return self._workload.measured(events, events * self._workload.length, seconds)

    def _export(self, repeat: int) -> Measured:
        return self._moved("export", self._setting.export(self.source, f"{repeat}/vault", "--layout", "chunks"))

    def _export_whole(self, repeat: int) -> Measured:
        root = f"{repeat}/whole"
        return self._whole(self._setting.export(self.source, root, "--layout", "chunks", head_start=True))

    def _import(self, repeat: int) -> Measured:
        return self._moved("import", self._restored(f"restored-{repeat}", repeat))

    def _import_whole(self, repeat: int) -> Measured:
        return self._whole(self._restored(f"restored-whole-{repeat}", repeat, head_start=True))

    def _restored(self, name: str, repeat: int, *, head_start: bool = False) -> Outcome:
        target, size = self._setting.stream(name), self._workload.bytes
        return self._setting.restore(self.source, f"{repeat}/vault", target, size, head_start=head_start)

    def _moved(self, verb: str, outcome: Outcome) -> Measured:
        """Measure the work of Spark's tasks, without Spark's start."""
        report = outcome.report
        self._starts[verb].append(report["total_seconds"] - report["seconds"])
        return self._workload.measured(report["events"], report["bytes"], report["seconds"])

    def _whole(self, outcome: Outcome) -> Measured:
        """Measure the total time of the command with its default options, including its start."""
        return self._workload.measured(outcome.report["events"], outcome.report["bytes"], outcome.seconds)
