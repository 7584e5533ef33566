"""A conversion that is killed at any moment and run again has the result of an export in that layout."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable

import pytest

from testkit.commands import run, started, wait_until
from tests.faults.conftest import Ground
from tests.faults.contents import rows_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(600)]

MOST_ATTEMPTS = 5


@pytest.mark.parametrize(
    ("old", "new", "share"),
    [("chunks", "chunks-zstd", 0.3), ("chunks-zstd", "chunks", 0.6)],
    ids=["to-zstd", "from-zstd"],
)
def test_killed_conversion_is_resumed(ground_of: Callable[[str], Ground], old: str, new: str, share: float) -> None:
    source, wanted = ground_of(old), ground_of(new)
    for attempt in range(MOST_ATTEMPTS):
        prefix = f"converted-{uuid.uuid4().hex[:10]}"
        command = wanted.convert(source, prefix, "inline")
        after = round(share * wanted.ranges * (1 - attempt / MOST_ATTEMPTS))

        def has_come_far(prefix: str = prefix, after: int = after) -> bool:
            planned, rows = rows_of(wanted.client, wanted.bucket, f"{prefix}/{wanted.name}/")
            return planned and len(rows) >= after

        with started(*command, environment=wanted.environment) as running:
            if not wait_until(has_come_far, running):
                continue  # it ended before the check
            running.send(signal.SIGKILL)
            if running.ended().code != -signal.SIGKILL:
                continue
        if not wanted.contents_below(prefix).is_unfinished:
            continue
        done = len(rows_of(wanted.client, wanted.bucket, f"{prefix}/{wanted.name}/")[1])
        report = run(*command, environment=wanted.environment).report
        assert wanted.contents_below(prefix) == wanted.contents
        assert not report["unchanged"]
        if done:
            assert report["moved_bytes"] < report["bytes"], "what was finished is not moved again"
        assert run(*command, environment=wanted.environment).report["unchanged"]
        return
    pytest.fail(f"the kill always came too late ({MOST_ATTEMPTS} attempts)")
