"""Names of an Iceberg table's files: no other plan has them, of any table at any time, and each run of a plan does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from streamvault import import_stream, write_table
from streamvault.common.errors import Conflict, Damaged, Failed
from streamvault.lake.plan import TablePlan, find_plan
from streamvault.lake.reports import HandoffReport
from streamvault.lake.task import FileTask, WrittenFile, write_file
from streamvault.layouts.keys import table_file_key, table_plan_key
from streamvault.manifests.files import find_file
from streamvault.streamstore.model import StreamName
from testkit.lakes import RESTORED, is_whole, table_keys, table_of, writing
from testkit.small_archives import NAME, RANGE_SIZE, Vault, a_root, a_vault, contents, objects_of, replace_object

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


@pytest.fixture
def former() -> Iterator[pytest.MonkeyPatch]:
    """Plans are made as releases before made them, until that is undone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TablePlan, "with_file_id", lambda plan: plan)
        yield patch


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


def test_hive_tables_have_names_without_an_id(vault: Vault) -> None:
    """A partition has all files of its folder, so one that a late run writes again must be in the way of another."""
    hand_off(vault, format="parquet")
    plan = find_plan(table_of(vault), 0, None)
    assert plan is not None
    assert (plan.format, plan.file_id) == (1, "")
    first = next(plan.planned())
    assert table_keys(vault.root)[0].endswith(f"/{table_file_key(1, first.segment, first.start)}")


class FormerPlan(TablePlan):
    format: Literal[1] = 1


def test_earlier_release_rejects_the_plan_rather_than_name_files_otherwise(vault: Vault) -> None:
    hand_off(vault)
    key = table_of(vault).prefix + table_plan_key(0)
    with pytest.raises(Damaged, match="unsupported format version"):
        find_file(FormerPlan, objects_of(vault.root), key)


def test_table_of_the_former_naming_is_continued(tmp_path: Path, former: pytest.MonkeyPatch) -> None:
    (tmp_path / "objects").mkdir()
    vault = Vault(tmp_path, f"file://{tmp_path}/objects")
    vault.create()
    catalog = f"sql:sqlite:///{tmp_path}/catalog.db"
    for number, is_former in enumerate((True, True, False, False), start=1):
        vault.add(*(b"%d-%d" % (number, index) * 200 for index in range(30)))
        if number == 2:  # and stopped after its plan: today's run has the names that the other one planned
            with stopped_after(1), pytest.raises(Failed):
                hand_off(vault, catalog=catalog)
            former.undo()
        assert hand_off(vault, catalog=catalog).registered == (number,)
        plan = find_plan(table_of(vault), number - 1, None)
        assert plan is not None
        assert (plan.file_id == "") == is_former
    assert is_whole(vault)
    table = SqlCatalog("streamvault", uri=catalog.removeprefix("sql:")).load_table(("scope", "stream"))
    found = sorted(table.scan(selected_fields=("pointer",)).to_arrow()["pointer"].to_pylist())
    assert found == sorted(str(pointer) for pointer, _ in vault.events())
    import_stream(f"{vault.root}/{NAME}", vault.uri(RESTORED), layout="table", master="inline[1]")
    assert vault.digest(RESTORED) == vault.digest()
