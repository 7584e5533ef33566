"""Requests by botocore wait for a server like all others: each is cut off several times, and its answer comes later."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from streamvault.objectstore.retrying import RETRY_SECONDS
from streamvault.objectstore.s3 import cold, multipart
from streamvault.objectstore.store import AccessDenied, AlreadyExists, Lock, ObjectStoreUnavailable, StoredObject
from testkit.clock import Clock
from testkit.servers.raw_http import bucket_at

ADDRESS = bucket_at("http://127.0.0.1:9", "vault")
UNTIL = datetime(2999, 1, 1, tzinfo=UTC)


def refused(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "ask")


class Client:
    """A botocore client whose every operation fails before it answers: `outages` times each.

    Attributes:
        answers: the answer of an operation, or its error.
        asked: how often each was asked.
    """

    def __init__(self, outages: int, answers: dict[str, Any]) -> None:
        self.outages = outages
        self.answers = answers
        self.asked = Counter[str]()

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**_: object) -> Any:
            self.asked[operation] += 1
            if self.asked[operation] <= self.outages:
                if self.asked[operation] % 2:
                    raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")
                raise refused("SlowDown", 503)
            answer = self.answers.get(operation, {})
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Pauses, which take no time."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Client]:
    def use(outages: int, **answers: Any) -> Client:
        client = Client(outages, answers)
        for module, name in ((cold, "open_client"), (multipart, "shared_client")):
            monkeypatch.setattr(module, name, lambda _: client)
        return client

    return use


LOCKS = {"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}}
KEPT = {"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": UNTIL}
PAGE = {"Contents": [{"Key": "a", "Size": 1, "StorageClass": "GLACIER"}]}


def upload() -> None:
    multipart.upload(ADDRESS.access, "vault", "a", [b"0123"], {})


def locks() -> list[Lock | None]:
    found = ADDRESS.open_locks()
    assert found is not None
    return [found.lock_of("a"), found.first_lock(["b"])]


def warm() -> list[StoredObject]:
    storage = ADDRESS.open_cold_storage()
    objects = list(storage.objects("", "", "z"))
    assert storage.ask(objects, 1, "Bulk") == 1
    return objects


ANSWERS: dict[str, Any] = {
    "get_object_lock_configuration": LOCKS,
    "head_object": KEPT,
    "list_objects_v2": PAGE,
    "create_multipart_upload": {"UploadId": "1"},
    "upload_part": {"ETag": "e"},
}
OPERATIONS = {
    locks: {"get_object_lock_configuration", "get_object_legal_hold", "get_object_retention", "head_object"},
    warm: {"list_objects_v2", "head_object", "restore_object"},
    upload: {"create_multipart_upload", "upload_part", "complete_multipart_upload"},
}


@pytest.mark.parametrize("run", OPERATIONS)
def test_each_request_waits_for_the_server(use: Callable[..., Client], run: Callable[[], object], clock: Clock) -> None:
    use(0, **ANSWERS)
    expected = run()
    client = use(5, **ANSWERS)
    assert run() == expected
    assert client.asked == dict.fromkeys(OPERATIONS[run], 6)
    assert sum(clock.slept) > 0


@pytest.mark.parametrize("run", OPERATIONS)
def test_server_that_stays_away_is_told_after_the_same_time(
    use: Callable[..., Client], run: Callable[[], object], clock: Clock
) -> None:
    use(10_000, **ANSWERS)
    with pytest.raises(ObjectStoreUnavailable, match="gave up after"):
        run()
    assert RETRY_SECONDS / 2 < sum(clock.slept) <= RETRY_SECONDS


def test_lasting_errors_are_told_at_once(use: Callable[..., Client], clock: Clock) -> None:
    client = use(0, get_object_lock_configuration=refused("AccessDenied", 403))
    with pytest.raises(AccessDenied, match="GetBucketObjectLockConfiguration"):
        ADDRESS.open_locks()
    assert client.asked.total() == 1
    assert not clock.slept


def test_upload_whose_last_answer_was_lost_has_made_the_object(use: Callable[..., Client]) -> None:
    """The upload is gone then; whether the object is there is asked until the server answers."""
    client = use(3, **ANSWERS, complete_multipart_upload=refused("NoSuchUpload", 404))
    with pytest.raises(AlreadyExists):
        upload()
    assert client.asked["head_object"] == 4
