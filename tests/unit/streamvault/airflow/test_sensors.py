"""Sensors and their triggers: what they wait for, how they wait, and which failures end the wait.

What the end of a command means for Airflow.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.module_loading import import_string

from streamvault.airflow import triggers
from streamvault.airflow.outcome import raising_for_airflow, report_of
from streamvault.airflow.sensors import GenerationSensor, LookingSensor, StreamBytesSensor
from streamvault.airflow.submit import Outcome
from streamvault.airflow.triggers import GenerationTrigger, LookingTrigger, StreamBytesTrigger
from streamvault.cli.running import error_document
from streamvault.common.errors import Conflict, Overtaken, Problem
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.objectstore.store import AccessDenied, NoSuchBucket, ObjectStoreUnavailable
from streamvault.runner.runner import NoJava
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream, StoreBusy, StreamStoreUnavailable
from streamvault.streamstore.lease import LeaseHeld
from streamvault.streamstore.model import HEADER_BYTES
from testkit.small_archives import Vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"one")
    return vault


class Sleeps:
    """In place of waiting, does something each time; the last thing again and again."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self.actions = list(actions)
        self.count = 0

    async def __call__(self, _seconds: float) -> None:
        self.count += 1
        action = self.actions.pop(0) if len(self.actions) > 1 else self.actions[0]
        action()


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sleeps]:
    def sleeping(*actions: Callable[[], object]) -> Sleeps:
        sleeps = Sleeps(*actions)
        monkeypatch.setattr(triggers, "sleep", sleeps)
        return sleeps

    return sleeping


def first_event(trigger: LookingTrigger) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        async with aclosing(trigger.run()) as events:  # type: ignore[type-var]
            return (await anext(events)).payload  # type: ignore[no-any-return]

    return asyncio.run(first())


def deferred(sensor: LookingSensor) -> LookingTrigger:
    """The trigger for which a sensor defers its task, as Airflow recreates it."""
    with pytest.raises(TaskDeferred) as raised:
        sensor.execute({})
    kind, arguments = raised.value.trigger.serialize()
    assert raised.value.method_name == "execute_complete"
    assert raised.value.timeout is not None
    trigger: LookingTrigger = import_string(kind)(**json.loads(json.dumps(arguments)))
    assert trigger.serialize() == (kind, arguments)
    return trigger


def test_sensor_waits_for_the_next_generation(vault: Vault, sleeping: Callable[..., Sleeps]) -> None:
    """First for an archive at all, which is not there yet; the manifest's figures are the result."""
    sensor = GenerationSensor(task_id="t", archive=vault.archive, deferrable=True)
    trigger = deferred(sensor)
    sleeps = sleeping(list, vault.export)
    found = sensor.execute_complete({}, first_event(trigger))
    assert sleeps.count == 2
    newest = Archive.open(vault.archive).manifest()
    assert {name: found[name] for name in ("archive", "generation", "events")} == {
        "archive": vault.archive,
        "generation": 1,
        "events": 1,
    }
    assert (found["bytes"], found["created"]) == (newest.bytes, newest.document()["created"])
    assert sensor.execute({}) == found, "nothing is deferred if it is there"
    waiting = GenerationSensor(task_id="t", archive=vault.archive, after="1", deferrable=False)
    assert not waiting.poke({})
    vault.add(b"two")
    vault.export()
    assert waiting.execute({})["generation"] == 2


def test_trigger_looks_first_after_its_interval(vault: Vault, sleeping: Callable[..., Sleeps]) -> None:
    """The task has looked. Airflow's scheduler takes a task that goes on at once for one that has failed."""
    vault.export()
    sleeps = sleeping(list)
    assert first_event(GenerationTrigger(archive=vault.archive))["found"]["generation"] == 1
    assert sleeps.count == 1


def test_sensor_waits_for_a_generation_that_is_new_enough(vault: Vault) -> None:
    vault.export()
    created = str(Archive.open(vault.archive).manifest().document()["created"])
    for since, there in ((created, True), ("2999-01-01T00:00:00Z", False)):
        assert bool(GenerationSensor(task_id="t", archive=vault.archive, since=since).poke({})) is there


def test_sensor_waits_for_bytes_that_are_not_archived(vault: Vault, sleeping: Callable[..., Sleeps]) -> None:
    asked = {"stream": vault.uri(), "archive": vault.archive}
    sensor = StreamBytesSensor(task_id="t", **asked, min_bytes=str(2 * (HEADER_BYTES + 3)), deferrable=True)
    assert StreamBytesSensor(task_id="t", **asked).poke({}), "there is no archive: all of the stream counts"
    vault.export()
    assert not StreamBytesSensor(task_id="t", **asked).poke({})
    sleeps = sleeping(lambda: vault.add(b"two"))
    found = sensor.execute_complete({}, first_event(deferred(sensor)))
    assert found == {"stream": vault.uri(), "bytes": 2 * (HEADER_BYTES + 3)}
    assert sleeps.count == 2, "one event is too few"


def test_sensor_waits_for_bytes_after_a_cut(vault: Vault) -> None:
    cut = vault.described.tail.to_json()
    assert StreamBytesSensor(task_id="t", stream=vault.uri()).poke({})
    sensor = StreamBytesSensor(task_id="t", stream=vault.uri(), cut=cut)
    assert not sensor.poke({})
    vault.add(b"two")
    found = sensor.poke({})
    assert found.xcom_value == {"stream": vault.uri(), "bytes": HEADER_BYTES + 3}
    vault.truncate(vault.described.tail)
    assert not sensor.poke({}), "what was truncated can no longer be read"


@pytest.mark.parametrize(
    ("sensor", "said"),
    [
        (GenerationSensor(task_id="t", archive="vault"), "not a root URI"),
        (
            GenerationSensor(task_id="t", archive="file:///v/a/b", after="one"),
            "after: 'one' is not a generation number",
        ),
        (GenerationSensor(task_id="t", archive="file:///v/a/b", since="noon"), "since is not a time"),
        (StreamBytesSensor(task_id="t", stream="local:///nowhere/a/b"), "no such|does not exist"),
        (StreamBytesSensor(task_id="t", stream="local:///a/b/c", min_bytes="lots"), "'lots' is not a size"),
        (StreamBytesSensor(task_id="t", stream="local:///a/b/c", cut="{}", archive="x"), "are mutually exclusive"),
    ],
)
@pytest.mark.parametrize("deferrable", [False, True])
def test_what_never_comes_fails_the_task_at_once(sensor: LookingSensor, said: str, deferrable: bool) -> None:
    sensor.deferrable = deferrable
    with pytest.raises(AirflowFailException, match=said):
        sensor.execute({})


def test_trigger_goes_on_while_a_server_does_not_answer(
    vault: Vault, sleeping: Callable[..., Sleeps], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else ends the wait, with the reason; a retry may help or not."""
    vault.export()
    newest = Archive.newest

    def down(*_: object) -> None:
        raise ObjectStoreUnavailable("S3 does not answer")

    monkeypatch.setattr(Archive, "newest", down)
    assert not GenerationSensor(task_id="t", archive=vault.archive).poke({})
    sleeps = sleeping(list, lambda: monkeypatch.setattr(Archive, "newest", newest))
    assert first_event(GenerationTrigger(archive=vault.archive))["found"]["generation"] == 1
    assert sleeps.count == 2
    event = first_event(StreamBytesTrigger(stream="local:///nowhere/a/b"))
    sensor = StreamBytesSensor(task_id="t", stream="local:///nowhere/a/b")
    with pytest.raises(AirflowFailException):
        sensor.execute_complete({}, event)
    with pytest.raises(AirflowException, match="later"):
        sensor.execute_complete({}, {"error": "later", "retriable": True, "found": None})


class AssetState:
    """What Airflow keeps of an asset."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def aget(self, key: str) -> Any:
        return self.kept.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.kept[key] = json.loads(json.dumps(value))


def watch(archive: str, state: AssetState, most: int) -> Iterator[int]:
    """The generations that a watcher announces until its triggerer ends: after so many, or when it waits in vain."""
    trigger = GenerationTrigger(archive=archive)
    trigger.asset_state_store = state  # type: ignore[assignment]

    async def run() -> list[int]:
        found: list[int] = []
        async with aclosing(trigger.run()) as events:  # type: ignore[type-var]
            try:
                while len(found) < most:
                    found.append((await anext(events)).payload["generation"])
            except KeyError:
                pass  # the sleep that ends the test
        return found

    yield from asyncio.run(run())


def test_watcher_announces_each_generation(vault: Vault, sleeping: Callable[..., Sleeps]) -> None:
    """One that comes while no triggerer runs, too; if that one ended too early, the same one again."""
    Asset(vault.archive.replace("memory", "x-memory"), watchers=[AssetWatcher("w", GenerationTrigger(archive="a"))])

    def grow() -> None:
        vault.add(b"more")
        vault.export()

    def end() -> None:
        raise KeyError

    state = AssetState()
    sleeping(vault.export, grow, end)
    assert list(watch(vault.archive, state, 2)) == [1, 2]
    assert state.kept["streamvault_generation"]["generation"] == 1, "2 may not be stored yet"
    sleeping(list, end)
    assert list(watch(vault.archive, state, 9)) == [2]
    sleeping(list, end)
    assert list(watch(vault.archive, state, 9)) == []
    grow()
    sleeping(list, end)
    assert list(watch(vault.archive, state, 9)) == [3]


def test_watcher_survives_what_fails(
    vault: Vault, sleeping: Callable[..., Sleeps], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asset whose watcher had ended would be silent for ever."""
    newest = Archive.newest
    vault.export()
    monkeypatch.setattr(Archive, "newest", lambda self: self.manifest(7))
    sleeping(list, lambda: monkeypatch.setattr(Archive, "newest", newest))
    assert list(watch(vault.archive, AssetState(), 1)) == [1]


STREAM, ARCHIVE = "local:///data/shop/orders", "file:///vault/shop/orders"


def ended(code: int, **document: Any) -> Outcome:
    return Outcome(code, document or None, "the last lines")


ERROR = {"what": "it is not there", "where": "s3://v", "todo": "Look.", "exit_code": 0}


def test_report_of_a_successful_command_is_returned() -> None:
    assert report_of(ended(0, events=1)) == {"events": 1}


@pytest.mark.parametrize(
    ("code", "again"), [*((code, True) for code in (1, 130, -9, 137, 143)), *((code, False) for code in (2, 3, 4))]
)
def test_exit_code_decides_whether_airflow_retries(code: int, again: bool) -> None:
    with pytest.raises(AirflowException, match=r"it is not there: s3://v. Look.") as raised:
        report_of(ended(code, error=ERROR))
    assert isinstance(raised.value, AirflowFailException) is not again


@pytest.mark.parametrize(
    ("problem", "again"),
    [
        (NoSuchArchive("no archive"), False),
        (NoSuchStream("no such stream"), False),
        (NoSuchScope("no such scope"), False),
        (NoSuchBucket("no such bucket"), False),
        (NoJava("no Java runtime"), False),
        (StreamStoreUnavailable("Pravega does not answer"), True),
        (AccessDenied("the credentials have expired"), True),
        (Conflict("another archive"), False),
        (Overtaken("generations were merged"), True),
        (LeaseHeld("another import is alive"), True),
        (StoreBusy("another process is writing"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Problem) else "",
)
def test_kind_of_problem_decides_whether_airflow_retries(problem: Problem, again: bool) -> None:
    document = error_document(problem)
    with pytest.raises(AirflowException, match=problem.what) as said_by_a_command:
        report_of(Outcome(problem.exit_code, document))
    with pytest.raises(AirflowException, match=problem.what) as said_in_a_task, raising_for_airflow():
        raise problem
    for raised in (said_by_a_command, said_in_a_task):
        assert isinstance(raised.value, AirflowFailException) is not again


def test_overtaken_run_is_told_to_run_the_command_again() -> None:
    assert Overtaken("x").todo == "Run the same command again."
    assert pickle.loads(pickle.dumps(Overtaken("x", todo="Wait."))).todo == "Wait."


def test_driver_without_a_report_fails_the_attempt() -> None:
    with pytest.raises(AirflowException, match="the last lines"):
        report_of(ended(1))
    with pytest.raises(AirflowException, match="no report"):
        report_of(ended(0))


def test_damage_is_listed_up_to_a_limit() -> None:
    findings = [f"range {number} is gone" for number in range(30)]
    with pytest.raises(AirflowFailException) as raised:
        report_of(ended(3, archive=ARCHIVE, ok=False, findings=findings, more_findings=5))
    lines = str(raised.value).splitlines()
    assert lines[:2] == [f"{ARCHIVE} is damaged:", "range 0 is gone"]
    assert lines[-2:] == ["range 19 is gone", "and 15 more"]


@pytest.mark.parametrize("retriable", [True, False])
def test_failures_of_a_scopes_streams_are_listed(retriable: bool) -> None:
    """A retry is worthwhile if one of them may succeed."""
    failures = [{"what": "it is another stream", "where": "s3://v", "todo": "", "retriable": False}] * 24
    failures[3] = {"what": "it does not answer", "where": "", "todo": "", "retriable": retriable}
    outcomes: list[dict[str, Any]] = [
        {"stream": f"s/{number}", "exit_code": 4, "result": None, "failure": failure}
        for number, failure in enumerate(failures)
    ]
    damaged = {"archive": ARCHIVE, "findings": ["range 1 is gone"]}
    outcomes[0] = {"stream": "s/done", "exit_code": 0, "result": {}, "failure": None}
    outcomes[1] = {"stream": "s/damaged", "exit_code": 3, "result": damaged, "failure": None}
    with pytest.raises(AirflowException) as raised:
        report_of(ended(1, outcomes=outcomes))
    assert isinstance(raised.value, AirflowFailException) is not retriable
    lines = str(raised.value).splitlines()
    assert lines[0] == f"s/damaged: {ARCHIVE} is damaged:"
    assert lines[1:4] == ["range 1 is gone", "s/2: it is another stream: s3://v", "s/3: it does not answer"]
    assert lines[-1] == "and 3 more"


def test_import_that_left_damage_out_fails_and_says_that_the_stream_is_there() -> None:
    with pytest.raises(AirflowFailException) as raised:
        report_of(ended(3, archive=ARCHIVE, stream=STREAM, findings=["range 1 is gone"]))
    lines = [f"{STREAM} was restored without the damaged parts of {ARCHIVE}:", "range 1 is gone"]
    assert str(raised.value).splitlines() == lines
