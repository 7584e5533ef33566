"""An import that is killed at any moment and run again creates the same stream as an undisturbed one."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable

import pytest

from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import UNFINISHED
from testkit.commands import run, started, wait_until
from testkit.streams import digest_of, shape_of
from tests.faults.conftest import Ground, Kill

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(600)]

MOST_ATTEMPTS = 5
VERIFYING = 0.25
"""The share of the moments after all bytes are appended: verifying, policies, seal."""

unfinished: list[bool] = []


def new_target() -> StreamName:
    return StreamName(f"scope-{uuid.uuid4().hex[:10]}", "restored")


def held(ground: Ground, target: StreamName) -> int | None:
    """How many bytes the target has, truncated ones included; None if it does not exist."""
    try:
        described = ground.store.describe(target)
        segments = {segment for epoch in described.epochs for segment in epoch.segments}
        return sum(info.write_offset for info in ground.store.segment_info(target, sorted(segments)))
    except (NoSuchScope, NoSuchStream, NoSuchSegment):
        # of a segment below the head nothing is said any more: all is there, and the head is set
        return total(ground) if ground.store.exists(target) else None


def total(ground: Ground) -> int:
    """The stream's final contents."""
    live = ground.shape["live"]
    assert isinstance(live, list)
    return sum(end for _, _, end in live)


def is_marked(ground: Ground, target: StreamName) -> bool:
    """Whether the target is marked as unfinished."""
    return any(tag.startswith(UNFINISHED) for tag in ground.store.describe(target).configuration.tags)


def assert_restored(ground: Ground, target: StreamName) -> None:
    assert shape_of(ground.store, target) == ground.shape
    assert digest_of(ground.store, target) == ground.digest
    assert list(ground.store.list_streams(target.scope, own=True)) == [target], "the lease's stream is gone"


@pytest.mark.spark
def test_killed_import_is_resumed(ground_of: Callable[[str], Ground], kill: Kill) -> None:
    ground = ground_of(kill.layout)
    share = kill.share / (1 - VERIFYING)
    for attempt in range(MOST_ATTEMPTS):
        target = new_target()
        command = ground.restore(target, kill.master)
        wanted = min(share, 1.0) * (1 - attempt / MOST_ATTEMPTS) * total(ground)

        def has_come_far(target: StreamName = target, wanted: float = wanted) -> bool:
            found = held(ground, target)
            return found is not None and found >= wanted

        with started(*command, environment=ground.environment) as running:
            if not wait_until(has_come_far, running):
                continue  # it ended before the check
            time.sleep(kill.jitter * max(share - 1, 0.05))
            running.send(signal.SIGKILL)
            if running.ended().code != -signal.SIGKILL:
                continue
            unfinished.append(is_marked(ground, target))
            before = held(ground, target) or 0

            # at once, while orphans of the killed one may still be working
            report = run(*command, environment=ground.environment).report
            assert_restored(ground, target)
            assert report["events"] == ground.digest[0]
            assert report["moved_bytes"] <= total(ground) - before, "what was there is not moved again"
            if unfinished[-1]:
                assert report["resumed"]
        return
    pytest.fail(f"the kill always came too late ({MOST_ATTEMPTS} attempts)")


def test_kills_hit_unfinished_work() -> None:
    if not unfinished:
        pytest.skip("no kills were made")
    assert sum(unfinished) >= len(unfinished) / 2
