"""Many objects at once: order, limits, errors, early ends."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from obstore.store import MemoryStore

from streamvault.common.errors import Conflict
from streamvault.objectstore import bulk
from streamvault.objectstore.bulk import DELETE_AT_ONCE, DELETES, delete_all, get_all, put_all, put_same, read_ahead
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import SMALL, AccessDenied, NoSuchObject, WrongSize


class Watched(ObstoreStore):
    """A slow store in memory that records the maximum amount in flight."""

    def __init__(self, seconds: float = 0.002) -> None:
        super().__init__(MemoryStore(), bucket="memory://watched")
        self.seconds = seconds
        self.now = self.most = self.now_bytes = self.most_bytes = self.requests = 0
        self.fail_at = -1
        self._lock = threading.Lock()

    def _begin(self, size: int) -> None:
        with self._lock:
            self.requests += 1
            self.now += 1
            self.now_bytes += size
            self.most = max(self.most, self.now)
            self.most_bytes = max(self.most_bytes, self.now_bytes)
            fail = self.requests == self.fail_at
            # whoever comes later gives the one that fails time to say so
            seconds = 0.5 if 0 < self.fail_at < self.requests else random.uniform(0, self.seconds)
        time.sleep(0 if fail else seconds)
        if fail:
            self._end(size)
            raise AccessDenied("no permission")

    def _end(self, size: int) -> None:
        with self._lock:
            self.now -= 1
            self.now_bytes -= size

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._begin(len(data))
        super().put(key, data)
        self._end(len(data))

    def delete(self, keys: Sequence[str]) -> None:
        self._begin(len(keys))
        super().delete(keys)
        self._end(len(keys))

    def get(self, key: str, at_most: int = SMALL) -> bytes:
        data = super().get(key, at_most)
        self._begin(len(data))
        self._end(len(data))
        return data


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("objects-")] == []


def items(count: int, size: int = 10) -> list[tuple[str, bytes]]:
    return [(f"a/{number:05d}", bytes([number % 251]) * (number % (size + 1))) for number in range(count)]


def sizes(of: list[tuple[str, bytes]]) -> list[tuple[str, int]]:
    return [(key, len(data)) for key, data in of]


def test_objects_are_put_and_come_back_in_order() -> None:
    store = Watched()
    wanted = items(500)
    put_all(store, iter(wanted))
    assert list(get_all(store, sizes(wanted))) == wanted
    backwards = wanted[::-1]
    assert list(get_all(store, sizes(backwards))) == backwards


def test_empty_input_makes_no_requests() -> None:
    put_all(Watched(), [])
    assert list(get_all(Watched(), [])) == []


def test_requests_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MAX_IN_FLIGHT", 7)
    store = Watched()
    put_all(store, items(200))
    assert 3 < store.most <= 7
    store.most = 0
    list(get_all(store, sizes(items(200))))
    assert 2 < store.most <= 7


def test_bytes_in_flight_are_bounded_by_the_window() -> None:
    store = Watched()
    wanted = [(f"a/{number}", b"x" * 1000) for number in range(100)]
    put_all(store, wanted, window_bytes=3500)
    assert 2000 <= store.most_bytes <= 3000
    store.most_bytes = 0
    list(get_all(store, sizes(wanted), window_bytes=3500))
    assert 2000 <= store.most_bytes <= 3000
    put_all(store, [(f"b/{number}", b"x" * 5000) for number in range(5)], window_bytes=3500)
    assert store.most_bytes == 5000  # a larger one is sent alone


def test_results_that_wait_for_the_consumer_count_towards_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MAX_IN_FLIGHT", 10)
    store = Watched(seconds=0)
    wanted = items(300)
    put_all(store, wanted)
    store.requests = 0
    for seen, _ in enumerate(get_all(store, sizes(wanted))):
        if seen % 50 == 0:
            time.sleep(0.02)
        assert store.requests <= seen + 1 + 40


def test_source_is_used_by_one_thread_and_read_no_further_than_needed() -> None:
    store = Watched()
    busy = threading.Lock()
    taken = 0

    def source() -> Iterator[tuple[str, bytes]]:
        nonlocal taken
        for item in items(300):
            assert busy.acquire(blocking=False)
            time.sleep(0.0001)
            taken += 1
            busy.release()
            yield item

    put_all(store, source())
    assert taken == 300
    store.fail_at = store.requests + 20
    taken = 0
    with pytest.raises(AccessDenied):
        put_all(store, ((f"b/{key}", data) for key, data in source()))
    assert taken < 80


def test_error_of_the_source_is_raised_unchanged() -> None:
    def source() -> Iterator[tuple[str, bytes]]:
        yield from items(50)
        raise ZeroDivisionError("in the source")

    store = Watched()
    with pytest.raises(ZeroDivisionError, match="in the source"):
        put_all(store, source())
    assert len(list(store.list("a/"))) == 50  # the results taken before are there
    with pytest.raises(ZeroDivisionError):
        list(get_all(store, ((key, len(data)) for key, data in source())))


def test_first_error_ends_the_run() -> None:
    store = Watched()
    wanted = items(400)
    store.fail_at = 100
    with pytest.raises(AccessDenied, match="no permission"):
        put_all(store, wanted)
    assert store.requests < 300  # of 400: those in flight were finished, and no more were taken
    store.fail_at = -1
    put_all(store, wanted)
    store.fail_at = store.requests + 100
    seen: list[tuple[str, bytes]] = []
    with pytest.raises(AccessDenied, match="no permission"):
        seen.extend(get_all(store, sizes(wanted)))
    assert seen == wanted[: len(seen)]
    assert len(seen) < 300


def test_get_all_raises_for_missing_and_changed_objects() -> None:
    store = Watched()
    put_all(store, items(50))
    with pytest.raises(NoSuchObject, match="a/nope"):
        list(get_all(store, [*sizes(items(50)), ("a/nope", 1)]))
    with pytest.raises(WrongSize, match="2 bytes instead of 3: memory://watched/a/00002"):
        list(get_all(store, [("a/00001", 1), ("a/00002", 3)]))


def test_early_end_stops_the_threads() -> None:
    store = Watched()
    wanted = items(1000)
    put_all(store, wanted)
    store.requests = 0
    with closing(get_all(store, sizes(wanted))) as found:
        assert next(found) == wanted[0]
    assert store.requests < 300
    never = get_all(store, sizes(wanted))
    never.close()
    assert store.requests < 300


def test_what_was_read_is_held_no_longer_than_it_is_used() -> None:
    store, kept = ObstoreStore(MemoryStore(), bucket="memory://kept"), list[weakref.ref[memoryview]]()
    store.put("key", bytes(3 << 20))
    gc.collect()
    gc.disable()  # with it, blocks of earlier reads would stay until it comes
    try:
        for block in read_ahead(store, "key", 0, 3 << 20):
            kept.append(weakref.ref(block))
        del block
        assert kept
        assert [one() for one in kept] == [None] * len(kept)
    finally:
        gc.enable()


def test_put_same_accepts_equal_content_and_refuses_other() -> None:
    store = Watched()
    for _ in range(2):
        put_same(store, "a", b"payload")
        put_same(store, "a", memoryview(b"payload"))
    for other in (b"other", b"", b"payload!"):
        with pytest.raises(Conflict, match="a different object already exists: memory://watched/a") as caught:
            put_same(store, "a", other)
        assert caught.value.exit_code == 4
    put_all(store, items(100))
    put_all(store, items(200))
    with pytest.raises(Conflict, match="a/00150"):
        put_all(store, [(key, b"other" if key == "a/00150" else data) for key, data in items(200)])


def test_keys_are_deleted_by_bulk_requests_while_they_are_listed() -> None:
    store = Watched()
    names = [f"a/{number:05d}" for number in range(12 * DELETE_AT_ONCE + 5)]
    for key in (names[0], names[-1]):
        store.put(key, b"")
    store.put("b", b"")
    store.requests = store.most_bytes = 0
    taken = 0

    def listed() -> Iterator[str]:
        nonlocal taken
        for key in names:
            taken += 1
            assert taken <= (store.requests + 2 * DELETES + 1) * DELETE_AT_ONCE, "no more is listed than is deleted"
            yield key

    assert delete_all(store, listed()) == len(names)
    assert store.requests == 13
    assert store.most <= DELETES
    assert store.most_bytes <= DELETES * DELETE_AT_ONCE
    assert [entry.key for entry in store.list("")] == ["b"]


@pytest.mark.parametrize(("count", "requests"), [(0, 0), (1, 1), (DELETE_AT_ONCE, 1), (DELETE_AT_ONCE + 1, 2)])
def test_few_keys_are_deleted_by_few_requests(count: int, requests: int) -> None:
    store = Watched()
    assert delete_all(store, (f"a/{number}" for number in range(count))) == count
    assert store.requests == requests


def test_failed_deletion_ends_the_others() -> None:
    store = Watched()
    store.fail_at = 3
    with pytest.raises(AccessDenied, match="no permission"):
        delete_all(store, (f"a/{number}" for number in range(100 * DELETE_AT_ONCE)))
    assert store.requests < 50
