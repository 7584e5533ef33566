"""A byte stream of a real Pravega, written and read by Pravega's own Java client: archived, restored, copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, copy_stream, export_stream, import_stream, rotate_stream
from streamvault.sources.reader import NotEvents
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.servers.java_client import JavaClient
from testkit.servers.pravega import PravegaServer
from testkit.streams import bytes_of, make_byte_stream, shape_of

pytestmark = pytest.mark.pravega

MIB = 1024 * 1024
INLINE: dict[str, Any] = {"master": "inline[2]"}
FIRST = SegmentId(0, 0)


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
        check = check_archive(archive, read_data=True, **INLINE)
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


def test_scaled_byte_stream(pravega: PravegaServer, scope_name: str, tmp_path: Path) -> None:
    """Pravega's client writes byte streams of one segment only; the archive makes no difference."""
    source, restored = StreamName(scope_name, "source"), StreamName(scope_name, "restored")
    root = f"file://{tmp_path}/vault"
    with parse_stream(f"{pravega.uri}/{source}")[0].open() as store:
        make_byte_stream(store, source, size=MIB + 1)
        export_stream(f"{pravega.uri}/{source}", root, content="bytes", range_size=100_000, **INLINE)
        import_stream(f"{root}/{source}", f"{pravega.uri}/{restored}", **INLINE)
        assert bytes_of(store, restored) == bytes_of(store, source)
        assert shape_of(store, restored) == shape_of(store, source)
