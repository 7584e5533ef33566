"""Protobuf by a schema of the caller's: bare messages, and those of Confluent's serializers with their indexes."""

from __future__ import annotations

import base64
import json
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from streamvault import write_table
from streamvault.common.errors import Conflict, Usage
from streamvault.lake.decoding import decoded_columns
from streamvault.lake.protobuf_payloads import IndexedMessages, declared_schema, protobuf_types
from streamvault.lake.registry import Undecodable
from streamvault.lake.reports import Framing, load_schema
from streamvault.lake.table import TableOptions, columns_for, hive_type
from testkit.lakes import rows_of
from testkit.small_archives import Vault

SCHEMA = """
CgpzaG9wLnByb3RvEgRzaG9wGh9nb29nbGUvcHJvdG9idWYvdGltZXN0YW1wLnByb3RvIiIKBEl0ZW0SCwoDc2t1GAEgASgJEg0KBWNvdW50GA
IgASgFIvsBCgVPcmRlchIKCgJpZBgBIAEoBBInCgZjb3VudHMYAiADKAsyFy5zaG9wLk9yZGVyLkNvdW50c0VudHJ5EioKBnBsYWNlZBgDIAEo
CzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASGQoFaXRlbXMYBCADKAsyCi5zaG9wLkl0ZW0SGwoGcGFyZW50GAUgASgLMgsuc2hvcC5Pcm
RlchotCgtDb3VudHNFbnRyeRILCgNrZXkYASABKAkSDQoFdmFsdWUYAiABKAU6AjgBGhQKBE5vdGUSDAoEdGV4dBgBIAEoCRoUCgRNYXJrEgwK
BHRleHQYASABKAkiKQoGUmVmdW5kEgoKAmlkGAEgASgEGhMKA1doeRIMCgR0ZXh0GAEgASgJYgZwcm90bzM=
"""
"""A file's descriptor, of protoc 7 for Python:

message Item { string sku = 1; int32 count = 2; }
message Order {
  uint64 id = 1; map<string, int32> counts = 2; google.protobuf.Timestamp placed = 3; repeated Item items = 4;
  message Note { string text = 1; }
  message Mark { string text = 1; }
  Order parent = 5;
}
message Refund { uint64 id = 1; message Why { string text = 1; } }
"""
WRITTEN = {
    "shop.Item": "0000000001000a01731003",
    "shop.Order": "0000000001020208ffffffffffffffffff0112050a016110011a060880f2d6ca0622050a01731003",
    "shop.Order.Mark": "00000000010402040a016d",
    "shop.Refund.Why": "00000000010404000a0179",
    "shop.Refund": "000000000102040801",
}
"""What confluent-kafka 2 for Python writes with use.deprecated.format=False."""
VALUES: dict[str, dict[str, Any]] = {
    "shop.Item": {"sku": "s", "count": 3},
    "shop.Order": {
        "id": 2**64 - 1,
        "counts": [("a", 1)],
        "placed": datetime(2026, 1, 1),  # noqa: DTZ001  (columns have no zone)
        "items": [{"sku": "s", "count": 3}],
    },
    "shop.Order.Mark": {"text": "m"},
    "shop.Refund.Why": {"text": "y"},
    "shop.Refund": {"id": 1},
}


def options(message: str, framing: Framing = "confluent") -> TableOptions:
    files, name = declared_schema(SCHEMA, message)
    types = {field: hive_type(kind) for field, kind in protobuf_types(files, name).items() if kind is not None}
    return TableOptions(
        scope="s",
        stream="t",
        table="t",
        kind="parquet",
        decode="protobuf",
        framing=framing,
        columns=columns_for(types),
        avro=base64.b64encode(files).decode(),
        message=name,
        target_size=1,
    )


def decoded(wanted: TableOptions, *payloads: bytes) -> list[dict[str, Any]]:
    return pa.table(decoded_columns(wanted, pa.array(payloads, pa.binary()))).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("message", WRITTEN)
def test_the_message_of_the_table_is_decoded_and_no_other(message: str) -> None:
    rows = decoded(options(message), *map(bytes.fromhex, WRITTEN.values()))
    for name, row in zip(WRITTEN, rows, strict=True):
        if name == message:
            assert row == {**VALUES[message], "_error": None}
        else:
            assert row.pop("_error") == f"a message {name}, not {message}"
            assert {*row.values()} == {None}


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("", "the indexes of the message are incomplete"),
        ("02", "the indexes of the message are incomplete"),
        ("0280", "the indexes of the message are incomplete"),
        ("ffffffff0f", "the indexes of the message are negative"),
        ("feffffff0f00", "the indexes of the message are incomplete"),
        ("0201", "the indexes of the message are negative"),
        ("0206", "the schema has no message at [3]"),
        ("040200", "a message shop.Order.Note or shop.Order.CountsEntry, not shop.Item"),
        ("040202", "a message shop.Order.Mark or shop.Order.Note, not shop.Item"),
        ("06020000", "the schema has no message at [1, 0, 0]"),
        ("00ff", "not a Protobuf message of this schema"),
        ("000aff", "not a Protobuf message of this schema"),
    ],
)
def test_what_is_no_message_has_a_reason(rest: str, reason: str) -> None:
    [row, after] = decoded(options("shop.Item"), b"\0\0\0\0\7" + bytes.fromhex(rest), bytes.fromhex("000000000700"))
    assert row["_error"].startswith(reason)
    assert (row["sku"], row["count"]) == (None, None)
    assert after == {"sku": "", "count": 0, "_error": None}, "a message without a field is one"


def test_indexes_that_clients_count_differently_decide_nothing() -> None:
    """To Java [1, 1] is Mark, as a file's text has no entries of maps; to Python it is Note."""
    for message in ("shop.Order.Note", "shop.Order.Mark"):
        [row] = decoded(options(message), bytes.fromhex("00000000010402020a016e"))
        assert row == {"text": None, "_error": f"a message shop.Order.Mark or shop.Order.Note, not {message}"}


PAYLOADS = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([*map(bytes.fromhex, WRITTEN.values())]),
    st.binary().map(b"\0\0\0\0\1".__add__),
)


@given(st.lists(PAYLOADS, max_size=12), st.sampled_from(["none", "pravega", "confluent"]))
def test_no_event_stops_a_table(payloads: list[bytes], framing: Framing) -> None:
    wanted = options("shop.Order", framing)
    assert decoded(wanted, *payloads) == [row for payload in payloads for row in decoded(wanted, payload)]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=5), st.binary())
def test_indexes_are_read_as_the_library_of_protobuf_writes_zigzag_numbers(path: list[int], rest: bytes) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="z", syntax="proto3")
    file.message_type.add(name="Z").field.add(
        name="n", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_SINT64, label=3
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    numbers = message_factory.GetMessageClass(pool.FindMessageTypeByName("Z"))(n=[len(path), *path])
    written = numbers.SerializeToString()[2:]  # behind the field's tag and length, which fit into a byte each
    files, name = declared_schema(SCHEMA, "shop.Item")
    [reason] = (
        IndexedMessages(files, name, Undecodable((), "read")).parse(pa.array([written + rest])).reasons.to_pylist()
    )
    is_mine = path in ([], [0])
    assert (reason == "read") == is_mine
    assert reason == "read" or reason.startswith(("the schema has no message at ", "a message shop."))


def test_a_schema_is_what_protoc_or_confluents_registry_gives(tmp_path: Path) -> None:
    file = base64.b64decode(SCHEMA)
    both = (timestamp_pb2.DESCRIPTOR.serialized_pb, file)
    set_of_two = descriptor_pb2.FileDescriptorSet(file=map(descriptor_pb2.FileDescriptorProto.FromString, both))
    written = tmp_path / "orders.desc"
    written.write_bytes(set_of_two.SerializeToString())
    named = tmp_path / "file"
    named.write_bytes(file)
    given = [SCHEMA, json.dumps({"schemaType": "PROTOBUF", "schema": SCHEMA}), "\n".join(textwrap.wrap(SCHEMA, 60))]
    given += [load_schema(str(one), "--schema") for one in (written, named)]
    for schema in given:
        files, name = declared_schema(schema, None)
        assert name == "shop.Item", "the first message of the last file"
        assert {*protobuf_types(files, "shop.Order")} == {"id", "counts", "placed", "items", "parent"}
    unnamed = descriptor_pb2.FileDescriptorProto.FromString(file)
    unnamed.ClearField("name")
    files, _ = declared_schema(base64.b64encode(unnamed.SerializeToString()).decode(), "shop.Order")
    assert protobuf_types(files, "shop.Item") == {"sku": pa.string(), "count": pa.int32()}


@pytest.mark.parametrize("schema", ["", "{}", 'syntax = "proto3";', "AAAA", "CgA=", "é", '{"schema": 5}', "[]"])
def test_what_is_no_schema_is_rejected(schema: str) -> None:
    with pytest.raises(Usage, match=r"not a Protobuf descriptor|has no message"):
        declared_schema(schema, None)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    made = Vault(tmp_path)
    made.create()
    return made


def test_a_table_of_confluents_protobuf_grows(vault: Vault) -> None:
    vault.add(*(bytes.fromhex(one) for one in WRITTEN.values()))
    vault.export()
    wanted: dict[str, Any] = {"decode": "protobuf", "schema": SCHEMA, "format": "parquet", "master": "inline"}
    with pytest.raises(Usage, match=r"none of the 5 events in a sample can be decoded") as refused:
        write_table(vault.archive, message="shop.Item", **wanted)
    assert "seems to have a header of Confluent's serializers (framing='confluent')" in str(refused.value)
    report = write_table(vault.archive, message="shop.Refund", framing="confluent", **wanted)
    assert (report.undecoded, report.columns[-2:]) == (4, ("id", "_error"))
    grown = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(SCHEMA))
    grown.message_type[2].field.add(
        name="cents", number=2, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64, label=1
    )
    grown.message_type.insert(0, descriptor_pb2.DescriptorProto(name="First"))
    vault.add(bytes.fromhex("0000000002" + "0206" + "08021007"), bytes.fromhex("0000000002" + "0204" + ""))
    vault.export()
    with pytest.raises(Conflict, match=r"other options \(message\)"):
        write_table(vault.archive, message="shop.Item")
    schema = base64.b64encode(grown.SerializeToString()).decode()
    report = write_table(vault.archive, schema=schema, master="inline")
    assert report.columns[-3:] == ("id", "cents", "_error")
    rows = [(row["id"], row.get("cents"), row["_error"] and row["_error"][:16]) for row in rows_of(vault.root)]
    other = (None, None, "a message shop.I"), (None, None, "a message shop.O")
    assert rows == [
        other[0],
        *[other[1]] * 2,
        (None, None, "a message shop.R"),
        (1, None, None),
        (2, 7, None),
        other[1],
    ]


def test_what_is_missing_is_named(vault: Vault) -> None:
    vault.add(b"\x08\x01")
    vault.export()
    with pytest.raises(Usage, match=r"decode.*protobuf.* requires a schema"):
        write_table(vault.archive, decode="protobuf")
    with pytest.raises(Usage, match=r"message requires decode='protobuf'"):
        write_table(vault.archive, decode="json", message="shop.Item")
    lacking = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(SCHEMA))
    lacking.dependency.append("shop/money.proto")
    schema = base64.b64encode(lacking.SerializeToString()).decode()
    with pytest.raises(Usage, match=r"imports files that it lacks: shop/money.proto. Give .*--include_imports"):
        write_table(vault.archive, decode="protobuf", schema=schema)
    with pytest.raises(Usage, match="the Protobuf schema has no such message") as refused:
        write_table(vault.archive, decode="protobuf", schema=SCHEMA, message="shop.Order.Missing")
    assert str(refused.value.where).startswith("shop.Order.Missing")
    assert write_table(vault.archive, decode="protobuf", schema=SCHEMA, message="shop.Refund", master="inline").added
    assert rows_of(vault.root)[0]["id"] == 1
