"""A scope in a declared list stands for its users' streams: internal ones are neither archived nor replicated."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault import export_stream, move_stream, promote_replica, replicate_stream, request_restore
from streamvault.airflow.lists import Replications, Rotations
from streamvault.airflow.pravega import PravegaHook
from streamvault.importer.target import take_lease
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.own import MOVED_TO, TARGET_LEDGER, is_own, stream_beside, tag_of
from testkit.streams import append_events, opened

SCOPE = "shop"
USERS = ["clicks", "moved", "orders", "promoted"]


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """A store whose scope has users' streams, and every kind of internal stream."""
    folder = tmp_path / "streams"
    uri = f"local://{folder}/{SCOPE}"
    with LocalStore(folder) as store:
        store.create_scope(SCOPE)
        for name in (StreamName(SCOPE, each) for each in ("orders", "clicks", "old")):
            store.create_stream(name, StreamConfiguration())
            append_events(store, name, next(iter(store.describe(name).tail.offsets)), [b"event"] * 3)
        # what a killed run leaves beside its target
        killed = StreamName(SCOPE, "killed")
        take_lease(opened(store, killed), "work").release(remove=False)
        Ledger(store, stream_beside(killed, TARGET_LEDGER), killed).newest()
    export_stream(f"{uri}/orders", f"file://{tmp_path}/vault", master="inline")
    request_restore(f"file://{tmp_path}/vault/shop/orders", f"{uri}/restored", queue=f"{uri}/queue")
    move_stream(f"{uri}/old", f"{uri}/moved", master="inline")
    replicate_stream(f"{uri}/orders", f"{uri}/replica", master="inline")
    replicate_stream(f"{uri}/clicks", f"{uri}/promoted", master="inline")
    promote_replica(f"{uri}/promoted", master="inline")
    monkeypatch.setattr(PravegaHook, "get_conn", lambda _: LocalStore(folder))
    return LocalStore(folder)


def test_scope_stands_for_its_users_streams(streams: LocalStore) -> None:
    with streams as store:
        there = {name.stream: store.describe(name).configuration for name in store.list_streams(SCOPE, own=True)}
    assert tag_of(there["old"], MOVED_TO).endswith("/shop/moved"), "the empty stream that the move left"
    internal = sorted(name for name, configuration in there.items() if is_own(configuration))
    assert [name for name in internal if not name.startswith("streamvault-")] == ["old", "queue", "replica"]
    assert len(internal) == 6, "and a lease and two ledgers"
    rotations = Rotations.read({"root": "s3://vault", "streams": [{"scope": SCOPE}]})
    rotated = rotations.arguments(lambda scope, _: PravegaHook().list_streams(scope))
    assert [each["stream"] for each in rotated] == [f"{SCOPE}/{name}" for name in USERS]
    replications = Replications.read([{"scope": SCOPE, "target_scope": "dr"}])
    replicated = replications.arguments(lambda scope, _: PravegaHook().list_streams(scope))
    assert [(each["source"], each["stream"]) for each in replicated] == [(f"shop/{n}", f"dr/{n}") for n in USERS]
