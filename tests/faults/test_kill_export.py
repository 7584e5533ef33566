"""An export that is killed at any moment and run again has the result of an undisturbed one."""

from __future__ import annotations

import json
import random
import signal
import time
import uuid
from collections.abc import Callable

import pytest

from streamvault.layouts.keys import parse_row
from testkit.commands import run, started, wait_until
from tests.faults.conftest import Ground, Kill
from tests.faults.contents import rows_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(600)]

MOST_ATTEMPTS = 5
ORPHANS_LIVE = 30.0
"""Seconds after which no process of a killed command may run any more."""

unfinished: list[bool] = []


def at_most(ranges: int, attempt: int) -> int:
    """How many ranges to wait for, fewer with each attempt that was too late."""
    return min(ranges - attempt, round(ranges * (1 - attempt / MOST_ATTEMPTS)))


def row_bytes(ground: Ground, prefix: str) -> int:
    """The bytes of the finished ranges."""
    size = 0
    for key in rows_of(ground.client, ground.bucket, f"{prefix}/{ground.name}/")[1]:
        body = ground.client.get_object(Bucket=ground.bucket, Key=f"{prefix}/{ground.name}/{key}")["Body"]
        size += sum(piece["end"] - piece["start"] for piece in json.loads(body.read())["pieces"])
    return size


@pytest.mark.spark
def test_killed_export_is_resumed(ground_of: Callable[[str], Ground], kill: Kill) -> None:
    ground = ground_of(kill.layout)
    after = int(kill.share * (ground.ranges + 1))
    for attempt in range(MOST_ATTEMPTS):
        prefix = f"killed-{uuid.uuid4().hex[:10]}"
        command = ground.export(prefix, kill.master)

        def has_come_far(prefix: str = prefix, after: int = at_most(after, attempt)) -> bool:
            planned, rows = rows_of(ground.client, ground.bucket, f"{prefix}/{ground.name}/")
            return planned and len(rows) >= after

        with started(*command, environment=ground.environment) as running:
            if not wait_until(has_come_far, running):
                continue  # it ended before the check
            time.sleep(kill.jitter * ground.seconds / ground.ranges)
            running.send(signal.SIGKILL)
            if running.ended().code != -signal.SIGKILL:
                continue
            killed = ground.contents_below(prefix)
            unfinished.append(killed.is_unfinished)
            done = row_bytes(ground, prefix) if killed.is_unfinished else 0

            # at once, while orphans of the killed one may still be working
            report = run(*command, environment=ground.environment).report
            assert ground.contents_below(prefix) == ground.contents
            if killed.is_unfinished:
                assert report["resumed"]
                assert report["events"] == ground.digest[0]
                assert report["moved_bytes"] <= report["bytes"] - done, "what was finished is not moved again"
            deadline = time.monotonic() + ORPHANS_LIVE
            while running.left() and time.monotonic() < deadline:
                time.sleep(0.1)
            assert not running.left()
        return
    pytest.fail(f"the kill always came too late ({MOST_ATTEMPTS} attempts)")


def test_kills_hit_unfinished_work() -> None:
    if not unfinished:
        pytest.skip("no kills were made")
    assert sum(unfinished) >= len(unfinished) / 2


@pytest.mark.long
def test_repeatedly_killed_export_completes(ground: Ground) -> None:
    """The same run, killed after every few finished ranges, until it succeeds."""
    prefix = f"often-{uuid.uuid4().hex[:10]}"
    command = ground.export(prefix, "inline")
    rng = random.Random(ground.bucket)
    kills = have = 0
    while True:
        want = have + rng.randrange(1, max(ground.ranges // 3, 2))

        def has_come_far(want: int = want) -> bool:
            planned, rows = rows_of(ground.client, ground.bucket, f"{prefix}/{ground.name}/")
            return planned and len(rows) >= want

        with started(*command, environment=ground.environment) as running:
            if wait_until(has_come_far, running):
                running.send(signal.SIGKILL)
            ended = running.ended()
        if ended.code != -signal.SIGKILL:
            break
        kills += 1
        keys = rows_of(ground.client, ground.bucket, f"{prefix}/{ground.name}/")[1]
        assert all(parse_row(key) for key in keys)
        assert len(keys) >= have, "what was finished stays"
        have = len(keys)
    assert kills >= 2
    assert ended.report["resumed"]
    assert ground.contents_below(prefix) == ground.contents
