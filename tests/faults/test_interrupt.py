"""Ctrl-C and SIGTERM during work: one line, exit code 130, no process left; the same command resumes."""

from __future__ import annotations

import signal
import time
import uuid
from dataclasses import dataclass

import pytest

from streamvault.importer.target import lease_stream
from streamvault.streamstore.errors import RequestFailed
from streamvault.streamstore.model import StreamName
from testkit.commands import Command, Ended, run, started, wait_until
from testkit.streams import digest_of, shape_of
from tests.faults.conftest import Ground
from tests.faults.contents import rows_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(300)]

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
