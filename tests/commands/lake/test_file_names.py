"""Names of a table's files: no other plan has them, of any table at any time, and each run of a plan does."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from streamvault import import_stream, write_table
from streamvault.common.errors import Conflict, Damaged, Failed
from streamvault.lake.reports import HandoffReport
from streamvault.lake.table import TableOptions
from streamvault.lake.task import FileTask, WrittenFile, write_file
from streamvault.manifests.files import find_file
from streamvault.streamstore.model import StreamName
from testkit.lakes import RESTORED, as_earlier_releases, files_folder, is_whole, table_keys, table_of, writing
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
