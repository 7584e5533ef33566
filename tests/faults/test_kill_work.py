"""A worker is killed in the middle of a restore; the next one resumes it, and no request is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from streamvault import export_stream, request_restore, show_queue
from streamvault.streamstore.errors import StreamStoreError
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run, started, wait_until
from testkit.servers.pravega import PravegaServer
from testkit.streams import digest_of, make_stream, shape_of

pytestmark = [pytest.mark.pravega]


def test_killed_worker_loses_no_request(pravega: PravegaServer, scope_name: str, tmp_path: Path) -> None:
    name, target = StreamName(scope_name, "source"), StreamName(scope_name, "restored")
    queue = f"{pravega.uri}/{scope_name}/queue"
    with parse_stream(queue)[0].open() as store:
        make_stream(store, name, events=1000, largest=20_000)
        export_stream(f"{pravega.uri}/{name}", f"file://{tmp_path}", range_size=8192, master="inline[2]")
        asked = request_restore(f"file://{tmp_path}/{name}", f"{pravega.uri}/{target}", queue=queue)
        other = request_restore(f"file://{tmp_path}/{name}-other", f"{pravega.uri}/{target}", queue=queue)

        def has_begun() -> bool:
            try:
                return store.exists(target) and any(store.describe(target).tail.offsets.values())
            except StreamStoreError:
                return False  # in the middle of a scale

        work = ("work", queue, "--once", "--master", "inline", "--json")
        with started(*work, environment=dict(os.environ)) as running:
            assert wait_until(has_begun, running), running.ended()
            running.send(signal.SIGKILL)
            assert running.ended().code == -signal.SIGKILL
        assert [waiting.id for waiting in show_queue(queue).first_waiting] == [asked.id, other.id]
        ended = run(*work, environment=dict(os.environ))
        assert ended.code == 5, "there is no other archive"
        assert shape_of(store, target) == shape_of(store, name)
        assert digest_of(store, target) == digest_of(store, name)
        shown = show_queue(queue)
        assert (shown.waiting, [failed.id for failed in shown.first_failed]) == (0, [other.id])
