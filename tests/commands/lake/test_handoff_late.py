"""Handoffs that are late at any request, or in any sequence with what else happens to an archive."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import streamvault.lake.handoff
from streamvault import compact_archive, export_stream, import_stream, rotate_stream, write_table
from streamvault.common.errors import Conflict, Damaged, Failed, Overtaken, Problem
from streamvault.lake import location
from streamvault.lake.location import TablePlace
from streamvault.lake.reports import HandoffReport
from streamvault.lake.table import find_options
from streamvault.lake.task import FileTask, WrittenFile, write_file
from streamvault.layouts.keys import table_end_key
from streamvault.layouts.layout import LayoutName
from streamvault.manifests.archive import TableArchive
from streamvault.objectstore.obstore_store import _STORES
from streamvault.objectstore.uri import _open
from streamvault.runner.runner import TaskFailed
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamName
from testkit.killed import Killed, before_call
from testkit.lakes import as_earlier_releases, is_whole, meanwhile, rows_in, rows_of, table_keys, table_of, writing
from testkit.small_archives import NAME, RANGE_SIZE, Vault, a_root, archive_of, clear, objects_of

REQUESTS = ("put", "get", "get_range", "list", "folders", "delete", "size")
QUESTIONS = ("load_table", "create_namespace", "create_table_transaction", "commit_table")
"""The requests to a store and a catalog."""

Pauses = Callable[..., Iterator["Vault"]]


@contextmanager
def paused(kinds: dict[Any, tuple[str, ...]], at: int, others: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """Lets others act once, before one of the requests; yields what says whether it was reached.

    Args:
        kinds: classes whose methods of these names are requests.
        at: before which request, from 1 on. others: what they do.
    """
    calls = count(1)

    def counted(request: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == at:
                others()
            return request(*arguments, **options)

        return call

    with ExitStack() as patches:
        for kind, names in kinds.items():
            for name in names:
                patches.enter_context(patch.object(kind, name, counted(getattr(kind, name))))
        yield lambda: next(calls) > at


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.long, id="each"), pytest.param(3, id="every-third")])
def pauses(request: pytest.FixtureRequest, tmp_path: Path) -> Pauses:
    """Yields a vault for each request of the late run, or every third: paused before it while others act, then done."""

    def pauses(
        make: Callable[[Path], Vault],
        late: Callable[[Vault], object],
        others: Callable[[Vault], object],
        *,
        catalog: bool = False,
    ) -> Iterator[Vault]:
        for at in range(1, 1000, request.param):
            place = tmp_path / str(at)
            place.mkdir()
            vault = make(place)
            store = type(objects_of(vault.root))
            kinds = {store: ("put",), SqlCatalog: QUESTIONS} if catalog else {store: REQUESTS}
            with paused(kinds, at, partial(others, vault)) as was_reached, suppress(Problem):
                late(vault)
            if not was_reached():
                assert at > 10
                return
            yield vault
            _open.cache_clear()
            _STORES.clear()

    return pauses


def make(folder: Path) -> Vault:
    vault = Vault(folder)
    vault.create()
    vault.add(*(b"%d" % number * 40 for number in range(60)))
    return vault


def make_archive(folder: Path) -> Vault:
    vault = make(folder)
    for number in range(3):
        vault.export("chunks")
        vault.add(b"%d" % number * 30)
    return vault


def from_stream(vault: Vault, **options: Any) -> HandoffReport:
    said = {"root": vault.root, "format": "parquet", "target_size": 1024, "master": "inline[1]"}
    return write_table(vault.uri(), **{**said, **options})


def from_archive(vault: Vault) -> HandoffReport:
    return write_table(vault.archive, format="parquet", target_size=1024, master="inline[1]")


def truncate(vault: Vault) -> None:
    vault.truncate(vault.described.tail)


def none_twice(vault: Vault) -> set[str]:
    """The pointers of the rows in the table's folder, each of which exists once."""
    found = Counter(row["pointer"] for row in rows_of(vault.root))
    assert set(found.values()) == {1}
    return set(found)


spoiled = Mock(side_effect=InvalidCut("the cut lies inside an event"))


def give_up(vault: Vault) -> None:
    """A run that cannot read the planned data."""
    with writing(spoiled), suppress(Problem):
        from_stream(vault)


def add_twice(vault: Vault) -> None:
    for payload in (b"more" * 50, b"most" * 50):
        vault.add(payload)
        from_stream(vault)


def merge(vault: Vault) -> None:
    from_archive(vault)
    vault.export("chunks")
    compact_archive(vault.archive, master="inline[1]")
    clear(vault)
    from_archive(vault)


def from_newest(vault: Vault) -> HandoffReport:
    vault.export("chunks")
    return from_archive(vault)


@pytest.mark.parametrize(
    ("make", "late", "others", "again"),
    [
        (make, from_stream, add_twice, from_stream),
        (make_archive, from_archive, merge, from_newest),
        (make, from_stream, give_up, from_stream),
        (make, give_up, from_stream, from_stream),
    ],
    ids=["additions", "a merge", "another that gives up", "giving up"],
)
def test_late_handoff_beside_others_adds_everything_once(
    pauses: Pauses,
    make: Callable[[Path], Vault],
    late: Callable[[Vault], object],
    others: Callable[[Vault], object],
    again: Callable[[Vault], object],
) -> None:
    def act(vault: Vault) -> None:
        with writing(write_file):
            others(vault)

    for vault in pauses(make, late, act):
        if late is give_up:
            assert is_whole(vault), "what was published stays"
        else:
            again(vault)
            assert is_whole(vault)
        vault.add(b"later")
        again(vault)
        assert is_whole(vault)


def test_late_handoff_after_a_truncation_loses_nothing(pauses: Pauses) -> None:
    def others(vault: Vault) -> None:
        from_stream(vault)
        vault.add(b"more" * 50)
        from_stream(vault)
        before.update(none_twice(vault))
        truncate(vault)

    before: set[str] = set()
    for vault in pauses(make, from_stream, others):
        vault.add(b"last")
        from_stream(vault)
        assert none_twice(vault) == before | {str(pointer) for pointer, _ in vault.events()}
        before.clear()


def test_late_handoff_beside_an_expiry_adds_nothing_twice(pauses: Pauses) -> None:
    def others(vault: Vault) -> None:
        rotate_stream(vault.uri(), vault.root, keep=1, layout="chunks", range_size=RANGE_SIZE, master="inline[1]")

    for vault in pauses(make_archive, from_archive, others):
        try:
            from_archive(vault)
        except Conflict as error:
            assert "expired" in error.what  # noqa: PT017
        if table_of(vault).generations():
            none_twice(vault)


def test_run_does_not_give_up_what_another_published(tmp_path: Path) -> None:
    vault = make(tmp_path)

    def overtaken(task: FileTask) -> Any:
        with writing(write_file):
            from_stream(vault)
        return spoiled(task)

    with writing(overtaken), pytest.raises(InvalidCut):
        from_stream(vault)
    assert is_whole(vault)
    assert from_stream(vault).unchanged


def test_late_task_of_an_ended_plan_is_refused(tmp_path: Path) -> None:
    vault = make(tmp_path)
    with writing(spoiled), pytest.raises(InvalidCut):
        from_stream(vault)
    task = spoiled.call_args.args[0]
    assert table_of(vault).prefix + table_end_key(0) in [found.key for found in objects_of(vault.root).list("")]
    assert from_stream(vault).added == (2,)
    with pytest.raises(Conflict):
        write_file(task)
    assert is_whole(vault)
    assert not [row for key in table_keys(vault.root) if "=1/" in key for row in rows_in(objects_of(vault.root), key)]


def test_run_does_not_publish_what_another_gave_up(tmp_path: Path) -> None:
    """The other one was killed before it published the generation, which is empty then."""
    vault = make(tmp_path)

    def given_up(task: FileTask) -> WrittenFile:
        killed = patch.object(streamvault.lake.handoff, "_give_up", side_effect=Killed)
        with writing(spoiled), killed, suppress(Killed, Conflict):
            from_stream(vault)
        return write_file(task)

    with writing(given_up), pytest.raises(Conflict, match="abandoned"):
        from_stream(vault)
    assert table_of(vault).generations() == []
    from_stream(vault)
    assert is_whole(vault)


@pytest.mark.parametrize("size", [1024, 10**6])
@pytest.mark.parametrize("is_former", [False, True])
@pytest.mark.parametrize("moment", ["fix_plan", "write_file", "finished", "end_plan", "blank_file"])
def test_a_run_whose_table_was_made_anew_meanwhile_harms_none(
    tmp_path: Path, moment: str, size: int, is_former: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it writes and deletes is in a folder of its own, and it says so in the end."""
    vault, act = make(tmp_path), iter([True])
    if is_former:
        from_stream(vault)
        as_earlier_releases(vault.root)
        vault.add(b"more")
    step = getattr(streamvault.lake.handoff, moment)

    def made_anew(*given: Any, **options: Any) -> Any:
        if next(act, False):
            store = objects_of(vault.root)
            store.delete([one.key for one in store.list(f"{NAME}/")])
            killed = patch.object(streamvault.lake.handoff, "_write", side_effect=Killed)
            with killed if moment == "fix_plan" else nullcontext(), suppress(Killed), monkeypatch.context() as undone:
                undone.setattr(streamvault.lake.handoff, "write_file", write_file)
                undone.setattr(streamvault.lake.handoff, moment, step)
                from_stream(vault, target_size=size)
        return step(*given, **options)

    if moment == "blank_file":
        monkeypatch.setattr(streamvault.lake.handoff, "write_file", spoiled)
    monkeypatch.setattr(streamvault.lake.handoff, moment, made_anew)
    with pytest.raises(Overtaken, match="the table was removed in the meantime"):
        from_stream(vault)
    assert next(act, None) is None
    if moment == "fix_plan":
        assert not table_keys(vault.root)
        from_stream(vault, target_size=size)
    else:
        assert from_stream(vault, target_size=size).unchanged
    assert is_whole(vault)


def make_former(folder: Path) -> Vault:
    vault = make(folder)
    from_stream(vault)
    as_earlier_releases(vault.root)
    vault.add(b"more" * 50)
    return vault


def make_anew(vault: Vault) -> None:
    store = objects_of(vault.root)
    store.delete([one.key for one in store.list(f"{NAME}/")])
    from_stream(vault)


@pytest.mark.parametrize("make", [make, make_former])
@pytest.mark.parametrize("late", [from_stream, give_up])
def test_late_handoff_of_a_table_that_was_made_anew_harms_none(
    pauses: Pauses, make: Callable[[Path], Vault], late: Callable[[Vault], object]
) -> None:
    def others(vault: Vault) -> None:
        with writing(write_file):
            make_anew(vault)

    for vault in pauses(make, late, others):
        assert is_whole(vault)
        vault.add(b"later")
        from_stream(vault)
        assert is_whole(vault)


def make_tabled(folder: Path) -> Vault:
    """A table of an archive that has one more generation."""
    vault = make_archive(folder)
    from_archive(vault)
    vault.export("chunks")
    return vault


def remove(vault: Vault, *, again: bool = False) -> None:
    store = objects_of(vault.root)
    store.delete([one.key for one in store.list(f"{NAME}/") if one.key.split("/")[2] in {"table", "_table"}])
    if again:
        from_archive(vault)


@pytest.mark.parametrize("again", [False, True], ids=["removed", "created again"])
def test_late_handoff_of_a_table_that_was_removed_begins_none_with_a_part_of_the_archive(
    pauses: Pauses, *, again: bool
) -> None:
    """It has read only the archive's generations that the removed one lacked."""
    for vault in pauses(make_tabled, from_archive, partial(remove, again=again)):
        try:
            from_archive(vault)
        except Conflict as error:
            assert "records are missing" in error.what  # noqa: PT017
            remove(vault)  # what the late run has left in the removed one's folder
            from_archive(vault)
        assert is_whole(vault)


def test_an_error_is_not_replaced_by_that_of_the_look_after_it(tmp_path: Path) -> None:
    vault = make(tmp_path)
    from_stream(vault)
    archive = table_of(vault)
    options = find_options(archive)
    assert options is not None
    place = TablePlace("scope", options, archive)
    down = patch.object(location, "find_options", side_effect=Failed("the store cannot be reached"))
    with down, pytest.raises(InvalidCut), place.unless_removed():
        raise InvalidCut("the cut lies inside an event")
    with down, pytest.raises(Failed), place.unless_removed():
        pass


def test_table_that_was_removed_is_not_begun_again_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = make(tmp_path)
    from_stream(vault)
    vault.add(b"more")
    before_call(monkeypatch, TablePlace, "begun", lambda: remove(vault))
    with pytest.raises(Overtaken, match="the table was removed in the meantime"):
        from_stream(vault)
    with pytest.raises(Damaged, match="a table's options are missing"):
        table_of(vault)


def test_handoff_of_a_table_that_is_being_removed_begins_none_with_a_part_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = make_tabled(tmp_path)
    gone = [one.key for one in objects_of(vault.root).list(table_of(vault).prefix)]
    before_call(monkeypatch, streamvault.lake.handoff, "plans_of", lambda: objects_of(vault.root).delete(gone))
    with pytest.raises(Overtaken, match="the table was removed in the meantime"):
        from_archive(vault)
    assert table_of(vault).generations() == []


def in_files(folder: Path) -> Vault:
    """A table in a catalog, and one more event."""
    (folder / "objects").mkdir()
    vault = Vault(folder, f"file://{folder}/objects")
    vault.create()
    vault.add(b"first")
    register(vault)
    vault.add(b"second")
    return vault


def register(vault: Vault) -> HandoffReport:
    return from_stream(vault, format="iceberg", target_size=None, catalog=f"sql:sqlite:///{vault.folder}/catalog.db")


def iceberg(vault: Vault) -> SqlCatalog:
    return SqlCatalog("streamvault", uri=f"sqlite:///{vault.folder}/catalog.db")


def in_catalog(vault: Vault) -> list[str]:
    rows = iceberg(vault).load_table(("scope", "stream")).scan(selected_fields=("pointer",)).to_arrow()
    return sorted(rows["pointer"].to_pylist())


def drop(vault: Vault) -> None:
    """Drop the catalog's table, and delete the record of which it was, as the error for its absence says."""
    register(vault)
    iceberg(vault).drop_table(("scope", "stream"))
    forget(vault)


def forget(vault: Vault) -> None:
    for record in (vault.folder / "objects").rglob("created.json"):
        record.unlink()


def drop_and_register(vault: Vault) -> None:
    drop(vault)
    vault.add(b"third")
    register(vault)


@pytest.mark.parametrize("others", [drop_and_register, drop])
def test_late_registration_beside_a_remade_catalog_table_is_whole(
    pauses: Pauses, others: Callable[[Vault], None]
) -> None:
    for vault in pauses(in_files, register, others, catalog=True):
        vault.add(b"later")
        try:
            register(vault)
        except Conflict:  # the late run has recorded the table that was dropped; the error says what to delete
            forget(vault)
            register(vault)
        assert in_catalog(vault) == sorted(str(pointer) for pointer, _ in vault.events())


OLDER = {"id": "int"}
NEWER = {"id": "bigint", "vip": "boolean"}
NEWEST = {"id": "bigint", "vip": "boolean", "more": "string"}


def with_columns(folder: Path) -> Vault:
    """A table of one column in a catalog, and an event of the newer schema."""
    (folder / "objects").mkdir()
    vault = Vault(folder, f"file://{folder}/objects")
    vault.create()
    vault.add(b'{"id": 0}')
    grow(vault, OLDER)
    vault.add(b'{"id": 1099511627776, "vip": true, "more": "x"}')
    return vault


def grow(vault: Vault, schema: dict[str, str]) -> HandoffReport:
    options = {"decode": "json", "schema": json.dumps(schema), "master": "inline"}
    return from_stream(vault, **{"format": "iceberg", "catalog": f"sql:sqlite:///{vault.folder}/catalog.db", **options})


def die(_: Vault) -> None:
    raise Killed


def grow_newest(vault: Vault) -> None:
    grow(vault, NEWEST)
    vault.add(b'{"id": 2, "vip": true, "more": "y"}')
    grow(vault, NEWEST)


def values(vault: Vault) -> list[dict[str, Any]]:
    found = iceberg(vault).load_table(("scope", "stream")).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["offset"])


@pytest.mark.parametrize(
    ("late", "others"),
    [(NEWER, die), (OLDER, grow_newest), (NEWER, grow_newest)],
    ids=["a kill", "older", "old"],
)
def test_late_schema_loses_and_narrows_no_column_and_doubles_no_row(
    pauses: Pauses, late: dict[str, str], others: Callable[[Vault], None]
) -> None:
    def act(vault: Vault) -> None:
        with suppress(Killed):
            grow(vault, late)

    for vault in pauses(with_columns, act, others, catalog=True):
        grow(vault, NEWEST)
        vault.add(b'{"id": 1099511627778, "vip": false, "more": "z"}')
        columns = set(grow(vault, NEWEST).columns)
        assert {"id", "vip", "more"} <= columns
        vault.add(b'{"id": 1099511627779, "vip": true, "more": "last"}')
        assert set(grow(vault, OLDER).columns) == columns, "an older schema changes nothing"
        rows = values(vault)
        assert [(row["pointer"], row["payload"]) for row in rows] == [(str(at), data) for at, data in vault.events()]
        for row in rows:
            event = json.loads(row["payload"])
            held = {name: row[name] for name in event if row[name] is not None}
            # a run that was planned with fewer columns keeps to its plan; what does not fit them has a reason
            assert held.items() <= event.items()
            assert row["id"] == event["id"] or row["_error"] == "id: not a int"
        assert [(row["id"], row["more"]) for row in rows[-2:]] == [(2**40 + 2, "z"), (2**40 + 3, "last")]


@pytest.mark.long
@pytest.mark.parametrize("layout", ["", "events", "chunks"], ids=["stream", "events", "chunks"])
def test_handoff_that_adds_columns_is_killed_at_every_request(tmp_path: Path, layout: LayoutName) -> None:
    """To the store and to the catalog: repeated, it adds each column and each row once."""

    def add(vault: Vault, payload: bytes) -> None:
        vault.add(payload)
        if layout:
            vault.export(layout)

    def grow(vault: Vault, schema: dict[str, str]) -> None:
        source = vault.archive if layout else vault.uri()
        options = {"decode": "json", "schema": json.dumps(schema), "master": "inline", "root": vault.root}
        write_table(source, catalog=f"sql:sqlite:///{vault.folder}/catalog.db", **options)

    for at in range(1, 1000):
        vault = Vault(tmp_path / str(at), f"file://{tmp_path}/{at}/objects")
        (vault.folder / "objects").mkdir(parents=True)
        vault.create()
        add(vault, b'{"id": 0}')
        grow(vault, OLDER)
        add(vault, b'{"id": 1099511627776, "vip": true, "more": "x"}')
        kinds: dict[Any, tuple[str, ...]] = {type(objects_of(vault.root)): REQUESTS, SqlCatalog: QUESTIONS}
        with paused(kinds, at, partial(die, vault)) as was_reached, suppress(Killed, TaskFailed):
            grow(vault, NEWER)
        for _ in range(2):
            grow(vault, NEWER)
            rows = values(vault)
            assert [(row["pointer"], row["payload"]) for row in rows] == [
                (str(at), data) for at, data in vault.events()
            ]
            assert [(row["id"], row["vip"]) for row in rows] == [(0, None), (2**40, True)]
            assert [row["_error"] for row in rows] == [None, None]
            known = iceberg(vault).load_table(("scope", "stream"))
            assert (len(known.history()), known.schema().column_names[-1]) == (2, "vip")
        _open.cache_clear()
        _STORES.clear()
        if not was_reached():
            assert at > 10
            return


def test_late_files_and_plans_of_another_schema_are_of_one_plan(pauses: Pauses) -> None:
    """At each request to the store: the columns of a generation are decided once, whoever writes its files."""
    for vault in pauses(with_columns, partial(grow, schema=OLDER), grow_newest):
        grow(vault, NEWEST)
        rows = values(vault)
        assert [(row["pointer"], row["payload"]) for row in rows] == [(str(at), data) for at, data in vault.events()]
        assert rows[-1]["more"] == "y"


Step = tuple[str, int]
Row = tuple[int, int, int, bytes]
"""Epoch, number and offset of an event, and its payload."""

RANGE_SIZES = (2048, 700)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("export"), st.integers(1, 40)),
        st.tuples(st.just("expire"), st.integers(1, 5)),
        st.tuples(st.just("compact"), st.sampled_from([2000, 1_000_000])),
        st.tuples(st.just("clear"), st.just(0)),
        st.tuples(st.just("hand off"), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 4)),
    ),
    min_size=5,
    max_size=12,
)


@dataclass
class Lake:
    """A stream, its archive, and a table of it.

    Attributes:
        layout: of the archive. tables: how many were begun. begins: where the newest one does; None if it has nothing.
    """

    vault: Vault
    layout: str
    tables: int = 1
    begins: StreamCut | None = None

    @property
    def name(self) -> str:
        return f"table_{self.tables}"

    @property
    def table(self) -> TableArchive:
        return table_of(self.vault, self.name)

    def take(self, step: Step) -> None:
        what, size = step
        options = {"layout": self.layout, "range_size": RANGE_SIZES[size % 2], "master": "inline"}
        if what == "export":
            self.vault.add(*(b"%d" % index * (index % 7) for index in range(size)))
            export_stream(self.vault.uri(), self.vault.root, **options)  # type: ignore[arg-type]
        elif what == "expire":
            rotate_stream(self.vault.uri(), self.vault.root, keep=size, **options)  # type: ignore[arg-type]
        elif what == "compact":
            compact_archive(self.vault.archive, target=size, master="inline")
        elif what == "clear":
            clear(self.vault)
        elif what == "kill":
            with pytest.MonkeyPatch.context() as patch:
                meanwhile(patch, Mock(side_effect=Stopped("for a test")), size)
                self.hand_off()
        else:
            self.hand_off()
            self.is_whole()

    def hand_off(self) -> None:
        """Hand off; if an expiry has overtaken the table, the run is rejected and another table is created."""
        history = archive_of(self.vault.root).history()
        try:
            write_table(self.vault.archive, table=self.name, target_size=1500, master="inline")
        except Stopped:
            pass
        except Conflict:
            newest = self.table.newest()
            assert history.first > (1 if newest is None else newest.generation + 1), "refused without need"
            self.tables += 1
            self.begins = None
            return self.hand_off()
        if self.begins is None and self.table.generations():
            self.begins = self.table.history().head
            assert self.begins == history.head
        return None

    def is_whole(self) -> None:
        history = archive_of(self.vault.root).history()
        assert self.table.history().tail == history.tail
        assert self.rows() == self.expected()

    def rows(self) -> list[Row]:
        """The table's rows by segment, in the table's order."""
        rows = rows_of(self.vault.root, self.name)
        found = [(row["epoch"], row["segment"], row["offset"], row["payload"]) for row in rows]
        return sorted(found, key=lambda row: row[:2])

    def expected(self) -> list[Row]:
        history = archive_of(self.vault.root).history()
        assert self.begins is not None
        stretches = segments_between(history.description, self.begins, history.tail)
        found = []
        for pointer, payload in self.vault.events():
            start, end = stretches.get(pointer.segment, (0, 0))
            if start <= pointer.offset and (end is None or pointer.offset < end):
                found.append((pointer.segment.epoch, pointer.segment.number, pointer.offset, payload))
        return found

    def restores(self) -> None:
        target = StreamName("scope", "restored")
        import_stream(self.vault.archive, self.vault.uri(target), layout="table", table=self.name, master="inline")
        restored = [(p.segment.epoch, p.segment.number, p.offset, data) for p, data in self.vault.events(target)]
        assert restored == self.expected()


class Stopped(Failed):
    """Ends a run after some files."""


@settings(max_examples=2, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from(["chunks", "events"]))
@example([("hand off", 0), ("export", 9), ("expire", 1)], "chunks")
@example([("kill", 2), ("export", 9), ("compact", 1_000_000), ("clear", 0)], "chunks")
@example([("hand off", 0), ("export", 30), ("kill", 1), ("export", 8), ("compact", 1_000_000), ("clear", 0)], "chunks")
@example([("kill", 2), ("export", 9), ("expire", 1), ("hand off", 0), ("export", 3), ("expire", 1)], "events")
def test_table_has_every_event_that_the_archive_ever_had(steps: list[Step], layout: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(Path(folder), a_root())
        vault.make(events=30, largest=400)
        ground = Lake(vault, layout)
        for step in [("export", 5), ("export", 12), *steps, ("hand off", 0)]:
            ground.take(step)
        ground.restores()
