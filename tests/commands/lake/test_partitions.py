"""A file is in a table's partition only if all of its rows are, and whatever the partitions are, each row is found.

Names of a table's files: no other plan has them, of any table at any time, and each run of a plan does.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
)

from streamvault import import_stream, write_table
from streamvault.common.errors import Conflict, Damaged, Failed
from streamvault.lake import resolve
from streamvault.lake import table as table_options
from streamvault.lake.origins import StreamOrigin
from streamvault.lake.plan import TablePlan
from streamvault.lake.reports import HandoffReport
from streamvault.lake.table import TableOptions
from streamvault.lake.task import FileTask, WrittenFile, write_file
from streamvault.manifests.files import find_file
from streamvault.streamstore.model import StreamName
from testkit.lakes import RESTORED, as_earlier_releases, files_folder, is_whole, table_keys, table_of, writing
from testkit.small_archives import NAME, RANGE_SIZE, Vault, a_root, a_vault, contents, objects_of, replace_object

SCHEMA = '{"id":"int","name":"string","v":"double","at":"timestamp"}'
Row = dict[str, Any]


class Lake:
    """A stream, and a table of it in a catalog in SQLite."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vault = Vault(folder, f"file://{folder}/objects")
        self.vault.create()

    def add(self, *rows: Row, **options: Any) -> None:
        self.vault.add(*(json.dumps(row).encode() for row in rows))
        catalog = f"sql:sqlite:///{self.folder}/cat.db"
        said = {"decode": "json", "schema": SCHEMA, "event_time": "at", **options}
        write_table(self.vault.uri(), root=self.vault.root, table="lake.t", catalog=catalog, master="inline[1]", **said)

    @property
    def table(self) -> Table:
        return SqlCatalog("streamvault", uri=f"sqlite:///{self.folder}/cat.db").load_table(("lake", "t"))

    def partitions(self) -> list[list[Any]]:
        """The partitions of each file, oldest first; none of a file that is in none."""
        files = sorted(self.table.scan().plan_files(), key=lambda one: one.file.file_path)
        return [[one.file.partition[index] for index in range(len(one.file.partition))] for one in files]

    def found(self, row_filter: Any) -> list[int]:
        return sorted(self.table.scan(row_filter, selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def forge_specs(self, of: Any) -> None:
        newest = max(self.folder.glob("objects/*/*/table/t/*/metadata/*.metadata.json"))
        metadata = json.loads(newest.read_text())
        metadata["partition-specs"] = [spec for spec in metadata["partition-specs"] if of(spec)]
        newest.write_text(json.dumps(metadata))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def at(number: int, when: str | None) -> Row:
    return {"id": number, "at": when}


def test_file_of_one_day_is_in_its_partition_and_any_other_in_none(lake: Lake) -> None:
    lake.add(at(1, "2026-01-01T00:00:00Z"), at(2, "2026-01-01T23:59:59Z"))
    lake.add(at(3, "2026-01-01T23:59:59Z"), at(4, "2026-01-02T00:00:00Z"))
    lake.add(at(5, "2026-01-02T12:00:00Z"), at(6, None))
    lake.add(at(7, None))
    lake.add(at(8, "1969-12-31T12:00:00Z"))
    assert [field.name for field in lake.table.spec().fields] == ["event_time_day"]
    day = (datetime(2026, 1, 1) - datetime(1970, 1, 1)).days  # noqa: DTZ001
    assert lake.partitions() == [[day], [], [], [], [-1]]
    assert lake.found(IsNull("event_time")) == [6, 7], "no partition hides a row"
    assert lake.found(EqualTo("event_time", "2026-01-01T23:59:59")) == [2, 3]
    assert lake.found(EqualTo("event_time", "1969-12-31T12:00:00")) == [8]


DRAFT = StreamOrigin.draft


def generations_of(monkeypatch: pytest.MonkeyPatch, day: int) -> None:
    """Generations that are planned from now on are made on a day of January 2026."""

    def draft(*given: Any) -> TablePlan | None:
        plan = DRAFT(*given)
        if plan is None:
            return None
        manifest = plan.manifest.model_copy(update={"created": datetime(2026, 1, day, 23, 59, tzinfo=UTC)})
        return plan.model_copy(update={"manifest": manifest})

    monkeypatch.setattr(StreamOrigin, "draft", draft)


def test_without_event_times_a_file_is_in_the_partition_of_its_generations_day(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So compaction works across the handoffs of a day. A run that is resumed later takes the day of its plan."""
    for number, day in enumerate((1, 1, 2)):
        generations_of(monkeypatch, day)
        lake.add(at(number, None), event_time=None)
    with writing(Mock(side_effect=Failed("stopped for a test"))), pytest.raises(Failed):
        lake.add(at(3, None), event_time=None)
    generations_of(monkeypatch, 3)
    lake.add(at(4, None), event_time=None)
    assert [field.name for field in lake.table.spec().fields] == ["generation_day"]
    first = (datetime(2026, 1, 1) - datetime(1970, 1, 1)).days  # noqa: DTZ001
    assert lake.partitions() == [[first], [first], [first + 1], [first + 1], [first + 2]]
    assert lake.found(EqualTo("generation_day", "2026-01-02")) == [2, 3]
    assert lake.found(EqualTo("generation", 2)) == [1]


def test_existing_table_without_event_times_stays_without_partitions(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as former:
        begun = {"generation_day": False}
        former.setattr(resolve, "TableOptions", lambda **said: TableOptions(**{**said, **begun}))
        lake.add(at(0, None), event_time=None)
    lake.add(at(1, None), event_time=None)
    assert lake.partitions() == [[], []]
    assert "generation_day" not in lake.table.schema().column_names
    assert lake.found(EqualTo("generation", 2)) == [1]


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_existing_table_may_have_a_column_of_its_own_of_that_name(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Earlier releases did not reserve the name."""
    schema = '{"id":"int","generation_day":"string"}'
    options = {"schema": schema, "event_time": None, "format": kind, "catalog": None, "root": lake.vault.root}
    options |= {"decode": "json", "table": "lake.t", "master": "inline[1]"}
    with monkeypatch.context() as former:
        former.setattr(resolve, "TableOptions", lambda **said: TableOptions(**{**said, "generation_day": False}))
        former.setattr(table_options, "_RESERVED", table_options._RESERVED - {"generation_day"})
        for number in range(2):
            lake.vault.add(json.dumps({"id": number, "generation_day": "2020-02-03"}).encode())
            write_table(lake.vault.uri(), **options)
            former.undo()
    files = sorted(Path(lake.folder).glob("objects/*/*/table/t/*/generation=*/*.parquet"))
    found = [pq.ParquetFile(file).read(columns=["generation_day"])["generation_day"].to_pylist() for file in files]
    assert found == [["2020-02-03"], ["2020-02-03"]]


def test_existing_table_keeps_a_partition_for_each_generation(lake: Lake) -> None:
    lake.add(at(1, "2026-01-01T00:00:00Z"))
    with lake.table.update_spec() as update:  # as earlier releases have created it
        update.remove_field("event_time_day")
        update.add_identity("generation")
    lake.add(at(2, "2026-01-01T00:00:00Z"))
    lake.add(at(3, "2026-01-03T00:00:00Z"), at(4, None))
    assert lake.partitions()[1:] == [[2], [3]]
    assert lake.found(EqualTo("generation", 3)) == [3, 4]


def test_table_may_have_lost_the_unpartitioned_spec(lake: Lake) -> None:
    """Engines can remove those that no file has."""
    lake.add(at(1, "2026-01-01T00:00:00Z"))
    lake.forge_specs(lambda spec: spec["fields"])
    lake.add(at(2, "2026-01-01T00:00:00Z"), at(3, "2026-01-02T00:00:00Z"))
    lake.add(at(4, "2026-01-02T00:00:00Z"))
    assert [len(one) for one in lake.partitions()] == [1, 0, 1]
    assert lake.found(EqualTo("event_time", "2026-01-02T00:00:00")) == [3, 4]


def test_manifests_are_merged_where_the_table_says_so(lake: Lake) -> None:
    lake.add(at(0, None))
    with lake.table.transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    for number in range(1, 4):
        lake.add(at(number, None), at(number + 10, "2026-01-01T00:00:00Z"))
        lake.add(at(number + 20, "2026-01-01T00:00:00Z"))
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(lake.table.io)) <= 3
    assert len(lake.found("id >= 0")) == 10


TEXTS = st.sampled_from([None, "", "a", "b" * 15 + "x", "b" * 15 + "xy", "b" * 40, "\U0010ffff" * 20])
NUMBERS = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf")])
TIMES = st.sampled_from(
    [None, *(f"{day}T{hour}:00:00Z" for day in ("1969-12-31", "2026-01-01") for hour in ("00", "23"))]
)
ROWS = st.lists(st.fixed_dictionaries({"name": TEXTS, "v": NUMBERS, "at": TIMES}), min_size=1, max_size=3)
PARTS: dict[str, list[Transform[Any, Any]]] = {
    "name": [IdentityTransform(), TruncateTransform(2), BucketTransform(3)],
    "event_time": [HourTransform(), MonthTransform(), IdentityTransform()],
    "v": [IdentityTransform()],
    "id": [TruncateTransform(2), IdentityTransform(), BucketTransform(2)],
}
FIELDS = st.sampled_from([(column, transform) for column, some in PARTS.items() for transform in some])


@settings(max_examples=6, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(st.none() | FIELDS, st.lists(ROWS, min_size=2, max_size=3))
def test_each_row_is_found_by_each_of_its_values(field: Any, steps: list[list[Row]]) -> None:
    """However its users partition the table between two hand-offs; by the day, if they do not."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder))
        rows: list[Row] = []
        for number, some in enumerate(steps):
            if field is not None and number == 1:
                with lake.table.update_spec() as update:
                    update.remove_field("event_time_day")
                    update.add_field(*field, "by_users")
            numbered = [{"id": len(rows) + index, **row} for index, row in enumerate(some)]
            lake.add(*(dict(row) for row in numbered))
            rows += numbered
        held = lake.table.scan().to_arrow().to_pylist()
        assert sorted(row["id"] for row in held) == list(range(len(rows)))
        for column in ("name", "v", "event_time", "id"):
            for row in held:
                value = row[column]
                if value is None:
                    row_filter: Any = IsNull(column)
                elif value != value:  # noqa: PLR0124  (PyIceberg finds no NaN, in whatever partition)
                    continue
                else:
                    row_filter = EqualTo(column, value.isoformat() if isinstance(value, datetime) else value)
                assert row["id"] in lake.found(row_filter)


vault = a_vault(events=120)


def hand_off(vault: Vault, **options: Any) -> HandoffReport:
    return write_table(vault.uri(), **{"root": vault.root, "target_size": RANGE_SIZE, "master": "inline[1]", **options})


def stopped_after(files: int) -> Any:
    def write(task: FileTask) -> WrittenFile:
        nonlocal files
        if not files:
            raise Failed("stopped for a test")
        files -= 1
        return write_file(task)

    return writing(write)


def test_no_path_is_used_again(vault: Vault) -> None:
    """Neither by a table in another bucket, nor by one that is made where another was removed."""
    elsewhere = a_root()
    hand_off(vault, root=elsewhere)
    paths = {*table_keys(elsewhere)}
    for _ in range(2):
        hand_off(vault)
        now = {*table_keys(vault.root)}
        assert len(now) > 3
        assert not now & paths
        paths |= now
        for key in contents(vault.root):
            replace_object(vault.root, key, None)


def test_table_that_was_made_anew_is_read_by_a_process_that_has_read_the_former_one(vault: Vault) -> None:
    for number in range(2):
        hand_off(vault)
        target = StreamName("scope", f"restored{number}")
        import_stream(f"{vault.root}/{NAME}", vault.uri(target), layout="table", master="inline[1]")
        assert vault.digest(target) == vault.digest()
        for key in contents(vault.root):
            replace_object(vault.root, key, None)


def test_file_of_no_table_may_be_removed_between_two_reads_of_a_process(vault: Vault) -> None:
    """The listing is kept, and still has it, say of a run that came too late."""
    hand_off(vault)
    first, *_, last = table_keys(vault.root)
    late = f"{last.removesuffix('.parquet')}-{'f' * 32}.parquet"
    replace_object(vault.root, late, contents(vault.root)[first])
    for number in range(2):
        target = StreamName("scope", f"restored{number}")
        import_stream(f"{vault.root}/{NAME}", vault.uri(target), layout="table", master="inline[1]")
        assert vault.digest(target) == vault.digest()
        replace_object(vault.root, late, None)


def test_table_without_its_options_is_refused(vault: Vault) -> None:
    """Its plans and manifests do not tell how its rows were decoded."""
    hand_off(vault, decode="json", schema='{"id":"int"}')
    vault.add(b"more")
    (lost,) = (key for key in contents(vault.root) if key.endswith("/table.json"))
    replace_object(vault.root, lost, None)
    before = contents(vault.root)
    with pytest.raises(Conflict, match="the table's records are missing"):
        hand_off(vault)
    assert contents(vault.root) == before


def test_stopped_run_is_resumed_under_the_same_names(vault: Vault) -> None:
    with stopped_after(3), pytest.raises(Failed):
        hand_off(vault)
    first = {key: objects_of(vault.root).get(key) for key in table_keys(vault.root)}
    assert len(first) == 3
    report = hand_off(vault)
    assert {key: contents(vault.root)[key] for key in first} == first
    assert len(table_keys(vault.root)) == report.files > 3
    assert is_whole(vault)


class FormerOptions(TableOptions):
    format: Literal[1, 2] = 1


def test_earlier_release_rejects_the_table_rather_than_continue_it_elsewhere(vault: Vault) -> None:
    hand_off(vault)
    with pytest.raises(Damaged, match="unsupported format version"):
        find_file(FormerOptions, objects_of(vault.root), table_of(vault).options_key)


@pytest.mark.parametrize("file_id", ["", "0123456789abcdef" * 2], ids=["release 0.1", "the former naming"])
def test_table_of_an_earlier_release_is_continued_where_it_is(tmp_path: Path, file_id: str) -> None:
    (tmp_path / "objects").mkdir()
    vault = Vault(tmp_path, f"file://{tmp_path}/objects")
    vault.create()
    catalog = f"sql:sqlite:///{tmp_path}/catalog.db"
    for number in (1, 2):
        vault.add(*(b"%d-%d" % (number, index) * 200 for index in range(30)))
        # the second stopped after its plan: today's run has the names that the other one planned
        with stopped_after(1) if number == 2 else nullcontext(), suppress(Failed):
            hand_off(vault)
    as_earlier_releases(vault.root, file_id=file_id)
    for number in (2, 3):
        vault.add(*(b"%d-%d" % (number, index) * 200 for index in range(30)))
        registered = hand_off(vault, catalog=catalog).registered
        assert registered == ((1, 2, 3) if number == 2 else (4,))
    assert files_folder(vault.root) == f"{NAME}/table/stream/"
    assert is_whole(vault)
    table = SqlCatalog("streamvault", uri=catalog.removeprefix("sql:")).load_table(("scope", "stream"))
    found = sorted(table.scan(selected_fields=("pointer",)).to_arrow()["pointer"].to_pylist())
    assert found == sorted(str(pointer) for pointer, _ in vault.events())
    import_stream(f"{vault.root}/{NAME}", vault.uri(RESTORED), layout="table", master="inline[1]")
    assert vault.digest(RESTORED) == vault.digest()
