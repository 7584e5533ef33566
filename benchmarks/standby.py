"""Replicas: how far they are behind a writer, what a round without news costs, and how long a promotion takes."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from threading import Event, Thread

from benchmarks.measuring import say, spread
from benchmarks.product import run_command
from benchmarks.results import Results, size_text, spread_text, table
from benchmarks.setting import SCOPE, Setting, open_setting
from benchmarks.workload import Workload
from streamvault.common.progress import Progress
from streamvault.common.waiting import Round
from streamvault.importer.run import RESTORE_TASKS
from streamvault.replication.replica import Replica
from streamvault.replication.replicate import replicate_stream
from streamvault.replication.replication import Replication
from streamvault.replication.reports import ReplicateOptions
from streamvault.runner.opening import Tasks
from streamvault.sources.sources import open_source
from streamvault.streamstore.framing import frame_many
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.uri import open_stream, parse_stream
from testkit.servers.pravega import PravegaServer

HELP = "replicas: their lag beside a writer, idle rounds, promotions"

SEGMENTS = 4
SIZE = 1024
BATCH = 20
"""Events in a block of the writer."""
SAMPLE_SECONDS = 0.05
SETTLED_SECONDS = 5.0
"""How long after its start a replication is not sampled: the first round has more to do."""
ROUNDS = 100
PARTS = ("lag", "idle", "promote")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks standby``."""
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="tables (default: all)")
    parser.add_argument("--rate", type=int, default=2000, metavar="EVENTS", help="of the writer, per second (2000)")
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="of each run of the writer (60)")
    parser.add_argument("--streams", type=int, default=100, metavar="N", help="idle streams (100)")
    parser.add_argument("--events", type=int, default=1_000_000, metavar="N", help="of a promoted stream (1000000)")
    parser.add_argument("--repeats", type=int, default=3, help="of the writer and of promotions (3)")
    parser.add_argument("--quick", action="store_true", help="small and short: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add a table for each part."""
    if arguments.quick:
        arguments.seconds, arguments.streams, arguments.events, arguments.repeats = 8, 5, 20_000, 1
    for part in arguments.part:
        heap, cache = ("1g", 256) if arguments.quick else ("5g", 2048)
        other = PravegaServer(heap=heap, cache_mib=cache, quick=arguments.quick)
        with open_setting("minio", heap, cache_mib=cache, quick=arguments.quick) as setting, other as standby:
            results.describe(setting.describe())
            measure = {"lag": _lag, "idle": _idle, "promote": _promote}[part]
            measure(setting, standby, arguments, results)


# Beside a writer


@dataclass(slots=True)
class _Written:
    """A writer's blocks: segment, end offset, and when it was sent and acknowledged (seconds)."""

    blocks: list[tuple[int, int, float, float]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Events per second."""
        return (len(self.blocks) - 1) * BATCH / (self.blocks[-1][2] - self.blocks[0][2])

    @property
    def latencies(self) -> list[float]:
        """Seconds from sending to acknowledgement."""
        return [acknowledged - sent for _, _, sent, acknowledged in self.blocks]

    def lag(self, moment: float, offsets: Sequence[int]) -> float:
        """Return how long the oldest block that a replica lacked at a moment had been acknowledged (seconds)."""
        missing = (at for segment, end, _, at in self.blocks if end > offsets[segment] and at <= moment)
        return moment - min(missing, default=moment)


def _write(uri: str, rate: int, stop: Connection) -> None:
    """Append blocks to the segments in turn until told to stop; send what was done."""
    address, name = parse_stream(uri)
    written, workload = _Written(), Workload(BATCH, SIZE, 1)
    block = b"".join(bytes(part) for part in frame_many(workload.payloads(0)))
    with address.open() as store, ExitStack() as stack:
        appenders = [
            stack.enter_context(store.appender(name, SegmentId(0, number), in_flight=1)) for number in range(SEGMENTS)
        ]
        due, number = time.monotonic(), 0
        while not stop.poll(max(0.0, due - time.monotonic())):
            segment = number % SEGMENTS
            sent = time.monotonic()
            appenders[segment].append(block)
            end = appenders[segment].flush()
            written.blocks.append((segment, end, sent, time.monotonic()))
            number += 1
            due += BATCH / rate
    stop.send(written.blocks)


@contextmanager
def _writer(uri: str, rate: int) -> Iterator[_Written]:
    """A process that writes; what it did is known at the end."""
    context, written = multiprocessing.get_context("spawn"), _Written()
    ours, theirs = context.Pipe()
    process = context.Process(target=_write, args=(uri, rate, theirs), daemon=True)
    process.start()
    try:
        yield written
        ours.send(None)
        written.blocks = ours.recv()
    finally:
        process.join(10)
        process.kill()


def _lag(setting: Setting, standby: PravegaServer, arguments: argparse.Namespace, results: Results) -> None:
    alone: list[_Written] = []
    beside: list[_Written] = []
    lags: list[float] = []
    reported: list[float] = []
    for repeat in range(arguments.repeats):
        setting.settle()
        uri = _new_stream(setting, f"alone-{repeat}")
        with _writer(uri, arguments.rate) as written:
            time.sleep(arguments.seconds)
        alone.append(written)
        setting.settle()
        name = f"beside-{repeat}"
        uri = _new_stream(setting, name)
        with _writer(uri, arguments.rate) as written:
            samples, most = _replicate_beside(uri, standby, name, arguments.seconds)
        beside.append(written)
        lags += [written.lag(moment, offsets) for moment, offsets in samples]
        reported.append(most)
        say(f"  {repeat + 1}/{arguments.repeats} lag {statistics.median(lags):.2f} s, writer {_latency(written)}")
    rates = [one.rate for one in beside]
    title = f"replicate --follow --every 1s beside {spread_text(spread(rates), 0)} events of {size_text(SIZE)} a second"
    rows = [
        ("lag of the replica, half of the time below", f"{_quantile(lags, 50):.2f} s"),
        ("99 % of the time below", f"{_quantile(lags, 99):.2f} s"),
        ("longest lag that the replication reported", spread_text(spread(reported), 2) + " s"),
        *(
            (
                f"the writer's latency, {label}: alone, beside, ratio",
                " / ".join(
                    [
                        f"{1000 * _quantile(_all(alone), share):.1f} ms",
                        f"{1000 * _quantile(_all(beside), share):.1f} ms",
                        spread_text(
                            spread(
                                [
                                    _quantile(mine.latencies, share) / _quantile(other.latencies, share)
                                    for mine, other in zip(beside, alone, strict=True)
                                ]
                            ),
                            2,
                        ),
                    ]
                ),
            )
            for label, share in (("median", 50), ("99th percentile", 99))
        ),
    ]
    figures = {"lags": lags, "alone": _all(alone), "beside": _all(beside), "reported": reported}
    results.add("lag", table((title, ""), rows), figures)


def _replicate_beside(
    uri: str, standby: PravegaServer, name: str, seconds: float
) -> tuple[list[tuple[float, list[int]]], float]:
    """Replicate for some seconds; return samples of the replica's offsets, and the longest reported lag."""
    target = f"{standby.uri}/{SCOPE}/{name}"
    samples: list[tuple[float, list[int]]] = []
    ended = Event()

    def sample() -> None:
        address, stream = parse_stream(target)
        segments = [SegmentId(0, number) for number in range(SEGMENTS)]
        began = time.monotonic()
        with address.open() as store:
            while not ended.wait(SAMPLE_SECONDS):
                if time.monotonic() - began > SETTLED_SECONDS:
                    infos = store.segment_info(stream, segments)
                    samples.append((time.monotonic(), [info.write_offset for info in infos]))

    sampler = Thread(target=sample, daemon=True)
    sampler.start()
    try:
        options = ("--follow", "--every", "1s", "--for", f"{seconds:.0f}s")
        report = run_command("replicate", uri, target, *options, environment={}).report
    finally:
        ended.set()
        sampler.join()
    return samples, float(report["most_lag_seconds"])


def _new_stream(setting: Setting, name: str) -> str:
    stream = setting.stream(name)
    setting.store.create_scope(stream.scope)
    setting.store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=SEGMENTS)))
    return setting.stream_uri(stream)


def _all(runs: Sequence[_Written]) -> list[float]:
    return [latency for one in runs for latency in one.latencies]


def _quantile(figures: Sequence[float], percent: int) -> float:
    return statistics.quantiles(figures, n=100, method="inclusive")[percent - 1]


def _latency(written: _Written) -> str:
    return f"{1000 * statistics.median(written.latencies):.1f} ms"


# Idle rounds


def _idle(setting: Setting, standby: PravegaServer, arguments: argparse.Namespace, results: Results) -> None:
    uri = _new_stream(setting, "idle")
    seconds = _rounds(uri, f"{standby.uri}/{SCOPE}/idle")
    rows = [("one round", spread_text(spread([1000 * one for one in seconds]), 1) + " ms")]
    uris = [_new_stream(setting, f"idle-{number}") for number in range(arguments.streams)]
    lasting = 20.0 if arguments.quick else 60.0
    start, gaps, processor = _follow_all(uris, standby, lasting)
    rows += [
        (f"{arguments.streams} streams in one process, --every 10s: until each had its first round", f"{start:.1f} s"),
        ("from then on, the longest time from one round of a stream to the next", f"{max(gaps):.1f} s"),
        ("the process's processor time", f"{100 * processor / lasting:.0f} % of a core"),
    ]
    figures = {"round": seconds, "start": start, "gaps": gaps, "processor": processor}
    results.add("idle", table(("rounds with nothing new", ""), rows), figures)


def _rounds(uri: str, target: str) -> list[float]:
    """Return the durations of rounds with nothing new (seconds)."""
    found = []
    with ExitStack() as stack:
        replica = Replica(stack.enter_context(open_stream(target)))
        replication = Replication(
            open_source(uri, stack),
            replica,
            ReplicateOptions(),
            progress=Progress(),
            tasks=Tasks("inline", stack, RESTORE_TASKS),
        )
        replication.look_first()
        replication.round()
        for _ in range(ROUNDS):
            began = time.monotonic()
            replication.round()
            found.append(time.monotonic() - began)
        replication.release()
    return found


def _follow_all(uris: Sequence[str], standby: PravegaServer, lasting: float) -> tuple[float, list[float], float]:
    """Replicate idle streams in threads.

    Returns:
        Seconds until each had its first round, the longest time from one round of each stream to its next,
        and processor seconds.
    """
    began_at: dict[str, list[float]] = {uri: [] for uri in uris}
    run_round = Replication.round

    def observed(self: Replication) -> Round:
        began_at[self.source.uri].append(time.monotonic())
        return run_round(self)

    def follow(uri: str, seconds: float | None) -> None:
        target = f"{standby.uri}/{SCOPE}/{uri.rpartition('/')[2]}"
        if seconds is None:
            replicate_stream(uri, target, master="inline")
        else:
            replicate_stream(uri, target, follow=True, every=10, lasting=seconds, master="inline")

    with ThreadPoolExecutor(len(uris)) as pool:
        list(pool.map(lambda uri: follow(uri, None), uris))
        Replication.round = observed  # type: ignore[method-assign]
        try:
            began, used = time.monotonic(), time.process_time()
            list(pool.map(lambda uri: follow(uri, lasting), uris))
        finally:
            Replication.round = run_round  # type: ignore[method-assign]
    used = time.process_time() - used
    start = max(times[0] for times in began_at.values()) - began
    return start, [max(b - a for a, b in pairwise(times)) for times in began_at.values()], used


# Promotions


def _promote(setting: Setting, standby: PravegaServer, arguments: argparse.Namespace, results: Results) -> None:
    workload = Workload(arguments.events, SIZE, SEGMENTS)
    sealed: list[float] = []
    for repeat in range(arguments.repeats):
        source, target = _replica(setting, standby, workload, f"sealed-{repeat}")
        setting.settle()
        sealed.append(run_command("promote", target, "--seal-source", environment={}).seconds)
        setting.store.delete(source)
        _drop(target)
    source, target = _replica(setting, standby, workload, "dead")
    setting.settle()
    setting.pravega.kill()
    dead = run_command("promote", target, environment={}).seconds
    rows = [
        ("`promote --seal-source`, beginning with the seal", spread_text(spread(sealed), 1)),
        ("`promote` after the source's cluster was killed", f"{dead:.1f}"),
    ]
    title = f"the whole command, a replica of {workload.bytes / 1e6:,.0f} MB"
    results.add("promote", table((title, "seconds"), rows), {"sealed": sealed, "dead": dead, **asdict(workload)})


def _replica(setting: Setting, standby: PravegaServer, workload: Workload, name: str) -> tuple[StreamName, str]:
    """Fill a stream and replicate it; return its name, and the replica's URI."""
    source, target = setting.stream(name), f"{standby.uri}/{SCOPE}/{name}"
    workload.fill(setting.store, source)
    run_command("replicate", setting.stream_uri(source), target, environment={})
    return source, target


def _drop(target: str) -> None:
    address, name = parse_stream(target)
    with address.open() as store:
        store.delete(name)
