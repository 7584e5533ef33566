"""Whole scopes: memory and processor time of one process that follows many streams while all are written to."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection

from benchmarks.measuring import say
from benchmarks.product import run_command
from benchmarks.results import Results, size_text, table
from benchmarks.setting import S3_SERVERS, SCOPE, Setting, open_setting
from benchmarks.workload import Workload
from streamvault.streamstore.framing import frame_many
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.uri import parse_stream

HELP = "whole scopes: memory and processor time of one process that follows many streams"

SIZE = 1024
WRITERS = 8
"""Threads of the writer, so that it does not wait for one stream after the other."""
PARTS = ("follow", "replicate")
START_SECONDS = 30.0
"""A command takes about this long until each stream had its first round."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks scopes``."""
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="commands (default: both)")
    parser.add_argument("--streams", type=int, default=200, metavar="N", help="of the scope (200)")
    parser.add_argument("--rate", type=int, default=60, metavar="EVENTS", help="of each stream, per second (60)")
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="minio", help="the object store (minio)")
    parser.add_argument("--every", default="10s", help="of the command (10s)")
    parser.add_argument(
        "--seconds",
        nargs="+",
        type=int,
        default=[120, 300],
        metavar="S",
        help="of the runs (120 300): does memory grow?",
    )
    parser.add_argument("--quick", action="store_true", help="small and short: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add a table."""
    if arguments.quick:
        arguments.streams, arguments.seconds, arguments.every = 6, [4], "1s"
    heap, cache = ("1g", 256) if arguments.quick else ("6g", 2048)
    rows, figures = [], {}
    with open_setting(arguments.s3, heap, cache_mib=cache, quick=arguments.quick) as setting:
        results.describe(setting.describe())
        for part in arguments.part:
            for seconds in arguments.seconds:
                cells, found = _follow(setting, part, seconds, arguments)
                rows.append((f"`{part}` for {seconds} s", *cells))
                figures[f"{part} {seconds}"] = found
    title = f"{arguments.streams} streams, each with {arguments.rate} events of {size_text(SIZE)} a second"
    heads = (title, "memory", "processor time", "of a round", "written", "rounds of a stream", "longest lag")
    results.add("scopes", table(heads, rows), figures)


def _follow(
    setting: Setting, part: str, seconds: int, arguments: argparse.Namespace
) -> tuple[list[str], dict[str, object]]:
    setting.settle()
    scope = f"{SCOPE}-{part}-{seconds}"
    names = [StreamName(scope, f"s{number}") for number in range(arguments.streams)]
    setting.store.create_scope(scope)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: setting.store.create_stream(name, StreamConfiguration()), names))
    source = f"{setting.pravega.uri}/{scope}/"
    target = {
        "follow": (setting.root_uri(scope), "--layout", "chunks"),
        "replicate": (f"{setting.pravega.uri}/{scope}-replicas/", "--follow"),
    }[part]
    how = ("--every", arguments.every, "--for", f"{seconds}s", "--master", "inline")
    with _writer([setting.stream_uri(name) for name in names], arguments.rate) as written:
        outcome = run_command(part, source, *target, *how, environment=setting.s3.environment(), watch=True)
        rate = written()
    for name in names:
        setting.store.delete(name)
    ended = [each["result"] for each in outcome.report["outcomes"]]
    if len(ended) != len(names) or not all(ended):
        raise RuntimeError(f"not every stream was followed: {json.dumps(outcome.report)[:4000]}")
    rounds = sorted(each["rounds"] for each in ended)
    lags = [each["most_lag_seconds"] for each in ended if each.get("most_lag_seconds") is not None]
    memory, share = outcome.peaks.driver / 2**20, outcome.processor_seconds / seconds
    cells = [
        f"{memory:,.0f} MiB",
        f"{100 * share:.0f} % of a core",
        f"{1000 * outcome.processor_seconds / sum(rounds):.0f} ms",
        f"{rate:,.0f} events/s",
        f"{rounds[0]} to {rounds[-1]}",
        f"{max(lags):.1f} s" if lags else "",
    ]
    say(f"  {part} {seconds} s: {', '.join(cells)}")
    return cells, {
        "memory": outcome.peaks.driver,
        "processor": outcome.processor_seconds,
        "rounds": rounds,
        "rate": rate,
    }


# The writer


@contextmanager
def _writer(uris: list[str], rate: int) -> Iterator[Callable[[], float]]:
    """A process that appends to each stream once a second; yields a function that ends it and returns events/s."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_write, args=(uris, rate, theirs), daemon=True)
    process.start()

    def end() -> float:
        ours.send(None)
        return float(ours.recv())

    try:
        ours.recv()  # it is connected
        yield end
    finally:
        process.kill()
        process.join()


def _write(uris: list[str], rate: int, stop: Connection) -> None:
    block = b"".join(bytes(part) for part in frame_many(Workload(rate, SIZE, 1).payloads(0)))
    address, _ = parse_stream(uris[0])
    with address.open() as store, ExitStack() as stack:
        appenders = [stack.enter_context(store.appender(parse_stream(uri)[1], SegmentId(0, 0))) for uri in uris]
        stop.send(None)
        began = due = time.monotonic()
        count = 0
        while not stop.poll(max(0.0, due - time.monotonic())):
            appenders[count % len(appenders)].append(block)
            count += 1
            due += 1 / len(appenders)
        for appender in appenders:
            appender.flush()
        stop.send(count * rate / (time.monotonic() - began))
