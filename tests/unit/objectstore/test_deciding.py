"""Create-only puts: the first one wins, and a store that contradicts itself is not retried forever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from obstore.store import MemoryStore

from streamvault.layouts.keys import GenerationSpan, Place
from streamvault.manifests.plan import create_plan, leave_row
from streamvault.objectstore.deciding import decide
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import AlreadyExists, ObjectStoreUnavailable
from tests.archives import LEFT
from tests.unit.plans import PREFIX, plan_of, row

WAITS = [0.1, 0.2, 0.4, 0.8, 1.6]


class Contradicting(ObstoreStore):
    """A store that refuses to create objects that do not exist."""

    def __init__(self, refusals: int) -> None:
        super().__init__(MemoryStore(), bucket="memory://x")
        self.refusals = refusals

    def put(self, key: str, data: bytes | memoryview) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise AlreadyExists("the object exists", where=key)
        super().put(key, data)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seen: list[float] = []
    monkeypatch.setattr("streamvault.common.waiting.time.sleep", seen.append)
    return seen


def test_first_decision_holds() -> None:
    store = ObstoreStore(MemoryStore(), bucket="memory://x")
    start = Barrier(10)

    def run(number: int) -> tuple[bytes, bool]:
        start.wait()
        return decide(store, "a", b"%d" % number)

    with ThreadPoolExecutor(10) as threads:
        held = list(threads.map(run, range(10)))
    assert {data for data, _ in held} == {store.get("a")}
    assert sorted(created for _, created in held) == [False] * 9 + [True]


def test_decision_that_vanishes_is_made_again(waits: list[float]) -> None:
    store = Contradicting(3)
    assert decide(store, "a", b"mine") == (b"mine", True)
    assert store.get("a") == b"mine"
    assert waits == WAITS[:3]


def test_contradicting_store_is_unavailable_after_all_waits(waits: list[float]) -> None:
    for attempt in (
        lambda store: decide(store, "a", b"mine"),
        lambda store: create_plan(Place(store, PREFIX), plan_of()),
        lambda store: leave_row(Place(store, PREFIX), GenerationSpan.of(1), LEFT, row(0)),
    ):
        waits.clear()
        with pytest.raises(ObjectStoreUnavailable, match="as existing, then as missing: memory://x/"):
            attempt(Contradicting(1000))
        assert waits == WAITS
