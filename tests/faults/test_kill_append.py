"""An append or a join that is killed at any moment and run again has everything once."""

from __future__ import annotations

import os
import signal
import time
import uuid
from contextlib import suppress
from dataclasses import replace

import pytest

from streamvault.streamstore.errors import NoSuchScope
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import APPEND_LEDGER
from streamvault.streamstore.store import StreamStore
from testkit.commands import run, started, wait_until
from testkit.servers.pravega import PravegaServer
from testkit.streams import append_events, events_of, make_stream
from tests.integration.test_append import check_as_before, make

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(600)]

LONGEST_SECONDS = 1.5
"""How long an append goes on at most once its ledger is there, before it is killed; some end before."""


@pytest.fixture(scope="module")
def source(store: StreamStore) -> StreamName:
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    make_stream(store, name, events=2_000, largest=256 * 1024)
    return name


@pytest.mark.parametrize("verb", ["append", "join"])
def test_killed_append_is_resumed(
    pravega: PravegaServer,
    store: StreamStore,
    source: StreamName,
    verb: str,
    share: float,
) -> None:
    target = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "target")
    mine = [b"mine"] if verb == "append" else []
    if mine:
        make(store, target, 3)
        append_events(store, target, max(store.describe(target).tail.offsets), mine)
    before = store.describe(target) if mine else None
    command = (verb, f"{pravega.uri}/{source}", "--into", f"{pravega.uri}/{target}", "--master", "inline", "--json")

    def has_begun() -> bool:
        with suppress(NoSuchScope):
            own = store.list_streams(target.scope, own=True)
            return any(name.stream.startswith(APPEND_LEDGER) for name in own)
        return False

    with started(*command, environment=dict(os.environ)) as running:
        wait_until(has_begun, running)
        time.sleep(LONGEST_SECONDS * share)
        running.send(signal.SIGKILL)
        running.ended()
    assert run(*command, environment=dict(os.environ)).code == 0
    expected = sorted([*mine, *(payload for _, payload in events_of(store, source))])
    assert sorted(payload for _, payload in events_of(store, target)) == expected
    assert run(*command, environment=dict(os.environ)).report["unchanged"]
    if before is not None:
        check_as_before(store, before)
    left = [name for name in store.list_streams(target.scope, own=True) if name != target]
    assert [replace(name, stream=name.stream[: len(APPEND_LEDGER)]) for name in left] == [
        StreamName(target.scope, APPEND_LEDGER)
    ]
