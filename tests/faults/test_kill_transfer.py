"""Exports, imports and conversions that are killed or interrupted at any moment and run again end like others."""

from __future__ import annotations

import json
import random
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from streamvault.importer.target import lease_stream
from streamvault.layouts.keys import parse_row
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, RequestFailed
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import UNFINISHED
from testkit.commands import Command, Ended, run, started, wait_until
from testkit.streams import digest_of, shape_of
from tests.faults.conftest import Ground, Kill, is_killed, rows_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(600)]


MOST_ATTEMPTS = 5
ORPHANS_LIVE = 30.0
"""Seconds after which no process of a killed command may run any more."""

unfinished: dict[str, list[bool]] = {"export": [], "import": []}
"""Whether each kill hit unfinished work."""


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
            if not is_killed(running, has_come_far, kill.jitter * ground.seconds / ground.ranges):
                continue
            killed = ground.contents_below(prefix)
            unfinished["export"].append(killed.is_unfinished)
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


def hit_unfinished_work(verb: str) -> None:
    if not unfinished[verb]:
        pytest.skip("no kills were made")
    assert sum(unfinished[verb]) >= len(unfinished[verb]) / 2


def test_kills_of_exports_hit_unfinished_work() -> None:
    hit_unfinished_work("export")


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
            if not is_killed(running, has_come_far):
                ended = running.ended()
                break
        kills += 1
        keys = rows_of(ground.client, ground.bucket, f"{prefix}/{ground.name}/")[1]
        assert all(parse_row(key) for key in keys)
        assert len(keys) >= have, "what was finished stays"
        have = len(keys)
    assert kills >= 2
    assert ended.report["resumed"]
    assert ground.contents_below(prefix) == ground.contents


# --- an import that is killed at any moment and run again creates the same stream as an undisturbed one


VERIFYING = 0.25
"""The share of the moments after all bytes are appended: verifying, policies, seal."""


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
            if not is_killed(running, has_come_far, kill.jitter * max(share - 1, 0.05)):
                continue
            unfinished["import"].append(is_marked(ground, target))
            before = held(ground, target) or 0

            # at once, while orphans of the killed one may still be working
            report = run(*command, environment=ground.environment).report
            assert_restored(ground, target)
            assert report["events"] == ground.digest[0]
            assert report["moved_bytes"] <= total(ground) - before, "what was there is not moved again"
            if unfinished["import"][-1]:
                assert report["resumed"]
        return
    pytest.fail(f"the kill always came too late ({MOST_ATTEMPTS} attempts)")


def test_kills_of_imports_hit_unfinished_work() -> None:
    hit_unfinished_work("import")


# --- a conversion that is killed at any moment and run again has the result of an export in that layout


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
            if not is_killed(running, has_come_far):
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


# --- ctrl-C and SIGTERM during work: one line, exit code 130, no process left; the same command resumes


LINE = "streamvault: interrupted; run the same command again to resume"
ENDS_WITHIN = 30.0


@dataclass(frozen=True)
class Stop:
    """How a command is stopped: the signal, and whether all of its processes receive it, as from a terminal."""

    number: signal.Signals
    everywhere: bool
    master: str


STOPS = {
    "ctrl-c-inline": Stop(signal.SIGINT, everywhere=True, master="inline"),
    "ctrl-c-spark": Stop(signal.SIGINT, everywhere=True, master="local[2]"),
    "sigterm-inline": Stop(signal.SIGTERM, everywhere=False, master="inline"),
}


def stops(soon: str) -> list[pytest.ParameterSet]:
    """Every way to stop a command; all but one are slow tests."""

    def marks(name: str) -> list[pytest.MarkDecorator]:
        return [*[pytest.mark.long] * (name != soon), *[pytest.mark.spark] * ("spark" in name)]

    return [pytest.param(stop, id=name, marks=marks(name)) for name, stop in STOPS.items()]


def interrupted(command: Command, stop: Stop) -> Ended:
    """Stop a command; it ends soon and correctly, and none of its processes is left."""
    command.send(stop.number, everywhere=stop.everywhere)
    ended = command.ended(ENDS_WITHIN)
    assert ended.code == 130, ended.err
    assert ended.lines == [LINE]
    assert ended.error["exit_code"] == 130
    deadline = time.monotonic() + ENDS_WITHIN
    while command.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not command.left()
    return ended


@pytest.mark.parametrize("stop", stops("ctrl-c-inline"))
def test_interrupted_export_is_resumed(ground: Ground, stop: Stop) -> None:
    prefix = f"interrupted-{uuid.uuid4().hex[:10]}"
    command = ground.export(prefix, stop.master)

    def has_begun() -> bool:
        planned, rows = rows_of(ground.client, ground.bucket, f"{prefix}/{ground.name}/")
        return planned and len(rows) >= 3

    with started(*command, environment=ground.environment) as running:
        assert wait_until(has_begun, running), running.ended()
        interrupted(running, stop)
    assert ground.contents_below(prefix).is_unfinished
    report = run(*ground.export(prefix, "inline"), environment=ground.environment).report
    assert report["resumed"]
    assert report["moved_bytes"] < report["bytes"]
    assert ground.contents_below(prefix) == ground.contents


@pytest.mark.parametrize("stop", stops("ctrl-c-spark"))
def test_interrupted_import_is_resumed(ground: Ground, stop: Stop) -> None:
    target = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "restored")
    command = ground.restore(target, stop.master)

    def has_begun() -> bool:
        try:
            return ground.store.exists(target) and any(ground.store.describe(target).tail.offsets.values())
        except RequestFailed:
            return False  # in the middle of a scale

    with started(*command, environment=ground.environment) as running:
        assert wait_until(has_begun, running), running.ended()
        interrupted(running, stop)
    assert ground.store.exists(target)
    assert not ground.store.exists(lease_stream(target)), "who is interrupted gives the lease back"
    report = run(*ground.restore(target, "inline"), environment=ground.environment).report
    assert report["resumed"]
    assert shape_of(ground.store, target) == ground.shape
    assert digest_of(ground.store, target) == ground.digest
    assert list(ground.store.list_streams(target.scope, own=True)) == [target]
