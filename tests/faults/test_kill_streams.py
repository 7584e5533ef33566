"""Copies, appends, joins, sweeps and workers that are killed at any moment and run again end like undisturbed ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from streamvault import export_stream, request_restore, show_queue, sweep_scope
from streamvault.importer.target import marked_import
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, StreamStoreError
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import APPEND_LEDGER, TARGET_LEDGER, stream_beside
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import LIMIT, run, started
from testkit.leftovers import dead_lease, killed_ephemeral, killed_import
from testkit.servers.pravega import PravegaServer
from testkit.streams import append_events, digest_of, events_of, make_stream, shape_of
from tests.faults.conftest import is_killed
from tests.integration.test_append import check_as_before, make

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(600)]


MOST_ATTEMPTS = 5


@pytest.fixture(scope="module")
def source(store: StreamStore) -> StreamName:
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    make_stream(store, name, events=3_000, largest=256 * 1024)
    return name


def held(store: StreamStore, target: StreamName) -> int:
    """How many bytes the target has, truncated ones included; -1 if it does not exist."""
    try:
        described = store.describe(target)
        segments = {segment for epoch in described.epochs for segment in epoch.segments}
        return sum(info.write_offset for info in store.segment_info(target, sorted(segments)))
    except (NoSuchScope, NoSuchStream):
        return -1
    except NoSuchSegment:
        return 2**62  # truncated: all is there, and the head is set


def test_killed_copy_is_resumed(pravega: PravegaServer, store: StreamStore, source: StreamName, share: float) -> None:
    live: list[tuple[str, int, int]] = shape_of(store, source)["live"]  # type: ignore[assignment]
    total = sum(end for _, _, end in live)
    for attempt in range(MOST_ATTEMPTS):
        target = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "copy")
        command = ("copy", f"{pravega.uri}/{source}", f"{pravega.uri}/{target}", "--master", "inline", "--json")
        wanted = share * (1 - attempt / MOST_ATTEMPTS) * total

        def has_come_far(target: StreamName = target, wanted: float = wanted) -> bool:
            return held(store, target) >= wanted

        with started(*command, environment=dict(os.environ)) as running:
            if not is_killed(running, has_come_far):
                continue
            assert marked_import(store.describe(target)) or attempt, "it was unfinished"
            before = held(store, target)
            report = run(*command, environment=dict(os.environ)).report
        is_like_its_source(store, source, target)
        assert report["moved_bytes"] <= max(0, total - before), "what was there is not moved again"
        assert run(*command, environment=dict(os.environ)).report["unchanged"]
        return
    pytest.fail(f"the kill always came too late ({MOST_ATTEMPTS} attempts)")


def is_like_its_source(store: StreamStore, source: StreamName, target: StreamName) -> None:
    ours, theirs = shape_of(store, source), shape_of(store, target)
    assert ours.pop("configuration") != theirs.pop("configuration"), "the copy has a tag"
    assert ours == theirs
    assert digest_of(store, target) == digest_of(store, source)
    assert list(store.list_streams(target.scope, own=True)) == [target], "the lease's stream is gone"


def test_killed_copy_by_events_is_resumed(pravega: PravegaServer, store: StreamStore, share: float) -> None:
    """Its transactions are cut short at any moment; another shape, and duplicates among the events."""
    source, target = (StreamName(f"scope-{uuid.uuid4().hex[:10]}", name) for name in ("source", "copy"))
    make_stream(store, source, events=1_500, largest=32 * 1024)
    events = sorted(payload for _, payload in events_of(store, source))
    command = ("copy", f"{pravega.uri}/{source}", f"{pravega.uri}/{target}", "--method", "events", "--json")
    key = ("--segments", "4", "--key", "builtins:repr")
    with started(*command, *key, environment=dict(os.environ)) as running:
        is_killed(running, lambda: held(store, target) >= 0, share)
    report = run(*command, *key, environment=dict(os.environ)).report
    assert report["segments"] == 4
    assert sorted(payload for _, payload in events_of(store, target)) == events
    assert run(*command, *key, environment=dict(os.environ)).report["unchanged"]
    assert list(store.list_streams(target.scope)) == [target]
    assert len(list(store.list_streams(target.scope, own=True))) == 2, "and the record of what it has"


# --- an append or a join that is killed at any moment and run again has everything once


LONGEST_SECONDS = 1.5
"""How long an append goes on at most once its ledger is there, before it is killed; some end before."""


@pytest.mark.parametrize("verb", ["append", "join"])
def test_killed_append_is_resumed(
    pravega: PravegaServer, store: StreamStore, source: StreamName, verb: str, share: float
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
        is_killed(running, has_begun, LONGEST_SECONDS * share)
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


# --- a worker is killed in the middle of a restore; the next one resumes it, and no request is lost


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
            assert is_killed(running, has_begun), running.ended()
        assert [waiting.id for waiting in show_queue(queue).first_waiting] == [asked.id, other.id]
        ended = run(*work, environment=dict(os.environ))
        assert ended.code == 5, "there is no other archive"
        assert shape_of(store, target) == shape_of(store, name)
        assert digest_of(store, target) == digest_of(store, name)
        shown = show_queue(queue)
        assert (shown.waiting, [failed.id for failed in shown.first_failed]) == (0, [other.id])


# --- a sweep that is killed at any moment and run again leaves what an undisturbed one leaves


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


def test_killed_sweep_is_run_again(pravega: PravegaServer, store: StreamStore, archive: str, share: float) -> None:
    scope = f"scope-{uuid.uuid4().hex[:10]}"
    mine = StreamName(scope, "mine")
    make_stream(store, mine, events=20)
    before = store.describe(mine), digest_of(store, mine)
    leave = "import sys; from tests.faults.test_kill_streams import Left; Left(*sys.argv[1:3]).make(sys.argv[3])"
    program = [sys.executable, "-c", leave, pravega.uri, archive, scope]
    subprocess.run(program, cwd=Path(__file__).parents[2], check=True, timeout=240)
    total = len(list(store.list_streams(scope, own=True)))
    assert total > 4 * len(SOME)
    wanted = total - int((total - 1) * share)
    command = ("sweep", f"{pravega.uri}/{scope}/", "--older-than", "0s", "--json")

    def has_come_far() -> bool:
        return len(list(store.list_streams(scope, own=True))) <= wanted

    with started(*command, environment=dict(os.environ)) as running:
        is_killed(running, has_come_far)
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
