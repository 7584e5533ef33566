"""A copy that is killed at any moment and run again is the same as an undisturbed one."""

from __future__ import annotations

import hashlib
import os
import signal
import time
import uuid

import pytest

from streamvault.importer.target import marked_import
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.store import StreamStore
from testkit.commands import run, started, wait_until
from testkit.servers.pravega import PravegaServer
from testkit.streams import digest_of, events_of, make_stream, shape_of

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(600)]

MOST_ATTEMPTS = 5


@pytest.fixture(scope="module")
def source(store: StreamStore) -> StreamName:
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    make_stream(store, name, events=4_000, largest=256 * 1024)
    return name


def digest_of_payload(payload: bytes) -> str:
    """A routing key for any event."""
    return hashlib.sha256(payload).hexdigest()


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


def test_killed_copy_is_resumed(
    pravega: PravegaServer,
    store: StreamStore,
    source: StreamName,
    share: float,
) -> None:
    live: list[tuple[str, int, int]] = shape_of(store, source)["live"]  # type: ignore[assignment]
    total = sum(end for _, _, end in live)
    for attempt in range(MOST_ATTEMPTS):
        target = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "copy")
        command = ("copy", f"{pravega.uri}/{source}", f"{pravega.uri}/{target}", "--master", "inline", "--json")
        wanted = share * (1 - attempt / MOST_ATTEMPTS) * total

        def has_come_far(target: StreamName = target, wanted: float = wanted) -> bool:
            return held(store, target) >= wanted

        with started(*command, environment=dict(os.environ)) as running:
            if not wait_until(has_come_far, running):
                continue  # it ended before the check
            running.send(signal.SIGKILL)
            if running.ended().code != -signal.SIGKILL:
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
    key = ("--segments", "4", "--key", "tests.faults.test_kill_copy:digest_of_payload")
    with started(*command, *key, environment=dict(os.environ)) as running:
        wait_until(lambda: store.exists(source) and held(store, target) >= 0, running)
        time.sleep(share)
        running.send(signal.SIGKILL)
        running.ended()
    report = run(*command, *key, environment=dict(os.environ)).report
    assert report["segments"] == 4
    assert sorted(payload for _, payload in events_of(store, target)) == events
    assert run(*command, *key, environment=dict(os.environ)).report["unchanged"]
    assert list(store.list_streams(target.scope)) == [target]
    assert len(list(store.list_streams(target.scope, own=True))) == 2, "and the record of what it has"
