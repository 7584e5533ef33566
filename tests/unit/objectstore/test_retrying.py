"""Retries: which requests, how often, for how long, and how a lost response is resolved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from obstore.store import MemoryStore

from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.retrying import FIRST_CONTACT, RetryingStore
from streamvault.objectstore.store import (
    SMALL,
    AccessDenied,
    AlreadyExists,
    NoSuchHost,
    NoSuchObject,
    ObjectInfo,
    ObjectStoreError,
    ObjectStoreUnavailable,
    ServerBusy,
)
from testkit.clock import Clock
from tests.metered import MeteredStore


class Failing:
    """A store in memory that fails on request: before the operation took effect, or after it (a lost response)."""

    def __init__(self) -> None:
        self.inner = ObstoreStore(MemoryStore(), bucket="memory://x")
        self.uri = self.inner.uri
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.break_list_after: list[int] = []
        self.attempts = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)

        def ask(*arguments: Any) -> Any:
            self._enter()
            answer = call(*arguments)
            if self.after:
                raise self.after.pop(0)
            return answer

        return ask

    def _enter(self) -> None:
        self.attempts += 1
        if self.before:
            raise self.before.pop(0)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        self._enter()
        left = self.break_list_after.pop(0) if self.break_list_after else None
        for seen, entry in enumerate(self.inner.list(prefix, after)):
            if seen == left:
                raise busy()
            yield entry


def busy() -> ServerBusy:
    return ServerBusy("the server is busy (503)", where="s3://bucket", todo="Try again later.")


def away() -> ObjectStoreUnavailable:
    return ObjectStoreUnavailable("nothing listens", where="s3://bucket")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    monkeypatch.setattr("streamvault.objectstore.retrying.FIRST_WAIT", 0.01)
    monkeypatch.setattr("streamvault.objectstore.retrying.LONGEST_WAIT", 0.05)
    return Failing()


def test_every_kind_of_request_is_tried_again(failing: Failing) -> None:
    store = RetryingStore(failing)
    failing.inner.put("a/b", b"0123")
    asks = [
        (lambda: store.get("a/b"), b"0123"),
        (lambda: store.get_range("a/b", 1, 3), b"12"),
        (lambda: store.size("a/b"), 4),
        (lambda: list(store.list("a/")), [ObjectInfo("a/b", 4)]),
        (lambda: list(store.folders("")), ["a"]),
        (lambda: store.put("a/c", b"x"), None),
        (lambda: store.delete(["a/c"]), None),
    ]
    for ask, expected in asks:
        failing.before = [busy(), away(), busy()]
        failing.attempts = 0
        assert ask() == expected
        assert failing.attempts == (4 if ask is not asks[5][0] else 5)  # a put checks first when it retries
    assert store.uri == failing.uri


@pytest.mark.parametrize("problem", [AccessDenied("no"), NoSuchObject("no"), ValueError("a bug")])
def test_lasting_errors_are_not_tried_again(failing: Failing, problem: Exception) -> None:
    failing.before = [problem]
    with pytest.raises(type(problem)):
        RetryingStore(failing).get("a")
    assert failing.attempts == 1
    failing.before, failing.attempts = [busy(), problem], 0
    with pytest.raises(type(problem)):
        RetryingStore(failing).get("a")
    assert failing.attempts == 2


def test_only_a_server_that_never_answered_may_be_another_one(failing: Failing) -> None:
    asked: list[bool] = []
    store = RetryingStore(failing, reach=lambda: asked.append(True))
    failing.inner.put("a", b"x")
    failing.before = [away(), busy(), away()]
    assert store.get("a") == b"x"
    assert asked == [True]
    failing.before = [away()]
    assert list(store.list("a/")) == []
    failing.before = [ObjectStoreError("rejected")]
    with pytest.raises(ObjectStoreError):
        store.get("a")
    assert asked == [True]


def test_put_whose_answer_was_lost_succeeds(failing: Failing) -> None:
    store = RetryingStore(failing)
    failing.after = [away()]
    store.put("a", b"payload")
    assert failing.inner.get("a") == b"payload"
    failing.inner.put("b", b"somebody else's")
    failing.before = [away()]
    with pytest.raises(AlreadyExists):
        store.put("b", b"payload")
    assert failing.inner.get("b") == b"somebody else's"
    with pytest.raises(AlreadyExists):
        store.put("a", b"payload")  # without a lost response, an existing key is an error


@pytest.mark.usefixtures("failing")
def test_put_whose_object_vanished_behind_a_lost_answer_reports_it_taken() -> None:
    class Deleting(Failing):
        def get(self, key: str, at_most: int = SMALL) -> bytes:
            self.inner.delete([key])
            return self.inner.get(key, at_most)

    store = Deleting()
    store.after = [away()]
    with pytest.raises(AlreadyExists):
        RetryingStore(store).put("a", b"payload")


def test_put_does_not_read_a_larger_object_behind_a_lost_answer(failing: Failing) -> None:
    failing.inner.put("b", b"somebody else's larger object")
    failing.before = [away()]
    with pytest.raises(AlreadyExists):
        RetryingStore(failing).put("b", b"payload")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses, which take no time."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock.slept


def test_last_error_is_raised_when_retries_are_over(failing: Failing, slept: list[float]) -> None:
    failing.before = [busy()] * 10_000
    with pytest.raises(ServerBusy) as caught:
        RetryingStore(failing, total_seconds=0.5).get("a")
    assert 0.2 < sum(slept) <= 0.5
    assert 4 < failing.attempts < 100
    assert str(caught.value).startswith("the server is busy (503), gave up after ")
    assert caught.value.where == "s3://bucket"


def test_server_that_never_answered_is_given_less_time(failing: Failing, slept: list[float]) -> None:
    store = RetryingStore(failing, total_seconds=60)
    failing.before = [away()] * 10_000
    with pytest.raises(ObjectStoreUnavailable):
        store.get("a")
    assert 0 < sum(slept) <= FIRST_CONTACT
    failing.before = []
    with pytest.raises(NoSuchObject):
        store.get("a")
    failing.before = [away()] * 10_000
    slept.clear()
    with pytest.raises(ObjectStoreUnavailable):
        store.get("a")
    assert FIRST_CONTACT < sum(slept) <= 60


def test_broken_listing_goes_on_after_the_last_key(failing: Failing) -> None:
    keys = [f"a/{number}" for number in range(9)]
    for key in keys:
        failing.inner.put(key, b"")
    failing.break_list_after = [3, 0, 2, 4]
    failing.before = [busy()]
    assert [entry.key for entry in RetryingStore(failing).list("a/", "a/0")] == keys[1:]


def test_requests_and_bytes_are_counted() -> None:
    store = MeteredStore(ObstoreStore(MemoryStore(), bucket="memory://x"))
    for number in range(2500):
        store.put(f"a/{number:04d}", b"xyz")
    with pytest.raises(AlreadyExists):
        store.put("a/0000", b"xyz")
    assert store.get("a/0000") == b"xyz"
    assert store.get_range("a/0000", 1, 3) == b"yz"
    assert store.size("a/0000") == 3
    assert len(list(store.list("a/"))) == 2500
    assert list(store.list("b/")) == []
    store.folders("")
    store.delete([f"a/{number:04d}" for number in range(1001)])
    meter = store.meter
    assert meter.puts == 2501
    assert (meter.gets, meter.bytes_got) == (2, 5)
    assert (meter.sizes, meter.lists, meter.deletes) == (1, 5, 2)
    assert meter.requests == 2501 + 2 + 1 + 5 + 2
    store.folders("")
    assert meter.lists == 5  # the data handed out stays unchanged


def test_a_host_that_does_not_exist_is_told_at_once_unless_it_has_answered(failing: Failing) -> None:
    nobody = NoSuchHost("there is no host with this name", where="s3://bucket")
    failing.before = [nobody]
    store = RetryingStore(failing)
    with pytest.raises(NoSuchHost, match="no host with this name"):
        store.folders("")
    assert failing.attempts == 1
    store.folders("")
    failing.before = [nobody]
    store.folders("")
    assert failing.attempts == 4
