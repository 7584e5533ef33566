"""Cold storage, on moto: the objects that a restore needs and cannot read, requesting them, and waiting for them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from streamvault.airflow.aws import s3_client
from streamvault.airflow.operators import ImportStreamOperator, WarmArchiveOperator
from streamvault.airflow.submit import Outcome, StreamvaultSubmitHook
from streamvault.airflow.triggers import ArchiveReadableTrigger, GenerationTrigger, LookingTrigger, open_archive
from streamvault.common.progress import Progress
from streamvault.manifests.options import WarmOptions
from streamvault.manifests.verbs.warm import Span, first_cold, joined_parts, needed_parts, request_cold, spans_of
from streamvault.objectstore.s3.cold import BucketColdStorage
from streamvault.objectstore.uri import RootAddress
from testkit.servers.s3 import S3Server
from testkit.small_archives import Vault

PREFIX = "vault/scope/stream"
WARM = WarmOptions(days=1, tier="Bulk")


class Frozen:
    """An archive of two generations on moto, in layout ``events``; objects are moved to cold storage by key."""

    def __init__(self, server: S3Server, bucket: str, folder: Path) -> None:
        self.client = server.client()
        self.bucket = bucket
        self.vault = Vault(folder, f"s3://{bucket}/vault")
        self.vault.make(events=6, largest=100)
        self.vault.export("events")
        self.first = self.keys("events/")
        self.vault.add(b"more")
        self.vault.export("events")
        self.second = [key for key in self.keys("events/") if key not in self.first]
        self.uri = self.vault.archive

    def keys(self, folder: str) -> list[str]:
        """Below the archive."""
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"{PREFIX}/{folder}").get("Contents", [])
        return [entry["Key"].removeprefix(f"{PREFIX}/") for entry in found]

    def freeze(self, keys: list[str], kind: str = "GLACIER") -> None:
        for key in keys:
            place = {"Bucket": self.bucket, "Key": f"{PREFIX}/{key}"}
            self.client.copy_object(**place, CopySource=place, StorageClass=kind, MetadataDirective="REPLACE")  # type: ignore[arg-type]

    def put(self, key: str) -> str:
        self.client.put_object(Bucket=self.bucket, Key=f"{PREFIX}/{key}", StorageClass="GLACIER", Body=b"x")
        return key

    def asked(self, key: str) -> bool:
        return "Restore" in self.client.head_object(Bucket=self.bucket, Key=f"{PREFIX}/{key}")

    @property
    def storage(self) -> BucketColdStorage:
        return BucketColdStorage(RootAddress.parse(self.vault.root).resolve())

    def needed(self, generation: int | None = None) -> Sequence[Span]:
        archive = open_archive(self.uri, "aws_default")
        return spans_of(archive.prefix, joined_parts(needed_parts(archive.history(generation))))

    def request(self, generation: int | None = None) -> int:
        return request_cold(self.storage, self.needed(generation), WARM, Progress())[2]


@pytest.fixture
def frozen(moto_s3: S3Server, bucket_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frozen:
    extra = {"endpoint_url": moto_s3.endpoint, "region_name": moto_s3.region}
    connection = {"conn_type": "aws", "login": moto_s3.access_key, "password": moto_s3.secret_key, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
    for name, value in moto_s3.environment().items():
        monkeypatch.setenv(name, value)
    moto_s3.make_bucket(bucket_name)
    return Frozen(moto_s3, bucket_name, tmp_path)


def test_first_cold_finds_the_next_object_in_cold_storage(frozen: Frozen) -> None:
    storage, needed = frozen.storage, frozen.needed()
    assert first_cold(storage, needed) == (None, [])
    folder = frozen.first[0].rpartition("/")[0]
    there = [key for key in frozen.keys(folder) if key.startswith(folder)]
    assert len(there) > 3
    for key, kind in ((there[1], "GLACIER"), (there[2], "GLACIER_IR"), (there[3], "DEEP_ARCHIVE")):
        frozen.freeze([key], kind)
    below = "scope/stream/"
    found, left = first_cold(storage, needed)
    assert found is not None
    assert (found.key, left[0][1]) == (below + there[1], below + there[0])
    (folder, _, stop), *others = left
    further, left = first_cold(storage, [(folder, found.key, stop), *others])
    assert further is not None
    assert (further.key, left[0][1]) == (below + there[3], below + there[2])
    assert frozen.request() == 2
    assert first_cold(storage, needed) == (None, [])
    assert frozen.request() == 0


def test_operator_requests_only_what_the_restore_reads(frozen: Frozen) -> None:
    """Neither later generations nor tables nor objects beside the archive's ranges."""
    frozen.freeze([*frozen.first, *frozen.second])
    others = [frozen.put("table/events/generation=1/x.parquet"), frozen.put("events/0000000099.0000000099/x")]
    created = json.loads(
        frozen.client.get_object(Bucket=frozen.bucket, Key=f"{PREFIX}/_manifest/0000000001.json")["Body"].read()
    )["created"]
    for upto in ({"generation": 1}, {"at": created}):
        with suppress(TaskDeferred):  # of what is requested, all is restored at once
            WarmArchiveOperator(task_id="t", archive=frozen.uri, **upto).execute({})
        assert [frozen.asked(key) for key in frozen.first] == [True] * len(frozen.first)
        assert [frozen.asked(key) for key in frozen.second] == [False] * len(frozen.second)
    assert frozen.request() == len(frozen.second)
    assert [frozen.asked(key) for key in others] == [False] * 2


class Slow:
    """A client of a slow server: requested objects are being restored for some checks."""

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


def events_of(trigger: LookingTrigger) -> list[Any]:
    async def collect() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(collect())


def test_trigger_fires_once_everything_is_readable(frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    real = s3_client("aws_default")
    frozen.freeze(frozen.first[1:2])
    frozen.request()
    slow = Slow(real, looks=3)
    monkeypatch.setattr("streamvault.airflow.cold_storage.s3_client", lambda _: slow)
    trigger = ArchiveReadableTrigger(
        archive=frozen.uri, spans=[list(span) for span in frozen.needed()], aws_conn_id="aws_default", poll_seconds=0.01
    )
    assert events_of(trigger) == [{"error": "", "retriable": False, "found": {"archive": frozen.uri}}]
    assert slow.asked.count(f"{PREFIX}/{frozen.first[1]}") > 1, "it is asked until it is there"


def test_trigger_reports_a_failed_look(frozen: Frozen) -> None:
    trigger = ArchiveReadableTrigger(
        archive="s3://nowhere-at-all/a/b", spans=[["a/", "a/", "b"]], aws_conn_id="aws_default", poll_seconds=0.01
    )
    (event,) = events_of(trigger)
    assert "no such bucket" in event["error"]
    with pytest.raises(AirflowFailException, match="no such bucket"):
        WarmArchiveOperator(task_id="t", archive=frozen.uri).execute_complete({}, event)


def deferred_by(work: Callable[[], None]) -> dict[str, Any]:
    """The trigger's arguments, from an operator that defers its task to the triggerer."""
    with pytest.raises(TaskDeferred) as deferred:
        work()
    kind, arguments = deferred.value.trigger.serialize()
    assert kind == "streamvault.airflow.triggers.ArchiveReadableTrigger"
    assert "secret" not in json.dumps(arguments)
    assert deferred.value.method_name == "execute_complete"
    return json.loads(json.dumps(arguments))  # type: ignore[no-any-return]


def test_operator_defers_until_everything_is_readable(frozen: Frozen) -> None:
    """First until the manifests can be read, which list the other objects, then until those can be read."""
    frozen.freeze([*frozen.keys("_manifest/"), *frozen.first])
    operator = WarmArchiveOperator(task_id="t", archive=frozen.uri, generation="1", at="", days="2", poll_seconds=0.01)
    manifests = deferred_by(lambda: operator.execute({}))
    assert [folder for folder, *_ in manifests["spans"]] == ["scope/stream/_manifest/"]
    assert not frozen.asked(frozen.first[0])
    event = events_of(ArchiveReadableTrigger(**manifests))[0]
    data = deferred_by(lambda: operator.execute_complete({}, event))
    operator.execute_complete({}, events_of(ArchiveReadableTrigger(**data))[0])
    operator.execute({})  # a retry finds it readable
    with pytest.raises(AirflowException, match="gone"):
        operator.execute_complete({}, {"error": "gone", "retriable": True, "found": None})


def test_import_waits_for_what_it_reads(frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same task imports after the wait; without `wait_for_warm` it would fail at the first cold object."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "inline"}))
    done = {"archive": frozen.uri, "stream": "local:///s/a/b", "unchanged": True}
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: Outcome(0, done))
    context = {"ti": SimpleNamespace(try_number=1)}
    frozen.freeze(frozen.first)
    asked = {"archive": frozen.uri, "stream": "local:///s/a/b", "generation": 1}
    operator = ImportStreamOperator(task_id="t", **asked, wait_for_warm="True", warm_days="2")
    waiting = deferred_by(lambda: operator.execute(context))
    assert frozen.asked(frozen.first[0])
    assert not any(map(frozen.asked, frozen.second)), "the import does not read them"
    (event,) = events_of(ArchiveReadableTrigger(**{**waiting, "poll_seconds": 0.01}))
    assert operator.execute_complete(context, event) == done
    with pytest.raises(AirflowException, match="gone"):
        operator.execute_complete(context, {"error": "gone", "retriable": True, "found": None})


@pytest.mark.parametrize("wait", [False, "False"])
def test_operator_that_may_not_wait_fails_at_once(frozen: Frozen, wait: bool | str) -> None:
    frozen.freeze(frozen.first[1:2])
    with pytest.raises(AirflowFailException, match="is in cold storage"):
        WarmArchiveOperator(task_id="t", archive=frozen.uri.replace("s3:", "S3:"), wait=wait).execute({})
    assert not frozen.asked(frozen.first[1])


@pytest.mark.parametrize(
    ("archive", "generation", "said"),
    [("vault/scope/nothing", None, "no archive"), (PREFIX, 3, "no generation 3"), (None, None, "no such bucket")],
)
def test_operator_fails_if_the_archive_does_not_exist(
    frozen: Frozen, archive: str | None, generation: int | None, said: str
) -> None:
    uri = f"s3://{frozen.bucket}/{archive}" if archive else "s3://nowhere-at-all/a/b"
    with pytest.raises(AirflowFailException, match=said):
        WarmArchiveOperator(task_id="t", archive=uri, generation=generation).execute({})


@pytest.mark.parametrize(
    ("wrong", "said"), [({"tier": "Slow"}, "--tier must be .*'Bulk'"), ({"days": "0"}, "--days must be at least 1")]
)
def test_operator_refuses_what_the_command_refuses(frozen: Frozen, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        WarmArchiveOperator(task_id="t", archive=frozen.uri, **wrong).execute({})


def test_archive_in_a_folder_is_never_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse: Callable[..., Any] = pytest.fail
    monkeypatch.setattr("streamvault.airflow.cold_storage.require_readable", refuse)
    WarmArchiveOperator(task_id="t", archive="file:///vault/a/b").execute({})


def test_archive_is_looked_at_with_the_connection_alone(frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the environment, which triggers of other connections share."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    before = dict(os.environ)
    trigger = GenerationTrigger(archive=frozen.uri, after=1, poll_seconds=0.01)
    (event,) = events_of(trigger)
    assert (event["found"]["archive"], event["found"]["generation"]) == (frozen.uri, 2)
    assert dict(os.environ) == before
    (event,) = events_of(GenerationTrigger(archive="s3://nowhere-at-all/a/b", poll_seconds=0.01))
    assert "no such bucket" in event["error"]
