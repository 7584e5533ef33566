"""A sweep that is killed at any moment and run again leaves what an undisturbed one leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamvault import export_stream, sweep_scope
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import TARGET_LEDGER, stream_beside
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import LIMIT, run, started, wait_until
from testkit.leftovers import dead_lease, killed_ephemeral, killed_import
from testkit.servers.pravega import PravegaServer
from testkit.streams import append_events, digest_of, make_stream

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(600)]

SOME = range(3)
"""How many leftovers of each kind there are."""


@dataclass(frozen=True)
class Left:
    """A scope of a Pravega in which programs were killed; as a `Vault`."""

    server: str
    archive: str

    @property
    def store(self) -> StreamStore:
        return parse_stream(f"{self.server}/a/b")[0].open()

    def uri(self, name: StreamName) -> str:
        return f"{self.server}/{name}"

    def make(self, scope: str) -> None:
        """Leave something of each kind."""
        for number in SOME:
            names = [StreamName(scope, f"{kind}{number}") for kind in ("used", "leased", "gone")]
            killed_ephemeral(self, names[0])  # type: ignore[arg-type]
            dead_lease(self, names[1])  # type: ignore[arg-type]
            with self.store as store:
                ledger = Ledger(store, stream_beside(names[2], TARGET_LEDGER), names[2])
                ledger.newest()
                ledger.record({"work": "copy.1"})
        killed_import(self, StreamName(scope, "target"))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def archive(pravega: PravegaServer, store: StreamStore, tmp_path_factory: pytest.TempPathFactory) -> str:
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "archived")
    make_stream(store, name, events=300)
    root = f"file://{tmp_path_factory.mktemp('vault')}/vault"
    return export_stream(f"{pravega.uri}/{name}", root, master="inline").archive


def test_killed_sweep_is_run_again(
    pravega: PravegaServer,
    store: StreamStore,
    archive: str,
    share: float,
) -> None:
    scope = f"scope-{uuid.uuid4().hex[:10]}"
    mine = StreamName(scope, "mine")
    make_stream(store, mine, events=20)
    before = store.describe(mine), digest_of(store, mine)
    leave = "import sys; from tests.faults.test_kill_sweep import Left; Left(*sys.argv[1:3]).make(sys.argv[3])"
    program = [sys.executable, "-c", leave, pravega.uri, archive, scope]
    subprocess.run(program, cwd=Path(__file__).parents[2], check=True, timeout=240)
    total = len(list(store.list_streams(scope, own=True)))
    assert total > 4 * len(SOME)
    wanted = total - int((total - 1) * share)
    command = ("sweep", f"{pravega.uri}/{scope}/", "--older-than", "0s", "--json")

    def has_come_far() -> bool:
        return len(list(store.list_streams(scope, own=True))) <= wanted

    with started(*command, environment=dict(os.environ)) as running:
        wait_until(has_come_far, running)
        running.send(signal.SIGKILL)
        running.ended()
    assert run(*command, environment=dict(os.environ)).code == 0
    # The server may still delete what the killed one has asked for while the second one looks. The notes then name a
    # stream that is gone, and the next sweep deletes them.
    deadline = time.monotonic() + LIMIT
    while list(store.list_streams(scope, own=True)) != [mine]:
        assert time.monotonic() < deadline
        sweep_scope(f"{pravega.uri}/{scope}/", older_than=0.0)
    assert (store.describe(mine), digest_of(store, mine)) == before
    append_events(store, mine, max(store.describe(mine).tail.offsets), [b"more"])
    assert sweep_scope(f"{pravega.uri}/{scope}/", older_than=0.0).leftovers == ()
