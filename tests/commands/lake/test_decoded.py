"""Events decoded by the schemas of a registry, without a table: on standard output, as Arrow, and in Spark."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from streamvault import read_archive
from streamvault.common.errors import Usage
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup
from streamvault.sources.schemas import RegistryGroup
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.spark.pravega_source import PravegaDataSource
from testkit.small_archives import Vault, publish_with
from tests.told import Ran

SCHEMA = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "offset", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "ratio", "type": "double"},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip
FIELDS = ["id", "payload_offset", "raw", "cents", "at", "ratio", "tags"]
GROUP = SchemaGroup(
    group="orders",
    entries=(
        SchemaEntry(
            encoding=4,
            codec="",
            type="Order",
            format="Avro",
            version=0,
            data=b64encode(json.dumps(SCHEMA).encode()).decode(),
        ),
    ),
)


def event(number: int, encoding: int = 4) -> bytes:
    made = BytesIO()
    record = {
        "id": number, "offset": "x", "raw": b"\xff", "cents": Decimal("2.58"), "at": 1,
        "ratio": float("nan"), "tags": {"a": 1},
    }  # fmt: skip
    fastavro.schemaless_writer(made, fastavro.parse_schema(SCHEMA), record)
    return b"\x01" + struct.pack(">i", encoding) + made.getvalue()


UNKNOWN = "no schema is known for its encoding id, neither recorded in the archive nor from the registry"
EVENTS = [event(0), b"no record", event(1, encoding=9), event(2)]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    """An archive that has noted the schemas; tests do not change it."""
    folder = tmp_path_factory.mktemp("vault")
    made = Vault(folder, f"file://{folder}/vault")
    made.create()
    made.add(*EVENTS)
    publish_with(made, schemas=GROUP)
    return made


def lines(ran: Ran, vault: Vault, *options: str) -> tuple[list[dict[str, Any]], str]:
    out, err = ran("cat", vault.archive, "--decode", "registry", "--format", "jsonl", *options, code=0)
    return [json.loads(line) for line in out.splitlines()], err


def test_cat_writes_fields(vault: Vault, ran: Ran) -> None:
    found, err = lines(ran, vault)
    assert [list(line) for line in found] == [
        ["pointer", "epoch", "segment", "offset", "length", *rest]
        for rest in (["fields"], ["fields", "error", "text"], ["fields", "error", "base64"], ["fields"])
    ]
    values = [2, "x", "/w==", "2.58", "1970-01-01T00:00:00.000001Z", "nan", {"a": 1}]
    assert found[3]["fields"] == dict(zip(FIELDS, values, strict=True))
    assert found[1]["text"] == "no record"
    assert set(found[1]["fields"].values()) == {None}
    assert found[2]["error"] == UNKNOWN
    assert "2 events could not be decoded completely; 'error' says why" in err
    assert "could not" not in lines(ran, vault, "--limit", "1")[1]
    whole = json.loads(ran("cat", vault.archive, "--decode", "registry", "--json", code=0)[0])
    assert whole["events"] == found


def test_what_cannot_be_decoded_is_said_in_one_line(vault: Vault, ran: Ran, tmp_path: Path) -> None:
    _, err = ran("cat", vault.archive, "--decode", "registry", code=2)
    assert err == "streamvault: --decode requires --format jsonl or --json. Add one of them.\n"
    for option in ("--registry", "--group"):
        _, err = ran("cat", vault.archive, option, "http://registry:1", code=0)
        assert err == "warning: --registry and --group have no effect without --decode registry\n"
    bare = Vault(tmp_path)
    bare.create()
    bare.add(*EVENTS)
    bare.export()
    with pytest.raises(Usage, match="nothing says how the events are encoded"):
        read_archive(bare.archive, decode="registry")


def test_arrow_has_the_columns_of_the_fields(vault: Vault) -> None:
    table = read_archive(vault.archive, decode="registry", columns=["pointer", "length"]).read_all()
    assert table.column_names == ["pointer", "length", *FIELDS, "_error"]
    assert table["id"].to_pylist() == [0, None, None, 2]
    assert table["_error"].null_count == 2


def rows(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    batches = [batch for one in partitions for batch in reader.read(one)]
    return pa.Table.from_batches(batches).to_pylist()


def test_spark_reads_the_fields_of_an_archive(vault: Vault) -> None:
    source = ArchiveDataSource({"path": vault.archive, "decode": "registry", "columns": "pointer"})
    schema = source.schema()
    assert schema.fieldNames() == ["pointer", *FIELDS, "_error"]
    reader = source.reader(schema)
    found = rows(reader, reader.partitions())
    assert [row["id"] for row in found] == [0, None, None, 2]
    assert found[3]["cents"] == Decimal("2.58")
    few = StructType([schema["_error"], schema["pointer"], schema["id"]])
    reader = source.reader(few)
    assert [(row["id"], row["_error"]) for row in rows(reader, reader.partitions())][::3] == [(0, None), (2, None)]
    with pytest.raises(Usage, match="the column id is of type bigint: string in the schema"):
        source.reader(StructType([StructField("id", StringType())]))
    with pytest.raises(Usage, match="unknown column: nothing"):
        source.reader(StructType([StructField("nothing", StringType())]))


def test_spark_reads_the_fields_of_an_archive_and_then_of_the_stream(vault: Vault) -> None:
    given = {"path": vault.uri(), "archive": vault.archive, "decode": "registry", "columns": "offset"}
    stream = PravegaDataSource(given)
    reader = stream.streamReader(stream.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert [row["id"] for row in rows(reader, reader.partitions(start, end))] == [0, None, None, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"decode": "json"}, "'json' is not a way to decode"),
        ({"group": "orders"}, "the option requires another one"),
        ({"decode": "registry", "registry": "http://user:secret@host:1"}, "a login would be shown in Spark's plans"),
        ({"decode": "registry"}, "nothing says how the events are encoded"),
        ({"decode": "registry", "streamPattern": ".*"}, "the streams of a pattern share one group"),
    ],
)
def test_options_of_spark_that_do_not_fit(vault: Vault, given: dict[str, str], said: str) -> None:
    path = vault.uri().rpartition("/")[0] + "/" if "streamPattern" in given else vault.uri()
    with pytest.raises(Usage, match=said) as raised:
        PravegaDataSource({"path": path, **given}).schema()
    assert "secret" not in str(raised.value)


def test_spark_has_what_was_registered_later_when_the_query_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(event(0))
    fields = [*SCHEMA["fields"], {"name": "note", "type": "string", "default": "none"}]
    data = b64encode(json.dumps({**SCHEMA, "fields": fields}).encode()).decode()
    later = GROUP.entries[0].model_copy(update={"encoding": 5, "version": 1, "data": data})
    registered = GROUP
    monkeypatch.setattr(RegistryGroup, "find", lambda _: registered)

    def started() -> Any:
        given = {"path": vault.uri(), "decode": "registry", "registry": "http://registry:9092", "group": "orders"}
        source = PravegaDataSource({**given, "startingOffsets": "earliest"})
        return source.streamReader(source.schema())

    def followed(reader: Any) -> list[dict[str, Any]]:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        return rows(reader, reader.partitions(start, end))

    running = started()
    registered = GROUP.model_copy(update={"entries": (*GROUP.entries, later)})
    vault.add(event(1, encoding=5) + b"\x06new")
    old, new = followed(running)
    assert (old["id"], old["_error"], "note" in old) == (0, None, False)
    assert (new["id"], new["_error"]) == (None, UNKNOWN)
    assert [(row["id"], row["note"], row["_error"]) for row in followed(started())] == [
        (0, "none", None),
        (1, "new", None),
    ]
