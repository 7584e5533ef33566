"""Policies that do not fit a stream's history, on a real Pravega and on the embedded store."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault import export_stream, import_stream
from streamvault.streamstore.model import KeyRange, Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.uri import StoreAddress, parse_stream
from testkit.servers.pravega import PravegaServer
from testkit.streams import append_events, digest_of, payloads, shape_of


@pytest.fixture(params=["local", pytest.param("pravega", marks=pytest.mark.pravega)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    if request.param == "local":
        uri = f"local://{tmp_path}/streams"
    else:
        server: PravegaServer = request.getfixturevalue("pravega")
        uri = server.uri
    return parse_stream(f"{uri}/scope/stream")[0]


def test_stream_with_more_segments_than_its_policy_is_restored(
    address: StoreAddress, scope_name: str, tmp_path: Path
) -> None:
    """Pravega would scale a stream with such a policy, so the restored policy has the number of open segments."""
    source, restored = StreamName(scope_name, "source"), StreamName(scope_name, "restored")
    with address.open() as store:
        store.create_scope(scope_name)
        store.create_stream(source, StreamConfiguration(scaling=Scaling(min_segments=2)))
        first = next(iter(store.describe(source).epochs[0].segments.items()))
        store.scale(source, [first[0]], [KeyRange(0.0, 0.125), KeyRange(0.125, first[1].high)])
        for segment in store.describe(source).tail.offsets:
            append_events(store, source, segment, payloads(20, segment.number))
        export_stream(f"{address.uri}/{source}", f"file://{tmp_path}/vault", master="inline")
        report = import_stream(f"file://{tmp_path}/vault/{source}", f"{address.uri}/{restored}", master="inline")
        assert any("policy asks for 2 segments, but 3 are open" in warning for warning in report.warnings)
        assert store.describe(restored).configuration.scaling == Scaling(min_segments=3)
        assert store.describe(restored).epochs == store.describe(source).epochs
        assert digest_of(store, restored) == digest_of(store, source)


def test_stream_with_fewer_segments_than_at_its_start_is_restored(
    address: StoreAddress, scope_name: str, tmp_path: Path
) -> None:
    """A store refuses to scale below the policy's minimum; the source had another policy then."""
    source, restored = StreamName(scope_name, "source"), StreamName(scope_name, "restored")
    with address.open() as store:
        store.create_scope(scope_name)
        store.create_stream(source, StreamConfiguration(scaling=Scaling(min_segments=3)))
        for segment in store.describe(source).tail.offsets:
            append_events(store, source, segment, payloads(20, segment.number))
        low = StreamConfiguration(scaling=Scaling(kind="events", target=1_000_000, factor=2, min_segments=1))  # type: ignore[arg-type]
        store.update_stream(source, low)
        store.scale(source, list(store.describe(source).tail.offsets), [KeyRange(0.0, 1.0)])
        for segment in store.describe(source).tail.offsets:
            append_events(store, source, segment, payloads(20, segment.number))
        export_stream(f"{address.uri}/{source}", f"file://{tmp_path}/vault", master="inline")
        import_stream(f"file://{tmp_path}/vault/{source}", f"{address.uri}/{restored}", master="inline")
        assert shape_of(store, restored) == shape_of(store, source)
        assert digest_of(store, restored) == digest_of(store, source)
