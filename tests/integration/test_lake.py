"""A stream of a real Pravega as a table in a real Trino: its query results are those of the stream itself."""

from __future__ import annotations

import json
import random
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from pyiceberg.catalog import load_catalog

from streamvault import export_stream, table_ddl, write_table
from streamvault.lake.reports import HandoffReport
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import EventPointer, KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run, started, wait_until
from testkit.servers.iceberg_rest import IcebergRestServer
from testkit.servers.pravega import PravegaServer
from testkit.servers.s3 import S3Server
from testkit.servers.trino import TrinoServer
from testkit.streams import append_events, events_of
from tests import hostile_values

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.trino, pytest.mark.timeout(1800)]

COUNTRIES = ("CH", "DE", "FR", "IT", "AT", "LI")
ANSWERS = """
SELECT country, count(*), sum(id), min(place.x), count_if(ok) FROM {table} WHERE _error IS NULL GROUP BY 1 ORDER BY 1
"""
FILTER = """
SELECT count(*), sum(length) FROM {table}
WHERE json_extract_scalar(try(json_parse(from_utf8(payload))), '$.place.name') = 'place 7'
"""


def reading(number: int) -> bytes:
    """An event; some do not fit the table's columns."""
    if number % 1000 == 999:
        return b"no JSON at all \xff" if number % 2000 == 999 else b'{"id": "text"}'
    place = {"name": f"place {number % 11}", "x": number % 17 + 0.5}
    at = f"2026-01-{number % 28 + 1:02d}T00:00:{number % 60:02d}Z"
    event = {"id": number, "country": COUNTRIES[number % 6], "ok": number % 3 == 0, "at": at, "place": place}
    return json.dumps(event).encode()


@dataclass
class Answers:
    """The expected query results, computed from the stream."""

    events: int = 0
    errors: int = 0
    groups: dict[str, list[Any]] = field(default_factory=dict)
    filtered: list[int] = field(default_factory=lambda: [0, 0])
    days: Counter[str] = field(default_factory=Counter)

    def add(self, pointer: EventPointer, payload: bytes) -> None:
        self.events += 1
        try:
            event = json.loads(payload)
        except ValueError:
            event = None
        if event is None or not isinstance(event["id"], int):
            self.errors += 1
            return
        group = self.groups.setdefault(event["country"], [0, 0, 1e9, 0])
        group[0] += 1
        group[1] += event["id"]
        group[2] = min(group[2], event["place"]["x"])
        group[3] += event["ok"]
        self.days[event["at"][:10]] += 1
        if event["place"]["name"] == "place 7":
            self.filtered[0] += 1
            self.filtered[1] += pointer.length


@dataclass
class Lake:
    """A stream, its archive, and tables of it in Iceberg and Hive formats."""

    store: StreamStore
    uri: str
    name: StreamName
    bucket: str
    trino: TrinoServer
    written: int = 0
    known: dict[int, Answers] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}/lake"

    @property
    def archive(self) -> str:
        return f"{self.root}/{self.name}"

    @property
    def database(self) -> str:
        return self.name.scope.replace("-", "_")

    def add(self, count: int) -> None:
        """Append events to every open segment."""
        segments = sorted(self.store.describe(self.name).tail.offsets)
        for index, segment in enumerate(segments):
            numbers = range(self.written + index, self.written + count, len(segments))
            append_events(self.store, self.name, segment, map(reading, numbers))
        self.written += count

    def export(self) -> None:
        export_stream(self.uri, self.root, layout="chunks", compress="zstd", range_size=1024 * 1024, master="inline[2]")

    def hand_off(self, kind: str, master: str = "inline[2]", **options: Any) -> HandoffReport:
        new = {"format": kind, "decode": "json", "event_time": "at", "target_size": 1024 * 1024}
        named = {"table": f"{self.database}.{kind}", "catalog": "glue", "master": master}
        return write_table(self.archive, **{**named, **new, **options})

    def answers(self) -> Answers:
        """Of all events of the stream now."""
        if self.written not in self.known:
            found = self.known[self.written] = Answers()
            for pointer, payload in events_of(self.store, self.name):
                found.add(pointer, payload)
        return self.known[self.written]

    def objects(self, below: str) -> dict[str, tuple[str, object]]:
        """Key → ETag and time of every object."""
        pages = (
            boto3.client("s3")
            .get_paginator("list_objects_v2")
            .paginate(Bucket=self.bucket, Prefix=f"lake/{self.name}/{below}")
        )
        return {one["Key"]: (one["ETag"], one["LastModified"]) for page in pages for one in page.get("Contents", [])}

    def table(self, kind: str) -> str:
        return f"{'iceberg' if kind == 'iceberg' else 'hive'}.{self.database}.{kind}"

    def check(self, table: str, wanted: Answers) -> None:
        """Query the table, and compare with the stream."""
        ask = self.trino.query
        assert ask(f"SELECT count(*), count(DISTINCT pointer), count(_error) FROM {table}") == [
            [wanted.events, wanted.events, wanted.errors]
        ]
        groups = {row[0]: row[1:] for row in ask(ANSWERS.format(table=table))}
        assert groups == wanted.groups
        assert ask(FILTER.format(table=table)) == [wanted.filtered]
        days = ask(f"SELECT date_format(event_time, '%Y-%m-%d'), count(*) FROM {table} WHERE _error IS NULL GROUP BY 1")
        assert dict(days) == wanted.days


@pytest.fixture(scope="module")
def lake(
    request: pytest.FixtureRequest, pravega: PravegaServer, minio: S3Server, moto_s3: S3Server, trino: TrinoServer
) -> Iterator[Lake]:
    """The stream: two segments and a scale in the middle, exported; nothing is handed off."""
    name = StreamName(f"lake-{uuid.uuid4().hex[:8]}", "readings")
    events: int = request.config.getoption("--lake-events")
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {**minio.environment(), "AWS_ENDPOINT_URL_GLUE": moto_s3.endpoint}.items():
            patch.setenv(variable, value)
        uri = f"{pravega.uri}/{name}"
        with parse_stream(uri)[0].open() as store:
            store.create_scope(name.scope)
            store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
            made = Lake(store, uri, name, minio.make_bucket(name.scope), trino)
            made.add(events // 2)
            first = min(store.describe(name).tail.offsets)
            held = store.describe(name).ranges()[first]
            middle = (held.low + held.high) / 2
            store.scale(name, [first], [KeyRange(held.low, middle), KeyRange(middle, held.high)])
            made.add(events - events // 2)
            made.export()
            yield made


def test_trino_returns_the_streams_events(lake: Lake) -> None:
    iceberg = lake.hand_off("iceberg", "local[2]")
    parquet = lake.hand_off("parquet")
    wanted = lake.answers()
    for report in (iceberg, parquet):
        assert (report.events, report.undecoded, report.registered) == (wanted.events, wanted.errors, (1,))
        assert report.files > 1
        lake.check(lake.table(report.format), wanted)


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
@pytest.mark.parametrize("decode", ["json", "csv", "avro"])
def test_trino_reads_hostile_values(lake: Lake, kind: Any, decode: Any) -> None:
    """Values from every corner of every type: a value that no table can hold is null, and nothing else."""
    events = [hostile_values.usual(decode), *hostile_values.every(decode)]
    name = StreamName(lake.name.scope, f"hostile-{decode}-{kind}")
    lake.store.create_stream(name, StreamConfiguration())
    append_events(lake.store, name, SegmentId(0, 0), [event.payload for event in events])
    table = f"{lake.database}.hostile_{decode}_{kind}"
    report = write_table(
        f"{lake.uri.removesuffix(str(lake.name))}{name}",
        root=lake.root,
        table=table,
        format=kind,
        decode=decode,
        schema=hostile_values.schema_of(decode),
        catalog="glue",
        master="inline[2]",
    )
    assert (report.events, report.registered) == (len(events), (1,))
    shown, table = hostile_values.shown_by_trino(decode), f"{'iceberg' if kind == 'iceberg' else 'hive'}.{table}"
    rows = lake.trino.query(f"SELECT {', '.join(shown.values())}, _error FROM {table} ORDER BY offset")
    for event, row in zip(events, rows, strict=True):
        assert row[:-1] == [hostile_values.as_trino(*one) for one in event.held.items()]
        assert (row[-1] is None) == (not event.wrong)
    for text in {event.held["s"] for event in events} - {None}:
        found = lake.trino.query(f"SELECT count(*) FROM {table} WHERE s = '{text}'")
        assert found == [[sum(event.held["s"] == text for event in events)]], "no statistics hide it"


def test_second_generation_leaves_the_first_unchanged(lake: Lake) -> None:
    for kind in ("iceberg", "parquet"):
        lake.hand_off(kind)
    files = {key: value for key, value in lake.objects("table/").items() if key.endswith(".parquet")}
    lake.add(3000)
    lake.export()
    before = lake.trino.query(f"SELECT count(*) FROM {lake.table('iceberg')}")
    for kept in ("COMMENT ON TABLE {} IS 'of the shop'", "ANALYZE {}", "ALTER TABLE {} EXECUTE optimize"):
        lake.trino.query(kept.format(lake.table("iceberg")))  # Trino's own metadata are continued
    reports = [lake.hand_off(kind) for kind in ("iceberg", "parquet")]
    assert [report.added for report in reports] == [report.registered for report in reports]
    assert all(len(report.added) == 1 for report in reports)
    after = lake.objects("table/")
    assert {key: after[key] for key in files} == files
    wanted = lake.answers()
    assert before == [[wanted.events - 3000]]
    for kind in ("iceberg", "parquet"):
        lake.check(lake.table(kind), wanted)
        [[newest]] = lake.trino.query(
            f"SELECT count(*) FROM {lake.table(kind)} WHERE generation = {reports[0].added[0]}"
        )
        assert newest == 3000
    assert all(lake.hand_off(kind).unchanged for kind in ("iceberg", "parquet"))


@pytest.mark.long
def test_rest_catalog_has_every_generation(lake: Lake, iceberg_rest: IcebergRestServer, minio: S3Server) -> None:
    """Given by its address, or as a catalog of PyIceberg's settings; read back by PyIceberg and by Trino."""
    table = f"{lake.database}.by_rest"
    settings = {"PYICEBERG_CATALOG__HOUSE__TYPE": "rest", "PYICEBERG_CATALOG__HOUSE__URI": iceberg_rest.uri}
    options = ("--table", table, "--master", "inline[2]", "--json")
    new = ("--decode", "json", "--event-time", "at", "--target-size", "4MB")

    def hand_off(catalog: str, *more: str) -> dict[str, Any]:
        command = ("handoff", lake.archive, "--catalog", catalog, *options, *more)
        return run(*command, environment={**minio.environment(), **settings}).report

    first = hand_off(f"rest:{iceberg_rest.uri}", *new)
    assert first["registered"] == first["generations"] == first["added"]
    lake.add(2000)
    lake.export()
    second = hand_off("house")
    assert second["registered"] == second["added"] == [first["generations"][-1] + 1]
    assert hand_off("house")["unchanged"]

    found = load_catalog("test", type="rest", uri=iceberg_rest.uri, **pyiceberg_settings(minio)).load_table(table)
    assert len(found.history()) == len(second["generations"])
    rows = found.scan(selected_fields=("generation", "pointer", "payload")).to_arrow()
    wanted = [(str(pointer), payload) for pointer, payload in events_of(lake.store, lake.name)]
    assert sorted(zip(rows["pointer"].to_pylist(), rows["payload"].to_pylist(), strict=True)) == sorted(wanted)
    assert Counter(rows["generation"].to_pylist())[second["added"][0]] == 2000
    lake.trino.add_rest_catalog("rest", iceberg_rest.uri)
    lake.check(f"rest.{table}", lake.answers())


def pyiceberg_settings(server: S3Server) -> dict[str, str]:
    keys = {"s3.access-key-id": server.access_key, "s3.secret-access-key": server.secret_key}
    return {"s3.endpoint": server.endpoint, "s3.region": server.region, **keys}


def test_projection_lists_only_complete_generations(lake: Lake) -> None:
    wanted = lake.answers()
    lake.hand_off("parquet", projection=True, table=f"{lake.database}.projected")
    lake.check(f"hive.{lake.database}.projected", wanted)
    store = RootAddress.parse(lake.root).open()
    newest = max(lake.hand_off("parquet").generations)
    # a file of a generation that is being written
    keys = (found.key for found in store.list(f"{lake.name}/table/projected/"))
    key = next(key for key in keys if "/generation=" in key)
    store.put(key.replace(key.split("generation=")[1].split("/")[0], str(newest + 1), 1), store.get(key))
    lake.check(f"hive.{lake.database}.projected", wanted)


def test_ddl_registers_the_tables(lake: Lake) -> None:
    lake.hand_off("parquet")
    lake.hand_off("iceberg")
    wanted = lake.answers()
    database = f"{lake.database}_by_hand"
    for kind, catalog in (("parquet", "own"), ("iceberg", "iceberg")):
        lake.trino.query(f"CREATE SCHEMA {catalog}.{database} WITH (location = 's3://{lake.bucket}/by-hand/{kind}')")
        ddl = table_ddl(lake.archive, "trino", table=f"{database}.{kind}")
        for statement in filter(str.strip, ddl.split(";\n")):
            lake.trino.query(statement, catalog)
        lake.check(f"{catalog}.{database}.{kind}", wanted)


def test_raw_events_are_found_by_path(lake: Lake, moto_s3: S3Server) -> None:
    name = StreamName(lake.name.scope, "few")
    lake.store.create_stream(name, StreamConfiguration())
    append_events(lake.store, name, SegmentId(0, 0), map(reading, range(200)))
    root = f"s3://{lake.bucket}/raw"
    export_stream(lake.uri.replace(str(lake.name), str(name)), root, layout="events", master="inline[2]")
    report = write_table(f"{root}/{name}", catalog="glue", raw=True, master="inline[2]")
    assert report.raw_segments == 1
    events = dict(events_of(lake.store, name))
    pointer, payload = list(events.items())[77]
    path = f"{root}/{name}/events/0000000000.0000000000/{pointer.offset:019d}-{pointer.length:010d}"
    table = f"hive.{lake.database}.few_raw"
    found = lake.trino.query(f"""SELECT payload, "$path" FROM {table} WHERE "$path" = '{path}'""")
    assert found == [[payload.decode(), path]]
    assert lake.trino.query(f"SELECT count(*) FROM {table}") == [[200]]
    pattern = r"events/0*(\d+)\.0*(\d+)/0*(\d+)-0*(\d+)$"
    parts = lake.trino.query(
        f"""SELECT regexp_extract("$path", '{pattern}', 3) FROM {table} WHERE "$path" = '{path}'"""
    )
    assert parts == [[str(pointer.offset)]]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_killed_handoff_is_resumed(
    request: pytest.FixtureRequest, lake: Lake, moto_s3: S3Server, minio: S3Server, kind: str
) -> None:
    """Whenever it is killed, the table is at a complete generation, and the next run completes the next one."""
    name = f"killed_{kind}"
    options = ("--table", f"{lake.database}.{name}", "--catalog", "glue", "--master", "inline", "--json")
    new = ("--format", kind, "--target-size", "300KB")
    environment = {**minio.environment(), "AWS_ENDPOINT_URL_GLUE": moto_s3.endpoint}
    # an initial state: what exists now
    first = run("handoff", lake.archive, *options, *new, environment=environment).report
    table = f"{'iceberg' if kind == 'iceberg' else 'hive'}.{lake.database}.{name}"
    count = f"SELECT count(*), count(DISTINCT pointer) FROM {table}"
    rng, killed = random.Random(kind), 0
    held = lake.trino.query(count)[0][0]
    assert held == lake.written
    for attempt in range(request.config.getoption("--lake-kills")):
        lake.add(20_000)
        lake.export()
        share = rng.random()
        files = write_table(lake.archive, table=f"{lake.database}.{name}", master="inline", dry_run=True).files

        def written(generation: int = first["generations"][-1] + attempt + 1) -> int:
            return sum(f"/generation={generation}/" in key for key in lake.objects(f"table/{name}/"))

        with started("handoff", lake.archive, *options, environment=environment) as command:
            wanted = max(1, round(share * files))
            if wait_until(lambda wanted=wanted: written() >= wanted, command):
                command.send(signal.SIGKILL)
            code = command.ended().code
        assert code in {0, -signal.SIGKILL}
        killed += code != 0
        rows, distinct = lake.trino.query(count)[0]
        assert rows == distinct
        assert rows in {held, lake.written}, "a whole generation or nothing"
        rerun = run("handoff", lake.archive, *options, environment=environment).report
        assert lake.trino.query(count) == [[lake.written, lake.written]]
        assert rerun["moved_bytes"] <= rerun["bytes"]
        held = lake.written
    assert killed, "a kill came in time"
    assert run("handoff", lake.archive, *options, environment=environment).report["unchanged"]
