"""Speed of decoding payloads where some have values of a wrong type; processor time of one process, no servers."""

from __future__ import annotations

import argparse
import random
import time
from typing import Literal, get_args

import pyarrow as pa

from benchmarks.results import Results, table
from streamvault.lake.decoding import decoded_columns
from streamvault.lake.options import TableOptions, columns_for

__all__ = ["HELP", "add_arguments", "run"]

HELP = "decoding where some values have a wrong type"
Decode = Literal["json", "csv"]
SHARES = (0.0, 0.001, 0.01, 0.1, 0.5, 1.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--events", type=int, default=40_000, metavar="N", help="events of each kind (%(default)s)")
    parser.add_argument("--repeats", type=int, default=9, metavar="N", help="the best of so many (%(default)s)")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure every share of JSON and CSV in turns, and add the table."""
    made = {
        (decode, share): (_options(decode), _payloads(decode, share, arguments.events))
        for decode in get_args(Decode)
        for share in SHARES
    }
    best = dict.fromkeys(made, float("inf"))
    for _ in range(arguments.repeats):
        for key, (options, payloads) in made.items():
            began = time.process_time()
            decoded_columns(options, payloads)
            best[key] = min(best[key], time.process_time() - began)
    rows = []
    for (decode, share), seconds in best.items():
        mega = sum(map(len, made[decode, share][1].to_pylist())) / 1e6
        rows.append([decode.upper(), f"{share:.1%}", f"{mega / seconds:.0f}", f"{best[decode, 0.0] / seconds:.0%}"])
    heads = ["payloads", "of a wrong type", "MB per processor second", "events, of the clean speed"]
    results.describe({"events of each kind": f"{arguments.events:,}"})
    results.add("decoding", table(heads, rows), rows)


def _options(decode: Decode) -> TableOptions:
    types = {"id": "bigint", "v": "bigint", "s": "string"} if decode == "json" else {"c1": "bigint", "c2": "string"}
    return TableOptions(
        scope="s", stream="t", table="t", kind="parquet", decode=decode, columns=columns_for(types), target_size=1 << 20
    )


def _payloads(decode: str, share: float, events: int) -> pa.Array:
    chance = random.Random(1)
    form = '{{"id": {0}, "v": {1}, "s": "some text here {0}"}}' if decode == "json" else "{1},text {0}"
    wrong = '"n/a"' if decode == "json" else "n/a"
    texts = (form.format(number, wrong if chance.random() < share else number) for number in range(events))
    return pa.array([text.encode() for text in texts], pa.binary())
