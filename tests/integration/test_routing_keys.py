"""Routing keys are placed as the clients of a real Pravega place them."""

from __future__ import annotations

import math

import pytest

from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.routing import SegmentRouter, key_position
from streamvault.streamstore.store import StreamStore
from testkit.servers.pravega import PravegaServer
from testkit.streams import events_of

pytestmark = pytest.mark.pravega


def test_routing_keys_map_to_the_java_clients_segments(
    pravega: PravegaServer, store: StreamStore, scope_name: str
) -> None:
    client = pytest.importorskip("pravega_client")
    name = StreamName(scope_name, "routed")
    store.create_scope(scope_name)
    store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=7)))
    # for Latin-1 letters beyond ASCII this client disagrees with the Java client; we follow the latter
    keys = [*(f"key-{number}" for number in range(300)), "日本語 𝄞", "x" * 300]
    manager = client.StreamManager(pravega.uri.replace("pravega://", "tcp://"))
    writer = manager.create_writer(name.scope, name.stream, 1000)
    for key in keys:
        writer.write_event_bytes(key.encode(), routing_key=key)
    writer.flush()
    router = SegmentRouter(store.describe(name).epochs[0].segments)
    found = [(pointer.segment, payload) for pointer, payload in events_of(store, name)]
    assert len(found) == len(keys)
    for segment, payload in found:
        assert router.segments[router.index_of(payload.decode())] == segment


def test_key_positions_are_those_of_the_java_client() -> None:
    wanted = {
        "": 0.24117842791623523,
        "a": 0.9433912753816884,
        "key-1": 0.3829162539760538,
        "ünïcode": 0.8253822772918742,
        "日本語 𝄞": 0.3720707935326142,
        "0123456789abcdef0123456789abcdef0": 0.862759358114443,
    }
    assert all(math.isclose(key_position(key), value, rel_tol=0, abs_tol=1e-15) for key, value in wanted.items())
