"""Streamvault's own streams are not listed in their scope, and no command accepts one as a user's stream."""

from __future__ import annotations

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
from streamvault.common.errors import Conflict
from streamvault.exporter import rotate as rotating
from streamvault.importer.target import lease_stream, take_lease
from streamvault.spark.pravega_sink import PravegaSink, WriteLog
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.own import OWN, OwnStream
from streamvault.streamstore.queue import NotAQueue, QueueSegment
from testkit.leftovers import stopped_import
from testkit.small_archives import NAME, Vault, a_vault
from testkit.spark_sinks import TARGET, Place
from testkit.streams import append_events, opened
from tests.told import Ran

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
