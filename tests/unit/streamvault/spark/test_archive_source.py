"""What the data source of an archive plans: options, ranges, filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter

from streamvault.common.errors import Problem
from streamvault.lake.batches import EVENT_SCHEMA
from streamvault.layouts.keys import chunk_key, event_key
from streamvault.manifests.archive.selection import select_parts
from streamvault.objectstore.metered import MeteredStore
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.spark import archive_source
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.streamstore.model import SegmentId
from tests.unit.small_archives import KINDS, NAME, Vault, archive_of
from tests.unit.spark_reads import events_in, read, text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "the option is missing: option path of format streamvault"),
        ({"path": "s3://bucket"}, "not an archive URI"),
        ({"path": "s3://bucket/s/t", "generation": "0"}, "an integer of at least 1"),
        ({"path": "s3://bucket/s/t", "to": "earliest"}, "earliest leaves nothing to read"),
        ({"path": "s3://bucket/s/t", "layout": "events"}, "unknown option"),
    ],
)
def test_invalid_option_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(Problem, match=said):
        ArchiveDataSource(options).schema()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_archive_is_read_by_its_ranges(tmp_path: Path, kind: Any) -> None:
    vault = Vault(tmp_path)
    vault.make()
    report = vault.export(*kind)
    partitions, found = read(ArchiveDataSource({"path": vault.archive}))
    assert found == vault.events()
    assert len(partitions) == report.ranges


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
@pytest.mark.parametrize("inside", [False, True], ids=["at the same offset", "inside"])
def test_objects_off_the_chain_are_not_read(tmp_path: Path, kind: Any, inside: bool) -> None:
    """Strays of a wrong guess or a late run: with wrong lengths, or inside events and ranges."""
    vault = Vault(tmp_path)
    vault.make(events=60, largest=3000)
    vault.export(*kind)
    objects, archive = RootAddress.parse(vault.root).open(), archive_of(vault.root)
    for segment, start, end in _objects(vault, kind[0]):
        for low, high in [(start + 9, end - 2)] if inside else [(start, end + 3), (start, end - 3)]:
            if high - low > 8:
                key_of = event_key if kind[0] == "events" else chunk_key
                key = key_of(segment, low, high - low)
                objects.put(archive.prefix + key, b"x" * (high - low - (8 if kind[0] == "events" else 0)))
    partitions, found = read(ArchiveDataSource({"path": vault.archive}))
    assert found == vault.events()
    assert len(partitions) == len(select_parts(archive.history()))
    middle = found[len(found) // 2][0]
    made = ArchiveDataSource({"path": vault.archive})
    reader = made.reader(made.schema())
    reader.pushFilters([EqualTo(("segment",), middle.segment.number), EqualTo(("offset",), middle.offset)])
    assert middle in [pointer for one in reader.partitions() for pointer, _ in events_in(reader.read(one))]


def _objects(vault: Vault, layout: str) -> list[tuple[SegmentId, int, int]]:
    """Segment, offset and end of each of an archive's objects."""
    if layout == "events":
        return [(pointer.segment, pointer.offset, pointer.offset + pointer.length) for pointer, _ in vault.events()]
    return [(part.segment, part.start, part.end) for part in select_parts(archive_of(vault.root).history())]


def test_filters_read_only_the_ranges_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(tmp_path)
    vault.make()
    vault.export("chunks")
    meters: list[MeteredStore] = []
    really = RootAddress.open

    def metered(self: RootAddress, **options: Any) -> ObjectStore:
        meters.append(MeteredStore(really(self, **options)))
        return meters[-1]

    monkeypatch.setattr(archive_source.RootAddress, "open", metered)
    pointer = vault.events()[len(vault.events()) // 2][0]
    asked: list[Filter] = [
        EqualTo(("epoch",), pointer.segment.epoch),
        EqualTo(("segment",), pointer.segment.number),
        EqualTo(("offset",), pointer.offset),
    ]
    made = ArchiveDataSource({"path": vault.archive})
    reader = made.reader(made.schema())
    reader.pushFilters(asked)
    (partition,) = reader.partitions()
    planned = sum(one.meter.bytes_got for one in meters)
    meters.clear()
    found = events_in(reader.read(partition))
    assert pointer in [one for one, _ in found]
    assert sum(one.meter.gets for one in meters) == 1
    assert sum(one.meter.requests for one in meters) == 1
    assert sum(one.meter.bytes_got for one in meters) == sum(one.length for one, _ in found)
    assert planned < 100_000
    meters.clear()
    everything = read(ArchiveDataSource({"path": vault.archive}))[0]
    assert sum(one.meter.gets for one in meters) == len(everything) + 2  # and the manifest with its index


def test_generation_or_cuts_limit_what_is_read(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make()
    vault.export("events")
    first = vault.events()
    cut = text(vault.store.describe(NAME).tail)
    vault.add(b"second")
    vault.export("chunks", "zstd")
    assert read(ArchiveDataSource({"path": vault.archive, "generation": "1"}))[1] == first
    assert {payload for _, payload in read(ArchiveDataSource({"path": vault.archive, "from": cut}))[1]} == {b"second"}
    assert read(ArchiveDataSource({"path": vault.archive, "endingOffsets": cut}))[1] == first
    chosen = ArchiveDataSource({"path": vault.archive, "columns": "length, offset"})
    assert chosen.schema().fieldNames() == ["length", "offset"]
    assert EVENT_SCHEMA.names == ArchiveDataSource({"path": vault.archive}).schema().fieldNames()
