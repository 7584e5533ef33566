"""Cold storage, on moto: what cannot be read, asking for it, and waiting until it can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from streamvault.airflow.aws import s3_client
from streamvault.airflow.operators import WarmArchiveOperator
from streamvault.airflow.triggers import ArchiveReadableTrigger
from streamvault.airflow.warmth import NextCold, ask_back, next_cold
from tests.servers.s3 import S3Server

ARCHIVE = "vault/scope/stream"


@pytest.fixture
def archive(moto_s3: S3Server, bucket_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of four objects two are cold; beside it lies another that is."""
    extra = {"endpoint_url": moto_s3.endpoint, "region_name": moto_s3.region}
    connection = {"conn_type": "aws", "login": moto_s3.access_key, "password": moto_s3.secret_key, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
    moto_s3.make_bucket(bucket_name)
    for number, kind in enumerate(("STANDARD", "GLACIER", "GLACIER_IR", "DEEP_ARCHIVE")):
        moto_s3.client().put_object(Bucket=bucket_name, Key=f"{ARCHIVE}/{number}", StorageClass=kind, Body=b"x")  # type: ignore[arg-type]
    moto_s3.client().put_object(Bucket=bucket_name, Key=f"{ARCHIVE}-2/0", StorageClass="GLACIER", Body=b"x")
    return f"s3://{bucket_name}/{ARCHIVE}"


def test_what_is_cold(archive: str) -> None:
    client = s3_client("aws_default")
    assert next_cold(client, archive) == NextCold("1", "0")
    assert next_cold(client, archive, "1") == NextCold("3", "2")
    assert ask_back(client, archive, days=1, tier="Bulk") == 2
    assert next_cold(client, archive) is None
    assert ask_back(client, archive, days=1, tier="Bulk") == 0


class Slow:
    """A client of a server that takes its time: what was asked for is on its way for some looks."""

    def __init__(self, client: Any, looks: int) -> None:
        self._client = client
        self._looks = looks
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def head_object(self, **which: str) -> Mapping[str, Any]:
        self.asked.append(which["Key"])
        if len(self.asked) <= self._looks:
            return {"Restore": 'ongoing-request="true"', "StorageClass": "GLACIER"}
        return self._client.head_object(**which)  # type: ignore[no-any-return]


def events_of(trigger: ArchiveReadableTrigger) -> list[Any]:
    async def collect() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(collect())


def test_waiting(archive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = s3_client("aws_default")
    ask_back(real, archive, days=1, tier="Bulk")
    slow = Slow(real, looks=3)
    monkeypatch.setattr("streamvault.airflow.aws.s3_client", lambda _: slow)
    trigger = ArchiveReadableTrigger(archive=archive, aws_conn_id="aws_default", poll_seconds=0.01)
    assert events_of(trigger) == [{"error": ""}]
    assert slow.asked.count(f"{ARCHIVE}/1") > 1, "it is asked until it is there"


def test_a_wait_that_cannot_look(archive: str) -> None:
    trigger = ArchiveReadableTrigger(archive=f"{archive[:-20]}/nowhere/a/b", aws_conn_id="aws_default", poll_seconds=1)
    assert "no such bucket" in events_of(trigger)[0]["error"]


def test_the_operator_defers_until_all_is_there(archive: str) -> None:
    operator = WarmArchiveOperator(task_id="t", archive=archive, days="2", poll_seconds=0.01)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute({})
    kind, arguments = deferred.value.trigger.serialize()
    assert kind == "streamvault.airflow.triggers.ArchiveReadableTrigger"
    assert "secret" not in json.dumps(arguments)
    assert deferred.value.method_name == "go_on"
    event = events_of(ArchiveReadableTrigger(**arguments))[0]
    operator.go_on({}, event)
    operator.execute({})  # a retry finds it readable
    with pytest.raises(AirflowException, match="gone"):
        operator.go_on({}, {"error": "gone"})


@pytest.mark.parametrize("wait", [False, "False"])
def test_who_does_not_wait_fails_at_once(archive: str, wait: bool | str) -> None:
    with pytest.raises(AirflowFailException, match="is in cold storage"):
        WarmArchiveOperator(task_id="t", archive=archive, wait=wait).execute({})
    assert next_cold(s3_client("aws_default"), archive) == NextCold("1", "0")


def test_a_tier_that_there_is_not(archive: str) -> None:
    with pytest.raises(AirflowFailException, match="There are Bulk"):
        WarmArchiveOperator(task_id="t", archive=archive, tier="Slow").execute({})


def test_a_folder_is_never_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse: Callable[..., Any] = pytest.fail
    monkeypatch.setattr("streamvault.airflow.aws.s3_client", refuse)
    WarmArchiveOperator(task_id="t", archive="file:///vault/a/b").execute({})
