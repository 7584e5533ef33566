"""Ephemeral streams, sweeps and the stream manager on a real Pravega."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import streamvault
from streamvault import StreamManager
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import is_own
from testkit.leftovers import stopped_import
from testkit.streams import append_events, digest_of, make_stream
from tests.integration.conftest import Site

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(300)]

USES_ONE = """
import sys
from streamvault import ephemeral_stream
with ephemeral_stream(sys.argv[1]) as uri:
    print(uri, flush=True)
    sys.stdin.read()
"""


def test_what_killed_programs_leave_is_swept_and_nothing_else(here: Site, scope_name: str, tmp_path: Path) -> None:
    orders, target = StreamName(scope_name, "orders"), StreamName(scope_name, "target")
    make_stream(here.store, orders, events=300)
    before = here.store.describe(orders), digest_of(here.store, orders)
    (tmp_path / "vault").mkdir()
    with StreamManager(f"{here.server.uri}/{scope_name}/", master="inline[2]") as manager:
        archive = manager.export_stream("orders", f"file://{tmp_path}/vault").archive
        with manager.ephemeral_stream("staging", segments=2) as staging:
            described = here.store.describe(StreamName(scope_name, "staging"))
            for segment in described.tail.offsets:
                append_events(here.store, described.name, segment, [b"one", b"two"])
            manager.copy_stream(staging, "copy")
            here.store.seal(described.name)
            roles = {one.stream.rpartition("/")[2]: one.role for one in manager.list_streams("")}
            assert (roles["orders"], roles["copy"], roles["staging"]) == ("stream", "stream", "ephemeral")

        with subprocess.Popen(
            [sys.executable, "-c", USES_ONE, here.uri(StreamName(scope_name, "left"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(streamvault.__file__).parents[1],
        ) as user:
            assert user.stdout is not None
            assert user.stdout.readline().strip().endswith("/left")
            in_use = {one.stream.rpartition("/")[2]: one for one in manager.sweep_scope("", older_than=0.0).leftovers}
            assert not in_use["left"].swept
            user.kill()

        stopped_import(lambda: manager.import_stream(archive, "target", master="inline[1]"))
        assert is_own(here.store.describe(target).configuration)

        report = manager.sweep_scope("", older_than=0.0)
        assert {(one.role, one.swept, one.reason) for one in report.leftovers if one.role != "lease"} == {
            ("ephemeral", True, ""),
            ("unfinished", True, ""),
        }
        manager.import_stream(archive, "target", numbers="map")
    names = list(here.store.list_streams(scope_name, own=True))
    assert names == [StreamName(scope_name, name) for name in ("copy", "orders", "target")]
    assert (here.store.describe(orders), digest_of(here.store, orders)) == before
