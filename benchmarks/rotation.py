"""Rotations that truncate their source, beside those of another checkout: processor seconds, without servers.

Processor seconds hardly depend on what else the machine does. The streams are in the embedded store, and the archives
in a folder, so that the seconds are the command's alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measuring import Arm, Measured, Spread, compare, interleave, spread
from benchmarks.product import run_command
from benchmarks.results import Results, spread_text, table
from benchmarks.workload import Workload
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName

HELP = "processor seconds of a rotation that truncates, beside another checkout's; needs no server"

NAME = StreamName("benchmark", "source")
ROUND = ("--layout", "chunks", "--master", "inline[2]")
BEFORE: dict[str, Sequence[str]] = {
    "all of it archived by the same run": (),
    "all of it archived by an earlier run": ("export",),
    "all of it archived and read back by earlier runs": ("export", "check"),
}
"""What is to be rotated → the commands that ran before."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--stream", default="250000x1024", metavar="EVENTSxBYTES", help="the stream (250000x1024)")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="turns (5)")
    parser.add_argument("--beside", type=Path, metavar="DIR", help="another checkout, after its bin/setup")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add a table."""
    workload, repeats = Workload.parse("2000x1024" if arguments.quick else arguments.stream, 2), arguments.repeats
    checkouts = {"now": None} | ({"before": arguments.beside} if arguments.beside else {})
    results.describe({"stream": f"{workload.bytes / 1e6:.0f} MB in two segments"})
    rows, figures = [], {}
    for title, commands in BEFORE.items():
        arms = [Arm(name, _arm(workload, commands, checkout)) for name, checkout in checkouts.items()]
        found = interleave(arms, 1 if arguments.quick else repeats, lambda: None, pairs=True)
        seconds = {name: spread([one.processor_seconds for one in runs]) for name, runs in found.items()}
        rows.append((title, *_cells(seconds, found)))
        figures[title] = {name: [one.processor_seconds for one in runs] for name, runs in found.items()}
    heads = ("processor seconds of `rotate --truncate-source`", "before", "now", "now, of before")
    results.add("rotation", table(heads, rows), figures)


def _cells(seconds: dict[str, Spread], found: dict[str, list[Measured]]) -> list[str]:
    if "before" not in seconds:
        return ["", spread_text(seconds["now"], 2), ""]
    ratio = compare(found, "now", "before", lambda mine, other: mine.processor_seconds / other.processor_seconds)
    return [spread_text(seconds["before"], 2), spread_text(seconds["now"], 2), spread_text(ratio, 2)]


def _arm(workload: Workload, commands: Sequence[str], checkout: Path | None) -> Callable[[int], Measured]:
    def rotated(_: int) -> Measured:
        with TemporaryDirectory() as folder:
            stream, root = f"local://{folder}/streams/{NAME}", f"file://{folder}/vault"
            with LocalStore(Path(folder) / "streams") as store:
                workload.fill(store, NAME)
            for verb in commands:
                given = (stream, root, *ROUND) if verb == "export" else (f"{root}/{NAME}", "--read-data", *ROUND[2:])
                run_command(verb, *given, environment={}, checkout=checkout)
            done = run_command("rotate", stream, root, "--truncate-source", *ROUND, environment={}, checkout=checkout)
            with LocalStore(Path(folder) / "streams") as store:
                described = store.describe(NAME)
        if described.head != described.tail:
            raise RuntimeError(f"{stream} was not truncated")
        return workload.measured(workload.events, workload.bytes, done.seconds, done.processor_seconds)

    return rotated
