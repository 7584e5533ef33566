"""Every catalog: a generation is registered once, completely, and by the first run that tries."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from streamvault import compact_archive, write_table
from streamvault.common.errors import Conflict, Damaged, Usage
from streamvault.common.units import now_utc
from streamvault.lake.catalogs import Catalog, CatalogFailed, glue, iceberg, open_catalog
from streamvault.lake.catalogs.hive import hive_table
from streamvault.lake.catalogs.registration import fix_identity
from streamvault.lake.location import TablePlace
from streamvault.lake.reports import HandoffReport, TableFormat
from streamvault.lake.table import find_options
from streamvault.layouts.keys import TABLE_IDENTITY, GenerationSpan, manifest_key, ranges_key, table_data
from streamvault.manifests.archive import Archive
from streamvault.objectstore.uri import RootAddress
from testkit.commands import started
from testkit.killed import Killed, before_call, killed
from testkit.lakes import rows_in, table_keys
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault, contents

KINDS: dict[str, tuple[TableFormat, str, bool]] = {
    "iceberg-glue": ("iceberg", "glue", False),
    "iceberg-sql": ("iceberg", "sql", False),
    "iceberg-rest": ("iceberg", "rest", False),
    "parquet-glue": ("parquet", "glue", False),
    "parquet-projection": ("parquet", "glue", True),
}


class Ground:
    """A table of two generations that no catalog knows yet, and a catalog."""

    def __init__(self, vault: Vault, kind: str, catalog: str) -> None:
        self.format, name, self.projection = KINDS[kind]
        self.catalog_text = name if name == "glue" else catalog
        self.vault = vault
        self.database = f"db_{uuid.uuid4().hex[:8]}"
        vault.make(events=100, largest=1000)
        vault.export("chunks")
        vault.add(b"second generation")
        vault.export("chunks")
        write_table(vault.archive, format=self.format, master="inline", target_size=8 * 1024)
        self.address = RootAddress.parse(vault.root).resolve()
        archive = Archive(self.address, NAME).table_archive("stream")
        options = find_options(archive)
        assert options is not None
        self.place = TablePlace(self.database, options, archive)
        self.generations = [archive.load(number) for number in (1, 2)]

    def open(self) -> Catalog:
        return open_catalog(self.catalog_text, self.format, projection=self.projection)

    def hand_off(self) -> HandoffReport:
        return write_table(
            self.vault.archive,
            table=f"{self.database}.stream",
            format=self.format,
            catalog=self.catalog_text,
            projection=self.projection,
            master="inline",
        )

    def remove(self, record: str = "") -> None:
        """Deletes one of the table's records, or all of them."""
        store, is_lost = self.address.open(), self.place.archive.prefix + record
        store.delete([one.key for one in store.list(f"{NAME}/_table/") if not record or one.key == is_lost])

    def registered(self) -> set[str]:
        """The locations that the catalog returns to readers."""
        if self.format == "iceberg":
            return {str(task.file.file_path) for task in self.iceberg().scan().plan_files()}
        glue = boto3.client("glue", region_name="us-east-1")
        if self.projection:
            table = glue.get_table(DatabaseName=self.database, Name="stream")["Table"]
            first, last = table["Parameters"]["projection.generation.range"].split(",")
            return {self.place.partition(number) for number in range(int(first), int(last) + 1)}
        found = glue.get_partitions(DatabaseName=self.database, TableName="stream")["Partitions"]
        return {partition["StorageDescriptor"]["Location"] for partition in found}

    def expected(self, *numbers: int) -> set[str]:
        chosen = [self.generations[number - 1] for number in numbers]
        if self.format == "iceberg":
            return {file for generation in chosen for file in self.place.files(generation)}
        return {self.place.partition(number) for number in numbers}

    def rows(self) -> int:
        """How many rows readers find."""
        if self.format == "iceberg":
            return len(self.iceberg().scan(selected_fields=("pointer",)).to_arrow())
        store, places = self.address.open(), tuple(self.registered())
        keys = [key for key in table_keys(self.vault.root) if f"{self.address.uri}/{key}".startswith(places)]
        return sum(len(rows_in(store, key)) for key in keys)

    def iceberg(self) -> Table:
        catalog = cast("Any", self.open())._catalog(self.place)
        return cast("IcebergCatalog", catalog).load_table((self.database, "stream"))


@pytest.fixture
def on_s3() -> None:
    """The objects of tables in Glue are in a bucket, as Amazon's are; in a folder, they take a fifth of the time."""


REST = pytest.param("iceberg-rest", marks=pytest.mark.minio)


@pytest.fixture(params=[*sorted(KINDS.keys() - {"iceberg-rest"}), REST])
def ground(
    request: pytest.FixtureRequest, use_s3: Callable[[S3Server], None], tmp_path: Path, bucket_name: str
) -> Ground:
    (tmp_path / "objects").mkdir()
    root = f"file://{tmp_path}/objects"
    if request.param == "iceberg-sql":
        return Ground(Vault(tmp_path, root), request.param, f"sql:sqlite:///{tmp_path}/catalog.db")
    catalog, objects = "glue", "moto_s3"
    if request.param == "iceberg-rest":
        catalog, objects = f"rest:{request.getfixturevalue('iceberg_rest').uri}", "minio"
    server: S3Server = request.getfixturevalue(objects)
    use_s3(server)
    if objects == "minio" or "on_s3" in request.fixturenames:
        server.make_bucket(bucket_name)
        root = f"s3://{bucket_name}/lake"
    return Ground(Vault(tmp_path, root), request.param, catalog)


@pytest.mark.usefixtures("on_s3")
def test_generations_are_registered_once_and_in_order(ground: Ground) -> None:
    first, second = ground.generations
    one, other = ground.open(), ground.open()
    assert one.missing(ground.place, [1, 2]) == [1, 2]
    assert one.publish(ground.place, first)
    assert not other.publish(ground.place, first)
    assert ground.registered() == ground.expected(1)
    assert one.missing(ground.place, [1, 2]) == [2]
    assert other.publish(ground.place, second)
    assert not one.publish(ground.place, first)
    assert ground.registered() == ground.expected(1, 2)
    assert one.missing(ground.place, [1, 2]) == []


def test_table_at_another_location_is_left_alone(ground: Ground) -> None:
    ground.open().publish(ground.place, ground.generations[0])
    archive = Archive(RootAddress.parse(f"{ground.vault.root}/other").resolve(), NAME).table_archive("stream")
    elsewhere = TablePlace(ground.database, ground.place.options, archive)
    with pytest.raises(Conflict, match="another location"):
        ground.open().missing(elsewhere, [1])
    with pytest.raises(Conflict, match="another location"):
        ground.open().publish(elsewhere, ground.generations[0])


@pytest.mark.usefixtures("on_s3")
def test_handoff_registers_missing_generations(ground: Ground) -> None:
    ground.open().publish(ground.place, ground.generations[0])
    assert ground.hand_off().registered == (2,)
    assert ground.hand_off().unchanged
    ground.vault.add(b"third")
    ground.vault.export()
    assert ground.hand_off().registered == (3,)


@pytest.mark.parametrize("ground", ["iceberg-sql", "parquet-projection"], indirect=True)
def test_merged_generations_are_not_registered_again(ground: Ground) -> None:
    ground.open().publish(ground.place, ground.generations[0])
    for number in (3, 4, 5):
        ground.vault.add(b"of generation %d" % number)
        ground.vault.export("chunks")
    compact_archive(ground.vault.archive, master="inline")
    assert Archive(ground.place.archive.root, NAME).generations() == [5]
    assert ground.hand_off().registered == (2, 5), "what the table has got stays as it is"
    assert ground.hand_off().unchanged
    registered = tuple(ground.registered())
    found = [
        row["pointer"]
        for key in table_keys(ground.vault.root)
        if f"{ground.address.uri}/{key}".startswith(registered)
        for row in rows_in(ground.place.archive.store, key)
    ]
    assert sorted(found) == sorted(str(pointer) for pointer, _ in ground.vault.events())


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("failure", [CommitStateUnknownException, CommitFailedException])
def test_commit_whose_answer_is_lost_adds_the_generation_once(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, arrived: bool, failure: type[Exception]
) -> None:
    """The transport may have repeated it, so that it is told a conflict with itself."""
    commit, calls = Table._do_commit, []

    def lost(table: Table, **change: Any) -> None:
        calls.append(table)
        if arrived or len(calls) > 1:
            commit(table, **change)
        if len(calls) == 1:
            raise failure("the answer was lost")

    ground.open().publish(ground.place, ground.generations[0])
    monkeypatch.setattr(Table, "_do_commit", lost)
    assert ground.open().publish(ground.place, ground.generations[1])
    assert calls
    assert ground.rows() == len(ground.vault.events())
    assert len(ground.iceberg().history()) == 2


def before_its_change(ground: Ground, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Something happens after the next run has looked at the catalog's table, and before it changes it."""
    place, name = (glue, "_find_table") if ground.format == "parquet" else (Table, "_do_commit")
    original = getattr(place, name)

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(place, name, original)
        if ground.format == "iceberg":
            act()
            return original(*arguments, **options)
        found = original(*arguments, **options)
        act()
        return found

    monkeypatch.setattr(place, name, overtaken)


def refusing_old_versions(ground: Ground) -> Catalog:
    """A catalog whose Glue refuses a change of an older version of a table, as Amazon's does, and moto's does not."""
    catalog = ground.open()
    if ground.format == "parquet":
        client = cast("Any", catalog)._glue
        update = client.update_table

        def refusing(**request: Any) -> Any:
            now = client.get_table(DatabaseName=ground.database, Name="stream")["Table"]
            if request["VersionId"] != now["VersionId"]:
                raise client.exceptions.ConcurrentModificationException({"Error": {}}, "UpdateTable")
            return update(**request)

        client.update_table = refusing
    return catalog


@pytest.mark.parametrize(("number", "runs"), [(1, 4), (2, 2)])
def test_runs_at_once_register_a_generation_once(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, number: int, runs: int
) -> None:
    """Each is stopped while the next one is faster; with the first generation, they create the table."""
    for before in ground.generations[: number - 1]:
        ground.open().publish(ground.place, before)
    catalogs, done = [refusing_old_versions(ground) for _ in range(runs)], []

    def register() -> None:
        catalog = catalogs.pop()
        if catalogs:
            before_its_change(ground, monkeypatch, register)
        done.append(catalog.publish(ground.place, ground.generations[number - 1]))

    register()
    assert sorted(done) == [False] * (runs - 1) + [True]
    assert ground.registered() == ground.expected(*range(1, number + 1))
    assert ground.rows() == sum(one.manifest.events for one in ground.generations[:number])


@pytest.mark.parametrize("ground", ["iceberg-sql", REST], indirect=True)
def test_four_handoffs_in_processes_of_their_own_register_each_generation_once(ground: Ground) -> None:
    table, catalog = f"{ground.database}.stream", ground.catalog_text
    command = ("handoff", ground.vault.archive, "--table", table, "--catalog", catalog, "--master", "inline", "--json")
    ground.open().missing(ground.place, [])  # SQLite's tables are there: it may be locked while two create them
    for generations, at_once in ((2, 4), (3, 2)):
        with ExitStack() as stack:
            runs = [stack.enter_context(started(*command, environment={})) for _ in range(at_once)]
            registered = [number for run in runs for number in run.ended().report["registered"]]
        assert sorted(registered) == ([1, 2] if generations == 2 else [3])
        assert ground.rows() == len(ground.vault.events())
        ground.vault.add(b"one more")
        ground.vault.export("chunks")


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
@pytest.mark.parametrize("step", ["create_tables", "create_namespace"])
def test_runs_at_once_begin_a_catalog(ground: Ground, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The database refuses to create for a second time what another run has created a moment before."""
    create, others = getattr(SqlCatalog, step), [ground.open()]

    def late(catalog: SqlCatalog, *names: Any) -> None:
        while others:
            assert others.pop().publish(ground.place, ground.generations[0])
            raise RuntimeError("(sqlite3.OperationalError) table iceberg_tables already exists")
        create(catalog, *names)

    monkeypatch.setattr(SqlCatalog, step, late)
    assert not ground.open().publish(ground.place, ground.generations[0])
    assert ground.registered() == ground.expected(1)


ICEBERG = pytest.mark.parametrize("ground", ["iceberg-glue", "iceberg-sql", REST], indirect=True)


@ICEBERG
def test_late_run_does_not_add_a_generation_that_engines_have_rewritten(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the files nor the snapshots say any longer that it is registered."""

    def meanwhile() -> None:
        ground.open().publish(ground.place, ground.generations[1])
        table = ground.iceberg()
        table.overwrite(table.scan().to_arrow())
        table.maintenance.expire_snapshots().older_than(now_utc().replace(tzinfo=None)).commit()

    ground.open().publish(ground.place, ground.generations[0])
    before_its_change(ground, monkeypatch, meanwhile)
    assert not ground.open().publish(ground.place, ground.generations[1])
    assert ground.rows() == len(ground.vault.events())


@ICEBERG
def test_run_beside_another_writer_adds_its_generation_once(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def described() -> None:
        with ground.iceberg().transaction() as change:
            change.set_properties(note="another writer's")

    ground.open().publish(ground.place, ground.generations[0])
    before_its_change(ground, monkeypatch, described)
    assert ground.open().publish(ground.place, ground.generations[1])
    assert ground.rows() == len(ground.vault.events())
    assert ground.iceberg().properties["note"] == "another writer's"


@pytest.mark.parametrize("ground", ["parquet-projection"], indirect=True)
def test_late_run_does_not_shorten_a_projected_range(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    for generation in ground.generations:
        ground.open().publish(ground.place, generation)
    late = refusing_old_versions(ground)
    find, stale = glue._find_table, []

    def as_before(*arguments: Any) -> Any:
        """The table as it was before the second generation came."""
        found = find(*arguments)
        if not stale:
            stale.append(found)
            parameters = {**found["Parameters"], "projection.generation.range": "1,1"}
            return {**found, "Parameters": parameters, "VersionId": "0"}
        return found

    monkeypatch.setattr(glue, "_find_table", as_before)
    assert not late.publish(ground.place, ground.generations[1])
    assert ground.registered() == ground.expected(1, 2)


@ICEBERG
def test_renamed_table_gets_no_second_registration(ground: Ground) -> None:
    ground.hand_off()
    catalog = cast("Any", ground.open())._catalog(ground.place)
    old, new = (ground.database, "stream"), (ground.database, "renamed")
    catalog.rename_table(old, new)
    ground.vault.add(b"third")
    ground.vault.export("chunks")
    before = contents(ground.vault.root)
    with pytest.raises(Conflict, match=r"no longer has the table .*: it was renamed or dropped") as refused:
        ground.hand_off()
    assert "Rename it back" in refused.value.todo
    assert contents(ground.vault.root) == before, "nothing is written"
    assert not catalog.table_exists(old)
    catalog.rename_table(new, old)
    assert ground.hand_off().registered == (3,)


@ICEBERG
def test_renamed_table_of_an_earlier_release_gets_no_second_registration(ground: Ground) -> None:
    """Its records have no UUID."""
    ground.hand_off()
    ground.remove(TABLE_IDENTITY)
    catalog = cast("Any", ground.open())._catalog(ground.place)
    old, new = (ground.database, "stream"), (ground.database, "renamed")
    catalog.rename_table(old, new)
    before = contents(ground.vault.root)
    with pytest.raises(Conflict, match=rf"it was renamed to {ground.database}\.renamed"):
        ground.hand_off()
    assert contents(ground.vault.root) == before, "nothing is written"
    catalog.rename_table(new, old)
    assert ground.hand_off().unchanged


@ICEBERG
def test_late_run_leaves_no_second_table_beside_one_that_was_created_and_renamed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = cast("Any", ground.open())._catalog(ground.place)
    old, new = (ground.database, "stream"), (ground.database, "renamed")

    def meanwhile() -> None:
        ground.open().publish(ground.place, ground.generations[0])
        catalog.rename_table(old, new)

    before_its_change(ground, monkeypatch, meanwhile)
    with pytest.raises(Conflict, match="renamed or dropped"):
        ground.open().publish(ground.place, ground.generations[0])
    assert not catalog.table_exists(old)
    assert len(catalog.load_table(new).scan().to_arrow()) == ground.generations[0].manifest.events


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_table_that_another_run_creates_meanwhile_is_not_missing(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after this run has not found it, and before it reads the record of it."""
    load, late = SqlCatalog.load_table, ground.open()

    def overtaken(catalog: SqlCatalog, name: Any) -> Table:
        monkeypatch.setattr(SqlCatalog, "load_table", load)
        try:
            return load(catalog, name)
        finally:
            assert ground.hand_off().registered == (1, 2)

    monkeypatch.setattr(SqlCatalog, "load_table", overtaken)
    assert late.missing(ground.place, [1, 2]) in ([], [1, 2])
    assert late.missing(ground.place, [1, 2]) == []


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_creation_is_not_attempted_beside_one_that_was_recorded(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded while this run prepares its files."""
    check, catalog = TablePlace.check_readable, cast("Any", ground.open())._catalog(ground.place)
    name = (ground.database, "stream")

    def late(place: TablePlace, files: Sequence[str]) -> None:
        monkeypatch.setattr(TablePlace, "check_readable", check)
        ground.open().publish(place, ground.generations[0])
        catalog.drop_table(name)
        monkeypatch.setattr(Table, "_do_commit", lambda *_, **__: pytest.fail("the table is created"))
        check(place, files)

    monkeypatch.setattr(TablePlace, "check_readable", late)
    with pytest.raises(Conflict, match="renamed or dropped"):
        ground.open().publish(ground.place, ground.generations[0])


@ICEBERG
def test_table_that_was_made_again_is_a_conflict(ground: Ground) -> None:
    ground.hand_off()
    catalog = cast("Any", ground.open())._catalog(ground.place)
    name, table = (ground.database, "stream"), ground.iceberg()
    catalog.drop_table(name)
    again = catalog.create_table(name, table.schema(), location=table.location())
    with again.transaction() as change:
        change.set_properties(dict(table.properties))
    ground.vault.add(b"third")
    ground.vault.export("chunks")
    before = contents(ground.vault.root)
    with pytest.raises(Conflict, match=r"has the UUID .*, but the registered table has "):
        ground.hand_off()
    assert contents(ground.vault.root) == before, "nothing is written"


@ICEBERG
def test_late_run_does_not_add_to_a_table_that_was_made_again_meanwhile(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table without snapshots, as the one that the run looked at, but another one."""
    catalog = cast("Any", ground.open())._catalog(ground.place)
    catalog.create_namespace(ground.database)
    name, location = (ground.database, "stream"), ground.place.location
    empty = catalog.create_table(name, ground.place.options.schema, location=location)

    def made_again() -> None:
        catalog.drop_table(name)
        catalog.create_table(name, empty.schema(), location=location)

    fix_identity(ground.place, empty.metadata.table_uuid)
    before_its_change(ground, monkeypatch, made_again)
    with pytest.raises(Conflict, match=r"has the UUID .*, but the registered table has "):
        ground.open().publish(ground.place, ground.generations[0])
    assert ground.rows() == 0


def anew(ground: Ground, number: int) -> TablePlace:
    """The table that somebody has made anew in another folder, with a partition for a generation, in Glue."""
    place = replace(ground.place, archive=ground.place.archive.in_folder("0123456789ab"))
    client, made = boto3.client("glue", region_name="us-east-1"), hive_table(place, [number])
    client.delete_table(DatabaseName=ground.database, Name="stream")
    assert glue._create(client, made)
    assert glue._add_partitions(client, made, glue._find_table(client, made) or {}, [str(number)])
    return place


@pytest.mark.parametrize("ground", ["parquet-glue"], indirect=True)
def test_late_run_adds_no_partition_to_a_table_that_was_made_anew_meanwhile(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.open().publish(ground.place, ground.generations[0])
    made: list[TablePlace] = []
    before_call(monkeypatch, glue, "_add_partitions", lambda: made.append(anew(ground, 1)))
    with pytest.raises(Conflict, match="in the catalog is a table that was removed here"):
        ground.open().publish(ground.place, ground.generations[1])
    assert ground.registered() == {made[0].partition(1)}


@pytest.mark.parametrize("ground", ["parquet-projection"], indirect=True)
def test_late_run_does_not_change_a_table_that_was_made_anew_meanwhile(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.open().publish(ground.place, ground.generations[0])
    made: list[TablePlace] = []
    before_call(monkeypatch, glue, "_has_files", lambda: made.append(anew(ground, 1)))
    with pytest.raises(Conflict, match="in the catalog is a table that was removed here"):
        ground.open().publish(ground.place, ground.generations[1])
    client = boto3.client("glue", region_name="us-east-1")
    now = client.get_table(DatabaseName=ground.database, Name="stream")["Table"]
    assert glue._location(now) == f"{made[0].location}/"


@pytest.mark.parametrize("ground", ["parquet-glue"], indirect=True)
def test_partition_of_a_table_that_was_removed_is_named(ground: Ground) -> None:
    """A run that was killed has left it."""
    ground.hand_off()
    client, place = boto3.client("glue", region_name="us-east-1"), anew(ground, 1)
    late = hive_table(place, [1])._replace(partitions={"2": ground.place.partition(2)})
    with pytest.raises(Conflict, match="was removed here"):
        glue._add_partitions(client, late._replace(location=ground.place.location), {"StorageDescriptor": {}}, ["2"])
    assert glue._add_partitions(client, late, glue._find_table(client, late) or {}, ["2"])
    with pytest.raises(Conflict, match="has a partition of a table that was removed here") as named:
        ground.open().missing(place, [1])
    assert "DROP PARTITION (generation = 2)" in named.value.todo


@ICEBERG
def test_table_is_known_after_a_kill_behind_its_creation(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "fix_identity", killed)
        with pytest.raises(Killed):
            ground.open().publish(ground.place, ground.generations[0])
        assert TABLE_IDENTITY not in "".join(contents(ground.vault.root))
    ground.hand_off()
    cast("Any", ground.open())._catalog(ground.place).rename_table((ground.database, "stream"), (ground.database, "r"))
    with pytest.raises(Conflict, match="renamed or dropped"):
        ground.hand_off()


@pytest.mark.parametrize("ground", [REST], indirect=True)
def test_rest_catalog_gets_no_warehouse(ground: Ground) -> None:
    catalog = cast("Any", ground.open())._catalog(ground.place)
    assert "warehouse" not in catalog.properties


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_snapshots_name_the_generation_they_added(ground: Ground) -> None:
    for generation in ground.generations:
        ground.open().publish(ground.place, generation)
    said = [snapshot.summary for snapshot in ground.iceberg().snapshots()]
    assert [one["streamvault.generation"] for one in said if one] == ["1", "2"]
    assert all(len(one["streamvault.fingerprint"] or "") == 64 for one in said if one)
    names = [field.name for field in ground.iceberg().schema().fields]
    assert names[0] == "generation"
    rows = ground.iceberg().scan(row_filter="generation = 2").to_arrow()
    assert rows["payload"].to_pylist() == [b"second generation"] * len(rows)
    assert len(ground.iceberg().scan().to_arrow()) == len(ground.vault.events())


LOCAL = pytest.mark.parametrize("ground", ["iceberg-sql", "parquet-glue", "parquet-projection"], indirect=True)


@LOCAL
def test_publish_refuses_a_generation_without_the_one_before(ground: Ground) -> None:
    """A late run that finds the table dropped does not create it permanently with its own generation."""
    with suppress(Conflict):
        ground.open().publish(ground.place, ground.generations[1])
    ground.hand_off()
    assert ground.registered() == ground.expected(1, 2)


@LOCAL
def test_publish_refuses_a_generation_with_a_missing_file(ground: Ground) -> None:
    ground.open().publish(ground.place, ground.generations[0])
    there = ground.registered()
    ground.address.open().delete([key for key in table_keys(ground.vault.root) if "=2/" in key][:1])
    with pytest.raises(Damaged, match="a file of generation 2, which is not registered yet, is missing"):
        ground.hand_off()
    assert ground.registered() == there


@LOCAL
@pytest.mark.parametrize("lost", ["", manifest_key(GenerationSpan.of(2))], ids=["all", "the newest"])
def test_catalog_with_more_generations_than_the_table_is_a_conflict(ground: Ground, lost: str) -> None:
    ground.hand_off()
    ground.remove(lost)
    ground.vault.add(b"third")
    ground.vault.export("chunks")
    before = contents(ground.vault.root)
    expected = "the catalog has the table up to generation 2" if lost else "the table's records are missing"
    with pytest.raises(Conflict, match=expected):
        ground.hand_off()
    assert contents(ground.vault.root) == before, "nothing is written"


def test_files_without_records_are_a_conflict(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=20, largest=100)
    vault.export("chunks")
    write_table(vault.archive, master="inline")
    store = RootAddress.parse(vault.root).open()
    store.delete([found.key for found in store.list(f"{NAME}/_table/")])
    with pytest.raises(Conflict, match="records are missing"):
        write_table(vault.archive, master="inline")


@LOCAL
def test_dropped_table_is_registered_again(ground: Ground) -> None:
    ground.hand_off()
    if ground.format == "iceberg":
        cast("Any", ground.open())._catalog(ground.place).drop_table((ground.database, "stream"))
        with pytest.raises(Conflict, match="renamed or dropped") as refused:
            ground.hand_off()
        record = ground.place.archive.prefix + TABLE_IDENTITY
        assert record in refused.value.todo
        ground.address.open().delete([record])
    else:
        boto3.client("glue", region_name="us-east-1").delete_table(DatabaseName=ground.database, Name="stream")
    assert ground.hand_off().registered == (1, 2)
    assert ground.registered() == ground.expected(1, 2)


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_rolled_back_table_is_a_conflict(ground: Ground) -> None:
    ground.hand_off()
    table = ground.iceberg()
    table.manage_snapshots().set_current_snapshot(table.history()[0].snapshot_id).commit()
    with pytest.raises(Conflict, match="rolled back from generation 2 to 1"):
        ground.hand_off()


def expire(table: Table, *numbers: int) -> None:
    for number in numbers:
        found = [one.snapshot_id for one in table.snapshots() if one.sequence_number == number]
        table.maintenance.expire_snapshots().by_id(found[0]).commit()


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_table_rolled_back_to_another_writers_snapshot_is_a_conflict(ground: Ground) -> None:
    """Of the snapshots before it, none is left that says which generation it had."""
    ground.open().publish(ground.place, ground.generations[0])
    ground.iceberg().append(ground.iceberg().scan(limit=1).to_arrow())
    theirs = ground.iceberg().current_snapshot()
    assert theirs is not None
    ground.open().publish(ground.place, ground.generations[1])
    ground.iceberg().manage_snapshots().set_current_snapshot(theirs.snapshot_id).commit()
    expire(ground.iceberg(), 1)
    ground.vault.add(b"third")
    ground.vault.export("chunks")
    before = contents(ground.vault.root)
    with pytest.raises(Conflict, match="rolled back from generation 2 to a snapshot of another writer"):
        ground.hand_off()
    assert contents(ground.vault.root) == before, "nothing is written"


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_expired_snapshots_between_a_tagged_one_and_the_current_one_are_no_rollback(ground: Ground) -> None:
    ground.hand_off()
    newest = ground.iceberg().current_snapshot()
    assert newest is not None
    ground.iceberg().manage_snapshots().create_tag(newest.snapshot_id, "kept").commit()
    for _ in range(2):
        ground.iceberg().append(ground.iceberg().scan(limit=1).to_arrow())
    expire(ground.iceberg(), 1, 3)
    ground.vault.add(b"third")
    ground.vault.export("chunks")
    assert ground.hand_off().registered == (3,)


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_table_without_a_current_snapshot_is_a_conflict(ground: Ground) -> None:
    ground.hand_off()
    ground.iceberg()._do_commit((RemoveSnapshotRefUpdate(ref_name="main"),), ())
    assert ground.iceberg().current_snapshot() is None
    ground.vault.add(b"third")
    ground.vault.export("chunks")
    before = contents(ground.vault.root)
    with pytest.raises(Conflict, match="has no current snapshot, but had generation 2"):
        ground.hand_off()
    assert contents(ground.vault.root) == before, "nothing is written"


@pytest.mark.parametrize("ground", ["iceberg-sql", REST], indirect=True)
def test_run_beside_another_one_whose_snapshot_is_rolled_back_is_a_conflict(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current snapshot is again the one that the run has looked at."""

    def meanwhile() -> None:
        ground.open().publish(ground.place, ground.generations[1])
        table = ground.iceberg()
        table.manage_snapshots().set_current_snapshot(table.history()[0].snapshot_id).commit()

    ground.open().publish(ground.place, ground.generations[0])
    before_its_change(ground, monkeypatch, meanwhile)
    with pytest.raises(Conflict, match="rolled back from generation 2 to 1"):
        ground.open().publish(ground.place, ground.generations[1])


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_same_generations_of_another_table_are_a_conflict(ground: Ground) -> None:
    ground.hand_off()
    for key in (manifest_key, ranges_key):
        ground.remove(key(GenerationSpan.of(2)))
    manifest = ground.generations[1].manifest.model_copy(update={"tool": "another"})
    rows = [row for some in ground.generations[1].rows.values() for row in some]
    ground.place.archive.commit(manifest, sorted(rows))
    with pytest.raises(Conflict, match="another generation 2"):
        ground.hand_off()


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_maintained_table_gets_later_generations(ground: Ground) -> None:
    """Files below the table's location that Iceberg's metadata does not name are deleted."""
    ground.hand_off()
    table = ground.iceberg()
    named = {*table.inspect.files()["file_path"].to_pylist(), *table.inspect.manifests()["path"].to_pylist()}
    named |= {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    named |= {snapshot.manifest_list for snapshot in table.snapshots()}
    kept = {Path(one.removeprefix("file://")) for one in named}
    for path in Path(table.location().removeprefix("file://")).rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    ground.vault.add(b"third")
    ground.vault.export("chunks")
    report = ground.hand_off()
    assert (report.added, report.registered) == ((3,), (3,))
    found = ground.iceberg().scan(selected_fields=("pointer",)).to_arrow()["pointer"].to_pylist()
    assert sorted(found) == sorted(str(pointer) for pointer, _ in ground.vault.events())


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_table_is_created_with_its_first_generation(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("not a file that Iceberg takes")

    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "_add_files", refuse)
        with pytest.raises(CatalogFailed):
            ground.hand_off()
    assert ground.open().missing(ground.place, [1, 2]) == [1, 2]
    with pytest.raises(NoSuchTableError):
        ground.iceberg()


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_damaged_metadata_are_found_before_icebergs_library_reads_them(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library could end the process over them."""
    handed: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "_add_files", lambda *_, **__: handed.append(1) or 1 / 0)
        with pytest.raises(CatalogFailed):
            ground.hand_off()
        assert handed
        handed.clear()
        first = min(ground.expected(1))
        key = table_data(ground.place.archive.prefix) + first.removeprefix(f"{ground.place.location}/")
        store = ground.address.open()
        whole = bytes(store.get(key))
        assert whole[-4:] == b"PAR1"
        store.delete([key])
        store.put(key, whole[: -8 - int.from_bytes(whole[-8:-4], "little")].ljust(len(whole) - 8, b"\xff") + whole[-8:])
        with pytest.raises(Damaged, match="not a readable table file"):
            ground.hand_off()
    assert not handed


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
@pytest.mark.parametrize(
    ("column", "value"),
    [("t", pa.scalar(253_402_300_800_000_000, pa.timestamp("us"))), ("scope", pa.scalar(f"{'x' * 15}\ud7ffmore"))],
)
def test_value_of_an_earlier_release_that_iceberg_does_not_take_is_a_conflict(
    ground: Ground, column: str, value: pa.Scalar
) -> None:
    ground.open().publish(ground.place, ground.generations[0])
    store = ground.address.open()
    key = next(key for key in table_keys(ground.vault.root) if "=2/" in key)
    table = pq.read_table(pa.BufferReader(store.get(key)))
    values = pa.repeat(value, table.num_rows)
    at = table.schema.get_field_index(column)
    table = table.append_column(column, values) if at < 0 else table.set_column(at, column, values)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.delete([key])
    store.put(key, sink.getvalue().to_pybytes())
    with pytest.raises(Conflict, match="an earlier release wrote values that cannot be registered") as refused:
        ground.hand_off()
    assert "table" in refused.value.todo
    assert ground.rows() == ground.generations[0].manifest.events


def test_folder_with_a_space_is_registered(tmp_path: Path) -> None:
    (tmp_path / "two words").mkdir()
    vault = Vault(tmp_path, f"file://{tmp_path}/two%20words")
    vault.make(events=20, largest=100)
    vault.export("chunks")
    write_table(vault.archive, catalog=f"sql:sqlite:///{tmp_path}/catalog.db", master="inline")
    table = SqlCatalog("streamvault", uri=f"sqlite:///{tmp_path}/catalog.db").load_table(("scope", "stream"))
    assert len(table.scan().to_arrow()) == len(vault.events())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()].count("two words") == 1
    assert not (tmp_path / "two%20words").exists()


@pytest.mark.parametrize("ground", [REST], indirect=True)
def test_forged_metadata_send_no_login_and_delete_nothing(ground: Ground) -> None:
    """In a real bucket, read by a real server, whose own table is then whole again."""
    ground.open().publish(ground.place, ground.generations[0])
    store = ground.address.open()
    names = [found.key for found in store.list(f"{ground.place.folder.prefix}metadata/")]
    key = max(name for name in names if name.endswith(".metadata.json"))
    whole = bytes(store.get(key))
    manifest = f"{ground.address.uri}/{NAME}/{manifest_key(GenerationSpan.of(1))}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        for properties, error in (({"s3.endpoint": endpoint}, Conflict), ({}, Damaged)):
            forged = json.loads(whole)
            forged["properties"] |= {"write.metadata.previous-versions-max": "1", **properties}
            forged["properties"]["write.metadata.delete-after-commit.enabled"] = "true"
            forged["metadata-log"] = [{"timestamp-ms": forged["last-updated-ms"] - 1, "metadata-file": manifest}]
            store.delete([key])
            store.put(key, json.dumps(forged).encode())
            before = contents(ground.vault.root)
            with pytest.raises(error):
                ground.hand_off()
            assert contents(ground.vault.root) == before
        with pytest.raises(BlockingIOError):
            server.accept()  # nobody has connected
    store.delete([key])
    store.put(key, whole)
    assert ground.hand_off().registered == (2,)


@pytest.mark.parametrize("ground", ["iceberg-sql"], indirect=True)
def test_table_with_other_data_is_a_conflict(ground: Ground) -> None:
    ground.open().publish(ground.place, ground.generations[0])
    table = ground.iceberg()
    with table.transaction() as change:
        change.remove_properties("streamvault.generation")
    with pytest.raises(Conflict, match="no handoff"):
        ground.open().missing(ground.place, [1])


@pytest.mark.parametrize(
    ("text", "kind", "projection"),
    [("hive", "parquet", False), ("glue", "iceberg", True), ("rest:x", "parquet", False)],
)
def test_unknown_catalog_is_refused(text: str, kind: TableFormat, projection: bool) -> None:
    with pytest.raises(Usage):
        open_catalog(text, kind, projection=projection)


@pytest.mark.parametrize("text", ["rest:http://127.0.0.1:9", "sql:sqlite:////no/such/folder/x.db"])
def test_unreachable_catalog_is_one_line(text: str, tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=20, largest=100)
    vault.export()
    with pytest.raises(CatalogFailed) as error:
        write_table(vault.archive, catalog=text, master="inline")
    assert "\n" not in str(error.value)
