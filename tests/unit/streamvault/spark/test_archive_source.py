"""What the data source of an archive plans: options, ranges, filters.

Filters as bounds of segments and offsets.

The columns of a read.

Tables in SQL: what Spark passes when one is created, read and written.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import StructType

from streamvault.common.errors import Problem
from streamvault.common.units import now_utc
from streamvault.lake.read import EVENT_SCHEMA
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.spark import archive_source
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.spark.batch_reader import Bounds
from streamvault.spark.columns import EventColumns
from streamvault.spark.pravega_source import PravegaDataSource
from streamvault.streamstore.model import SegmentId
from testkit.small_archives import KINDS, NAME, Vault, archive_of, merge
from tests.metered import MeteredStore
from tests.spark_reads import events_in, read, schema_of, text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "the option is missing: option path of format streamvault"),
        ({"path": "s3://bucket"}, "not an archive URI"),
        ({"path": "s3://bucket/s/t", "generation": "0"}, "an integer of at least 1"),
        ({"path": "s3://bucket/s/t", "to": "earliest"}, "earliest leaves nothing to read"),
        ({"path": "s3://bucket/s/t", "layout": "events"}, "unknown option"),
        ({"path": "s3://bucket/s/t", "minPartitions": "9"}, "Call repartition on what was read"),
        (
            {"path": "s3://bucket/s/t", "from": "earliest", "startingTimestamp": "1"},
            "the option cannot be used with from",
        ),
        ({"path": "s3://bucket/s/t", "startingTimestamp": "9" * 20}, "is not valid: option startingTimestamp"),
        ({"path": "s3://bucket/s/t", "startingTimestamp": "noon"}, "option startingTimestamp of format streamvault is"),
    ],
)
def test_invalid_option_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(Problem, match=said):
        ArchiveDataSource(options).schema()


def test_archive_is_neither_written_nor_followed() -> None:
    source = ArchiveDataSource({"path": "s3://bucket/s/t"})
    with pytest.raises(Problem, match="cannot be written by Spark"):
        source.writer(StructType(), False)
    with pytest.raises(Problem, match="cannot be followed by Spark"):
        source.streamReader(StructType())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_archive_is_read_by_its_ranges(tmp_path: Path, kind: Any) -> None:
    vault = Vault(tmp_path)
    vault.make()
    report = vault.export(*kind)
    partitions, found = read(ArchiveDataSource({"path": vault.archive}))
    assert found == vault.events()
    assert len(partitions) == report.ranges


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


@pytest.mark.parametrize("merged", [False, True])
def test_starting_timestamp_begins_with_a_generation(tmp_path: Path, merged: bool) -> None:
    vault = Vault(tmp_path)
    vault.create()
    taken = []
    for number in range(3):
        vault.add(b"event %d" % number)
        vault.export("chunks")
        taken.append(archive_of(vault.root).manifest().created)
        wait_for_another_millisecond(taken[-1])
    if merged:
        merge(vault, 1, 3)

    def found(since: datetime, **options: str) -> list[bytes]:
        moment = str(round(since.timestamp() * 1000))
        made = ArchiveDataSource({"path": vault.archive, "startingTimestamp": moment, **options})
        return [payload for _, payload in read(made)[1]]

    later = timedelta(milliseconds=1)
    assert found(taken[0]) == [b"event 0", b"event 1", b"event 2"]
    assert found(taken[0] + later) == found(taken[1]) == [b"event 1", b"event 2"]
    assert found(taken[1], generation="2") == [b"event 1"]
    assert found(taken[2]) == [b"event 2"]
    with pytest.raises(Problem, match=r"no generation is from .* or later; the newest is from"):
        found(taken[2] + later)
    with pytest.raises(Problem, match=r"no generation is from .* or later; the newest is from"):
        found(taken[1] + later, generation="2")


def wait_for_another_millisecond(moment: datetime) -> None:
    while now_utc() <= moment:
        pass


columns = st.sampled_from([("epoch",), ("segment",), ("offset",), ("length",), ("a", "b")])
numbers = st.integers(0, 6)
filters = st.one_of(
    st.builds(EqualTo, columns, numbers),
    st.builds(GreaterThan, columns, numbers),
    st.builds(GreaterThanOrEqual, columns, numbers),
    st.builds(LessThan, columns, numbers),
    st.builds(LessThanOrEqual, columns, numbers),
    st.builds(In, columns, st.lists(numbers, max_size=3).map(tuple)),
    st.builds(IsNotNull, columns),
    st.builds(lambda column, value: Not(EqualTo(column, value)), columns, numbers),
)


def passes(one: Filter, row: dict[tuple[str, ...], int]) -> bool:
    """Whether a row passes; a filter on another column may."""
    if isinstance(one, Not):
        return True
    value = row.get(one.attribute)  # type: ignore[attr-defined]
    if value is None or isinstance(one, IsNotNull):
        return True
    literal: Any = one.value  # type: ignore[attr-defined]
    compare = {
        EqualTo: lambda: value == literal,
        GreaterThan: lambda: value > literal,
        GreaterThanOrEqual: lambda: value >= literal,
        LessThan: lambda: value < literal,
        LessThanOrEqual: lambda: value <= literal,
        In: lambda: value in literal,
    }
    return bool(compare[type(one)]())


@given(st.lists(filters, max_size=4), numbers, numbers, st.integers(0, 6), st.integers(1, 4))
def test_bounds_leave_out_no_event_that_passes(
    taken: list[Filter], epoch: int, number: int, start: int, size: int
) -> None:
    bounds = Bounds()
    bounds.take(taken)
    segment = SegmentId(epoch, number)
    rows = [{("epoch",): epoch, ("segment",): number, ("offset",): offset} for offset in range(start, start + size)]
    passing = [row[("offset",)] for row in rows if all(passes(one, row) for one in taken)]
    if passing:
        assert bounds.meet(segment, start, start + size)
        assert bounds.start_at <= passing[0]
        assert bounds.stop_at(start + size) > passing[-1]
    only_offsets = all(isinstance(one, (EqualTo, GreaterThan, GreaterThanOrEqual)) for one in taken)
    if not passing and only_offsets:
        assert not bounds.meet(segment, start, start + size)


def test_users_schema_chooses_columns() -> None:
    assert EventColumns(schema_of("length int, pointer string")).own.names == ["length", "pointer"]
    with pytest.raises(Problem, match="the column length is of type int: string"):
        EventColumns(schema_of("length string"))
    with pytest.raises(Problem, match="unknown column: size"):
        EventColumns(schema_of("size int"))


CREATION = {"owner": "me", "provider": "streamvault", "comment": "ours"}


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.create()
    for payload in (b"first", b"second"):
        vault.add(payload)
        vault.export("chunks")
    return vault


def test_table_is_read_with_the_options_it_was_created_with(vault: Vault) -> None:
    given = {"path": vault.archive, "location": vault.archive, "option.generation": "1", "generation": "1", "k": "v"}
    schema = ArchiveDataSource({**CREATION, **given}).schema()

    def found(**options: str) -> list[bytes]:
        reader = ArchiveDataSource(options).reader(schema)
        return [payload for part in reader.partitions() for _, payload in events_in(reader.read(part))]

    assert found() == [b"first"]
    assert found(generation="2") == [b"first", b"second"]
    # another place, with the columns of a table: the table's options are not those of the query
    assert found(path=vault.archive) == [b"first", b"second"]


def test_stream_is_a_table_by_any_of_its_names(vault: Vault) -> None:
    controller, scope, stream = vault.uri().rsplit("/", 2)
    given = {
        "option.controller": controller,
        "option.scope": scope,
        "option.stream": stream,
        "option.columns": "length",
    }
    schema = PravegaDataSource({**CREATION, **given}).schema()
    assert schema.fieldNames() == ["length"]
    (partition,) = (reader := PravegaDataSource({}).reader(schema)).partitions()
    assert [batch.to_pydict() for batch in reader.read(partition)] == [{"length": [13, 14]}]


def test_wrong_option_fails_the_creation(vault: Vault) -> None:
    with pytest.raises(Problem, match="unknown option: option generations"):
        ArchiveDataSource({**CREATION, "path": vault.archive, "option.generations": "1"}).schema()


def test_nothing_is_written_to_the_table_that_is_read(vault: Vault) -> None:
    """Columns that were read from a table have its metadata."""
    schema = PravegaDataSource({**CREATION, "path": vault.uri(), "option.columns": "payload"}).schema()
    assert PravegaDataSource({}).reader(schema)
    for write in (PravegaDataSource({}).writer, PravegaDataSource({}).streamWriter):
        with pytest.raises(Problem, match="A table in SQL can only be read"):
            write(schema, False)
