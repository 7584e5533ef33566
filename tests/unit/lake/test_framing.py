"""Headers before records: those of Pravega's, Confluent's and Avro's serializers."""

from __future__ import annotations

import bz2
import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault import write_table
from streamvault.common.errors import Conflict, Usage
from streamvault.lake.avro import avro_columns, fingerprint
from streamvault.lake.compressed import expanded, of_deflate, of_zstandard
from streamvault.lake.decoding import decoded_columns
from streamvault.lake.payloads import NotDecoded, without_header
from streamvault.lake.reports import Decode, Framing
from streamvault.lake.table import TableOptions, columns_for
from testkit.lakes import rows_of
from testkit.small_archives import Vault

SCHEMA = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"text","type":"string"}]}'
OTHER = SCHEMA.replace("text", "label")
PARSED, PARSED_OTHER = (fastavro.parse_schema(json.loads(one)) for one in (SCHEMA, OTHER))
RECORD = {"id": 7, "text": "é"}


def options(decode: Decode, framing: Framing) -> TableOptions:
    columns = avro_columns(SCHEMA) if decode == "avro" else columns_for({"id": "bigint", "text": "string"})
    return TableOptions(
        scope="s",
        stream="t",
        table="t",
        kind="parquet",
        decode=decode,
        framing=framing,
        columns=columns,
        avro=SCHEMA,
        target_size=1,
    )


def decoded(wanted: TableOptions, *payloads: bytes) -> list[dict[str, Any]]:
    return pa.table(decoded_columns(wanted, pa.array(payloads, pa.binary()))).to_pylist()  # type: ignore[no-any-return]


def in_avro(record: dict[str, Any] = RECORD, schema: Any = PARSED) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, record)
    return written.getvalue()


def in_file(*records: dict[str, Any], schema: Any = PARSED, codec: str = "null") -> bytes:
    written = io.BytesIO()
    fastavro.writer(written, schema, records, codec=codec)
    return written.getvalue()


FRAMES: dict[Framing, bytes] = {
    "none": b"",
    "pravega": b"\x01" + struct.pack(">i", 3),
    "confluent": b"\x00" + struct.pack(">i", 70_000),
    "avro": b"\xc3\x01" + fingerprint(SCHEMA),
}
RECORDS: dict[Decode, bytes] = {"json": json.dumps(RECORD).encode(), "csv": b"7,\xc3\xa9", "avro": in_avro()}


PAIRS = [(decode, framing) for decode in RECORDS for framing in FRAMES if decode == "avro" or framing != "avro"]


@pytest.mark.parametrize(("decode", "framing"), PAIRS)
def test_a_header_is_left_out(decode: Decode, framing: Framing) -> None:
    rows = decoded(options(decode, framing), FRAMES[framing] + RECORDS[decode], b"", FRAMES[framing] + RECORDS[decode])
    assert rows[0] == rows[2] == {**RECORD, "_error": None}
    assert (rows[1]["id"], rows[1]["text"]) == (None, None)
    assert rows[1]["_error"]


@pytest.mark.parametrize(
    ("decode", "framing", "other"),
    [(*pair, other) for pair in PAIRS for other in FRAMES if pair[0] != "csv" and other not in {pair[1], "none"}],
)
def test_the_reason_names_the_header_that_an_event_seems_to_have(
    decode: Decode, framing: Framing, other: Framing
) -> None:
    rows = decoded(options(decode, framing), FRAMES[other] + RECORDS[decode], FRAMES[framing] + RECORDS[decode])
    assert f"(--framing {other}): " in rows[0]["_error"]
    assert rows[1] == {**RECORD, "_error": None}


def test_an_avro_file_of_one_record_is_its_record() -> None:
    [row] = decoded(options("avro", "avro"), in_file(RECORD))
    assert row == {**RECORD, "_error": None}


def compressed(codec: str, data: bytes) -> bytes:
    """An Avro file of one record, of these compressed bytes."""
    header, _, rest = in_file(RECORD).partition(b"\x14avro.codec\x08null")
    name, sync = codec.encode(), rest[-16:]
    sizes = [struct.pack("B", 2 * len(one)) for one in (name, data)]
    return (
        header + b"\x14avro.codec" + sizes[0] + name + rest[: rest.index(sync) + 16] + b"\x02" + sizes[1] + data + sync
    )


COMPRESSED = {
    "deflate": zlib.compress(in_avro(), wbits=-15),
    "bzip2": bz2.compress(in_avro()),
    "snappy": pa.compress(in_avro(), "snappy", asbytes=True) + struct.pack(">I", zlib.crc32(in_avro())),
    "zstandard": pa.compress(in_avro(), "zstd", asbytes=True),
}


@pytest.mark.parametrize(("codec", "data"), COMPRESSED.items())
def test_an_avro_file_is_expanded(codec: str, data: bytes) -> None:
    whole, *damaged = decoded(
        options("avro", "avro"),
        compressed(codec, data),
        compressed(codec, data[:-1]),
        compressed(codec, b""),
        compressed(codec, data[:-1] + bytes([data[-1] ^ 1])) if codec == "snappy" else b"",
    )
    assert whole == {**RECORD, "_error": None}
    assert all(row["_error"] and row["id"] is None for row in damaged)


def test_an_avro_file_does_not_fill_the_memory() -> None:
    [row] = decoded(options("avro", "avro"), compressed("bzip2", bz2.compress(bytes(10_000_000))))
    assert "suspiciously large" in row["_error"]
    for large in (zlib.compress(bytes(10_000_000), wbits=-15), pa.compress(bytes(10_000_000), "zstd", asbytes=True)):
        with pytest.raises(NotDecoded, match="suspiciously large"):
            expanded(of_deflate if large[0] != 0x28 else of_zstandard, large)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (in_file(RECORD, RECORD), "not an Avro file of one record"),
        (in_file(RECORD) + b"x", "not an Avro file of one record"),
        (in_file(RECORD)[:-1], "not an Avro file"),
        (in_file(), "not an Avro file"),
        (compressed("xz", b""), "an Avro file with an unknown codec: b'xz'"),
        (in_file({"id": 1, "label": "x"}, schema=PARSED_OTHER), "an Avro file of another schema"),
        (in_file(RECORD).replace(b'"long"', b'"lonk"'), "an Avro file of another schema"),
        (in_file(RECORD).replace(b"Obj\x01", b"Obj\x02"), "no Avro header"),
        (b"\xc3\x01" + fingerprint(OTHER) + RECORDS["avro"], "written with another Avro schema, with the fingerprint "),
        (FRAMES["avro"][:-1], "no Avro header"),
        (FRAMES["avro"] + RECORDS["avro"] + b"x", "1 bytes follow the Avro record"),
    ],
)
def test_avro_that_is_not_of_the_schema_has_a_reason(payload: bytes, reason: str) -> None:
    [row] = decoded(options("avro", "avro"), payload)
    assert row["_error"].startswith(reason)
    assert (row["id"], row["text"]) == (None, None)


def test_the_fingerprint_is_that_of_avros_specification() -> None:
    # of its table of examples: the fingerprint of "int" is 0x7275d51a3f395c8f
    assert fingerprint('"int"') == (0x7275D51A3F395C8F).to_bytes(8, "little")
    assert fingerprint(SCHEMA) == fingerprint(SCHEMA.replace('"name":"R"', '"name":"R","doc":"a record"'))


@given(st.lists(st.binary(min_size=5, max_size=40)), st.data())
def test_a_header_is_cut_off_whatever_follows(payloads: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(payloads)))
    left = without_header(pa.array(payloads, pa.binary())[start:], 5)
    assert left.to_pylist() == [payload[5:] for payload in payloads[start:]]
    left.validate(full=True)


HEADERS = st.sampled_from([b"", b"\x01", *FRAMES.values(), b"Obj\x01", in_file(RECORD), b"\xef\xbb\xbf"])
EVENTS = st.lists(st.tuples(HEADERS, st.sampled_from([b"", *RECORDS.values(), b"\xff"])).map(b"".join), max_size=20)


@given(EVENTS, st.sampled_from(PAIRS))
def test_framed_events_decode_the_same_beside_any_others(payloads: list[bytes], pair: tuple[Decode, Framing]) -> None:
    made = options(*pair)
    assert decoded(made, *payloads) == [row for payload in payloads for row in decoded(made, payload)]


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    made = Vault(tmp_path)
    made.create()
    return made


def test_columns_are_inferred_without_headers(vault: Vault) -> None:
    vault.add(*[FRAMES["pravega"] + RECORDS["json"]] * 9, b"none")
    vault.export()
    with pytest.raises(Usage) as refused:
        write_table(vault.archive, decode="json")
    assert refused.value.where == "an event seems to have a header of Pravega's serializers (framing='pravega')"
    report = write_table(vault.archive, decode="json", framing="pravega", format="parquet", master="inline")
    assert (report.undecoded, report.columns[-3:]) == (1, ("id", "text", "_error"))
    vault.add(FRAMES["pravega"] + RECORDS["json"], FRAMES["confluent"] + RECORDS["json"])
    vault.export()
    assert write_table(vault.archive, master="inline").undecoded == 1, "the header is an option of the table"
    rows = rows_of(vault.root)
    assert [row["id"] for row in rows] == [7] * 9 + [None, 7, None]
    assert rows[-1]["_error"].startswith("seems to have a header of Confluent's serializers (--framing confluent): no ")
    with pytest.raises(Conflict, match=r"other options \(framing\)"):
        write_table(vault.archive, framing="confluent")


def test_headers_need_a_format_of_records(vault: Vault) -> None:
    vault.add(RECORDS["json"])
    vault.export()
    with pytest.raises(Usage, match="schema, framing and event_time require decode"):
        write_table(vault.archive, framing="pravega")
    with pytest.raises(Usage, match="framing='avro' requires decode='avro'"):
        write_table(vault.archive, framing="avro", decode="json")
