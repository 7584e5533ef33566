"""`handoff`: every event is a row, and each generation is written once, whatever exists already."""

from __future__ import annotations

import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamvault import check_archive, import_stream, list_archives, write_table
from streamvault.cli import main
from streamvault.common.errors import Conflict, Problem, Usage
from streamvault.lake.reports import HandoffReport
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.streamstore.model import EventPointer, StreamName
from testkit.lakes import RESTORED, files_folder, is_whole, rows_of, table_keys, table_of
from testkit.small_archives import KINDS, NAME, RANGE_SIZE, Vault, a_root, a_vault, contents, objects_of, replace_object
from tests.told import Ran

TARGET = 2 * RANGE_SIZE
ORIGINS = pytest.mark.parametrize("origin", ["archive", "stream"])


def hand_off(vault: Vault, origin: str = "archive", **options: Any) -> HandoffReport:
    source, root = (vault.archive, None) if origin == "archive" else (vault.uri(), vault.root)
    return write_table(source, **{"root": root, "target_size": TARGET, "master": "inline[2]", **options})


vault = a_vault(events=300)


@pytest.mark.parametrize(
    ("layout", "compress", "kind"), [(*KINDS[0], "iceberg"), (*KINDS[1], "parquet"), (*KINDS[2], "iceberg")]
)
def test_every_event_is_a_row(vault: Vault, layout: LayoutName, compress: Compression, kind: str) -> None:
    vault.export(layout, compress)
    report = hand_off(vault, format=kind)
    rows, events = rows_of(vault.root), vault.events()
    assert [row["pointer"] for row in rows] == [str(pointer) for pointer, _ in events], "in the stream's order"
    assert [row["payload"] for row in rows] == [payload for _, payload in events]
    for row, (pointer, _) in zip(rows, events, strict=True):
        assert EventPointer.parse(row["pointer"]) == pointer
        assert (row["scope"], row["stream"]) == (NAME.scope, NAME.stream)
        assert (row["epoch"], row["segment"]) == (pointer.segment.epoch, pointer.segment.number)
        assert (row["offset"], row["length"]) == (pointer.offset, pointer.length)
        assert row.get("generation") == (1 if kind == "iceberg" else None)
    assert (report.added, report.events, report.files) == ((1,), len(events), len(table_keys(vault.root)))
    assert report.files > 3
    assert check_archive(vault.archive).ok, "a table is nothing to a check"
    assert [(archive.stream_name, archive.layout) for archive in list_archives(vault.root)] == [
        (str(NAME), layout),
        (str(NAME), "table"),
    ]


def test_files_hold_the_target_size_and_statistics(vault: Vault) -> None:
    vault.export()
    hand_off(vault)
    store = objects_of(vault.root)
    last = None
    for key in table_keys(vault.root):
        file = pq.ParquetFile(io.BytesIO(store.get(key)))
        rows = file.read().to_pylist()
        begin, size = (rows[0]["epoch"], rows[0]["segment"], rows[0]["offset"]), sum(row["length"] for row in rows)
        assert re.search(f"/{begin[0]:010d}.{begin[1]:010d}-{begin[2]:019d}.parquet$", key)
        assert last is None or last < begin
        last = begin
        assert size <= TARGET or len({row["offset"] // RANGE_SIZE for row in rows}) == 1
        group = file.metadata.row_group(0)
        columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
        assert columns["offset"].statistics.has_min_max
        assert columns["payload"].compression == "ZSTD"


@ORIGINS
def test_dry_run_writes_nothing(vault: Vault, origin: str) -> None:
    vault.export()
    before = contents(vault.root)
    report = hand_off(vault, origin, dry_run=True)
    assert contents(vault.root) == before
    assert report.added == (1,)
    assert report.cost is not None
    assert report.cost.objects == report.files
    done, guesses = hand_off(vault, origin), origin == "stream"
    assert report.bytes == done.bytes
    assert report.files == pytest.approx(done.files, abs=2 * guesses)
    assert report.events == pytest.approx(done.events, rel=0.5 * guesses)


def test_handoff_refuses_other_options_than_the_tables(vault: Vault) -> None:
    vault.export()
    hand_off(vault, format="parquet")
    with pytest.raises(Conflict, match="kind"):
        hand_off(vault, format="iceberg")
    vault.add(b"new")
    vault.export()
    with pytest.raises(Conflict, match="target_size"):
        write_table(vault.archive, target_size=TARGET + 1, master="inline")
    assert hand_off(vault).format == "parquet", "what nothing is said of holds"


@ORIGINS
def test_concurrent_runs_make_one_table(vault: Vault, origin: str) -> None:
    vault.export()
    with ThreadPoolExecutor(3) as threads:
        reports = [run.result() for run in [threads.submit(hand_off, vault, origin) for _ in range(3)]]
    assert all(report.generations == (1,) for report in reports)
    assert is_whole(vault)


def test_foreign_file_in_the_way_is_a_conflict(vault: Vault) -> None:
    vault.export()
    hand_off(vault)
    replace_object(vault.root, f"{table_of(vault).prefix}_manifest/0000000001.json", None)
    replace_object(vault.root, table_keys(vault.root)[0], b"no Parquet")
    with pytest.raises(Conflict, match="an unrelated file already exists"):
        hand_off(vault)


@pytest.mark.parametrize("options", [{"table": "Ärger"}, {"table": "A.b"}, {"decode": "avro"}, {"event_time": "x"}])
def test_invalid_options_are_refused(vault: Vault, options: dict[str, str]) -> None:
    vault.export()
    with pytest.raises(Problem) as error:
        hand_off(vault, **options)
    assert error.value.exit_code in {1, 2}


@pytest.mark.parametrize(
    ("catalog", "message"),
    [
        ("misspelt", "PyIceberg's configuration has no such catalog: 'misspelt'"),
        ("rest:", "catalog rest requires a URI"),
        ("rest:host:8181", "catalog rest requires a URI"),
        ("sql:nonsense", "catalog sql requires a URI"),
    ],
)
def test_catalog_that_cannot_exist_is_refused_before_anything_is_written(
    vault: Vault, catalog: str, message: str
) -> None:
    vault.export()
    for dry_run in (True, False):
        with pytest.raises(Usage, match=message):
            write_table(vault.archive, catalog=catalog, dry_run=dry_run, master="inline")
    assert not [key for key in contents(vault.root) if "table" in key]


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_table_restores_the_stream(vault: Vault, kind: str) -> None:
    vault.export("chunks", "zstd")
    vault.add(*(bytes([number]) * number * 7 for number in range(60)))
    vault.export("events")
    other = a_root()
    hand_off(vault, format=kind, root=other)
    assert all("/table/" in key or "/_table/" in key for key in contents(other)), "the archive itself is elsewhere"
    report = import_stream(f"{other}/{NAME}", vault.uri(RESTORED), layout="table", master="inline[2]", read_back=True)
    assert report.generation == 2
    assert vault.digest(RESTORED) == vault.digest()
    assert vault.shape(RESTORED)["epochs"] == vault.shape()["epochs"]


def test_table_restores_between_cuts_what_the_archive_does(vault: Vault) -> None:
    vault.export()
    hand_off(vault)
    events = [pointer for pointer, _ in vault.events()]
    head = vault.described.head
    cut = head.to_json()
    moved = next(iter(head.offsets))
    inside = [pointer for pointer in events if pointer.segment == moved]
    cut[moved.in_stream(NAME)] = inside[len(inside) // 2].offset
    restored = {}
    for name, layout in (("plain", None), ("tabled", "table")):
        target = StreamName("scope", name)
        import_stream(vault.archive, vault.uri(target), layout=layout, from_cut=cut, master="inline[2]")  # type: ignore[arg-type]
        restored[name] = vault.digest(target)
    assert restored["plain"] == restored["tabled"]
    assert restored["plain"][0] == len(events) - len(inside) // 2


def test_registry_in_the_environment_stops_no_other_table(
    vault: Vault, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.export()
    monkeypatch.setenv("STREAMVAULT_REGISTRY", "http://anna:secret@registry:1")
    said = ran("handoff", vault.archive, "--format", "parquet", "--master", "inline")
    assert "--registry and --group have no effect without --decode registry" in said.out + said.err
    assert "secret" not in said.out + said.err


def test_ddl_names_the_complete_generations(vault: Vault, ran: Ran) -> None:
    vault.export()
    hand_off(vault, format="parquet")
    vault.add(b"not handed off")
    vault.export()
    said = {}
    for engine in ("athena", "trino", "hive", "duckdb"):
        said[engine] = ran("ddl", vault.archive, engine).out
        assert "generation=2" not in said[engine]
    assert f"LOCATION '{vault.root}/{files_folder(vault.root)}generation=1/'" in said["hive"]
    assert "'projection.generation.range' = '1,1'" in said["athena"]
    assert "ARRAY['1']" in said["trino"]
    assert f"'{vault.root}/{files_folder(vault.root)}generation=1/*.parquet'" in said["duckdb"]
    assert "events/0000000003.0000000006/" in ran("ddl", vault.archive, "hive", "--raw").out
    assert "no statement for raw events" in ran("ddl", vault.archive, "duckdb", "--raw", code=2).err
    hand_off(vault, format="parquet")
    vault.seal()
    vault.export()
    assert hand_off(vault, format="parquet").events == 0
    assert "generation=3" in ran("ddl", vault.archive, "hive").out
    duck = ran("ddl", vault.archive, "duckdb").out
    assert [f"generation={number}/" in duck for number in (1, 2, 3)] == [True, True, False], "it accepts no empty one"


def test_command_prints_what_it_did(vault: Vault, ran: Ran) -> None:
    vault.export()
    line = ["handoff", vault.archive, "--master", "inline"]
    assert "would write generation 1 of scope.stream" in ran(*line, "--dry-run").out
    assert "wrote generation 1 of scope.stream" in ran(*line).out
    assert json.loads(ran(*line, "--json").out)["unchanged"]
    assert main([*line, "--format", "parquet"]) == 4
    assert main([*line, "--decode", "json"]) == main([*line, "--decode", "avro"]) == 4, "not 2: nothing is inferred"
    assert main([*line, "--table", "other", "--decode", "json", "--schema", "/no/such/file"]) == 2


def test_import_asks_which_of_several_tables(vault: Vault) -> None:
    vault.export()
    with pytest.raises(Usage, match="has no table"):
        import_stream(vault.archive, vault.uri(RESTORED), layout="table", master="inline")
    hand_off(vault)
    hand_off(vault, table="lake.other", format="parquet")
    with pytest.raises(Usage, match="several tables"):
        import_stream(vault.archive, vault.uri(RESTORED), layout="table", master="inline")
    report = import_stream(vault.archive, vault.uri(RESTORED), layout="table", table="other", master="inline")
    assert report.events == len(rows_of(vault.root, "other"))
