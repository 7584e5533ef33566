"""Streams that Pravega's own auto-scaler has split are restored with the same segment ids.

The auto-scaler numbers new segments in key order, a replayed scale in the order of a hash map: boundaries have to move
by a few ulps, and the import says so.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamvault import export_stream, import_stream
from streamvault.streamstore.model import (
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.java_client import JavaClient
from testkit.servers.pravega import PravegaServer
from testkit.streams import digest_of, events_of, shape_of
from tests.conftest import started
from tests.integration.conftest import Site
from tests.integration.test_shapes import goes_every_way

pytestmark = [pytest.mark.pravega, pytest.mark.waits, pytest.mark.timeout(1800)]

# On an idle machine the first splits come after 130 s; beside other tests they have taken more than 240 s.
SCALING_SECONDS = 900.0
MOST_ULPS = 64


@pytest.fixture(scope="session")
def eager_pravega(request: pytest.FixtureRequest) -> Iterator[PravegaServer]:
    """A Pravega whose auto-scaler does not wait."""
    eager = {"autoScale.cooldown.time.seconds": "0", "autoScale.mute.time.seconds": "5"}
    with started(request, "pravega", lambda: PravegaServer(properties=eager)) as server:
        yield server


class Writer(threading.Thread):
    """Writes some 300 events a second, as any client does, until it is stopped."""

    def __init__(self, server: PravegaServer, stream: StreamName) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.error: BaseException | None = None
        self._uri = server.uri.replace("pravega://", "tcp://")
        self._stream = stream

    def run(self) -> None:
        import pravega_client  # noqa: PLC0415

        try:
            manager = pravega_client.StreamManager(self._uri)
            writer = manager.create_writer(self._stream.scope, self._stream.stream)
            number = 0
            while not self.stopped.wait(0.1):
                for _ in range(30):
                    number += 1
                    writer.write_event(f"event {number} ".ljust(40, "."), routing_key=f"key-{number % 997}")
            writer.flush()
        except BaseException as error:  # noqa: BLE001
            self.error = error


class Scaled(threading.Thread):
    """Two streams that writers fill until the auto-scaler has split them; then they are sealed.

    The auto-scaler looks at the rate of two minutes, so this goes on beside other tests.
    """

    def __init__(self, server: PravegaServer) -> None:
        super().__init__(daemon=True)
        scope = f"scope-{uuid.uuid4().hex[:8]}"
        self.server = server
        self.streams = {3: StreamName(scope, "by-three"), 5: StreamName(scope, "by-five")}
        self.store = parse_stream(f"{server.uri}/{self.streams[3]}")[0].open()
        self.error: BaseException | None = None
        self._writers = [Writer(server, stream) for stream in self.streams.values()]
        self.store.create_scope(scope)
        for factor, stream in self.streams.items():
            scaling = Scaling(ScaleKind.BY_EVENTS, target=5, factor=factor, min_segments=factor)
            self.store.create_stream(stream, StreamConfiguration(scaling=scaling))

    def run(self) -> None:
        try:
            for writer in self._writers:
                writer.start()
            self._wait_for_scales()
            self.stop_writers()
            for stream in self.streams.values():
                self.store.seal(stream)
        except BaseException as error:  # noqa: BLE001  (raised by the test that needs the streams)
            self.error = error

    def stop_writers(self) -> None:
        for writer in self._writers:
            writer.stopped.set()
        for writer in self._writers:
            writer.join(60)
            if writer.error is not None:
                raise writer.error

    def _wait_for_scales(self) -> None:
        deadline = time.monotonic() + SCALING_SECONDS
        while any(len(self.store.describe(stream).epochs) <= 3 for stream in self.streams.values()):
            if any(writer.error or writer.stopped.is_set() for writer in self._writers):
                return
            if time.monotonic() > deadline:
                epochs = {str(stream): len(self.store.describe(stream).epochs) for stream in self.streams.values()}
                raise TimeoutError(f"not every stream has more than three epochs after {SCALING_SECONDS} s: {epochs}")
            time.sleep(3)


@pytest.fixture(scope="session")
def scaled(eager_pravega: PravegaServer) -> Iterator[Scaled]:
    """The streams, while they scale."""
    scaled = Scaled(eager_pravega)
    with scaled.store:
        scaled.start()
        yield scaled
        scaled.stop_writers()
        scaled.join(60)


def test_streams_scale_during_other_work(scaled: Scaled) -> None:
    assert scaled.error is None
    assert all(scaled.store.exists(stream) for stream in scaled.streams.values())


@pytest.mark.late
def test_auto_scaled_streams_keep_their_segment_ids(scaled: Scaled, tmp_path: Path) -> None:
    scaled.join(SCALING_SECONDS + 120)
    assert scaled.error is None
    assert not scaled.is_alive()
    moved = 0
    for stream in scaled.streams.values():
        assert len(scaled.store.describe(stream).epochs) > 3
        moved += restored_with_the_same_ids(scaled.store, scaled.server, stream, f"file://{tmp_path}/vault")
    assert moved, "no boundary had to move: this history shows nothing"


@pytest.mark.late
@pytest.mark.long
def test_auto_scaled_stream_goes_every_way(
    scaled: Scaled, there: Site, java_client: JavaClient, tmp_path: Path
) -> None:
    """Boundaries may move by a few ulps."""
    scaled.join(SCALING_SECONDS + 120)
    assert scaled.error is None
    here, name = Site(scaled.server, scaled.store), scaled.streams[3]
    count = len(list(events_of(scaled.store, name)))
    goes_every_way(here, there, name, tmp_path, lambda *stream: java_client.digest(*stream, count), places=12)


def restored_with_the_same_ids(store: StreamStore, server: PravegaServer, source: StreamName, root: str) -> int:
    """Export and import; returns how many boundaries had to move."""
    described = store.describe(source)
    assert described.sealed, "a stream that scales again would not be the one that was archived"
    # what the writers left by then are tens of thousands of events, and each would be a file of its own
    export_stream(f"{server.uri}/{source}", root, layout="chunks", master="inline")
    restored = StreamName(source.scope, f"{source.stream}-restored")
    report = import_stream(f"{root}/{source}", f"{server.uri}/{restored}", master="inline")
    after = store.describe(restored)
    assert [set(epoch.segments) for epoch in after.epochs][: len(described.epochs)] == [
        set(epoch.segments) for epoch in described.epochs
    ]
    assert digest_of(store, restored) == digest_of(store, source)
    before, then = shape_of(store, source), shape_of(store, restored)
    assert then["live"] == before["live"]
    assert then["sealed"] is True
    declared = {(m.source_position, m.target_position) for m in report.moved_boundaries}
    assert all(0 < m.ulps <= MOST_ULPS for m in report.moved_boundaries)
    for low_before, low_after in boundaries(store.describe(source), after):
        assert low_before == low_after or (low_before, low_after) in declared
    return len(report.moved_boundaries)


def boundaries(source: StreamDescription, restored: StreamDescription) -> list[tuple[float, float]]:
    a, b = source.ranges(), restored.ranges()
    segments: list[SegmentId] = sorted(a)
    return [(a[s].low, b[s].low) for s in segments] + [(a[s].high, b[s].high) for s in segments]
