"""Export and import compared with those of another checkout, in turns on the same servers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.measuring import Arm, Measured, Spread, interleave, ratio, spread
from benchmarks.product import Outcome
from benchmarks.results import Results, size_text, spread_text, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting
from benchmarks.workload import Workload

__all__ = ["HELP", "add_arguments", "run"]

HELP = "export and import beside those of another checkout"
SEGMENTS = 4
SIDES = ("this", "former")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks former``."""
    parser.add_argument(
        "--checkout", type=Path, required=True, metavar="DIR", help="the other checkout, after its bin/setup"
    )
    parser.add_argument(
        "--workload",
        nargs="+",
        default=("chunks:400000x1024", "events:20000x1024"),
        metavar="LAYOUT:EVENTSxBYTES",
        help="streams of 4 segments (chunks:400000x1024 events:20000x1024)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="of everything, interleaved (default 5)")
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="minio", help="S3 server (default minio)")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure each stream on new servers; add a table for each."""
    for text in arguments.workload:
        layout, _, stream = text.partition(":")
        workload = Workload.parse(stream, SEGMENTS)
        with open_setting(arguments.s3) as setting:
            results.describe(setting.describe())
            beside = _Beside(setting, workload, layout, arguments.checkout.resolve())
            beside.run(arguments.repeats, results)


class _Beside:
    """Comparison for one stream in one layout."""

    def __init__(self, setting: Setting, workload: Workload, layout: str, checkout: Path) -> None:
        self._setting = setting
        self._workload = workload
        self._layout = layout
        self._how = {side: {"head_start": True, "checkout": {"former": checkout}.get(side)} for side in SIDES}
        self._source = setting.stream("source")
        self._outcomes: dict[str, list[Outcome]] = {}

    def run(self, repeats: int, results: Results) -> None:
        self._workload.fill(self._setting.store, self._source)
        verbs: dict[str, Callable[[str, int], Measured]] = {"export": self._export, "import": self._import}
        arms = [Arm(_name(verb, side), partial(verbs[verb], side)) for verb in verbs for side in SIDES]
        for arm in arms:  # the stream and the server's files are equally cached for all arms
            arm.run(-1)
        self._outcomes.clear()
        found = interleave(arms, repeats, self._setting.settle, pairs=True)
        moving = {name: [one.report["seconds"] for one in self._outcomes[name]] for name in found}
        processor = {name: [one.processor_seconds for one in self._outcomes[name]] for name in found}
        title = f"{self._layout}, {self._workload.events:,} events of {size_text(self._workload.size)}"
        rows = []
        for verb in verbs:
            this, former = (_name(verb, side) for side in SIDES)
            rows.append(
                (
                    verb,
                    spread_text(ratio(found, this, former), 2),
                    spread_text(_ratio(moving[former], moving[this]), 2),
                    spread_text(_ratio(processor[this], processor[former]), 2),
                    *(spread_text(spread(processor[name]), 1) for name in (this, former)),
                )
            )
        speeds = ("speed, whole command", "speed, without the start")
        heads = (f"{title}: beside the former", *speeds, "processor seconds", "now (s)", "before (s)")
        figures = {
            name: [
                {**asdict(one), "moving": seconds, "processor": used}
                for one, seconds, used in zip(found[name], moving[name], processor[name], strict=True)
            ]
            for name in found
        }
        results.add(title, table(heads, rows), figures)

    def _export(self, side: str, repeat: int) -> Measured:
        options = ("--layout", self._layout)
        return self._noted(
            "export", side, self._setting.export(self._source, _root(side, repeat), *options, **self._how[side])
        )

    def _import(self, side: str, repeat: int) -> Measured:
        target, size = self._setting.stream(f"restored-{side}-{repeat + 1}"), self._workload.bytes
        outcome = self._setting.restore(self._source, _root(side, repeat), target, size, **self._how[side])
        return self._noted("import", side, outcome)

    def _noted(self, verb: str, side: str, outcome: Outcome) -> Measured:
        self._outcomes.setdefault(_name(verb, side), []).append(outcome)
        return self._workload.measured(outcome.report["events"], outcome.report["bytes"], outcome.seconds)


def _root(side: str, repeat: int) -> str:
    return f"{repeat + 1}/{side}"


def _name(verb: str, side: str) -> str:
    return f"{verb}, {side}"


def _ratio(mine: list[float], others: list[float]) -> Spread:
    return spread([one / other for one, other in zip(mine, others, strict=True)])
