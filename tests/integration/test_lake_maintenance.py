"""Engines tend an Iceberg table between handoffs: no row is lost, none is there twice, and no deleted one is back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from streamvault import write_table
from streamvault.lake.reports import HandoffReport
from testkit.servers.iceberg_rest import IcebergRestServer
from testkit.servers.iceberg_spark import iceberg_spark, of_glue, of_rest, of_sqlite
from testkit.servers.s3 import S3Server
from testkit.servers.trino import TrinoServer
from testkit.small_archives import Vault, objects_of

pytestmark = [pytest.mark.minio, pytest.mark.trino, pytest.mark.timeout(900)]

HANDOFFS = 10
EVENTS = 40
BEGAN = datetime(2026, 1, 1, 18, tzinfo=UTC)
SCHEMA = '{"id": "int", "kind": "int", "at": "timestamp"}'
OF_TRINO = (
    "ALTER TABLE {} EXECUTE optimize",
    "DELETE FROM {} WHERE kind = 3",
    "ALTER TABLE {} EXECUTE expire_snapshots(retention_threshold => '0s')",
    "ALTER TABLE {} EXECUTE remove_orphan_files(retention_threshold => '0s')",
    "ALTER TABLE {} ADD COLUMN note varchar",
    "UPDATE {} SET note = 'seen' WHERE kind = 1",
    "ALTER TABLE {} ALTER COLUMN kind SET DATA TYPE bigint",
    "ALTER TABLE {} EXECUTE optimize_manifests",
    "ALTER TABLE {} SET PROPERTIES partitioning = ARRAY['month(event_time)']",
)
OF_SPARK = (
    "CALL {catalog}.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))",
    "DELETE FROM {name} WHERE kind = 3",
    "CALL {catalog}.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '{now}', retain_last => 1)",
    "CALL {catalog}.system.remove_orphan_files('{table}', older_than => TIMESTAMP '{old}', prefix_listing => true)",
    "ALTER TABLE {name} ADD COLUMN note string",
    "UPDATE {name} SET note = 'seen' WHERE kind = 1",
    "ALTER TABLE {name} ALTER COLUMN kind TYPE bigint",
    "CALL {catalog}.system.rewrite_manifests('{table}')",
    "ALTER TABLE {name} REPLACE PARTITION FIELD event_time_day WITH months(event_time)",
)


@dataclass
class Tended:
    """A table in a catalog, to which each handoff adds the events of an evening and the night after it."""

    vault: Vault
    catalog: str
    name: str
    days: dict[int, str] = field(default_factory=dict)
    """Each row's number, and its day."""
    added: int = 0
    event_time: str | None = "at"

    def hand_off(self) -> HandoffReport:
        began = BEGAN + timedelta(days=self.added // EVENTS)
        payloads = []
        for number in range(self.added, self.added + EVENTS):
            at = f"{began + timedelta(minutes=10 * (number - self.added)):%Y-%m-%dT%H:%M:%SZ}"
            self.days[number] = at[:10]
            payloads.append(json.dumps({"id": number, "kind": number % 7, "at": at}).encode())
        self.added += EVENTS
        self.vault.add(*payloads)
        self.vault.export("chunks")
        return self.hand_off_nothing_new()

    def hand_off_nothing_new(self) -> HandoffReport:
        options: dict[str, Any] = {"decode": "json", "schema": SCHEMA, "master": "inline[1]"}
        options["event_time"] = self.event_time
        return write_table(self.vault.archive, table=self.name, catalog=self.catalog, **options)

    def delete(self, kind: int) -> None:
        self.days = {number: day for number, day in self.days.items() if number % 7 != kind}

    @property
    def rows(self) -> list[list[Any]]:
        return [[number, day] for number, day in sorted(self.days.items())]

    def check(self, trino: TrinoServer, table: str, *filters: str) -> None:
        """Trino reads each row once, also by its day and its number, by which it may leave out files."""
        select = f"SELECT id, date_format(event_time, '%Y-%m-%d') FROM {table}"
        assert trino.query(f"{select} ORDER BY 1") == self.rows
        for row_filter in filters:
            day = row_filter
            midnight = f"timestamp '{day} 00:00:00'"
            where = f"event_time >= {midnight} AND event_time < {midnight} + INTERVAL '1' DAY"
            assert trino.query(f"{select} WHERE {where} ORDER BY 1") == [row for row in self.rows if row[1] == day]
        assert trino.query(f"{select} WHERE id = 41") == [row for row in self.rows if row[0] == 41]


@pytest.fixture
def tended(vault_in_glue: Vault, bucket_name: str) -> Callable[[str], Tended]:
    """A function that makes the table, empty, in a catalog."""
    return lambda catalog: Tended(vault_in_glue, catalog, f"{bucket_name.replace('-', '_')}.t")


@pytest.mark.parametrize("catalog", ["glue", pytest.param("rest", marks=pytest.mark.long)])
def test_trino_tends_a_table(
    request: pytest.FixtureRequest,
    tended: Callable[[str], Tended],
    catalog: str,
    trino: TrinoServer,
) -> None:
    if catalog == "rest":
        rest: IcebergRestServer = request.getfixturevalue("iceberg_rest")
        trino.add_rest_catalog("tended", rest.uri)
        lake, known = tended(f"rest:{rest.uri}"), "tended"
    else:
        lake, known = tended("glue"), "iceberg"
    table = f"{known}.{lake.name}"
    of_files, of_snapshots = (f'"{table}${kind}"'.replace(".", '"."') for kind in ("files", "snapshots"))
    assert lake.hand_off().registered == (1,)
    for number, step in enumerate(OF_TRINO, start=2):
        [[snapshot]] = trino.query(f"SELECT max_by(snapshot_id, committed_at) FROM {of_snapshots}")
        before = len(lake.days)
        trino.query(step.format(table))
        if step.startswith("DELETE"):
            lake.delete(3)
        assert lake.hand_off().registered == (number,)
        lake.check(trino, table, f"2026-01-{number:02}")
        if "expire" not in step:
            assert trino.query(f"SELECT count(*) FROM {table} FOR VERSION AS OF {snapshot}") == [[before]], "as it was"
    assert number == HANDOFFS
    assert lake.hand_off_nothing_new().unchanged
    files = trino.query(f"SELECT count(*) FROM {of_files} WHERE content = 0")[0][0]
    assert files > HANDOFFS // 2
    trino.query(OF_TRINO[0].format(table))
    assert trino.query(f"SELECT count(*) FROM {of_files}") == [[1]], "what many handoffs added is in one file"
    lake.check(trino, table, "2026-01-01", "2026-01-11")


def test_a_table_without_an_event_time_is_compacted_across_handoffs(
    tended: Callable[[str], Tended], iceberg_rest: IcebergRestServer, trino: TrinoServer
) -> None:
    trino.add_rest_catalog("untimed", iceberg_rest.uri)
    lake = tended(f"rest:{iceberg_rest.uri}")
    lake.event_time = None
    table, of_files = f"untimed.{lake.name}", f'"untimed.{lake.name}$files"'.replace(".", '"."')
    for number in range(1, 9):
        assert lake.hand_off().registered == (number,)
    assert trino.query(f"SELECT count(*) FROM {of_files}") == [[8]]
    trino.query(OF_TRINO[0].format(table))
    days = trino.query(f"SELECT count(DISTINCT generation_day) FROM {table}")
    assert days in ([[1]], [[2]]), "a test may begin before midnight"
    assert trino.query(f"SELECT count(*) FROM {of_files}") == days, "what eight handoffs added is in one file a day"
    assert lake.hand_off_nothing_new().unchanged
    assert lake.hand_off().registered == (9,)
    trino.query(OF_TRINO[0].format(table))
    assert trino.query(f"SELECT id FROM {table} ORDER BY 1") == [[number] for number in range(lake.added)]


def test_trino_shows_no_rows_of_another_table_at_the_same_path(
    tmp_path: Path, vault_in_glue: Vault, minio: S3Server, bucket_name: str, trino: TrinoServer
) -> None:
    """Trino has cached the files of a table, which is in another bucket, or was dropped where the next one is made."""
    begun = f"{bucket_name.replace('-', '_')}"
    other = f"s3://{minio.make_bucket(f'{bucket_name}-other')}/{bucket_name}"
    for number, root in enumerate((vault_in_glue.root, other, vault_in_glue.root)):
        vault = Vault(tmp_path / str(number), root)
        vault.create()
        vault.add(*(f"{number}-{index}".encode() for index in range(100)))
        table = f"{begun}_{number}.t"
        write_table(vault.uri(), root=root, table=table, catalog="glue", master="inline[1]")
        rows = trino.query(f"SELECT from_utf8(payload) FROM iceberg.{table}")
        assert sorted(rows) == sorted([f"{number}-{index}"] for index in range(100))
        if not number:
            trino.query(f"DROP TABLE iceberg.{table}")
            store = objects_of(root)
            store.delete([found.key for found in store.list("")])


def read_by_trino(lake: Tended, table: Table, trino: TrinoServer) -> None:
    """Trino has no catalog in SQLite, so it reads the newest metadata, under another name."""
    schema, name = lake.name.split(".")
    trino.query(f"CREATE SCHEMA IF NOT EXISTS iceberg.{schema} WITH (location = '{lake.vault.root}/other')")
    metadata = table.metadata_location.rpartition("/")[2]
    trino.query(f"CALL system.register_table('{schema}', '{name}', '{table.location()}', '{metadata}')", "iceberg")
    lake.check(trino, f"iceberg.{lake.name}", "2026-01-01", "2026-01-05", "2026-01-11")
    trino.query(f"CALL system.unregister_table('{schema}', '{name}')", "iceberg")


@dataclass(frozen=True)
class Known:
    """A catalog, to the product, to PyIceberg and to Iceberg's runtime in Spark."""

    text: str
    iceberg: dict[str, str]
    spark: dict[str, str]

    def table(self, lake: Tended, minio: S3Server) -> Table:
        """The table, as PyIceberg loads it now."""
        keys = {
            "s3.endpoint": minio.endpoint,
            "s3.access-key-id": minio.access_key,
            "s3.secret-access-key": minio.secret_key,
        }
        return load_catalog("streamvault", **self.iceberg, **keys).load_table(lake.name)


@pytest.fixture(params=[*(pytest.param(kind, marks=pytest.mark.long) for kind in ("sql", "rest")), "glue"])
def known(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Known:
    """A catalog of each kind."""
    if request.param == "rest":
        rest: IcebergRestServer = request.getfixturevalue("iceberg_rest")
        return Known(f"rest:{rest.uri}", {"type": "rest", "uri": rest.uri}, of_rest(rest.uri))
    if request.param == "glue":
        moto: S3Server = request.getfixturevalue("moto_s3")
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", moto.endpoint)
        return Known("glue", {"type": "glue"}, of_glue(moto.endpoint))
    database = tmp_path / "catalog.db"
    return Known(f"sql:sqlite:///{database}", {"type": "sql", "uri": f"sqlite:///{database}"}, of_sqlite(database))


def test_pyiceberg_tends_a_table(
    request: pytest.FixtureRequest, known: Known, tended: Callable[[str], Tended], minio: S3Server
) -> None:
    lake = tended(known.text)

    def expire(table: Table) -> None:
        table.maintenance.expire_snapshots().older_than(datetime.now(UTC).replace(tzinfo=None)).commit()

    def change_columns(table: Table) -> None:
        with table.update_schema() as update:
            update.add_column("note", StringType())
            update.update_column("kind", LongType())

    def repartition(table: Table) -> None:
        """PyIceberg itself writes only to partitions of plain values."""
        with table.update_spec() as update:
            update.remove_field("event_time_day")
            update.add_identity("kind")

    def drop_partitions(table: Table) -> None:
        with table.update_spec() as update:
            update.remove_field("kind")

    def tag(table: Table) -> None:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        table.manage_snapshots().create_tag(snapshot.snapshot_id, "kept").commit()

    steps: tuple[Callable[[Table], object], ...] = (
        repartition,
        lambda table: table.delete(EqualTo("kind", 3)),
        expire,
        change_columns,
        tag,
        lambda table: table.overwrite(table.scan(EqualTo("kind", 5)).to_arrow(), EqualTo("kind", 5)),
        drop_partitions,
        expire,
        lambda table: table.upsert(table.scan(EqualTo("id", 41)).to_arrow(), join_cols=["id"]),
    )
    assert lake.hand_off().registered == (1,)
    for number, step in enumerate(steps, start=2):
        step(known.table(lake, minio))
        if number == 3:
            lake.delete(3)
        assert lake.hand_off().registered == (number,)
        assert ids_in(known.table(lake, minio)) == sorted(lake.days)
    assert number == HANDOFFS
    assert lake.hand_off_nothing_new().unchanged
    table = known.table(lake, minio)
    early = [
        number for number in range(5 * EVENTS) if number in lake.days or (number % 7 == 3 and number >= 2 * EVENTS)
    ]
    assert ids_in(table, snapshot_id=table.refs()["kept"].snapshot_id) == early, "as it was"
    before = "2026-01-05"
    assert ids_in(table, row_filter=f"event_time < '{before}T00:00:00'") == [
        one for one, day in lake.rows if day < before
    ]
    assert ids_in(table, row_filter="kind = 5") == [one for one in sorted(lake.days) if one % 7 == 5]
    if "sql" in known.text:
        read_by_trino(lake, table, request.getfixturevalue("trino"))


def ids_in(table: Table, **asked: Any) -> list[int]:
    """The rows' numbers."""
    found: list[int] = table.scan(selected_fields=("id",), **asked).to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.mark.spark
@pytest.mark.usefixtures("iceberg_runtime")
def test_spark_tends_a_table(
    request: pytest.FixtureRequest, known: Known, tended: Callable[[str], Tended], tmp_path: Path, minio: S3Server
) -> None:
    lake = tended(known.text)
    assert lake.hand_off().registered == (1,)
    name = f"streamvault.{lake.name}"
    with iceberg_spark("streamvault", known.spark, minio, tmp_path / "spark.log") as spark:
        for number, step in enumerate(OF_SPARK, start=2):
            [[snapshot]] = spark.query(f"SELECT max_by(snapshot_id, committed_at) FROM {name}.snapshots")
            before, now = len(lake.days), datetime.now(UTC)
            said = {"now": f"{now:%F %T.%f}", "old": f"{now - timedelta(days=1, minutes=1):%F %T}"}
            spark.query(step.format(catalog="streamvault", table=lake.name, name=name, **said))
            if step.startswith("DELETE"):
                lake.delete(3)
            assert lake.hand_off().registered == (number,)
            select = f"SELECT id, date_format(event_time, 'yyyy-MM-dd') FROM {name}"
            spark.query(f"REFRESH TABLE {name}")
            assert spark.query(f"{select} ORDER BY 1") == lake.rows
            assert spark.query(f"{select} WHERE id = 41") == [row for row in lake.rows if row[0] == 41]
            if "expire" not in step:
                assert spark.query(f"SELECT count(*) FROM {name} VERSION AS OF {snapshot}") == [[before]], "as it was"
        assert number == HANDOFFS
        assert lake.hand_off_nothing_new().unchanged
        spark.query(OF_SPARK[0].format(catalog="streamvault", table=lake.name))
        # what is in the table's present partitions is a group of its own
        assert spark.query(f"SELECT count(*) FROM {name}.files WHERE content = 0")[0][0] <= 2
        assert spark.query(f"{select} ORDER BY 1") == lake.rows
        assert spark.query(f"{select} WHERE event_time >= TIMESTAMP '2026-01-11' ORDER BY 1") == [
            row for row in lake.rows if row[1] >= "2026-01-11"
        ]
    if "sql" in known.text:
        read_by_trino(lake, known.table(lake, minio), request.getfixturevalue("trino"))
