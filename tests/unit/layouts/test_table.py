"""Reading ranges from a table's files: the segment's bytes, or an error that names the damage."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamvault.lake.task
from streamvault import write_table
from streamvault.common.errors import Damaged
from streamvault.layouts import isolated
from streamvault.layouts import table as table_reader
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import TableFileKey, parse_table_file, table_data, table_file_key
from streamvault.layouts.layout import RangeReader, UnknownLayout, open_reader
from streamvault.layouts.table_decoder import open_file, rows_in
from streamvault.manifests.archive import Archive
from streamvault.objectstore.store import WrongSize
from streamvault.streamstore.model import Range, SegmentId
from testkit.lakes import table_keys
from testkit.prove.flips import flip
from testkit.small_archives import Vault, archive_of, objects_of, replace_object, segments_of


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vault:
    """A table with small row groups and files that hold several segments."""
    monkeypatch.setattr(streamvault.lake.task, "ROW_GROUP_BYTES", 1500)
    monkeypatch.setattr(table_reader, "BATCH_ROWS", 7)
    vault = Vault(tmp_path)
    vault.make(events=200, largest=5000)
    vault.export("chunks")
    write_table(vault.archive, format="parquet", master="inline", target_size=16 * 1024)
    return vault


def table_of(vault: Vault) -> Archive:
    return archive_of(vault.root).table_archive("stream")


def reader() -> RangeReader:
    return open_reader("table:1")


def read(vault: Vault, stored: ArchivedRange, start: int, end: int) -> bytes:
    table = table_of(vault)
    return b"".join(bytes(block) for block in reader().read_range(table.place, stored, start, end))


def test_every_range_is_read_as_the_segments_own_bytes(vault: Vault) -> None:
    wanted = segments_of(vault.root)
    history = table_of(vault).history()
    found = {
        (row.start, str(segment)): read(vault, row, row.start, row.end)
        for segment in history.segments()
        for layout, row in history.ranges(segment)
        if layout == "table:1"
    }
    assert found == wanted
    assert len(found) > 5


def test_part_of_a_range_is_read_from_any_offset(vault: Vault) -> None:
    table = table_of(vault)
    events = dict(vault.events())
    history = table.history()
    segment = history.segments()[-1]
    _, row = next(history.ranges(segment))
    mine = [pointer for pointer in events if pointer.segment == segment and row.start <= pointer.offset < row.end]
    whole = read(vault, row, row.start, row.end)
    for pointer in mine[:20]:
        at = pointer.offset - row.start
        assert read(vault, row, pointer.offset, row.end) == whole[at:]
        assert read(vault, row, row.start, pointer.offset) == whole[:at]
        assert read(vault, row, pointer.offset + 3, row.end) == whole[at + 3 :], "from inside of an event"
        event = reader().read_event(table.place, row, pointer.offset, pointer.length)
        assert event == whole[at : at + pointer.length]
        inside = pointer.offset + pointer.length - 1
        found = reader().find_event(table.place, row, inside)
        assert found == (pointer.offset, pointer.length)
    with pytest.raises(WrongSize):
        reader().read_event(table.place, row, mine[1].offset, mine[1].length + 1)


def test_row_groups_of_other_offsets_are_not_read(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    iter_batches = pq.ParquetFile.iter_batches

    def watched(file: pq.ParquetFile, *arguments: object, **options: Any) -> object:
        if "row_groups" in options:
            asked.append([len(options["row_groups"]), file.metadata.num_row_groups])
        return iter_batches(file, *arguments, **options)

    def here(file: io.RawIOBase, question: dict[str, Any]) -> Iterator[object]:
        (name, *stored), part = question["stored"], question["part"]
        rows = rows_in(open_file(file), Range(SegmentId.parse(name), *stored), *part)
        yield {"holds": rows is not None}
        yield from rows or ()

    monkeypatch.setattr(table_reader, "decoded", here)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    history = table_of(vault).history()
    for segment in history.segments():
        for _, row in history.ranges(segment):
            read(vault, row, row.end - 8, row.end)
    assert all(read_groups <= 3 for read_groups, _ in asked), asked
    assert max(groups for _, groups in asked) > 3


def first_file(vault: Vault) -> tuple[ArchivedRange, str, pa.Table]:
    """Return the first range, the key of its file and that file's rows."""
    table = table_of(vault)
    _, row = next(table.history().ranges(table.history().segments()[0]))
    key = table_data(table.prefix) + table_file_key(1, row.segment, row.start)
    return row, key, pq.ParquetFile(io.BytesIO(objects_of(vault.root).get(key))).read()


def change(vault: Vault, key: str, rows: pa.Table | None) -> None:
    written = io.BytesIO()
    if rows is not None:
        pq.write_table(rows, written)
    replace_object(vault.root, key, written.getvalue() or b"no Parquet")
    table_reader._listed.cache_clear()


def test_library_that_ends_its_process_is_damage(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoding process is killed in the middle of a file; the next file is decoded by another one."""
    row, _, _ = first_file(vault)
    whole = read(vault, row, row.start, row.end)
    get_range = table_reader.ObjectFile.read

    def fatal(file: table_reader.ObjectFile, size: int = -1) -> bytes:
        for process in started:
            os.kill(process.pid, signal.SIGABRT)
        return get_range(file, size)

    started: list[Any] = []
    take = isolated._take
    monkeypatch.setattr(isolated, "_take", lambda: started.append(take()) or started[-1])
    with monkeypatch.context() as patch:
        patch.setattr(table_reader.ObjectFile, "read", fatal)
        with pytest.raises(Damaged, match="crashed the Parquet library's process"):
            read(vault, row, row.start, row.end)
    assert read(vault, row, row.start, row.end) == whole
    assert started[0].pid != started[-1].pid


def test_one_process_reads_what_files_say_of_themselves(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    _, key, rows = first_file(vault)
    taken: list[Any] = []
    take = isolated._take
    monkeypatch.setattr(isolated, "_take", lambda: taken.append(take()) or taken[-1])
    assert [table_reader.read_facts(objects_of(vault.root), key)[1] for _ in range(3)] == [len(rows)] * 3
    assert len({process.pid for process in taken}) == 1


def test_flipped_and_cut_files_end_no_process() -> None:
    found = flip(60, seed=1)
    assert (found.count, found.broken) == (60, [])
    assert found.rejected


@pytest.mark.parametrize("damage", ["row gone", "row doubled", "payload cut", "column gone", "no Parquet", "file gone"])
def test_damaged_file_is_found(vault: Vault, damage: str) -> None:
    row, key, rows = first_file(vault)
    longest = max(range(3), key=lambda index: len(rows["payload"][index].as_py()))
    changed = {
        "row gone": pa.concat_tables([rows[:1], rows[2:]]),
        "row doubled": pa.concat_tables([rows[:1], rows]),
        "payload cut": rows.set_column(
            rows.schema.get_field_index("payload"),
            "payload",
            pa.array([b"x" if i == longest else one for i, one in enumerate(rows["payload"].to_pylist())], pa.binary()),
        ),
        "column gone": rows.drop_columns(["length"]),
    }
    change(vault, key, changed.get(damage))
    if damage == "file gone":
        replace_object(vault.root, key, None)
    with pytest.raises(Damaged):
        read(vault, row, row.start, row.end)


def test_other_files_in_the_folder_are_ignored(vault: Vault) -> None:
    """Foreign bytes, a file of no table, and a file with other ranges, under any name."""
    table = table_of(vault)
    history, folder = table.history(), table_data(table.prefix)
    there = table_keys(vault.root)
    written = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), written)
    strays = [b"no Parquet", written.getvalue(), objects_of(vault.root).get(there[-1])]
    ranges = [row for segment in history.segments() for _, row in history.ranges(segment)]
    whole = [read(vault, row, row.start, row.end) for row in ranges]
    put = 0
    for row in ranges:
        key = folder + table_file_key(1, row.segment, row.start)
        if key not in there:
            objects_of(vault.root).put(key, strays[put % 3])
            put += 1
    assert put > 2
    table_reader._listed.cache_clear()
    assert [read(vault, row, row.start, row.end) for row in ranges] == whole


def test_file_that_decompresses_to_more_than_its_range_is_rejected(vault: Vault) -> None:
    row, key, rows = first_file(vault)
    segment = row.segment
    count = 100_000
    huge = pa.table(
        {
            "epoch": pa.repeat(pa.scalar(segment.epoch, pa.int32()), count),
            "segment": pa.repeat(pa.scalar(segment.number, pa.int32()), count),
            "offset": pa.repeat(pa.scalar(row.start), count),
            "length": pa.repeat(pa.scalar(8 + 1_000_000, pa.int32()), count),
            "payload": pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), [b"x" * 1_000_000]),
        }
    ).replace_schema_metadata(rows.schema.metadata)
    change(vault, key, huge)
    assert objects_of(vault.root).size(key) < 100_000, "a hundred gigabytes"
    with pytest.raises(Damaged, match="larger than in any"):
        read(vault, row, row.start, row.end)


def test_file_names_sort_in_the_streams_order() -> None:
    places = [(0, 0, 0), (0, 0, 9), (0, 0, 10), (0, 2, 0), (10, 1, 0), (10, 1, 2**62)]
    files = [
        TableFileKey(1, SegmentId(epoch, number), offset, file_id)
        for epoch, number, offset in places
        for file_id in ("", "0" * 32, "f" * 32)
    ]
    keys = [table_file_key(*one) for one in files]
    assert files == sorted(files)
    assert [key.partition(".parquet")[0] for key in keys] == sorted(key.partition(".parquet")[0] for key in keys)
    assert [parse_table_file(key) for key in keys] == files


def test_unknown_reader_is_rejected() -> None:
    with pytest.raises(UnknownLayout):
        open_reader("tables")


def test_row_group_of_small_events_is_bounded_by_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row takes many times the memory of an event of one byte."""
    vault = Vault(tmp_path)
    vault.create()
    vault.add(*[b"x"] * 3000)
    vault.export("chunks")
    monkeypatch.setattr(streamvault.lake.task, "MEMORY_BYTES", 100_000)
    write_table(vault.archive, format="parquet", master="inline")
    [key] = table_keys(vault.root)
    metadata = pq.read_metadata(io.BytesIO(objects_of(vault.root).get(key)))
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(rows) == 3000
    assert max(rows) < 1500
