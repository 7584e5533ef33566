"""Reading an archive without a restore: as Arrow batches, as an SQL table, on standard output; and a damaged one.

Events decoded by the schemas of a registry, without a table: on standard output, as Arrow, and in Spark.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from streamvault import compact_archive, export_stream, get_event, read_archive, rotate_stream
from streamvault.cli import main
from streamvault.cli.output import OutputClosed, Results
from streamvault.common.errors import Damaged, Problem, Usage
from streamvault.lake.read import EVENT_SCHEMA, FIRST_BYTES, ArrowEvents, read_part
from streamvault.layouts import events
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests import damage
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart, DigestMismatch
from streamvault.manifests.history import select_parts
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup
from streamvault.objectstore import bulk
from streamvault.objectstore.bulk import Transfers
from streamvault.sources.schemas import RegistryGroup
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.spark.pravega_source import PravegaDataSource
from streamvault.streamstore.model import EventPointer, SegmentId, StreamCut
from testkit.small_archives import KINDS, NAME, Vault, archive_of, contents, data_keys, publish_with, replace_object
from testkit.streams import append_events
from tests.counting import counted
from tests.spark_reads import read
from tests.told import Ran


def vault_of_two(folder: Path, kind: tuple[LayoutName, Compression] = KINDS[0], root: str = "") -> Vault:
    """Two generations, the second of another layout."""
    vault = Vault(folder, root=root) if root else Vault(folder)
    vault.make()
    vault.export(*kind)
    vault.add(b"of the second generation", b"")
    vault.export(*KINDS[(KINDS.index(kind) + 1) % len(KINDS)])
    return vault


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    """Two generations in a shared archive; tests do not change it."""
    folder = tmp_path_factory.mktemp("vault")
    return vault_of_two(folder, root=f"file://{folder}/vault")


def rows(reader: ArrowEvents) -> list[tuple[EventPointer, bytes]]:
    """Every event, after checking that all columns agree with its pointer."""
    found = []
    for row in reader.read_all().to_pylist():
        pointer = EventPointer.parse(row["pointer"])
        assert (row["scope"], row["stream"]) == (pointer.stream.scope, pointer.stream.stream)
        assert (row["epoch"], row["segment"]) == (pointer.segment.epoch, pointer.segment.number)
        assert (row["offset"], row["length"]) == (pointer.offset, pointer.length)
        found.append((pointer, row["payload"]))
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_every_event_of_every_layout_is_read(kind: tuple[LayoutName, Compression], tmp_path: Path) -> None:
    vault = vault_of_two(tmp_path, kind)
    reader = read_archive(vault.archive)
    assert reader.schema == EVENT_SCHEMA
    assert rows(reader) == vault.events()


def test_earlier_generation_is_read(vault: Vault) -> None:
    first = rows(read_archive(vault.archive, generation=1))
    assert 0 < len(first) < len(vault.events())
    assert set(first) < set(vault.events())


def test_events_between_two_cuts_are_read(vault: Vault) -> None:
    cut = archive_of(vault.root).manifest(1).to
    behind = rows(read_archive(vault.archive, from_cut=cut.to_json()))
    assert {payload for _, payload in behind} == {b"of the second generation", b""}
    before = rows(read_archive(vault.archive, to_cut=json.dumps(cut.to_json())))
    assert sorted([*before, *behind]) == sorted(vault.events())
    assert rows(read_archive(vault.archive, from_cut=cut.to_json(), to_cut=cut.to_json())) == []


def test_cut_may_lie_inside_a_range_but_not_inside_an_event(vault: Vault) -> None:
    tail = archive_of(vault.root).manifest().to
    segment = max(tail.offsets)
    events = [pointer for pointer, _ in vault.events() if pointer.segment == segment]
    middle = events[len(events) // 2]
    cut = StreamCut(NAME, {**tail.offsets, segment: middle.offset})
    behind = rows(read_archive(vault.archive, from_cut=cut.to_json()))
    assert [pointer for pointer, _ in behind] == [pointer for pointer in events if pointer >= middle]
    inside = StreamCut(NAME, {**tail.offsets, segment: middle.offset + 1})
    with pytest.raises(Problem, match="inside an event") as caught:
        read_archive(vault.archive, from_cut=inside.to_json())
    assert caught.value.exit_code == 2


def test_only_requested_columns_are_read(vault: Vault) -> None:
    table = read_archive(vault.archive, columns=["length", "segment"]).read_all()
    assert table.schema.names == ["length", "segment"]
    assert sum(table["length"].to_pylist()) == sum(pointer.length for pointer, _ in vault.events())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"columns": ["pointer", "key"]}, "unknown column: key"),
        ({"columns": []}, "no column is named"),
        ({"columns": ["offset", "offset"]}, "each column must be named once: offset, offset"),
        ({"from_cut": "{}"}, "a stream cut is a JSON object"),
        ({"from_cut": {"scope/other/0.#epoch.0": 0}}, "segment of another stream"),
        ({"to_cut": {"scope/stream/0.#epoch.0": 0}}, "names no segment for the keys"),
    ],
)
def test_invalid_arguments_are_wrong_usage(vault: Vault, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(Problem, match=said) as caught:
        read_archive(vault.archive, **asked)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("asked", [{"generation": 3}, {"archive": "memory://nothing/scope/stream"}])
def test_missing_archive_or_generation_is_one_line(vault: Vault, asked: dict[str, Any]) -> None:
    with pytest.raises(Problem, match=r"no generation 3|no archive"):
        read_archive(**{"archive": vault.archive, **asked})


def test_reader_can_be_queried_with_sql(vault: Vault) -> None:
    events = read_archive(vault.archive)
    asked = "SELECT count(*), sum(length), count(DISTINCT pointer), max(octet_length(payload)) FROM events"
    assert events is not None
    (found,) = duckdb.sql(asked).fetchall()
    wanted = vault.events()
    assert found == (
        len(wanted),
        sum(pointer.length for pointer, _ in wanted),
        len(wanted),
        max(len(payload) for _, payload in wanted),
    )


def test_events_can_be_read_again(vault: Vault) -> None:
    events = read_archive(vault.archive, columns=["pointer", "payload"])
    wanted = [{"pointer": str(pointer), "payload": payload} for pointer, payload in vault.events()]
    for _ in range(2):
        assert events.read_pandas().to_dict("records") == wanted
        assert pa.Table.from_batches(events).to_pylist() == wanted
        assert pa.table(events).to_pylist() == wanted
        with pa.RecordBatchReader.from_stream(events) as reader:
            assert reader.read_next_batch().num_rows
        assert duckdb.sql("SELECT count(*) FROM events").fetchall() == [(len(wanted),)]


def test_reading_can_end_early(vault: Vault) -> None:
    batches = iter(read_archive(vault.archive))
    assert next(batches).num_rows
    batches.close()


def cat(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> bytes:
    capfdbinary.readouterr()
    assert main(["cat", *arguments]) == 0
    out, err = capfdbinary.readouterr()
    assert err == b""
    return out


def test_cat_writes_events_in_their_order(vault: Vault, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    events = vault.events()
    assert cat(capfdbinary, vault.archive) == b"".join(payload for _, payload in events)
    lines = cat(capfdbinary, vault.archive, "--format", "hex").splitlines()
    assert [bytes.fromhex(line.decode()) for line in lines] == [payload for _, payload in events]
    lines = cat(capfdbinary, vault.archive, "--format", "jsonl").splitlines()
    check_lines([json.loads(line) for line in lines], events)
    whole = json.loads(cat(capfdbinary, vault.archive, "--json"))
    assert whole["archive"] == vault.archive
    check_lines(whole["events"], events)


def check_lines(lines: list[dict[str, Any]], events: list[tuple[EventPointer, bytes]]) -> None:
    kinds = set()
    for line, (pointer, payload) in zip(lines, events, strict=True):
        kind = "text" if "text" in line else "base64"
        kinds.add(kind)
        assert list(line) == ["pointer", "epoch", "segment", "offset", "length", kind]
        assert (line["pointer"], line["offset"], line["length"]) == (str(pointer), pointer.offset, pointer.length)
        assert (line["text"].encode() if kind == "text" else base64.b64decode(line["base64"])) == payload
    assert kinds == {"text", "base64"}


def test_cat_writes_the_part_asked_for(vault: Vault, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    events = [payload for _, payload in vault.events()]
    for limit in (0, 1, 70, len(events), len(events) + 1):
        lines = cat(capfdbinary, vault.archive, "--limit", str(limit), "--format", "hex").splitlines()
        assert len(lines) == min(limit, len(events))
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(archive_of(vault.root).manifest(1).to.to_json()))
    assert cat(capfdbinary, vault.archive, "--from", str(cut)).replace(b"of the second generation", b"") == b""
    first = cat(capfdbinary, vault.archive, "--generation", "1")
    assert first == cat(capfdbinary, vault.archive, "--to", str(cut))
    assert json.loads(cat(capfdbinary, vault.archive, "--json", "--limit", "0"))["events"] == []


def test_a_limit_returns_the_first_events_of_all(tmp_path: Path) -> None:
    """Also if the first segment has its first events in a late generation, or is sealed in an early one."""
    vault = Vault(tmp_path)
    vault.create(segments=2)
    first, second, third = SegmentId(0, 0), SegmentId(0, 1), SegmentId(1, 2)
    for generation, appended in enumerate((second, second, first, None, second, third), start=1):
        with vault.store as store:
            if appended is None:
                store.scale(NAME, [first], [store.describe(NAME).epochs[0].segments[first]])
                append_events(store, NAME, third, [b"new"])
            else:
                append_events(store, NAME, appended, [os.urandom(9) for _ in range(3)])
        vault.export("chunks")
        if generation == 2:
            compact_archive(vault.archive, at_least=2, master="inline")
    assert archive_of(vault.root).generations() == [2, 3, 4, 5, 6]
    events = read_archive(vault.archive).read_all()
    assert len(events) == 16
    for limit in range(len(events) + 2):
        assert read_archive(vault.archive, limit=limit).read_all().equals(events.slice(0, limit)), limit
        upto = read_archive(vault.archive, generation=4).read_all().slice(0, limit)
        assert read_archive(vault.archive, limit=limit, generation=4).read_all().equals(upto), limit


@pytest.mark.parametrize("kept", [3, 2, 1], ids=lambda kept: f"{kept} of 4 kept")
def test_a_limit_returns_the_first_events_of_what_an_expiry_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The archive had its first events, and lost them before they were read."""
    vault = vault_of_four(tmp_path)

    def expire() -> None:
        assert rotate_stream(vault.uri(), vault.root, keep=kept, master="inline").expired

    beside(monkeypatch, expire)
    found = read_archive(vault.archive, limit=2).read_all()
    assert found["payload"].to_pylist() == [b"%d" % number for number in range(4 - kept, 4)][:2]
    assert found.equals(read_archive(vault.archive).read_all().slice(0, 2))


def test_a_limit_counts_what_was_merged_meanwhile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = vault_of_four(tmp_path)
    events = read_archive(vault.archive).read_all()
    beside(monkeypatch, lambda: compact_archive(vault.archive, at_least=2, master="inline"))
    assert read_archive(vault.archive, limit=3).read_all().equals(events.slice(0, 3))
    assert archive_of(vault.root).generations() == [4]


def vault_of_four(folder: Path) -> Vault:
    """An archive of four generations, each with an event."""
    vault = Vault(folder)
    vault.create()
    for number in range(4):
        vault.add(b"%d" % number)
        vault.export("chunks")
    return vault


def beside(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Have something happen between a reader's look at the generations and its first read."""
    in_force = Archive.in_force

    def looked(archive: Archive, *others: Any) -> Any:
        spans = in_force(archive, *others)
        monkeypatch.setattr(Archive, "in_force", in_force)
        happens()
        return spans

    monkeypatch.setattr(Archive, "in_force", looked)


def test_cat_reports_errors_in_one_line(
    vault: Vault, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert main(["cat", vault.archive, "--generation", "9"]) == 5
    assert main(["cat", vault.archive, "--format", "xml"]) == 2
    assert main(["cat", vault.archive, "--from", "nowhere.json"]) == 2
    out, err = capfdbinary.readouterr()
    assert (out, err.count(b"\n")) == (b"", 3)
    damaged = vault_of_two(tmp_path, KINDS[1])
    key = max(data_keys(damaged.root))
    replace_object(damaged.root, key, contents(damaged.root)[key][:-1])
    assert main(["cat", damaged.archive]) == 3
    assert capfdbinary.readouterr().err.count(b"\n") == 1


def test_cat_reports_errors_as_json_unless_it_has_written_something(vault: Vault, tmp_path: Path, ran: Ran) -> None:
    out, err = ran("cat", vault.archive, "--generation", "9", "--json", code=5)
    assert err.count("\n") == 1
    assert json.loads(out)["error"]["what"] == "no generation 9"

    damaged = vault_of_two(tmp_path, KINDS[1])
    replace_object(damaged.root, max(data_keys(damaged.root)), b"")
    out, err = ran("cat", damaged.archive, "--json", code=3)
    assert err.count("\n") == 1
    assert '"error"' not in out


def test_cat_ends_quietly_if_its_reader_leaves(vault: Vault) -> None:
    command = f"'{sys.executable}' -m streamvault cat '{vault.archive}' | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=True, env=os.environ.copy())
    assert (len(done.stdout), done.stderr) == (10, b"")


@pytest.mark.parametrize("arguments", [["--limit", "1"], []], ids=["limit", "head"])
def test_only_what_is_printed_is_fetched(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(*(b"%05d" % number for number in range(1000)))
    export_stream(vault.uri(), vault.root, master="inline")
    run_ahead(monkeypatch)
    if not arguments:
        monkeypatch.setattr(Results, "raw", _closed_after_the_first(Results.raw))
    with counted(monkeypatch) as requests:
        assert main(["cat", vault.archive, "--format", "hex", "--unverified", *arguments]) == 0
    assert capfdbinary.readouterr().out.count(b"\n") == (1 if arguments else FIRST_BYTES // 13)
    assert requests[0].gets < 40


def run_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that are used only when the threads that fetch them have fetched all that they may."""
    transfers: list[Any] = []
    start = Transfers.start

    def noted(self: Any, work: Any) -> None:
        transfers.append(self)
        start(self, work)

    def late(store: Any, items: Any, **options: Any) -> Iterator[tuple[str, bytes]]:
        for got in bulk.get_all(store, items, **options):
            while not (transfers[-1]._waits_for_room or transfers[-1]._ended):
                time.sleep(0.001)
            yield got

    monkeypatch.setattr(Transfers, "start", noted)
    monkeypatch.setattr(events, "get_all", late)


def _closed_after_the_first(write: Any) -> Any:
    """Standard output whose reader goes away after the first piece."""
    written: list[bytes] = []

    def raw(self: Results, data: bytes) -> None:
        if written:
            raise OutputClosed
        written.append(data)
        write(self, data)

    return raw


PLAIN = [kind for kind in KINDS if not kind[1]]
"""Compressed frames have checksums of their own."""


def damaged(folder: Path, kind: tuple[LayoutName, Compression], *, header: bool = False) -> tuple[Vault, ArchivedPart]:
    """An archive on disk with one changed byte in a range of several events; returns that range, too."""
    vault = Vault(folder, root=f"file://{folder}/vault")
    vault.make(events=200, largest=500)
    vault.export(*kind)
    archive = archive_of(vault.root)
    tail = archive.manifest().to.offsets
    part = next(
        one for one in select_parts(archive.address, archive.history()) if one.row.events > 5 and one.segment in tail
    )
    within = {
        key: data
        for key, data in contents(vault.root).items()
        if f"/{part.segment.epoch:010d}.{part.segment.number:010d}/" in key and f"/{part.start:019d}-" in key
    }
    ((key, data),) = within.items()
    assert data
    at = 0 if header else len(data) - 1
    replace_object(vault.root, key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    return vault, part


def inside(vault: Vault, part: ArchivedPart) -> StreamCut:
    """A cut after the first event of a range."""
    tail = archive_of(vault.root).manifest().to
    first = next(p for p, _ in vault.events() if p.segment == part.segment and p.offset == part.start)
    return StreamCut(NAME, {**tail.offsets, part.segment: first.offset + first.length})


def _inside(batches: list[pa.RecordBatch], part: ArchivedPart) -> list[int]:
    """The offsets of the events that are in a range."""
    rows = [row for batch in batches for row in batch.select(["epoch", "segment", "offset"]).to_pylist()]
    place = (part.segment.epoch, part.segment.number)
    return [r["offset"] for r in rows if (r["epoch"], r["segment"]) == place and part.start <= r["offset"] < part.end]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_nothing_of_a_range_with_a_changed_byte_is_returned(
    kind: tuple[LayoutName, Compression], tmp_path: Path
) -> None:
    vault, part = damaged(tmp_path, kind)
    returned: list[pa.RecordBatch] = []
    with pytest.raises(Damaged) as caught:
        returned.extend(read_archive(vault.archive))
    assert caught.value.exit_code == 3
    if kind in PLAIN:
        assert isinstance(caught.value, DigestMismatch)
        assert not _inside(returned, part)
        assert "came before this error" not in str(caught.value)
    with pytest.raises(Damaged):
        read(ArchiveDataSource({"path": vault.archive}))
    returned = []
    with pytest.raises(Damaged) as caught:
        returned.extend(read_archive(vault.archive, unverified=True))
    if kind in PLAIN:
        assert len(_inside(returned, part)) == part.row.events
        assert f"{part.row.events:,} events of this range came before this error" in str(caught.value)


def test_changed_header_is_damage_and_no_invalid_event(tmp_path: Path) -> None:
    vault, _ = damaged(tmp_path, ("chunks", ""), header=True)
    with pytest.raises(Damaged) as caught:
        read_archive(vault.archive).read_all()
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind[0])
@pytest.mark.parametrize("besides", [damage.BESIDES, -(1 << 40)], ids=["buffered", "read-twice"])
def test_part_of_a_damaged_range_is_not_returned(
    besides: int, monkeypatch: pytest.MonkeyPatch, kind: tuple[LayoutName, Compression], tmp_path: Path
) -> None:
    vault, part = damaged(tmp_path, kind)
    archive: Archive = archive_of(vault.root)
    yielded = []
    monkeypatch.setattr(damage, "BESIDES", besides)
    with pytest.raises(DigestMismatch):
        yielded += list(read_part(archive.stream, part))
    assert yielded == []
    cut = json.dumps(inside(vault, part).to_json())
    with pytest.raises(DigestMismatch):
        read_archive(vault.archive, to_cut=cut).read_all()
    with pytest.raises(DigestMismatch):
        read(ArchiveDataSource({"path": vault.archive, "to": cut}))
    assert read_archive(vault.archive, to_cut=cut, unverified=True).read_all().num_rows  # the part has no digest
    assert read(ArchiveDataSource({"path": vault.archive, "to": cut, "unverified": "true"}))


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind[0])
def test_cat_and_get_exit_with_3(
    kind: tuple[LayoutName, Compression], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    vault, part = damaged(tmp_path, kind)
    assert main(["cat", vault.archive]) == 3
    out, err = capfdbinary.readouterr()
    assert b"came before" not in err
    assert err.count(b"\n") == 1
    assert main(["cat", vault.archive, "--unverified"]) == 3
    out, err = capfdbinary.readouterr()
    assert out
    assert err.count(b"\n") == 1
    assert b"came before this error and may be wrong" in err
    limited = ["cat", vault.archive, "--limit", "1", "--format", "hex", "--unverified"]
    assert main([*limited, "--to", json.dumps(inside(vault, part).to_json())]) == 0
    pointers = [str(p) for p, _ in vault.events() if p.segment == part.segment and part.start <= p.offset < part.end]
    assert get_event(vault.archive, pointers[1], unverified=True)
    with pytest.raises(DigestMismatch):
        get_event(vault.archive, pointers[1])
    capfdbinary.readouterr()
    for pointer in pointers[:2]:
        assert main(["get", vault.archive, pointer]) == 3
    out, err = capfdbinary.readouterr()
    assert (out, err.count(b"\n")) == (b"", 2)


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
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    """An archive that has noted the schemas; tests do not change it."""
    folder = tmp_path_factory.mktemp("vault")
    made = Vault(folder, f"file://{folder}/vault")
    made.create()
    made.add(*EVENTS)
    publish_with(made, schemas=GROUP)
    return made


def lines(ran: Ran, encoded: Vault, *options: str) -> tuple[list[dict[str, Any]], str]:
    out, err = ran("cat", encoded.archive, "--decode", "registry", "--format", "jsonl", *options, code=0)
    return [json.loads(line) for line in out.splitlines()], err


def test_cat_writes_fields(encoded: Vault, ran: Ran) -> None:
    found, err = lines(ran, encoded)
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
    assert "could not" not in lines(ran, encoded, "--limit", "1")[1]
    whole = json.loads(ran("cat", encoded.archive, "--decode", "registry", "--json", code=0)[0])
    assert whole["events"] == found


def test_what_cannot_be_decoded_is_said_in_one_line(encoded: Vault, ran: Ran, tmp_path: Path) -> None:
    _, err = ran("cat", encoded.archive, "--decode", "registry", code=2)
    assert err == "streamvault: --decode requires --format jsonl or --json. Add one of them.\n"
    for option in ("--registry", "--group"):
        _, err = ran("cat", encoded.archive, option, "http://registry:1", code=0)
        assert err == "warning: --registry and --group have no effect without --decode registry\n"
    bare = Vault(tmp_path)
    bare.create()
    bare.add(*EVENTS)
    bare.export()
    with pytest.raises(Usage, match="nothing says how the events are encoded"):
        read_archive(bare.archive, decode="registry")


def test_arrow_has_the_columns_of_the_fields(encoded: Vault) -> None:
    table = read_archive(encoded.archive, decode="registry", columns=["pointer", "length"]).read_all()
    assert table.column_names == ["pointer", "length", *FIELDS, "_error"]
    assert table["id"].to_pylist() == [0, None, None, 2]
    assert table["_error"].null_count == 2


def decoded_rows(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    batches = [batch for one in partitions for batch in reader.read(one)]
    return pa.Table.from_batches(batches).to_pylist()


def test_spark_reads_the_fields_of_an_archive(encoded: Vault) -> None:
    source = ArchiveDataSource({"path": encoded.archive, "decode": "registry", "columns": "pointer"})
    schema = source.schema()
    assert schema.fieldNames() == ["pointer", *FIELDS, "_error"]
    reader = source.reader(schema)
    found = decoded_rows(reader, reader.partitions())
    assert [row["id"] for row in found] == [0, None, None, 2]
    assert found[3]["cents"] == Decimal("2.58")
    few = StructType([schema["_error"], schema["pointer"], schema["id"]])
    reader = source.reader(few)
    assert [(row["id"], row["_error"]) for row in decoded_rows(reader, reader.partitions())][::3] == [
        (0, None),
        (2, None),
    ]
    with pytest.raises(Usage, match="the column id is of type bigint: string in the schema"):
        source.reader(StructType([StructField("id", StringType())]))
    with pytest.raises(Usage, match="unknown column: nothing"):
        source.reader(StructType([StructField("nothing", StringType())]))


def test_spark_reads_the_fields_of_an_archive_and_then_of_the_stream(encoded: Vault) -> None:
    given = {"path": encoded.uri(), "archive": encoded.archive, "decode": "registry", "columns": "offset"}
    stream = PravegaDataSource(given)
    reader = stream.streamReader(stream.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert [row["id"] for row in decoded_rows(reader, reader.partitions(start, end))] == [0, None, None, 2]


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
def test_options_of_spark_that_do_not_fit(encoded: Vault, given: dict[str, str], said: str) -> None:
    path = encoded.uri().rpartition("/")[0] + "/" if "streamPattern" in given else encoded.uri()
    with pytest.raises(Usage, match=said) as raised:
        PravegaDataSource({"path": path, **given}).schema()
    assert "secret" not in str(raised.value)


def test_spark_has_what_was_registered_later_when_the_query_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = Vault(tmp_path)
    encoded.create()
    encoded.add(event(0))
    fields = [*SCHEMA["fields"], {"name": "note", "type": "string", "default": "none"}]
    data = b64encode(json.dumps({**SCHEMA, "fields": fields}).encode()).decode()
    later = GROUP.entries[0].model_copy(update={"encoding": 5, "version": 1, "data": data})
    registered = GROUP
    monkeypatch.setattr(RegistryGroup, "find", lambda _: registered)

    def started() -> Any:
        given = {"path": encoded.uri(), "decode": "registry", "registry": "http://registry:9092", "group": "orders"}
        source = PravegaDataSource({**given, "startingOffsets": "earliest"})
        return source.streamReader(source.schema())

    def followed(reader: Any) -> list[dict[str, Any]]:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        return decoded_rows(reader, reader.partitions(start, end))

    running = started()
    registered = GROUP.model_copy(update={"entries": (*GROUP.entries, later)})
    encoded.add(event(1, encoding=5) + b"\x06new")
    old, new = followed(running)
    assert (old["id"], old["_error"], "note" in old) == (0, None, False)
    assert (new["id"], new["_error"]) == (None, UNKNOWN)
    assert [(row["id"], row["note"], row["_error"]) for row in followed(started())] == [
        (0, "none", None),
        (1, "new", None),
    ]
