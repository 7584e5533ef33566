"""CRC64NVME as S3 computes it.

Create-only puts: the first one wins, and a store that contradicts itself is not retried forever.
"""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from streamvault.layouts.keys import GenerationSpan, Place
from streamvault.manifests.files import decide
from streamvault.manifests.plan import create_plan, leave_row
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import AlreadyExists, ObjectStoreUnavailable, RunningChecksum, crc64nvme
from tests.archives import LEFT, PREFIX, plan_of, row


def by_table(body: bytes) -> str:
    """As the NVM Express specification defines it, with the bits of each byte in reverse order."""
    found = 2**64 - 1
    for byte in body:
        found = TABLE[(found ^ byte) & 0xFF] ^ found >> 8
    return base64.b64encode((found ^ 2**64 - 1).to_bytes(8)).decode()


def _entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ 0x9A6C9329AC4BC9B5 * (value & 1)
    return value


TABLE = [_entry(value) for value in range(256)]


@given(st.binary(max_size=3000), st.lists(st.integers(0, 3000), max_size=4))
def test_blocks_have_the_checksum_of_the_specification(body: bytes, cuts: list[int]) -> None:
    assert crc64nvme(body) == by_table(body)
    found = RunningChecksum()
    blocks = [memoryview(body)[low:high] for low, high in pairwise(sorted({0, len(body), *cuts}))]
    assert b"".join(found.of(blocks)) == body
    assert found.text == by_table(body)


def test_known_values() -> None:
    assert crc64nvme(b"123456789") == "rosUhgp5mIg="
    assert crc64nvme(b"") == "AAAAAAAAAAA="
    assert crc64nvme(bytearray(100_003)) == by_table(bytes(100_003))


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
