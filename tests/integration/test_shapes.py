"""Streams of every shape come to another cluster in every way unchanged: by our reader and by Pravega's Java client."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    check_archive,
    copy_stream,
    export_stream,
    import_stream,
    move_stream,
    promote_replica,
    replicate_stream,
    rotate_stream,
)
from streamvault.sources.reader import NotEvents
from streamvault.streamstore.model import ContentKind, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.servers.java_client import JavaClient
from testkit.servers.pravega import PravegaServer
from testkit.streams import append_events, bytes_of, events_of, live_segments, make_stream
from tests.integration.conftest import Site
from tests.integration.test_large_events import write_large

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(600)]


MIB = 1024 * 1024
ONE_SEGMENT = StreamConfiguration(scaling=Scaling(min_segments=1))
FIRST = SegmentId(0, 0)
INLINE: dict[str, Any] = {"master": "inline[2]", "window": 64 * MIB}


def state_of(site: Site, name: StreamName, *, epochs: int, places: int = 17) -> dict[str, object]:
    """Epochs with key ranges, the head, the seal, and offsets and bytes of each segment.

    Segments of later epochs have no bytes. Boundaries are rounded to some decimal places; 17 do not change them.
    """
    described = site.store.describe(name)
    segments = []
    for segment, start, end in live_segments(described, site.store):
        digest = hashlib.sha256()
        for block in site.store.read(name, segment, start, end):
            digest.update(block)
        if segment.epoch < epochs:
            segments.append((segment, start, end, digest.hexdigest()))
        else:
            assert end == 0
    ranges = [
        [(segment, round(held.low, places), round(held.high, places)) for segment, held in epoch.segments.items()]
        for epoch in described.epochs[:epochs]
    ]
    return {"epochs": ranges, "head": described.head.offsets, "sealed": described.sealed, "segments": segments}


def goes_every_way(
    here: Site,
    there: Site,
    name: StreamName,
    folder: Path,
    read: Callable[[PravegaServer, StreamName], object],
    *,
    content: ContentKind = "events",
    places: int = 17,
) -> None:
    """Archive and restore a stream, copy it, replicate and promote it, move it; compare each with what it was.

    Args:
        here: where it is.
        there: another cluster.
        name: the stream; it is moved away.
        folder: for the archive.
        read: reads a stream with the Java client.
        content: what it holds.
        places: as for `state_of`.
    """
    restored, copied, replica, moved = (
        StreamName(name.scope, f"{name.stream}-{way}") for way in ("restored", "copied", "replica", "moved")
    )
    source, epochs = here.uri(name), len(here.store.describe(name).epochs)
    expected = state_of(here, name, epochs=epochs, places=places)
    export_stream(source, f"file://{folder}/vault", layout="chunks", content=content, **INLINE)
    reports = [
        import_stream(f"file://{folder}/vault/{name}", here.uri(restored), **INLINE),
        copy_stream(source, there.uri(copied), **INLINE),
        replicate_stream(source, there.uri(replica), numbers="keep", **INLINE),
    ]
    promote_replica(there.uri(replica), **INLINE)
    places_of = [(here, name), (here, restored), (there, copied), (there, replica)]
    with ThreadPoolExecutor(2) as pool:
        reads = list(pool.map(lambda place: read(place[0].server, place[1]), places_of))
    reports.append(move_stream(source, there.uri(moved), **INLINE))
    places_of.append((there, moved))
    reads.append(read(there.server, moved))
    assert [report.renumbered for report in reports] == [{}] * 4
    for site, stream in places_of[1:]:
        assert state_of(site, stream, epochs=epochs, places=places) == expected, stream
    assert reads == [reads[0]] * 5


def test_scaled_and_truncated_stream(
    here: Site, there: Site, java_client: JavaClient, scope_name: str, tmp_path: Path
) -> None:
    """A split, a merge, a refresh, a truncated head, and an empty event between others."""
    name = StreamName(scope_name, "scaled")
    make_stream(here.store, name, events=300, largest=50_000)
    append_events(here.store, name, max(here.store.describe(name).tail.offsets), [b"one", b"", b"three"])
    count = len(list(events_of(here.store, name)))
    goes_every_way(here, there, name, tmp_path, lambda *stream: java_client.digest(*stream, count))


@pytest.mark.long
@pytest.mark.timeout(900)  # the Java client may be started three times, see `write_large`
def test_stream_with_an_event_of_64_mib(
    here: Site, there: Site, java_client: JavaClient, scope_name: str, tmp_path: Path
) -> None:
    name, sizes = StreamName(scope_name, "large"), [100, 64 * MIB, 7]
    here.store.create_scope(scope_name)
    here.store.create_stream(name, ONE_SEGMENT)
    write_large(java_client, here.server, here.store, name, sizes)
    assert [pointer.length - 8 for pointer, _ in events_of(here.store, name)] == sizes
    goes_every_way(here, there, name, tmp_path, lambda *stream: java_client.digest(*stream, len(sizes)))


def test_byte_stream(here: Site, there: Site, java_client: JavaClient, scope_name: str, tmp_path: Path) -> None:
    name = StreamName(scope_name, "bytes")
    here.store.create_scope(scope_name)
    here.store.create_stream(name, ONE_SEGMENT)
    java_client.byte_stream(here.server, name, append=3 * MIB + 5)
    here.store.truncate(StreamCut(name, {FIRST: 1_000_003}))
    assert java_client.byte_stream(here.server, name, append=MIB)[:2] == ["1000003", str(4 * MIB + 5)]
    goes_every_way(here, there, name, tmp_path, java_client.byte_stream, content="bytes")
    written = java_client.byte_stream(there.server, StreamName(scope_name, "bytes-moved"), append=1000)
    assert written[:2] == ["1000003", str(4 * MIB + 5 + 1000)]


# --- a byte stream of a real Pravega, written and read by Pravega's own Java client: archived, restored, copied


def test_java_client_reads_its_restored_bytes(
    pravega: PravegaServer, java_client: JavaClient, scope_name: str, tmp_path: Path
) -> None:
    source, restored, copied = (StreamName(scope_name, name) for name in ("source", "restored", "copied"))
    uri, root = f"{pravega.uri}/{source}", f"file://{tmp_path}/vault"
    archive = f"{root}/{source}"
    with parse_stream(uri)[0].open() as store:
        store.create_scope(scope_name)
        store.create_stream(source, StreamConfiguration(scaling=Scaling(min_segments=1)))
        java_client.byte_stream(pravega, source, append=10 * MIB + 1)
        store.truncate(StreamCut(source, {FIRST: 1_000_003}))
        with pytest.raises(NotEvents, match="export --content bytes"):
            export_stream(uri, root, range_size=MIB, **INLINE)
        first = export_stream(uri, root, content="bytes", compress="zstd", range_size=MIB, **INLINE)
        assert (first.bytes, first.events) == (10 * MIB + 1 - 1_000_003, 0)
        written = java_client.byte_stream(pravega, source, append=3 * MIB + 5)
        assert written[:2] == ["1000003", str(13 * MIB + 6)]
        second = rotate_stream(uri, root, range_size=MIB, **INLINE)
        assert (second.export.bytes, second.generation) == (3 * MIB + 5, 2)
        check = check_archive(archive, read_data=True, master="inline[2]")
        assert check.ok, check.findings
        import_stream(archive, f"{pravega.uri}/{restored}", read_back=True, **INLINE)
        copy_stream(uri, f"{pravega.uri}/{copied}", read_back=True, **INLINE)
        for stream in (restored, copied):
            assert java_client.byte_stream(pravega, stream) == written
            assert bytes_of(store, stream) == bytes_of(store, source)
        cut = {"from_cut": {f"{source}/{FIRST}": 5 * MIB + 3}, "to_cut": {f"{source}/{FIRST}": 12 * MIB + 7}}
        part: dict[str, Any] = {**cut, **INLINE, "offsets": "shift"}
        import_stream(archive, f"{pravega.uri}/{scope_name}/part", **part)
        copy_stream(uri, f"{pravega.uri}/{scope_name}/copied-part", **part)
        ((start, data),) = bytes_of(store, source).values()
        for name in ("part", "copied-part"):
            found = bytes_of(store, StreamName(scope_name, name))
            assert list(found.values()) == [(0, data[5 * MIB + 3 - start : 12 * MIB + 7 - start])]
        store.delete(source)
        report = import_stream(archive, uri, numbers="map", **INLINE)
        assert (len(report.renumbered), java_client.byte_stream(pravega, source)) == (1, written)
