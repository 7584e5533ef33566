"""What no verb touches: what symbolic links below a root lead to, and Streamvault's own streams."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    export_stream,
    follow_stream,
    import_stream,
    request_restore,
    rotate_stream,
    show_queue,
    write_table,
)
from streamvault.cli import main
from streamvault.common.errors import Conflict
from streamvault.exporter import rotate as rotating
from streamvault.importer.target import lease_stream, take_lease
from streamvault.objectstore import folder as store_module
from streamvault.objectstore.folder import FolderStore
from streamvault.objectstore.store import ObjectStoreError
from streamvault.spark.pravega_sink import PravegaSink, WriteLog
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.own import OWN, OwnStream
from streamvault.streamstore.queue import NotAQueue, QueueSegment
from streamvault.streamstore.uri import parse_stream
from testkit.leftovers import stopped_import
from testkit.small_archives import NAME, Vault, a_vault
from testkit.spark_sinks import TARGET, Place
from testkit.streams import append_events, make_stream, opened
from tests.told import Ran

STREAM = StreamName("shop", "orders")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stream, its archive and a table of it."""
    tmp_path = tmp_path_factory.mktemp("made")
    with parse_stream(f"local://{tmp_path}/streams/{STREAM}")[0].open() as store:
        make_stream(store, STREAM, events=20)
    root = (tmp_path / "vault").as_uri()
    for command in (["export", f"local://{tmp_path}/streams/{STREAM}", root], ["handoff", f"{root}/{STREAM}"]):
        more = ["--format", "parquet"] if command[0] == "handoff" else []
        assert main([*command, *more, "--master", "inline", "-q"]) == 0
    return tmp_path


@pytest.fixture
def archive(made: Path, tmp_path: Path) -> Path:
    """The archive's folder, in a copy of all."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "vault" / "shop" / "orders"


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(at): (at.read_bytes(), at.stat().st_mtime_ns) for at in folder.rglob("*") if at.is_file()}


@pytest.mark.parametrize("place", ["archive", "folders", "files"])
@pytest.mark.parametrize(
    "command",
    [
        "export {stream} {root}",
        "check {archive} --read-data",
        "cat {archive}",
        "import {archive} {stream}2",
        "handoff {archive} --format parquet --table other",
        "compact {archive}",
        "hold {archive} audit",
        "delete {archive} --yes",
    ],
    ids=lambda command: command.split()[0],
)
def test_nothing_outside_is_read_or_changed(
    command: str, place: str, archive: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    moved = {
        "archive": [archive],
        "folders": [at for at in archive.iterdir() if at.is_dir()],
        "files": [at for at in archive.rglob("*") if at.is_file()],
    }[place]
    outside = tmp_path / "outside"
    for number, at in enumerate(moved):
        outside.mkdir(exist_ok=True)
        at.rename(outside / str(number))
        at.symlink_to(outside / str(number))
    before = contents(outside)
    places = {
        "stream": f"local://{tmp_path}/streams/{STREAM}",
        "root": (tmp_path / "vault").as_uri(),
        "archive": archive.as_uri(),
    }
    words = command.format(**places).split()
    tasks = [] if words[0] in {"cat", "hold", "delete"} else ["--master", "inline"]
    code = main([*words, *tasks, "-q"])
    shown = capfd.readouterr()
    assert contents(outside) == before
    assert code in {1, 3, 4, 5}, shown
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_folder_store_follows_no_link_below_its_root(tmp_path: Path) -> None:
    (tmp_path / "outside/deep").mkdir(parents=True)
    (tmp_path / "outside/deep/file").write_bytes(b"secret")
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")  # the root itself may be one
    store = FolderStore(tmp_path / "root")
    store.put("a/file", b"1")
    (tmp_path / "root/out").symlink_to(tmp_path / "outside")
    (tmp_path / "root/in").symlink_to(tmp_path / "real/a")
    (tmp_path / "root/a/link").symlink_to(tmp_path / "outside/deep/file")
    calls = {
        "get": lambda: store.get("out/deep/file"),
        "get inside": lambda: store.get("in/file"),
        "get file": lambda: store.get("a/link"),
        "size": lambda: store.size("out/deep/file"),
        "range": lambda: store.get_range("out/deep/file", 0, 1),
        "list": lambda: list(store.list("out/")),
        "folders": lambda: store.folders("out/"),
        "put": lambda: store.put("out/deep/new", b"2"),
        "put folder": lambda: store.put("out/new/new", b"2"),
        "put blocks": lambda: store.put_blocks("out/new/new", [b"2"]),
        "delete": lambda: store.delete(["out/deep/file"]),
    }
    for call in calls.values():
        with pytest.raises(ObjectStoreError, match="symbolic link"):
            call()
    store.delete(["a/link"])  # the link itself
    assert [info.key for info in store.list("")] == ["a/file"]
    assert store.folders("") == ["a"]
    assert contents(tmp_path / "outside").keys() == {str(tmp_path / "outside/deep/file")}
    assert not (tmp_path / "outside/new").exists()


@pytest.mark.parametrize("call", ["put", "delete"])
def test_folder_that_becomes_a_link_leads_nowhere_else(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps of a call."""
    store = FolderStore(tmp_path / "root")
    store.put("a/b/file", b"1")
    (tmp_path / "outside/b").mkdir(parents=True)

    def swapping(do: Callable[..., None]) -> Callable[..., None]:
        def at_once(*given: Any, **options: Any) -> None:
            monkeypatch.undo()
            if call == "delete":
                do(*given, **options)
            (tmp_path / "root/a").rename(tmp_path / "root/moved")
            (tmp_path / "root/a").symlink_to(tmp_path / "outside")
            if call == "put":
                do(*given, **options)

        return at_once

    if call == "put":
        monkeypatch.setattr(store_module, "make_folder", swapping(store_module.make_folder))
        with pytest.raises(ObjectStoreError):
            store.put("a/c/d/file", b"2")
    else:
        monkeypatch.setattr(os, "unlink", swapping(os.unlink))
        store.delete(["a/b/file"])
    assert [at.name for at in (tmp_path / "outside").rglob("*")] == ["b"]


QUEUE, UNFINISHED = replace(NAME, stream="restores"), replace(NAME, stream="unfinished")


def a_ledger(vault: Vault) -> StreamName:
    with vault.store as store:
        ledger = WriteLog(opened(store, NAME), "query")
        ledger.newest(create=True)
        return ledger.name


def a_lease(vault: Vault) -> StreamName:
    with vault.store as store:
        take_lease(opened(store, replace(NAME, stream="other")), "work").release(remove=False)
    return lease_stream(replace(NAME, stream="other"))


def a_queue(vault: Vault) -> StreamName:
    request_restore(vault.archive, vault.uri(replace(NAME, stream="back")), queue=vault.uri(QUEUE))
    return QUEUE


def an_unfinished_target(vault: Vault) -> StreamName:
    stopped_import(lambda: import_stream(vault.archive, vault.uri(UNFINISHED), master="inline"))
    return UNFINISHED


KINDS = [a_ledger, a_lease, a_queue, an_unfinished_target]


vault = a_vault(events=40, largest=3000, exports=[("chunks", "")], on_disk=True)


def test_own_streams_are_not_listed_in_their_scope(vault: Vault) -> None:
    made = [make(vault) for make in KINDS]
    assert vault.listed() == [NAME]
    assert vault.listed(own=True) == sorted([NAME, *made])


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "use",
    [
        lambda uri, root: export_stream(uri, root, master="inline"),
        lambda uri, root: export_stream(uri, root, master="inline", dry_run=True),
        lambda uri, root: rotate_stream(uri, root, truncate_source=True, master="inline"),
        lambda uri, root: follow_stream(uri, root, master="inline"),
        lambda uri, root: write_table(uri, root=root, master="inline"),
    ],
    ids=["export", "rehearse", "rotate", "follow", "handoff"],
)
def test_commands_refuse_an_own_stream_as_source(
    vault: Vault, make: Callable[[Vault], StreamName], use: Callable[[str, str], Any]
) -> None:
    name = make(vault)
    before = vault.describe(name)
    with pytest.raises(OwnStream, match=f"an internal stream of Streamvault .*: local://.*/{name}") as caught:
        use(vault.uri(name), vault.root)
    assert caught.value.exit_code == 4
    assert vault.describe(name) == before


def test_rotate_does_not_truncate_an_own_stream_made_under_a_users_name(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is deleted during its rotation, and a restore into its name begins."""
    really = rotating.export_next

    def export_and_begin(*arguments: Any, **options: Any) -> Any:
        report = really(*arguments, **options)
        configuration = vault.configuration()
        vault.update_stream(NAME, replace(configuration, tags=(OWN,)))
        return report

    monkeypatch.setattr(rotating, "export_next", export_and_begin)
    vault.add(b"more")
    head = vault.described.head
    with pytest.raises(OwnStream):
        rotate_stream(vault.uri(), vault.root, layout="chunks", truncate_source=True, master="inline")
    assert vault.described.head == head


@pytest.mark.parametrize("make", [a_ledger, a_lease, a_queue])
def test_import_refuses_an_own_stream_as_target(vault: Vault, make: Callable[[Vault], StreamName], ran: Ran) -> None:
    name = make(vault)
    said = ran("import", vault.archive, vault.uri(name), "--master", "inline", code=4).err
    assert "an internal stream of Streamvault" in said
    assert "delete" not in said
    if name == QUEUE:
        assert show_queue(vault.uri(QUEUE)).waiting == 1


def test_spark_sink_refuses_an_own_stream(tmp_path: Path) -> None:
    place = Place(tmp_path / "streams")
    done = [place.task(b"event")]
    place.store.update_stream(
        TARGET, StreamConfiguration(place.store.describe(TARGET).configuration.scaling, tags=(OWN,))
    )
    with pytest.raises(OwnStream):
        PravegaSink(place.writing()).commit(done)
    assert place.events == []


def test_users_stream_with_such_a_name_is_accepted(vault: Vault) -> None:
    """The name alone does not make a stream Streamvault's own: it is archived as any other."""
    with vault.store as store:
        ledger = WriteLog(opened(store, NAME), "query")
        for name in (ledger.name, lease_stream(NAME)):
            store.create_stream(name, StreamConfiguration(tags=("mine",)))
            append_events(store, name, next(iter(store.describe(name).tail.offsets)), [b"mine"])
        assert list(store.list_streams(NAME.scope)) == sorted([NAME, ledger.name, lease_stream(NAME)])
        before = [store.describe(name) for name in (ledger.name, lease_stream(NAME))]
        with pytest.raises(Conflict, match="the name of a ledger is taken by another stream"):
            ledger.newest(create=True)
        with pytest.raises(Conflict, match="needs for a lease is taken by another stream"):
            take_lease(opened(store, NAME), "work")
        assert [store.describe(name) for name in (ledger.name, lease_stream(NAME))] == before
        with pytest.raises(NotAQueue):
            QueueSegment.create(store, ledger.name)
    assert export_stream(vault.uri(ledger.name), vault.root, master="inline").events == 1
