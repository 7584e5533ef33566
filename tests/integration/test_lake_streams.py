"""A stream of a real Pravega as an Iceberg table on a real S3 server, without an archive in between."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from streamvault import import_stream, write_table
from streamvault.lake.catalogs.iceberg import IcebergTables
from streamvault.lake.reports import DdlOptions, HandoffReport
from streamvault.lake.resolve import resolved_table
from streamvault.streamstore.model import KeyRange, Scaling, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.pravega import PravegaServer
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, digest_of, events_of, shape_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(600)]

TARGET = 64 * 1024


@dataclass
class Lake:
    """A stream of two segments, and a root for tables of it."""

    store: StreamStore
    uri: str
    name: StreamName
    root: str
    catalog: str
    environment: dict[str, str]
    written: int = 0

    def add(self, count: int) -> None:
        for segment in sorted(self.store.describe(self.name).tail.offsets):
            numbers = range(self.written, self.written + count)
            append_events(self.store, self.name, segment, (json.dumps({"id": n, "x": n / 2}).encode() for n in numbers))
            self.written += count

    def scale(self) -> None:
        segment, keys = min(self.store.describe(self.name).epochs[-1].segments.items())
        middle = (keys.low + keys.high) / 2
        self.store.scale(self.name, [segment], [KeyRange(keys.low, middle), KeyRange(middle, keys.high)])

    def hand_off(self, master: str = "inline[2]", **options: Any) -> HandoffReport:
        return write_table(self.uri, root=self.root, catalog=self.catalog, master=master, **options)

    def table(self) -> Table:
        with resolved_table(self.uri, DdlOptions(root=self.root)) as resolved:
            found = IcebergTables(self.catalog)._find(resolved.place)
        assert found is not None
        return found

    def is_whole(self) -> bool:
        """A reader of the table gets the stream's events, each once."""
        rows = self.table().scan(selected_fields=("pointer", "payload", "id")).to_arrow().to_pylist()
        events = sorted((str(pointer), payload) for pointer, payload in events_of(self.store, self.name))
        assert sorted((row["pointer"], row["payload"]) for row in rows) == events
        assert all(json.loads(row["payload"])["id"] == row["id"] for row in rows)
        return True


@pytest.fixture
def lake(pravega: PravegaServer, minio: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    name = StreamName(f"lake-{uuid.uuid4().hex[:8]}", "readings")
    for variable, value in minio.environment().items():
        monkeypatch.setenv(variable, value)
    uri = f"{pravega.uri}/{name}"
    with parse_stream(uri)[0].open() as store:
        store.create_scope(name.scope)
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
        root = f"s3://{minio.make_bucket(name.scope)}/lake"
        yield Lake(store, uri, name, root, f"sql:sqlite:///{tmp_path}/catalog.db", dict(minio.environment()))


@pytest.mark.parametrize("master", ["inline[2]", pytest.param("local[2]", marks=[pytest.mark.spark, pytest.mark.long])])
def test_handoff_of_a_stream_makes_a_table(lake: Lake, master: str) -> None:
    lake.add(6000)
    first = lake.hand_off(master, decode="json", target_size=TARGET)
    assert (first.added, first.registered, first.undecoded) == ((1,), (1,), 0)
    assert first.files > 4
    assert lake.is_whole()

    lake.add(500)
    lake.scale()
    lake.add(700)
    second = lake.hand_off()
    assert (second.added, second.events) == ((2,), 2 * 500 + 3 * 700)
    assert lake.is_whole()
    assert lake.hand_off().unchanged

    restored = StreamName(lake.name.scope, "restored")
    import_stream(
        f"{lake.root}/{lake.name}", lake.uri.replace(str(lake.name), str(restored)), layout="table", master="inline[2]"
    )
    assert digest_of(lake.store, restored) == digest_of(lake.store, lake.name)
    assert shape_of(lake.store, restored)["epochs"] == shape_of(lake.store, lake.name)["epochs"]

    # what the stream loses before it is handed off is reported, and does not block the rest
    lake.add(10)
    lake.store.truncate(StreamCut(lake.name, dict(lake.store.describe(lake.name).tail.offsets)))
    lake.add(20)
    third = lake.hand_off()
    assert (third.added, third.events, len(third.gaps)) == ((3,), 3 * 20, 3)
    assert lake.hand_off().unchanged
