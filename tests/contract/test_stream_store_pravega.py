"""The contract of stream stores on a real Pravega, and the embedded store beside it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.pravega import PravegaServer
from testkit.streams import digest_of, make_stream, shape_of
from tests.contract.open_stores import Open
from tests.contract.stream_store import StreamStoreContract, append, evenly, events

pytestmark = pytest.mark.pravega


class TestPravega(StreamStoreContract):
    @pytest.fixture
    def open_store(self, pravega: PravegaServer) -> Open:
        address, _ = parse_stream(f"{pravega.uri}/scope/stream")
        return address.open

    def test_both_stores_agree_on_a_fixed_history(self, store: StreamStore, scope_name: str, tmp_path: Path) -> None:
        """Epochs, numbers, offsets, head and every event of a stream with all kinds of scales."""
        name = StreamName(scope_name, "stream")
        with LocalStore(tmp_path) as local:
            for place in (store, local):
                make_stream(place, name, events=3_000, largest=200_000)
            assert shape_of(local, name) == shape_of(store, name)
            assert digest_of(local, name) == digest_of(store, name)

    @pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
    def test_both_stores_agree_on_random_histories(
        self, store: StreamStore, scope_name: str, tmp_path: Path, seed: int
    ) -> None:
        name = StreamName(scope_name, "stream")
        with LocalStore(tmp_path) as local:
            for place in (store, local):
                place.create_scope(scope_name)
                random_history(place, name, seed)
            assert shape_of(local, name) == shape_of(store, name)
            assert digest_of(local, name) == digest_of(store, name)


def random_history(store: StreamStore, name: StreamName, seed: int) -> None:
    """Scales with appends between them, truncations, and the seal at times; the same for each store."""
    rng = random.Random(seed)
    count = rng.randrange(1, 5)
    store.create_stream(name, StreamConfiguration(tags=(f"seed-{seed}",)))
    store.scale(name, [SegmentId(0, 0)], evenly(0.0, 1.0, count))
    for step in range(12):
        current = store.describe(name).epochs[-1].segments
        for segment in rng.sample(sorted(current), min(len(current), 3)):
            append(store, name, segment, events(rng.randrange(1, 30_000), step))
        begin = rng.randrange(len(current))
        sealed = list(current)[begin : begin + rng.randrange(1, 4)]
        low, high = current[sealed[0]].low, current[sealed[-1]].high
        ranges = evenly(low, high, rng.choice([1, 2, 3, 7, 14]))
        rng.shuffle(ranges)
        store.scale(name, sealed, ranges)
        if rng.random() < 0.25:
            tail = store.describe(name).tail
            store.truncate(tail)
            boundary = append(store, name, min(tail.offsets), events(5_000, step))
            assert boundary > tail.offsets[min(tail.offsets)]
    if rng.random() < 0.5:
        store.seal(name)
