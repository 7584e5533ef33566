"""Handoff of archives whose generations expired or were merged before, between or during handoffs."""

from __future__ import annotations

import hashlib
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import streamvault.lake.handoff
from streamvault import compact_archive, convert_archive, import_stream, rotate_stream, table_ddl, write_table
from streamvault.common.errors import Conflict, Damaged, Failed
from streamvault.lake.reports import Decode, HandoffReport
from streamvault.lake.table import TableColumn, TableOptions
from streamvault.layouts.keys import GenerationSpan, chunk_key, manifest_key, ranges_key
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests.archive import NoSuchArchive
from streamvault.manifests.files import decode as decoded_file
from streamvault.streamstore.model import StreamName
from testkit.killed import before_call
from testkit.lakes import files_folder, generation_of, is_whole, meanwhile, rows_in, table_keys, table_of, writing
from testkit.small_archives import (
    KINDS,
    NAME,
    RANGE_SIZE,
    Vault,
    archive_of,
    clear,
    contents,
    objects_of,
    replace_object,
)


def grown(folder: Path, layout: LayoutName = "chunks", compress: Compression = "", generations: int = 4) -> Vault:
    """An archive of small generations."""
    vault = Vault(folder)
    vault.make(events=60, largest=2000)
    vault.export(layout, compress)
    for number in range(1, generations):
        more(vault, number, layout, compress)
    return vault


def more(vault: Vault, number: int, layout: LayoutName = "chunks", compress: Compression = "") -> None:
    vault.add(*(b"%d-%d" % (number, index) * 27 for index in range(8)))
    vault.export(layout, compress)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return grown(tmp_path)


def hand_off(vault: Vault, **options: Any) -> HandoffReport:
    return write_table(vault.archive, target_size=RANGE_SIZE, master="inline", **options)


def expire(vault: Vault, keep: int) -> None:
    rotate_stream(vault.uri(), vault.root, keep=keep, layout="chunks", range_size=RANGE_SIZE, master="inline")


def compact(vault: Vault) -> None:
    """Merge all generations, and delete the originals."""
    compact_archive(vault.archive, master="inline")
    clear(vault)


def restored(vault: Vault, layout: Any, **options: Any) -> Any:
    target = StreamName("scope", f"restored-{layout}")
    import_stream(vault.archive, vault.uri(target), layout=layout, master="inline", **options)
    return vault.digest(target)


def test_table_begins_where_the_archive_does(vault: Vault) -> None:
    expire(vault, 2)
    report = hand_off(vault)
    assert (report.added, report.generations) == ((3, 4), (3, 4))
    table, archive = table_of(vault), archive_of(vault.root)
    assert table.listing().missing is None
    assert table.history().head == archive.history().head
    assert restored(vault, "table") == restored(vault, None)
    more(vault, 4)
    assert hand_off(vault).added == (5,)
    with pytest.raises(NoSuchArchive, match="expired"):
        table.history(2)


def test_generations_that_expired_before_they_were_handed_off_are_a_conflict(vault: Vault) -> None:
    hand_off(vault)
    before = contents(vault.root)
    more(vault, 4)
    more(vault, 5)
    expire(vault, 1)
    with pytest.raises(Conflict, match="generation 5 expired before being written"):
        hand_off(vault)
    assert {key for key in contents(vault.root) if "table/" in key} == {key for key in before if "table/" in key}
    assert hand_off(vault, table="other").added == (6,)


@pytest.mark.parametrize(("layout", "compress"), KINDS)
def test_merged_generation_is_one_partition(tmp_path: Path, layout: LayoutName, compress: Compression) -> None:
    vault = grown(tmp_path, layout, compress)
    compact(vault)
    assert hand_off(vault).added == (4,)
    assert {generation_of(key) for key in table_keys(vault.root)} == {4}
    assert is_whole(vault)
    table, archive = table_of(vault).manifest(), archive_of(vault.root).manifest()
    assert table.model_copy(update={"index": archive.index}) == archive, "but for frames, which only objects have"
    rows = [row for held in table_of(vault).history().generations for some in held.rows.values() for row in some]
    assert {(row.frames, row.crc64nvme) for row in rows} == {((), "")}
    assert restored(vault, "table", generation=2) == restored(vault, None, generation=2)


@pytest.mark.parametrize(("layout", "compress"), KINDS)
def test_small_generations_become_one_file(tmp_path: Path, layout: LayoutName, compress: Compression) -> None:
    """They are merged in the table, with the number of the last of them, whatever the archive does with them."""
    vault = grown(tmp_path, layout, compress, generations=6)
    target = sum(one.manifest.bytes for one in archive_of(vault.root).history().generations[:4])
    options: dict[str, Any] = {"target_size": target, "master": "inline"}
    assert write_table(vault.archive, dry_run=True, **options).added == (4, 6)
    report = write_table(vault.archive, **options)
    assert (report.added, report.files) == ((4, 6), 2)
    assert is_whole(vault)
    for generation in (1, 3, 5):
        for kind in ("table", None):
            target_of = StreamName("scope", f"restored-{kind}-{generation}")
            import_stream(vault.archive, vault.uri(target_of), layout=kind, generation=generation, master="inline")
        assert vault.digest(StreamName("scope", f"restored-table-{generation}")) == vault.digest(target_of)
    compact(vault)
    assert write_table(vault.archive, **options).unchanged
    more(vault, 6, layout, compress)
    compact(vault)
    assert write_table(vault.archive, **options).added == (7,)
    assert is_whole(vault)
    assert table_of(vault).history().head == archive_of(vault.root).history().head


@pytest.mark.parametrize(("layout", "compress"), KINDS)
def test_only_the_missing_part_of_a_merged_generation_is_added(
    tmp_path: Path, layout: LayoutName, compress: Compression
) -> None:
    vault = grown(tmp_path, layout, compress, generations=2)
    hand_off(vault)
    end = table_of(vault).manifest().to
    kept = {key: data for key, data in contents(vault.root).items() if "table/" in key}
    for number in range(2, 5):
        more(vault, number, layout, compress)
    compact(vault)
    assert archive_of(vault.root).listing().spans == ((1, 5),)
    report = hand_off(vault)
    assert (report.added, report.generations) == ((5,), (1, 2, 5))
    assert report.events == sum(one.events for one in archive_of(vault.root).manifest().replaces[2:])
    assert is_whole(vault)
    assert kept.items() <= contents(vault.root).items()
    generation = table_of(vault).load(5)
    assert (generation.manifest.first, generation.manifest.from_) == (3, end)
    # the digests are those of the table's data, whatever the archive's ranges are
    rows = [row for key in table_keys(vault.root) if "=5/" in key for row in rows_in(objects_of(vault.root), key)]
    for segment, ranges in generation.rows.items():
        for one in ranges:
            data = b"".join(
                (row["length"] - 8).to_bytes(8, "big") + row["payload"]
                for row in rows
                if (row["epoch"], row["segment"]) == (segment.epoch, segment.number)
                and one.start <= row["offset"] < one.end
            )
            assert hashlib.sha256(data).hexdigest() == one.digest
    again = hand_off(vault)
    assert (again.unchanged, again.moved_bytes) == (True, 0)
    assert restored(vault, "table", generation=4) == restored(vault, None, generation=4)


def test_range_across_the_cut_is_verified_as_a_whole(tmp_path: Path) -> None:
    vault = grown(tmp_path, generations=2)
    hand_off(vault)
    more(vault, 2)
    compact(vault)
    cut = table_of(vault).manifest().to.offsets
    row = next(
        row
        for segment, rows in archive_of(vault.root).load(3).rows.items()
        for row in rows
        if row.start < cut.get(segment, 0) < row.end
    )
    key = f"{NAME}/{chunk_key(row.segment, row.start, row.end - row.start)}"
    data = bytearray(objects_of(vault.root).get(key))
    data[9] ^= 1  # in the payload of an event that the table has already
    replace_object(vault.root, key, bytes(data))
    with pytest.raises(Damaged):
        hand_off(vault)
    assert table_of(vault).generations() == [1, 2]


@pytest.mark.parametrize(("files", "added"), [(0, [5, 7]), (1, [5, 6, 7])])
def test_generations_merged_during_a_handoff_are_a_conflict(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, files: int, added: list[int]
) -> None:
    hand_off(vault)
    for number in (4, 5, 6):
        more(vault, number)
    meanwhile(monkeypatch, lambda: compact(vault), files)
    with pytest.raises(Conflict, match="merged while they were being handed off"):
        hand_off(vault)
    table = table_of(vault)
    assert table.generations() == [1, 2, 3, 4, *added[:files]]
    hand_off(vault)
    # the unfinished generation is finished first, then the rest of the merged one is added
    assert table.generations() == [1, 2, 3, 4, *added]
    assert is_whole(vault)


def test_generations_that_expire_during_a_handoff_are_a_conflict(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, lambda: expire(vault, 1), 1)
    with pytest.raises(Conflict, match="generation 1 expired while it was being handed off"):
        hand_off(vault)
    assert table_of(vault).generations() == []
    with pytest.raises(Conflict, match="generations 1 to 3 expired before being written"):
        hand_off(vault)
    assert hand_off(vault, table="other").added == (4,)


def test_killed_run_is_resumed_after_a_merge(vault: Vault) -> None:
    hand_off(vault)
    more(vault, 4)
    more(vault, 5)
    hand_off(vault)
    whole = contents(vault.root)
    for number, key_of in product((6, 5), (manifest_key, ranges_key)):
        replace_object(vault.root, table_of(vault).prefix + key_of(GenerationSpan.of(number)), None)
    # the state left by two runs that were killed before they published
    compact(vault)
    report = hand_off(vault)
    assert (report.added, report.moved_bytes) == ((5, 6), 0), "every file is taken"
    table = {key: data for key, data in whole.items() if "table/" in key and "_manifest" not in key}
    assert table.items() <= contents(vault.root).items()
    assert is_whole(vault)


def test_archive_of_another_stream_with_the_same_cuts_is_refused(vault: Vault, tmp_path: Path) -> None:
    """The same name, length and epochs: a stream as another cluster may have it."""
    one, other = twins = twins_in(tmp_path)
    hand_off(one, root=vault.root, table="twin")
    assert hand_off(one, root=vault.root, table="twin").unchanged
    other.add(b"c" * 50)
    other.export("chunks")
    before = contents(vault.root)
    with pytest.raises(Conflict, match="generation 1 of the table is not from this archive") as error:
        hand_off(other, root=vault.root, table="twin")
    assert all(f"{twin.folder}" in str(error.value) for twin in twins), "names both"
    assert contents(vault.root) == before


def test_archive_of_another_stream_is_refused_although_the_tables_generations_expired(
    vault: Vault, tmp_path: Path
) -> None:
    one, other = twins = twins_in(tmp_path)
    hand_off(one, root=vault.root, table="twin")
    for twin in twins:
        twin.add(b"c" * 50)
        expire(twin, 1)
    before = contents(vault.root)
    with pytest.raises(Conflict, match="generation 1 of the table is not from this archive"):
        hand_off(other, root=vault.root, table="twin")
    assert contents(vault.root) == before
    assert hand_off(one, root=vault.root, table="twin").added == (2,)


def test_what_expired_is_known_to_an_archive_that_was_made_of_another(vault: Vault, tmp_path: Path) -> None:
    one, other = twins_in(tmp_path)
    converted = {}
    for twin in (one, other):
        twin.add(b"c" * 50)
        twin.export("chunks")
    hand_off(one, root=vault.root, table="twin")
    for twin in (one, other):
        twin.add(b"d" * 50)
        expire(twin, 1)
        converted[twin.folder] = f"{twin.root}-events"
        convert_archive(twin.archive, converted[twin.folder], layout="events", master="inline")
    with pytest.raises(Conflict, match="generation 2 of the table is not from this archive"):
        write_table(f"{converted[other.folder]}/{NAME}", root=vault.root, table="twin", master="inline")
    assert write_table(f"{converted[one.folder]}/{NAME}", root=vault.root, table="twin", master="inline").added == (3,)


def twins_in(folder: Path) -> list[Vault]:
    """Two archives of streams with the same name, length and epochs, and other events."""
    twins = []
    for name, letter in (("one", b"a"), ("other", b"b")):
        (folder / name).mkdir()
        twins.append(Vault(folder / name))
        twins[-1].make(events=0)
        twins[-1].add(letter * 50)
        twins[-1].export("chunks")
    return twins


def test_plan_that_another_archives_run_has_just_recorded_is_refused(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = twins_in(tmp_path)

    def others() -> None:
        with writing(Mock(side_effect=Failed("stopped for a test"))), pytest.raises(Failed):
            hand_off(one, root=vault.root, table="twin")

    before_call(monkeypatch, streamvault.lake.handoff, "fix_plan", others)
    with pytest.raises(Conflict, match="not from this archive"):
        hand_off(other, root=vault.root, table="twin")
    assert not [key for key in contents(vault.root) if "/_table/twin/" in key and "_manifest" in key]


def test_file_with_the_planned_ranges_of_other_events_is_refused(vault: Vault, tmp_path: Path) -> None:
    one, other = twins_in(tmp_path)
    hand_off(other, root=vault.root, table="others", format="parquet")
    with writing(Mock(side_effect=Failed("stopped for a test"))), pytest.raises(Failed):
        hand_off(one, root=vault.root, table="twin", format="parquet")
    for key in table_keys(vault.root, "others"):
        name = key.removeprefix(files_folder(vault.root, "others"))
        objects_of(vault.root).put(files_folder(vault.root, "twin") + name, objects_of(vault.root).get(key))
    with pytest.raises(Conflict, match="with other ranges"):
        hand_off(one, root=vault.root, table="twin")


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_files_without_the_plan_that_wrote_them_are_refused(vault: Vault, kind: Any) -> None:
    hand_off(vault, format=kind)
    for key in contents(vault.root):
        if "/_table/" in key and not key.endswith("table.json"):
            replace_object(vault.root, key, None)
    before = contents(vault.root)
    with pytest.raises(Conflict, match="the table's records are missing"):
        hand_off(vault)
    assert contents(vault.root) == before


@pytest.mark.parametrize(
    ("decode", "kind", "why"),
    [("json", "struct<id:int,ID:int>", "differ only in case"), ("csv", "array<bigint>", "cannot be a list")],
)
def test_column_that_only_earlier_releases_made_is_named(vault: Vault, decode: Decode, kind: str, why: str) -> None:
    hand_off(vault, decode=decode, schema='{"a": "string"}', format="parquet")
    store = objects_of(vault.root)
    key = next(key for key in contents(vault.root) if key.endswith("/table.json"))
    options = decoded_file(TableOptions, store.get(key), key)
    store.delete([key])
    columns = (*options.columns, TableColumn(field="w", column="w", type=kind))
    store.put(key, options.model_copy(update={"columns": columns}).encode())
    more(vault, 5)
    with pytest.raises(Conflict, match=f"created by an earlier release .*{why}") as refused:
        hand_off(vault)
    assert (refused.value.exit_code, "table" in refused.value.todo) == (4, True)
    assert "`w`" in table_ddl(vault.archive, "hive"), "what is there is still read"
