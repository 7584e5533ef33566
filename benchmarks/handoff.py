"""Handoff compared with pyarrow writing the same rows, and Trino queries on both tables."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from benchmarks.measuring import Arm, Measured, Spread, interleave, ratio, say, spread
from benchmarks.product import run_command
from benchmarks.results import Results, spread_text, table
from benchmarks.setting import Setting, open_setting
from benchmarks.spark_read import read_stream
from streamvault.lake.batches import EVENT_SCHEMA
from streamvault.lake.column_types import trino_type
from streamvault.streamstore.arithmetic.framing import frame_many
from streamvault.streamstore.model import HEADER_BYTES, Scaling, SegmentId, StreamConfiguration, StreamName
from tests.servers.moto import moto_server
from tests.servers.trino import TrinoServer

HELP = "a table's writing and queries, and reads of a stream by Spark, beside pyarrow and a bare loop"
PARTS = ("table", "spark")
SEGMENTS = 4
OURS, BY_HAND = "**streamvault handoff**", "pyarrow, from rows in memory"
BARE = "our files, without the partition"
TABLES = {BY_HAND: "own.lake.by_hand", OURS: "own.lake.json_0", BARE: "own.lake.bare"}
QUERIES = {
    "count": "SELECT count(*) FROM {}",
    "group by": "SELECT country, count(*), sum(id), avg(x) FROM {} GROUP BY 1",
    "a JSON field": "SELECT count(*) FROM {} WHERE json_extract_scalar(from_utf8(payload), '$.country') = 'CH'",
    "a range of offsets": 'SELECT count(*) FROM {} WHERE segment = 1 AND "offset" BETWEEN 1000000 AND 1100000',
}

COUNTRIES = ("CH", "DE", "FR", "IT", "AT", "LI")
SCHEMA = pa.schema(
    [*EVENT_SCHEMA, ("id", pa.int64()), ("country", pa.string()), ("x", pa.float64()), ("text", pa.string())]
)
"""Columns of both tables, without those for undecodable payloads and for the generation."""

ROW_GROUP_ROWS = 256 * 1024
FILE_ROWS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks handoff``."""
    parser.add_argument("--events", type=int, default=1_000_000, help="how many (1000000)")
    parser.add_argument("--size", type=int, default=200, help="about how many bytes each (200)")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="tables (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, interleaved (default 3)")
    parser.add_argument("--quick", action="store_true", help="10,000 events, one repeat: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure writing and querying a table, then reading a stream; add a table for each."""
    if arguments.quick:
        arguments.events, arguments.repeats = 10_000, 1
    if "table" in arguments.part:
        _table(arguments, results)
    if "spark" in arguments.part:
        read_stream(arguments.repeats, results, quick=arguments.quick)


def _table(arguments: argparse.Namespace, results: Results) -> None:
    readings = _Readings(arguments.events, arguments.size, SEGMENTS)
    with ExitStack() as servers:
        setting = servers.enter_context(open_setting("minio", quick=arguments.quick))
        results.describe(setting.describe())
        glue = servers.enter_context(moto_server())
        comparison = _Comparison(setting, readings, glue.endpoint)
        comparison.run(arguments.repeats, results)
        statements = comparison.statements()
        say("starting Trino")
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


def _rows_in_memory(readings: _Readings, stream: StreamName) -> Iterator[pa.Table]:
    """Yield all rows, already decoded, about a million at a time."""
    for segment in range(readings.segments):
        offset, rows = 0, []
        for number in readings.numbers(segment):
            payload = readings.payload(number)
            length = HEADER_BYTES + len(payload)
            own = {
                "scope": stream.scope,
                "stream": stream.stream,
                "epoch": 0,
                "segment": segment,
                "offset": offset,
                "length": length,
                "pointer": f"{stream}/{segment}.#epoch.0:{offset}-{length}",
                "payload": payload,
            }
            rows.append({**own, **readings.fields(number)})
            offset += length
            if len(rows) == 50_000:
                yield pa.Table.from_pylist(rows, SCHEMA)
                rows = []
        if rows:
            yield pa.Table.from_pylist(rows, SCHEMA)


def _write_by_hand(tables: list[pa.Table], folder: str, filesystem: pa.fs.FileSystem) -> float:
    """Write rows with pyarrow's fastest method, one file per `FILE_ROWS` rows; return the seconds."""
    began = time.monotonic()
    held = pa.concat_tables(tables)
    for number, start in enumerate(range(0, len(held), FILE_ROWS)):
        pq.write_table(
            held.slice(start, FILE_ROWS),
            f"{folder}/part-{number:05d}.parquet",
            row_group_size=ROW_GROUP_ROWS,
            compression="zstd",
            filesystem=filesystem,
        )
    return time.monotonic() - began


class _Comparison:
    """Comparison of writing: the stream is archived once, and handed off in each repeat."""

    def __init__(self, setting: Setting, readings: _Readings, glue: str) -> None:
        self._setting = setting
        self._readings = readings
        self._environment = {**setting.s3.environment(), "AWS_ENDPOINT_URL_GLUE": glue}
        self._stream = setting.stream("readings")
        self._bytes = 0
        self._filesystem = pa.fs.S3FileSystem(
            access_key=setting.s3.access_key,
            secret_key=setting.s3.secret_key,
            endpoint_override=setting.s3.endpoint,
            region=setting.s3.region,
        )

    def run(self, repeats: int, results: Results) -> None:
        say("filling the stream and archiving it")
        self._bytes = self._readings.fill(self._setting, self._stream)
        uri, root = self._setting.stream_uri(self._stream), self._setting.root_uri("vault")
        run_command("export", uri, root, "--layout", "chunks", environment=self._environment)
        rows = list(_rows_in_memory(self._readings, self._stream))

        def by_hand(repeat: int) -> Measured:
            folder = f"{self._setting.bucket}/by-hand/{repeat}"
            return Measured(self._readings.events, self._bytes, _write_by_hand(rows, folder, self._filesystem))

        arms = [
            Arm(BY_HAND, by_hand),
            Arm(f"{OURS}, payload alone", partial(self._hand_off, "plain", ())),
            Arm(f"{OURS}, JSON decoded", partial(self._hand_off, "json", ("--decode", "json", "--catalog", "glue"))),
        ]
        found = interleave(arms, repeats, self._setting.settle)
        title = f"writing a table, {self._readings.events:,} events, {self._bytes / 1e6:,.0f} MB"
        lines = [
            (
                arm.name,
                "1" if arm.name == BY_HAND else spread_text(ratio(found, arm.name, BY_HAND), 2),
                spread_text(spread([one.megabytes_per_second for one in found[arm.name]]), 0),
            )
            for arm in arms
        ]
        figures = {name: [one.seconds for one in held] for name, held in found.items()}
        results.add(title, table((title, "of pyarrow", "MB/s"), lines), figures)

    def statements(self) -> str:
        """Return the statements that register our table of the first repeat."""
        archive = f"{self._setting.root_uri('vault')}/{self._stream}"
        printed = run_command("ddl", archive, "trino", "--table", "lake.json_0", environment=self._environment)
        return str(printed.report["ddl"])

    def _hand_off(self, name: str, options: Sequence[str], repeat: int) -> Measured:
        archive = f"{self._setting.root_uri('vault')}/{self._stream}"
        kind = ("--format", "parquet", "--table", f"lake.{name}_{repeat}")
        report = run_command("handoff", archive, *kind, *options, environment=self._environment).report
        if report["events"] != self._readings.events or report["undecoded"]:
            raise RuntimeError(f"{report['events']} events became rows instead of {self._readings.events}")
        return Measured(report["events"], report["bytes"], report["seconds"])


def _queries(
    setting: Setting, trino: TrinoServer, readings: _Readings, results: Results, *, statements: str, repeats: int
) -> None:
    """Compare queries of our table from the first repeat with those of the table written by pyarrow."""
    columns = ", ".join(f'"{field.name}" {trino_type(field.type)}' for field in SCHEMA)
    trino.query(f"CREATE SCHEMA own.lake WITH (location = 's3://{setting.bucket}/own/')")
    trino.query(
        f"CREATE TABLE own.lake.by_hand ({columns}) "
        f"WITH (format = 'PARQUET', external_location = 's3://{setting.bucket}/by-hand/0/')"
    )
    for statement in filter(str.strip, statements.split(";\n")):
        trino.query(statement, "own")
    # our files, registered like the other table: without partitions, which would cost metastore requests
    folder = f"{setting.root_uri('vault')}/{setting.stream('readings')}/table/json_0/generation=1/"
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
        if any(answer != answers[TABLES[BY_HAND]] for answer in answers.values()):
            raise RuntimeError(f"the tables answer differently: {answers}")
        times = [spread_text(_times(found[arm], found[BY_HAND]), 2) for arm in (OURS, BARE)]
        seconds = [spread_text(spread([one.seconds for one in found[arm]]), 2) for arm in (OURS, BY_HAND)]
        planning = " / ".join(f"{spread(planned[TABLES[arm]]).median:.0f}" for arm in (OURS, BARE, BY_HAND))
        lines.append((name, *times, *seconds, planning))
        figures[name] = {of: [one.seconds for one in found[of]] for of in found}
    title = f"Trino on {readings.events:,} events"
    heads = (
        *(title, "our table's time, of the other's", f"{BARE}, of the other's"),
        *("our table (s)", "made by hand (s)", "planning of all three (ms)"),
    )
    results.add(title, table(heads, lines), figures)


def _times(found: Sequence[Measured], others: Sequence[Measured]) -> Spread:
    """Return the ratio of the durations within each repeat."""
    return spread([one.seconds / other.seconds for one, other in zip(found, others, strict=True)])


def _at_once() -> None:
    """Do nothing: a query leaves no work for the servers."""
