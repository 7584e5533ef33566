"""A table is registered in one place, and its columns there may change only so that its files still fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import DoubleType, FloatType, LongType, StringType

from streamvault import table_ddl, write_table
from streamvault.common.errors import Conflict, Overtaken
from streamvault.lake import handoff, location
from streamvault.lake.catalogs import CatalogFailed, iceberg
from streamvault.lake.catalogs.registration import Registration, plain_address
from streamvault.lake.reports import HandoffReport
from streamvault.layouts.keys import TABLE_REGISTRATION
from testkit.killed import Killed, before_call
from testkit.small_archives import Vault, a_vault, archive_of, contents, objects_of

SCHEMA = '{"id":"int","name":"string","v":"float","inner":"struct<a:int,b:string>"}'
EVENT = b'{"id":1,"name":"n","v":1.5,"inner":{"a":1,"b":"x"}}'


vault = a_vault(EVENT, EVENT, on_disk=True)


def hand_off(vault: Vault, catalog: str | None = "cat", table: str = "lake.t", **options: Any) -> HandoffReport:
    if catalog is not None:
        options["catalog"] = catalog if ":" in catalog else f"sql:sqlite:///{vault.folder}/{catalog}.db"
    said = {"root": vault.root, "decode": "json", "schema": SCHEMA, "master": "inline[1]"}
    return write_table(vault.uri(), table=table, **{**said, **options})


def record_of(vault: Vault) -> str:
    return f"{archive_of(vault.root).table_archive('t').prefix}{TABLE_REGISTRATION}"


def table_of(vault: Vault, catalog: str = "cat") -> Table:
    return SqlCatalog("streamvault", uri=f"sqlite:///{vault.folder}/{catalog}.db").load_table(("lake", "t"))


@pytest.mark.parametrize(("catalog", "table"), [("dog", "lake.t"), ("cat", "other.t")])
def test_second_registration_is_refused_before_anything_is_written(vault: Vault, catalog: str, table: str) -> None:
    hand_off(vault)
    vault.add(EVENT)
    before = contents(vault.root)
    with pytest.raises(Conflict, match=r"is registered as lake.t in .*cat.db") as refused:
        hand_off(vault, catalog, table)
    assert "table" in refused.value.todo
    assert contents(vault.root) == before
    assert hand_off(vault).registered == (2,)


def test_statement_for_a_table_that_is_in_a_catalog_says_so(vault: Vault) -> None:
    hand_off(vault, None)
    statement = table_ddl(vault.uri(), "trino", root=vault.root, table="lake.t")
    assert statement.startswith("CALL system.register_table('lake', 't', 'file://")
    hand_off(vault)
    notes = table_ddl(vault.uri(), "trino", root=vault.root, table="lake.t").removesuffix(statement)
    assert notes.startswith("-- The table is lake.t in sqlite:///")
    assert all(line.startswith("-- ") and ";" not in line for line in notes.splitlines())


@pytest.mark.parametrize("size", [None, 4096], ids=["alike", "of other options"])
def test_table_that_another_run_begins_and_registers_meanwhile_is_the_same(
    vault: Vault, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_call(monkeypatch, handoff, "_compare", lambda: hand_off(vault, target_size=size))
    with pytest.raises(Overtaken, match="has begun this table in the meantime") if size else nullcontext():
        assert hand_off(vault).unchanged
    assert len(table_of(vault).scan().to_arrow()) == 2


def test_table_that_another_run_has_begun_and_not_registered_is_registered(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others() -> None:
        with patch.object(handoff, "_register", side_effect=Killed), suppress(Killed):
            hand_off(vault)

    before_call(monkeypatch, location, "fix_options", others)
    assert hand_off(vault).registered == (1,)
    assert len(table_of(vault).scan().to_arrow()) == 2


def test_catalog_that_keeps_a_table_that_was_removed_is_named_before_anything_is_written(vault: Vault) -> None:
    hand_off(vault)
    kept = {key: data for key, data in contents(vault.root).items() if "/metadata/" in key}
    objects_of(vault.root).delete(list(contents(vault.root)))
    for expected in ("in the catalog has lost its metadata", "in the catalog is a table that was removed here"):
        before = contents(vault.root)
        with pytest.raises(Conflict, match=expected) as refused:
            hand_off(vault)
        assert "rop it in the catalog" in refused.value.todo
        assert contents(vault.root) == before
        if not before:
            hand_off(vault, None)
            for key, data in kept.items():
                objects_of(vault.root).put(key, data)


def test_late_run_does_not_take_the_table_that_was_made_anew_for_the_removed_one(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would say to drop it."""

    def made_anew() -> None:
        objects_of(vault.root).delete(list(contents(vault.root)))
        SqlCatalog("streamvault", uri=f"sqlite:///{vault.folder}/cat.db").drop_table(("lake", "t"))
        hand_off(vault)

    hand_off(vault)
    vault.add(EVENT)
    before_call(monkeypatch, handoff, "_compare", made_anew)
    with pytest.raises(Overtaken, match="the table was removed in the meantime"):
        hand_off(vault)
    assert hand_off(vault).unchanged
    assert len(table_of(vault).scan().to_arrow()) == 3


@pytest.mark.parametrize("moment", [(handoff, "_register"), (iceberg.IcebergTables, "_record_creation")])
def test_late_run_leaves_no_table_in_the_catalog_in_place_of_one_that_was_removed(
    vault: Vault, moment: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before_call(monkeypatch, *moment, lambda: objects_of(vault.root).delete(list(contents(vault.root))))
    with pytest.raises(Overtaken, match="the table was removed in the meantime"):
        hand_off(vault)
    objects_of(vault.root).delete(list(contents(vault.root)))
    assert hand_off(vault).registered == (1,)
    assert len(table_of(vault).scan().to_arrow()) == 2


def test_table_without_a_record_gets_it_with_the_next_handoff(vault: Vault) -> None:
    hand_off(vault)
    objects_of(vault.root).delete([record_of(vault)])
    assert hand_off(vault).unchanged
    assert json.loads(objects_of(vault.root).get(record_of(vault)))["table"] == "lake.t"
    with pytest.raises(Conflict, match="is registered as"):
        hand_off(vault, "dog")


def test_nothing_is_recorded_until_a_catalog_has_answered(vault: Vault) -> None:
    with pytest.raises(CatalogFailed):
        hand_off(vault, "no-such-folder/cat")
    assert record_of(vault) not in contents(vault.root)
    hand_off(vault, None)
    assert record_of(vault) not in contents(vault.root)
    assert hand_off(vault, dry_run=True).dry_run
    assert record_of(vault) not in contents(vault.root)
    assert hand_off(vault).registered == (1,)
    assert record_of(vault) in contents(vault.root)


def test_two_first_registrations_end_in_one_place(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run registers the table elsewhere after this one has checked, and before it records."""
    before_call(monkeypatch, handoff, "_register", lambda: hand_off(vault, "dog"))
    with pytest.raises(Conflict, match=r"is registered as lake.t in .*dog.db"):
        hand_off(vault, "cat")
    assert table_of(vault, "dog").scan().to_arrow().num_rows == 2
    assert not SqlCatalog("streamvault", uri=f"sqlite:///{vault.folder}/cat.db").table_exists(("lake", "t"))


def test_catalogs_are_known_by_their_address_alone() -> None:
    assert plain_address("postgresql+psycopg2://me:secret@HOST:5432/lake?x=1") == "postgresql://host:5432/lake"
    assert plain_address("http://host:8181/") == plain_address("http://host:8181")


def test_file_of_a_catalog_is_the_same_by_each_path(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_off(vault)
    (vault.folder / "link.db").symlink_to(vault.folder / "cat.db")
    monkeypatch.chdir(vault.folder)
    for path in (f"/{vault.folder}/link.db", "/cat.db", f"/{vault.folder}/../{vault.folder.name}/cat.db"):
        assert hand_off(vault, f"sql:sqlite://{path}").unchanged
    (vault.folder / "elsewhere").mkdir()
    monkeypatch.chdir(vault.folder / "elsewhere")
    with pytest.raises(Conflict, match="is registered as"):
        hand_off(vault, "sql:sqlite:///cat.db")


def test_relative_path_that_an_earlier_release_recorded_is_of_no_known_catalog(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is registered there, or in a file of this name in another folder."""
    hand_off(vault)
    store = objects_of(vault.root)
    store.delete([record_of(vault), record_of(vault).replace("registered", "created")])
    store.put(record_of(vault), Registration(catalog="sqlite:///cat.db#streamvault", table="lake.t").encode())
    vault.add(EVENT)
    before = contents(vault.root)
    (vault.folder / "elsewhere").mkdir()
    monkeypatch.chdir(vault.folder / "elsewhere")
    with pytest.raises(Conflict, match="in an unknown folder") as refused:
        hand_off(vault, "sql:sqlite:///cat.db")
    assert record_of(vault) in refused.value.todo
    assert contents(vault.root) == before
    monkeypatch.chdir(vault.folder)
    assert hand_off(vault, "sql:sqlite:///cat.db").registered == (2,)


def schema(change: Callable[[UpdateSchema], object]) -> Callable[[Table], None]:
    def changed(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            change(update)

    return changed


def retyped(table: Table) -> None:
    schema(lambda update: update.delete_column("v"))(table)
    schema(lambda update: update.add_column("v", StringType()))(table)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (schema(lambda update: update.add_column("note", StringType(), required=True)), "required column.*note"),
        (schema(lambda update: update.rename_column("name", "customer")), "column name"),
        (schema(lambda update: update.delete_column("v")), "column v"),
        (schema(lambda update: update.delete_column("payload")), "column payload"),
        (schema(lambda update: update.rename_column("generation", "gen")), "column generation"),
        (schema(lambda update: update.rename_column(("inner", "a"), "z")), "column inner"),
        (retyped, "column v"),
    ],
)
def test_column_that_no_longer_fits_is_named_before_a_generation_is_written(
    vault: Vault, change: Callable[[Table], None], named: str
) -> None:
    hand_off(vault)
    change(table_of(vault))
    assert hand_off(vault).unchanged, "nothing is to be added, so nothing is refused"
    vault.add(EVENT)
    before = contents(vault.root)
    with pytest.raises(Conflict, match=named) as refused:
        hand_off(vault)
    assert (refused.value.exit_code, refused.value.retriable) == (4, False)
    after = contents(vault.root)
    assert after == before


@pytest.mark.parametrize(
    "change",
    [
        schema(lambda update: update.add_column("note", StringType())),
        schema(lambda update: update.update_column("id", LongType())),
        schema(lambda update: update.update_column("v", DoubleType())),
        schema(lambda update: update.move_first("name")),
        schema(lambda update: update.add_column(("inner", "c"), FloatType())),
    ],
)
def test_column_may_be_added_moved_or_widened(vault: Vault, change: Callable[[Table], None]) -> None:
    hand_off(vault)
    change(table_of(vault))
    vault.add(EVENT)
    assert hand_off(vault).registered == (2,)
    assert table_of(vault).scan().to_arrow().num_rows == 3


def test_column_changed_meanwhile_is_a_conflict(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_off(vault)
    vault.add(EVENT)
    deletion = schema(lambda update: update.delete_column("v"))
    before_call(monkeypatch, handoff, "_compare", lambda: deletion(table_of(vault)), after=True)
    with pytest.raises(Conflict, match="column v"):
        hand_off(vault)
    schema(lambda update: update.add_column("v", FloatType()))(table_of(vault))
    assert hand_off(vault).registered == (2,)
