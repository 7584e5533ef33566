"""Handoff compared with pyarrow doing the same work, Trino queries on both tables, and reads of a stream by Spark."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial

from benchmarks.by_hand import ByHand, write_by_hand
from benchmarks.measuring import Arm, Measured, Spread, interleave, say, spread
from benchmarks.product import run_command
from benchmarks.results import BESIDE_LOOPS, Results, beside_loops, spread_text, table
from benchmarks.setting import Setting, open_setting, parallelism
from benchmarks.spark_read import read_stream
from streamvault.streamstore.framing import frame_many
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from testkit.servers.moto import moto_server
from testkit.servers.trino import TrinoServer

HELP = "a table's writing and queries, and reads of a stream by Spark, beside pyarrow and a bare loop"
PARTS = ("table", "queries", "spark")
SEGMENTS = 4
FEW = "few"
KINDS = {"payload alone": "none", "JSON decoded": "json"}
OURS, BY_HAND = "**streamvault handoff**", "pyarrow: get, digest, rows, write"
BARE = "our files, without the partition"
BY_TRINO = "the same rows, written by Trino"
TABLES = {BY_TRINO: "own.lake.by_trino", OURS: "own.lake.json_0", BARE: "own.lake.bare"}
QUERIES = {
    "count": "SELECT count(*) FROM {}",
    "group by": "SELECT country, count(*), sum(id), avg(x) FROM {} GROUP BY 1",
    "a JSON field": "SELECT count(*) FROM {} WHERE json_extract_scalar(from_utf8(payload), '$.country') = 'CH'",
    "a range of offsets": 'SELECT count(*) FROM {} WHERE segment = 1 AND "offset" BETWEEN 1000000 AND 1100000',
}

COUNTRIES = ("CH", "DE", "FR", "IT", "AT", "LI")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks handoff``."""
    parser.add_argument("--events", type=int, default=5_000_000, help="how many (5000000, which are 1 GB)")
    parser.add_argument("--size", type=int, default=200, help="about how many bytes each (200)")
    parser.add_argument(
        "--part", nargs="+", choices=PARTS, default=PARTS, help="tables (default: all); queries are of the table"
    )
    parser.add_argument("--repeats", type=int, default=3, help="of everything, interleaved (default 3)")
    parser.add_argument("--quick", action="store_true", help="10,000 events, one repeat: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure writing and querying a table, then reading a stream; add a table for each."""
    if arguments.quick:
        arguments.events, arguments.repeats = 10_000, 1
    if {"table", "queries"} & set(arguments.part):
        _table(arguments, results)
    if "spark" in arguments.part:
        read_stream(arguments.repeats, results, quick=arguments.quick)


def _table(arguments: argparse.Namespace, results: Results) -> None:
    readings = _Readings(arguments.events, arguments.size, SEGMENTS)
    with ExitStack() as servers:
        setting = servers.enter_context(open_setting("minio", quick=arguments.quick))
        results.describe(setting.describe())
        comparison = _Comparison(setting, readings)
        comparison.run(arguments.repeats, results)
        if "queries" in arguments.part:
            statements = comparison.statements()
            say("starting Trino")
            glue = servers.enter_context(moto_server())
            trino = servers.enter_context(TrinoServer(setting.s3, glue, heap="3G", quick=arguments.quick))
            _queries(setting, trino, readings, results, statements=statements, repeats=arguments.repeats)


class _Readings:
    """A stream of JSON events whose payloads have about ``size`` bytes."""

    def __init__(self, events: int, size: int, segments: int) -> None:
        self.events = events
        self.size = size
        self.segments = segments

    def numbers(self, segment: int) -> range:
        """Return the numbers of a segment's events."""
        return range(segment, self.events, self.segments)

    def fill(self, setting: Setting, stream: StreamName) -> int:
        """Create the stream; return the bytes of its segments."""
        store, size = setting.store, 0
        store.create_scope(stream.scope)
        store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=self.segments)))
        for segment in range(self.segments):
            with store.appender(stream, SegmentId(0, segment)) as appender:
                for block in frame_many(self.payload(number) for number in self.numbers(segment)):
                    appender.append(block)
                size += appender.flush()
        return size

    def payload(self, number: int) -> bytes:
        """Return an event's payload."""
        return json.dumps(self.fields(number)).encode()

    def fields(self, number: int) -> dict[str, object]:
        """Return an event's fields; the text does not compress well."""
        text = f"{number * 2654435761 % 2**64:x}" * (self.size // 16)
        return {"id": number, "country": COUNTRIES[number % 6], "x": number % 1009 / 8, "text": text[: self.size - 60]}


class _Comparison:
    """Comparison of writing: the stream is archived once, and handed off in each repeat."""

    def __init__(self, setting: Setting, readings: _Readings) -> None:
        self._setting = setting
        self._readings = {"readings": readings, FEW: _Readings(SEGMENTS, readings.size, SEGMENTS)}
        self._bytes: dict[str, int] = {}

    def run(self, repeats: int, results: Results) -> None:
        say("filling the stream and archiving it")
        for name, readings in self._readings.items():
            stream = self._setting.stream(name)
            self._bytes[name] = readings.fill(self._setting, stream)
            self._setting.export(stream, "vault", "--layout", "chunks")
        arms = {
            kind: (
                Arm(f"{BY_HAND}, {kind}", partial(self._by_hand, decode)),
                Arm(f"{OURS}, {kind}", partial(self._hand_off, "readings", decode)),
                Arm(f"{OURS}, {kind}, of {SEGMENTS} events", partial(self._hand_off, FEW, decode)),
            )
            for kind, decode in KINDS.items()
        }
        found = interleave([arm for each in arms.values() for arm in each], repeats, self._setting.settle)
        rows, fixed = [], []
        for kind, (loop, command, few) in arms.items():
            rows.append(beside_loops(found, loop.name, loop.name, loop.name))
            rows.append(beside_loops(found, command.name, loop.name, loop.name, few.name))
            took, used = ([getattr(one, what) for one in found[few.name]] for what in ("seconds", "processor_seconds"))
            fixed.append(f"{kind} {spread_text(spread(took), 2)} s, {spread_text(spread(used), 2)} processor seconds")
        size = self._bytes["readings"] / 1e6
        title = f"writing a table, {self._readings['readings'].events:,} events, {size:,.0f} MB"
        text = f"{table((title, *BESIDE_LOOPS), rows)}\n\nA command for {SEGMENTS} events: {'; '.join(fixed)}."
        results.add(title, text, {name: [asdict(one) for one in held] for name, held in found.items()})

    def statements(self) -> str:
        """Return the statements that register our table of the first repeat."""
        environment = self._setting.s3.environment()
        printed = run_command(
            "ddl", self._archive("readings"), "trino", "--table", "lake.json_0", environment=environment
        )
        return str(printed.report["ddl"])

    def _archive(self, name: str) -> str:
        return f"{self._setting.root_uri('vault')}/{self._setting.stream(name)}"

    def _by_hand(self, decode: str, repeat: int) -> Measured:
        setting, stream = self._setting, self._setting.stream("readings")
        folder, tasks = f"by-hand/{decode}/{repeat}", parallelism()
        job = ByHand(setting.s3, setting.bucket, "vault", stream, SEGMENTS, folder, decode == "json", tasks)
        rows, seconds, used = write_by_hand(job)
        return self._measured("readings", rows, seconds, used)

    def _hand_off(self, name: str, decode: str, repeat: int) -> Measured:
        kind = ("--format", "parquet", "--table", f"lake.{decode}_{repeat}", "--decode", decode)
        outcome = run_command("handoff", self._archive(name), *kind, environment=self._setting.s3.environment())
        report = outcome.report
        measured = self._measured(
            name, report["events"] - report["undecoded"], outcome.seconds, outcome.processor_seconds
        )
        return replace(measured, work_seconds=report["seconds"])

    def _measured(self, name: str, rows: int, seconds: float, used: float) -> Measured:
        if rows != self._readings[name].events:
            raise RuntimeError(f"{rows} events became rows instead of {self._readings[name].events}")
        return Measured(rows, self._bytes[name], seconds, used)


def _queries(
    setting: Setting, trino: TrinoServer, readings: _Readings, results: Results, *, statements: str, repeats: int
) -> None:
    """Compare queries of our table from the first repeat with those of the same rows, written by Trino."""
    trino.query(f"CREATE SCHEMA own.lake WITH (location = 's3://{setting.bucket}/own/')")
    for statement in filter(str.strip, statements.split(";\n")):
        trino.query(statement, "own")
    trino.query(
        "CREATE TABLE own.lake.by_trino WITH (format = 'PARQUET', "
        f"external_location = 's3://{setting.bucket}/by-trino/') AS SELECT * FROM own.lake.json_0"
    )
    # our files, registered like the other table: without partitions, which would cost metastore requests
    [[file]] = trino.query('SELECT "$path" FROM own.lake.json_0 LIMIT 1')
    folder = f"{str(file).rpartition('/')[0]}/"
    trino.query(
        f"CREATE TABLE own.lake.bare (LIKE own.lake.json_0) WITH (format = 'PARQUET', external_location = '{folder}')"
    )
    lines, figures = [], {}
    for name, sql in QUERIES.items():
        answers: dict[str, object] = {}
        planned: dict[str, list[float]] = {of: [] for of in TABLES.values()}

        def ask(
            of: str,
            _repeat: int,
            *,
            sql: str = sql,
            answers: dict[str, object] = answers,
            planned: dict[str, list[float]] = planned,
        ) -> Measured:
            began = time.monotonic()
            answers[of] = sorted(map(str, trino.query(sql.format(of))))
            took = time.monotonic() - began
            planned[of].append(trino.planning_seconds() * 1000)
            return Measured(readings.events, 0, took)

        arms = [Arm(arm, partial(ask, of)) for arm, of in TABLES.items()]
        interleave(arms, 2, _at_once)  # warm up: compiled code and caches are the same for all arms
        for held in planned.values():
            held.clear()
        found = interleave(arms, max(repeats, 1) * 3, _at_once)
        if any(answer != answers[TABLES[BY_TRINO]] for answer in answers.values()):
            raise RuntimeError(f"the tables answer differently: {answers}")
        times = [spread_text(_times(found[arm], found[BY_TRINO]), 2) for arm in (OURS, BARE)]
        seconds = [spread_text(spread([one.seconds for one in found[arm]]), 2) for arm in (OURS, BY_TRINO)]
        planning = " / ".join(f"{spread(planned[TABLES[arm]]).median:.0f}" for arm in (OURS, BARE, BY_TRINO))
        lines.append((name, *times, *seconds, planning))
        figures[name] = {of: [one.seconds for one in found[of]] for of in found}
    title = f"Trino on {readings.events:,} events"
    heads = (
        *(title, "our table's time, of the other's", f"{BARE}, of the other's"),
        *("our table (s)", "written by Trino (s)", "planning of all three (ms)"),
    )
    results.add(title, table(heads, lines), figures)


def _times(found: Sequence[Measured], others: Sequence[Measured]) -> Spread:
    """Return the ratio of the durations within each repeat."""
    return spread([one.seconds / other.seconds for one, other in zip(found, others, strict=True)])


def _at_once() -> None:
    """Do nothing: a query leaves no work for the servers."""
