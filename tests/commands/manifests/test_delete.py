"""Deleting an archive: stopped or late at each of its calls, beside exports, holds and other deletions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from streamvault import (
    check_archive,
    delete_archive,
    export_stream,
    hold_archive,
    import_stream,
    list_archives,
    release_archive,
    rotate_stream,
    show_archive,
    show_timeline,
    write_table,
)
from streamvault.cli import main
from streamvault.common.errors import Absent, Conflict, Problem
from streamvault.exporter.reports import RotateReport
from streamvault.layouts.keys import GenerationSpan, manifest_key, parse_decision, truncation_key
from streamvault.layouts.layout import LayoutName
from streamvault.manifests.archive import NoSuchArchive
from streamvault.manifests.listing import KEPT
from streamvault.manifests.verbs.reports import DeleteReport
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.runner import TaskFailed
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamCut, StreamName
from testkit.killed import Killed, killed, stopped_at
from testkit.locks import Locked
from testkit.small_archives import (
    NAME,
    Vault,
    a_root,
    a_vault,
    archive_of,
    before_a_decision,
    clear,
    contents,
    is_sound,
    merge,
    objects_of,
    replace_object,
)
from testkit.streams import make_stream

PREFIX = f"{NAME}/"
BEING_DELETED = "the archive is being deleted"
DELETED = "the archive was deleted, and its address is not used again"


vault = a_vault(
    events=20, largest=2000, exports=[("events", ""), ("chunks", ""), ("chunks", "")], between=[b"one", b"two"]
)
"""Three generations, in both layouts."""


def delete(vault: Vault, *, unfinished: bool = False) -> DeleteReport:
    return delete_archive(vault.archive, yes=True, unfinished=unfinished)


def before_call(
    monkeypatch: pytest.MonkeyPatch, number: int, happens: Callable[[], object], *, puts_only: bool = False
) -> Callable[[], None]:
    """Run something before the put or delete of this number, from 1; then the call is made, however late that is.

    Returns what counts a call, for other kinds of calls.
    """
    put, remove = ObstoreStore.put, ObstoreStore.delete
    left = number

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            monkeypatch.setattr(ObstoreStore, "put", put)
            monkeypatch.setattr(ObstoreStore, "delete", remove)
            happens()

    def late_put(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        count()
        put(self, key, data)

    def late_delete(self: ObstoreStore, keys: list[str]) -> None:
        count()
        remove(self, keys)

    monkeypatch.setattr(ObstoreStore, "put", late_put)
    if not puts_only:
        monkeypatch.setattr(ObstoreStore, "delete", late_delete)
    return count


def left(vault: Vault) -> list[str]:
    """What is left of the archive, without its decisions."""
    keys = (key.removeprefix(PREFIX) for key in contents(vault.root) if key.startswith(PREFIX))
    return [key for key in keys if parse_decision(key) is None]


def is_gone(vault: Vault) -> bool:
    """Check that of the archive only decisions are left; the newest keeps its address from being used again."""
    assert archive_of(vault.root).listing().decision.deletion == "done"
    assert left(vault) == []
    assert len(contents(vault.root)) <= 1 + KEPT
    assert list_archives(vault.root) == []
    with pytest.raises(NoSuchArchive, match=DELETED):
        show_archive(vault.archive)
    with pytest.raises(Conflict, match=DELETED):
        vault.export()
    return True


def test_without_yes_nothing_is_deleted(vault: Vault) -> None:
    before = contents(vault.root)
    report = delete_archive(vault.archive)
    assert (report.dry_run, report.generations, report.objects) == (True, (1, 2, 3), len(before))
    assert report.bytes == sum(map(len, before.values()))
    assert contents(vault.root) == before


def test_archive_is_deleted_and_its_address_is_not_used_again(vault: Vault) -> None:
    before = contents(vault.root)
    report = delete(vault)
    assert (report.objects, report.resumed, report.unchanged) == (len(before), False, False)
    assert is_gone(vault)
    for reader in (show_timeline, check_archive):
        with pytest.raises(NoSuchArchive, match=DELETED):
            reader(vault.archive)
    with pytest.raises(NoSuchArchive, match=DELETED):
        import_stream(vault.archive, f"local://{vault.folder}/streams/scope/restored", master="inline")
    with pytest.raises(NoSuchArchive, match=DELETED):
        hold_archive(vault.archive, "late")
    again = delete(vault)
    assert (again.unchanged, again.objects) == (True, 0)
    assert export_stream(vault.uri(), vault.root, line="2", master="inline").generation == 1


def test_what_is_not_the_archives_stays_and_is_named(vault: Vault) -> None:
    write_table(vault.archive, table="orders", format="parquet", master="inline")
    store = objects_of(vault.root)
    strangers = ["README", "chunks/0000000000.0000000000/notes", "events/x", "_work/notes", "_manifest/1.json"]
    for key in strangers:
        store.put(PREFIX + key, b"?")
    tables = {key for key in contents(vault.root) if "table/" in key}
    assert tables
    report = delete(vault)
    assert report.tables == ("orders",)
    assert (report.foreign_objects, set(report.foreign_keys)) == (len(strangers), {PREFIX + key for key in strangers})
    assert {PREFIX + key for key in left(vault)} == {PREFIX + key for key in strangers} | tables


def test_archives_with_similar_addresses_stay(vault: Vault) -> None:
    """Names that begin alike, or differ in case; roots inside the archive, with names like its own folders; lines."""
    names = [("scope", f"stream{more}") for more in ("2", ".2", "-")] + [("scope", "Stream"), ("scope2", "stream")]
    inner = [("chunks", "x"), ("events", "0000000000.0000000000"), ("table", "orders")]
    others = [(vault.root, *name) for name in names] + [(vault.archive, *name) for name in inner]
    for root, scope, stream in others:
        with vault.store as store:
            make_stream(store, StreamName(scope, stream), events=3, largest=100)
        export_stream(vault.uri(StreamName(scope, stream)), root, layout="chunks", master="inline")
    export_stream(vault.uri(), vault.root, line="2", master="inline")
    before = contents(vault.root)
    delete(vault)
    after = contents(vault.root)
    others.append((f"{vault.root}/_line-2", NAME.scope, NAME.stream))
    for root, scope, stream in others:
        assert check_archive(f"{root}/{scope}/{stream}", read_data=True, master="inline").ok
    assert all(key.startswith(PREFIX) for key in before.keys() - after.keys())


@pytest.mark.parametrize("where", ["", "/scope", "/SCOPE/stream", "/scope/stream/events", "/scope/stream/_manifest"])
def test_address_of_no_archive_deletes_nothing(vault: Vault, where: str) -> None:
    before = contents(vault.root)
    with pytest.raises(Problem):
        delete_archive(vault.root + where, yes=True, unfinished=True)
    assert contents(vault.root) == before


def test_merged_generations_and_what_they_replaced_are_deleted(vault: Vault) -> None:
    merge(vault, 2, 3)
    assert delete_archive(vault.archive).generations == (1, 3)
    delete(vault)
    assert is_gone(vault)


def test_there_is_no_archive_to_delete(vault: Vault) -> None:
    with pytest.raises(NoSuchArchive, match="no archive"):
        delete_archive(f"{a_root()}/{NAME}", yes=True)


def test_hold_keeps_the_archive(vault: Vault) -> None:
    hold_archive(vault.archive, "audit", generation=2)
    before = contents(vault.root)
    for yes in (False, True):
        with pytest.raises(Conflict, match="generation 2 has the hold audit; nothing was deleted"):
            delete_archive(vault.archive, yes=yes)
    assert contents(vault.root) == before
    release_archive(vault.archive, "audit")
    delete(vault)
    assert is_gone(vault)


def test_hold_on_a_generation_that_has_lost_its_manifest_keeps_the_archive(vault: Vault) -> None:
    hold_archive(vault.archive, "audit", generation=2)
    replace_object(vault.root, f"{PREFIX}{manifest_key(GenerationSpan.of(2))}", None)
    with pytest.raises(Conflict, match="generation 2 has the hold audit; nothing was deleted"):
        delete(vault)
    assert release_archive(vault.archive, "audit").generations == (2,)
    delete(vault)
    assert is_gone(vault)


def test_hold_that_is_first_keeps_the_archive(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    before_a_decision(monkeypatch, lambda: hold_archive(vault.archive, "audit"))
    with pytest.raises(Conflict, match="has the hold audit"):
        delete(vault)
    assert is_sound(vault.root)
    vault.add(b"more")
    assert vault.export().generation == 4


def test_object_that_s3_locks_keeps_the_archive(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(vault.root)
    monkeypatch.setattr(RootAddress, "open_locks", lambda _: Locked(f"{PREFIX}chunks/"))
    for yes in (False, True):
        with pytest.raises(Conflict, match=r"retention \(COMPLIANCE\) until 2030-01-01T00:00:00Z\); nothing was"):
            delete_archive(vault.archive, yes=yes)
    assert contents(vault.root) == before


def test_object_that_s3_locks_meanwhile_stops_the_deletion(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = Locked()
    monkeypatch.setattr(RootAddress, "open_locks", lambda _: locks)

    def lock() -> None:
        locks.locked = (f"{PREFIX}chunks/",)

    before_a_decision(monkeypatch, lock)
    before = contents(vault.root)
    with pytest.raises(Conflict, match="what is left stays hidden"):
        delete(vault)
    assert set(before) <= set(contents(vault.root))
    with pytest.raises(NoSuchArchive, match=BEING_DELETED):
        show_archive(vault.archive)
    locks.locked = ()
    assert delete(vault).resumed
    assert is_gone(vault)


def test_unfinished_export_keeps_the_archive_unless_it_may_go(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.add(b"more")

    before_call(monkeypatch, 2, killed)
    with pytest.raises((Killed, TaskFailed)):
        vault.export()
    before = contents(vault.root)
    for yes in (False, True):
        with pytest.raises(Conflict, match=r"running or was interrupted \(generation 4\)"):
            delete_archive(vault.archive, yes=yes)
    assert contents(vault.root) == before
    assert delete(vault, unfinished=True).unfinished_generations == (4,)
    assert is_gone(vault)


@pytest.mark.parametrize("begins", ["export", "truncation"])
def test_what_begins_while_the_deletion_is_fenced_keeps_the_archive(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """Whatever has begun before the fence is seen behind it, although it was not there before."""
    vault.add(b"more")

    def begin() -> None:
        if begins == "truncation":
            objects_of(vault.root).put(PREFIX + truncation_key(3), b"")
        else:
            before_call(monkeypatch, 2, killed)
            with pytest.raises((Killed, TaskFailed)):
                vault.export()

    before_a_decision(monkeypatch, begin)
    before = contents(vault.root)
    with pytest.raises(Conflict, match="interrupted"):
        delete(vault)
    assert before.items() <= contents(vault.root).items()
    assert vault.export().generation == 4


@pytest.mark.parametrize("layout", ["events", "chunks"])
def test_export_that_is_late_at_any_write_reports_nothing_that_is_deleted(
    tmp_path: Path, layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever write of an export comes after the whole deletion: it ends with a conflict, and nothing is in force."""
    number = 0
    while True:
        number += 1
        vault = Vault(tmp_path / str(number))
        vault.make(events=4, largest=100)
        vault.export("events")
        vault.add(b"more")
        deleted: list[DeleteReport] = []
        ended: Conflict | None = None

        def meanwhile(vault: Vault = vault, deleted: list[DeleteReport] = deleted) -> None:
            deleted.append(delete(vault, unfinished=True))

        with monkeypatch.context() as patch:
            before_call(patch, number, meanwhile, puts_only=True)
            try:
                vault.export(layout)
            except Conflict as conflict:
                ended = conflict
        if not deleted:
            assert ended is None
            break
        assert str(ended).startswith(DELETED)
        assert archive_of(vault.root).generations() == []
        delete(vault)
        assert is_gone(vault)
    assert number > 5


@pytest.mark.parametrize("number", [1, 2])
def test_generation_that_is_published_meanwhile_keeps_the_archive(
    vault: Vault, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the deletion has not seen stays: until nothing can be published, and no longer, generations are added."""
    vault.add(b"more")
    published: list[object] = []

    def export() -> None:
        try:
            published.append(vault.export())
        except Conflict as conflict:
            published.append(conflict)

    before_call(monkeypatch, number, export)
    if number == 1:  # before the decision that nothing is published any more
        with pytest.raises(Conflict, match="generation 4 was published in the meantime; nothing was deleted"):
            delete(vault)
        assert archive_of(vault.root).generations() == [1, 2, 3, 4]
        assert is_sound(vault.root)
        vault.add(b"and more")
        assert vault.export().generation == 5
    else:
        delete(vault)
        assert BEING_DELETED in str(published[0])
        assert is_gone(vault)


def test_run_that_publishes_once_more_what_another_has_published_sees_the_deletion(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two runs of a plan, the second finds the manifest; it must not report it either."""
    vault.add(b"more")
    archive = archive_of(vault.root)
    put = ObstoreStore.put
    manifest = f"{PREFIX}_manifest/0000000004.json"

    def late(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        if key == manifest:
            put(self, key, data)  # the other run's
            monkeypatch.setattr(ObstoreStore, "put", put)
            archive.decide(lambda now: now.decision.delete("begun"), deleting=True)
        put(self, key, data)

    monkeypatch.setattr(ObstoreStore, "put", late)
    with pytest.raises(Conflict, match=BEING_DELETED):
        vault.export()


def test_deletion_that_is_killed_at_any_call_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = set()
    number = 0
    while True:
        number += 1
        vault = Vault(tmp_path / str(number))
        vault.make(events=4, largest=100)
        vault.export("events")
        vault.add(b"more")
        vault.export("chunks")
        with monkeypatch.context() as patch:
            before_call(patch, number, killed)
            try:
                delete(vault)
            except Killed:
                pass
            else:
                break
        state = archive_of(vault.root).listing().decision.deletion
        states.add(state)
        if state in {"", "begun"}:
            assert is_sound(vault.root)
        if state == "begun":
            assert list_archives(vault.root)[0].being_deleted
            assert show_timeline(vault.archive).being_deleted
            with pytest.raises(Conflict, match=BEING_DELETED):
                hold_archive(vault.archive, "late")
        if state == "decided":
            assert list_archives(vault.root)[0].being_deleted
            with pytest.raises(NoSuchArchive, match=BEING_DELETED):
                show_archive(vault.archive)
            with pytest.raises(Conflict, match=BEING_DELETED):
                vault.export()
        assert delete(vault).resumed == (state in {"begun", "decided"})
        assert archive_of(vault.root).listing().decision.deletion == "done"
        assert left(vault) == []
    assert {"", "begun", "decided"} <= states


def test_deletion_that_is_late_at_any_call_deletes_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another deletion ends meanwhile, and the stream is archived again: there, nothing is missing."""
    number = 0
    while True:
        number += 1
        vault = Vault(tmp_path / str(number))
        vault.make(events=4, largest=100)
        vault.export("chunks")
        archived: list[int] = []

        def meanwhile(vault: Vault = vault, archived: list[int] = archived) -> None:
            delete(vault)
            with pytest.raises(Conflict, match=DELETED):
                vault.export("chunks")
            archived.append(export_stream(vault.uri(), vault.root, line="2", master="inline").events)

        with monkeypatch.context() as patch:
            before_call(patch, number, meanwhile)
            delete(vault)
        if not archived:
            break
        assert is_sound(f"{vault.root}/_line-2")
        assert left(vault) == []
        assert archive_of(vault.root).generations() == []
    assert number > 4


@pytest.mark.parametrize("number", [2, 3], ids=["before it looks", "before it decides"])
def test_deletions_side_by_side_where_one_takes_back_what_it_began(
    vault: Vault, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a fence that was taken back, anything may have been published: the other begins again."""
    archive = archive_of(vault.root)

    def take_back_and_export() -> None:
        archive.decide(lambda now: now.decision.delete(""), deleting=True)
        vault.add(b"more")
        vault.export()

    before_call(monkeypatch, number, take_back_and_export)
    with pytest.raises(Conflict, match="generation 4 was published in the meantime"):
        delete(vault)
    assert archive.generations() == [1, 2, 3, 4]
    assert is_sound(vault.root)


def killed_before_it_truncates(vault: Vault) -> None:
    with stopped_at(LocalStore, "truncate"):
        rotate(vault)


def rotate(vault: Vault) -> RotateReport:
    return rotate_stream(vault.uri(), vault.root, truncate_source=True, layout="chunks", master="inline")


def test_rotation_that_may_still_truncate_the_source_keeps_the_archive(vault: Vault) -> None:
    killed_before_it_truncates(vault)
    vault.add(b"more")
    vault.export("chunks")
    for yes in (False, True):
        with pytest.raises(Conflict, match="about to truncate the source to the end of generation 3, or was interr"):
            delete_archive(vault.archive, yes=yes)
    assert is_sound(vault.root)
    assert rotate(vault).truncated  # further than the one that was killed
    delete(vault)
    assert is_gone(vault)


def test_rotation_that_finds_the_source_truncated_forgets_the_note(vault: Vault) -> None:
    killed_before_it_truncates(vault)
    vault.truncate(vault.described.tail)
    rotate(vault)
    assert archive_of(vault.root).listing().truncations == ()
    delete(vault)
    assert is_gone(vault)


def test_archive_is_deleted_though_a_rotation_was_killed_if_the_user_says_so(vault: Vault) -> None:
    killed_before_it_truncates(vault)
    delete(vault, unfinished=True)
    assert is_gone(vault)
    assert delete(vault).unchanged


@pytest.mark.parametrize("unfinished", [False, True])
def test_source_loses_nothing_once_its_archive_was_deleted(
    tmp_path: Path, unfinished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a rotation is about to do when the archive is deleted; only the last call needs the user's word."""
    truncate = LocalStore.truncate
    number, kept, gone = 0, 0, 0
    while True:
        number += 1
        vault = Vault(tmp_path / str(number))
        vault.make(events=4, largest=100)
        vault.export("chunks")
        vault.add(b"more")
        heads: list[StreamCut] = []
        noted: list[tuple[int, ...]] = []

        def meanwhile(
            vault: Vault = vault, heads: list[StreamCut] = heads, noted: list[tuple[int, ...]] = noted
        ) -> None:
            noted.append(archive_of(vault.root).listing().truncations)
            try:
                delete(vault, unfinished=unfinished)
            except Conflict:
                return
            heads.append(vault.described.head)

        with monkeypatch.context() as patch:
            count = before_call(patch, number, meanwhile)

            def late(self: LocalStore, cut: StreamCut, count: Callable[[], None] = count) -> None:
                count()
                truncate(self, cut)

            patch.setattr(LocalStore, "truncate", late)
            with suppress(Conflict, Absent):
                rotate(vault)
        if not noted:
            break
        kept += bool(noted[0]) and not heads
        gone += bool(heads)
        if heads and not noted[0]:
            assert vault.described.head == heads[0]
    assert bool(kept) != unfinished
    assert gone


def test_merge_that_is_late_stays_out_of_force(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    before_a_decision(monkeypatch, lambda: delete(vault, unfinished=True))
    with pytest.raises(Conflict, match=DELETED):
        merge(vault, 2, 3)
    delete(vault)
    assert is_gone(vault)


def test_replaced_objects_are_cleared_before(vault: Vault) -> None:
    merge(vault, 2, 3)
    clear(vault)
    delete(vault)
    assert is_gone(vault)


MASTER = ("--master", "inline")
SAY_SO = (("ls", "ROOT"), ("status", "ROOT"), ("status", "SCOPE/", "--root", "ROOT"), ("timeline", "A"), ("show", "A"))
READ = (
    ("check", "A", *MASTER),
    ("cat", "A"),
    ("import", "A", "STREAM-2", *MASTER),
    ("replicate", "A", "STREAM-3", *MASTER),
    ("join", "A", "--into", "STREAM-4", *MASTER),
    ("convert", "A", "OTHER", "--layout", "chunks", *MASTER),
    ("report", "A", "-o", "FILE"),
    ("warm", "A"),
    ("delete", "A"),
)
ADD = (
    ("export", "STREAM", "ROOT", *MASTER),
    ("export", "STREAM", "ROOT", "--dry-run"),
    ("export", "STREAM", "ROOT", "--restart", *MASTER),
    ("rotate", "STREAM", "ROOT", "--keep", "1", "--truncate-source", *MASTER),
    ("rotate", "SCOPE/ab*", "ROOT", "--keep", "1", *MASTER),
    ("follow", "STREAM", "ROOT", *MASTER),
    ("hold", "A", "audit"),
    ("release", "A", "audit"),
)


@pytest.fixture
def stopped(tmp_path: Path) -> Vault:
    stopped = Vault(tmp_path)
    stopped.make(events=20, largest=2000)
    stopped.export("events")
    stopped.add(b"more")
    archive_of(stopped.root).decide(lambda now: now.decision.delete("begun"), deleting=True)
    return stopped


def words(stopped: Vault, command: tuple[str, ...]) -> list[str]:
    stream, scope = stopped.uri(), stopped.uri().rpartition("/")[0]
    given = {
        "ROOT": stopped.root,
        "A": stopped.archive,
        "FILE": f"{stopped.folder}/page.html",
        "OTHER": f"{stopped.root}-2",
        "SCOPE/": f"{scope}/",
        "SCOPE/ab*": f"{scope}/{NAME.stream[:2]}*",
        "STREAM": stream,
    }
    return [given.get(each) or each.replace("STREAM-", f"{stream}-") for each in command]


def says(stopped: Vault) -> str:
    return archive_of(stopped.root).listing().decision.title


def test_commands_that_list_say_so(stopped: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    for command in SAY_SO:
        assert main(words(stopped, command)) == 0, command
        told = " ".join(capfd.readouterr().out.split())
        assert "being deleted" in told or "DELETION" in told or "deletion begun" in told, command
        if command[0] in {"timeline", "show"}:
            assert f"according to {says(stopped)}" in told, command
            assert "--yes" not in told, command


def test_it_can_be_read(stopped: Vault) -> None:
    before = contents(stopped.root)
    for command in READ:
        assert main(words(stopped, command)) == 0, command
    assert contents(stopped.root) == before
    assert is_sound(stopped.root)


def test_nothing_is_added_and_nothing_is_lost(stopped: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    before, head = contents(stopped.root), stopped.described.head
    capfd.readouterr()
    for command in ADD:
        assert main(words(stopped, command)) == 4, command
        told = capfd.readouterr()
        line = f"the archive is being deleted, according to {says(stopped)}: {stopped.archive}. Archive the"
        assert line in told.err, command
        assert "--yes" not in told.err, command
        assert len(told.err.splitlines()) == 1, command
    assert contents(stopped.root) == before
    assert stopped.described.head == head
    assert main(["delete", stopped.archive, "--yes"]) == 0
    assert "an unfinished deletion of an earlier run" in capfd.readouterr().out
