"""What the Spark data sources plan, without Spark: options, filters, partitions, and the next batch of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
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
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from common.errors import Failed, Problem
from lake.batches import EVENT_SCHEMA
from layouts.keys import chunk_key, event_key
from manifests.selection import select_parts
from objectstore.metered import MeteredStore
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from streamstore.framing import NotAnEvent
from streamstore.local import LocalStore
from streamstore.model import EventPointer, KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut
from streamvault.spark import archive_source, stretches
from streamvault.spark.advancing import share_out
from streamvault.spark.archive_source import ArchiveSource
from streamvault.spark.bounds import Bounds
from streamvault.spark.columns import arrow_schema
from streamvault.spark.pravega_source import PravegaSource
from streamvault.spark.pravega_stream import PravegaStreamReader
from streamvault.spark.stretches import DataLoss, StretchPartition
from streamvault.spark.writing import write_options
from tests.streams import append_events, events_of, frame, make_stream, payloads
from tests.unit.small_archives import KINDS, NAME, Vault, archive_of

FIRST = SegmentId(0, 0)
Events = list[tuple[EventPointer, bytes]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore(tmp_path / "streams") as store:
        yield store


def uri(tmp_path: Path) -> str:
    return f"local://{tmp_path}/streams/{NAME}"


def text(cut: StreamCut) -> str:
    return json.dumps(cut.to_json())


def schema_of(columns: str) -> StructType:
    kinds = {"binary": BinaryType(), "string": StringType(), "int": IntegerType()}
    pairs = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


def single(store: LocalStore, events: list[bytes], segments: int = 1) -> None:
    store.create_scope(NAME.scope)
    store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=segments)))
    for number in range(segments):
        append_events(store, NAME, SegmentId(0, number), events)


def read(source: Any, filters: list[Filter] | None = None) -> tuple[list[Any], Events]:
    """Partitions of a batch read, and all that they give."""
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(filters or [])) == (filters or [])
    partitions = reader.partitions()
    return partitions, [event for one in partitions for event in events_in(reader.read(one))]


def events_in(batches: Iterator[pa.RecordBatch]) -> Events:
    return [
        (EventPointer.parse(row["pointer"]), row["payload"])
        for batch in batches
        for row in pa.Table.from_batches([batch]).to_pylist()
    ]


def source(tmp_path: Path, **options: str) -> PravegaSource:
    return PravegaSource({"path": uri(tmp_path), **options})


# Options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "it is missing: option controller of format pravega. Give controller"),
        ({"controller": "pravega://h:1", "scope": "s"}, "it is missing: option stream"),
        ({"path": "pravega://h:1/s/t", "scope": "s"}, "the stream is named twice"),
        ({"path": "s3://h:1/s/t"}, "not a stream's URI"),
        ({"controller": "tcp://h:1", "scope": "s", "stream": "t"}, "not a stream's URI"),
        ({"path": "local:///a/s/t", "startOffset": "0"}, "there is no such option: option startoffset"),
        ({"path": "local:///a/s/t", "from": "0"}, "a stream cut is a JSON object"),
        ({"path": "local:///a/s/t", "from": '{"a/b/0.#epoch.0": 1}'}, "foreign segment"),
        ({"path": "local:///a/s/t", "from": "latest", "startingOffsets": "latest"}, "it is the same as from"),
        ({"path": "local:///a/s/t", "failOnDataLoss": "maybe"}, "'maybe' cannot be meant"),
        ({"path": "local:///a/s/t", "boundaries": "none"}, "Give one of segment, walked, guessed"),
        ({"path": "local:///a/s/t", "rangeSize": "1KiB"}, "a range has 1048576 bytes at least"),
        ({"path": "local:///a/s/t", "maxBytesPerTrigger": "0"}, "nothing is ever read"),
        ({"path": "local:///a/s/t", "columns": "pointer,key"}, "no such column: key"),
    ],
)
def test_a_bad_option_of_a_stream_is_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(Problem) as caught:
        PravegaSource(options).schema()
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "it is missing: option path of format streamvault"),
        ({"path": "s3://bucket"}, "not an archive's URI"),
        ({"path": "s3://bucket/s/t", "generation": "0"}, "a whole number from 1 on"),
        ({"path": "s3://bucket/s/t", "to": "earliest"}, "earliest leaves nothing to read"),
        ({"path": "s3://bucket/s/t", "layout": "events"}, "there is no such option"),
    ],
)
def test_a_bad_option_of_an_archive_is_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(Problem, match=said):
        ArchiveSource(options).schema()


@pytest.mark.parametrize(
    ("options", "schema", "overwrite", "said"),
    [
        ({"path": "local:///a/s/t"}, "event binary", False, "the embedded store has no transactions"),
        ({}, "event binary", True, "events cannot be overwritten"),
        ({}, "payload binary", False, "there is no column event: payload"),
        ({}, "event binary, key string", False, "there is a column that no event has: key"),
        ({}, "event int", False, "the column event is neither binary nor string: int"),
        ({}, "event binary, routing_key binary", False, "the column routing_key is no string"),
        ({"txnAppId": "a"}, "event binary", False, "it is missing: option txnVersion"),
        ({"txnVersion": "1"}, "event binary", False, "it is missing: option txnAppId"),
        ({"lease": "5"}, "event binary", False, "a whole number from 10 on"),
    ],
)
def test_what_cannot_be_written_is_one_line(options: dict[str, str], schema: str, overwrite: bool, said: str) -> None:
    with pytest.raises(Problem, match=said):
        write_options({"path": "pravega://h:1/s/t", **options}, schema_of(schema), overwrite=overwrite)


def test_a_schema_of_the_users_own_chooses_columns() -> None:
    assert arrow_schema(schema_of("length int, pointer string")).names == ["length", "pointer"]
    with pytest.raises(Problem, match="the column length is of type int32"):
        arrow_schema(schema_of("length string"))
    with pytest.raises(Problem, match="no such column: size"):
        arrow_schema(schema_of("size int"))


# Filters

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
def test_no_stretch_is_left_out_in_which_an_event_passes(
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


# Reading a stream once


@pytest.mark.parametrize("boundaries", ["segment", "walked", "guessed"])
def test_every_event_is_read_once(store: LocalStore, tmp_path: Path, boundaries: str) -> None:
    make_stream(store, NAME, events=6000, largest=3_000_000)
    wanted = list(events_of(store, NAME))
    partitions, found = read(source(tmp_path, boundaries=boundaries, rangeSize="1MiB"))
    assert found == wanted
    if boundaries != "segment":
        assert len(partitions) > len({pointer.segment for pointer, _ in wanted})


def test_between_two_cuts(store: LocalStore, tmp_path: Path) -> None:
    make_stream(store, NAME, events=500, largest=5000)
    described, wanted = store.describe(NAME), list(events_of(store, NAME))
    _, nothing = read(source(tmp_path, startingOffsets="latest"))
    assert nothing == []
    cut = text(described.head)
    assert read(source(tmp_path, endingOffsets=cut))[1] == []
    assert read(source(tmp_path, **{"from": cut}))[1] == wanted
    beyond = StreamCut(NAME, {segment: offset + 8 for segment, offset in described.tail.offsets.items()})
    with pytest.raises(Problem, match="beyond the stream's tail"):
        read(source(tmp_path, to=text(beyond)))


@pytest.mark.parametrize("boundaries", ["segment", "walked", "guessed"])
def test_filters_leave_out_what_they_can(store: LocalStore, tmp_path: Path, boundaries: str) -> None:
    single(store, [b"x" * 65_528] * 80, segments=2)
    wanted = list(events_of(store, NAME))
    low, high = 3 * 1024 * 1024, 4 * 1024 * 1024
    asked: list[Filter] = [
        EqualTo(("segment",), 1),
        GreaterThanOrEqual(("offset",), low),
        LessThan(("offset",), high),
    ]
    partitions, found = read(source(tmp_path, boundaries=boundaries, rangeSize="1MiB"), asked)
    inside = [event for event in wanted if event[0].segment.number == 1 and low <= event[0].offset < high]
    assert [event for event in found if event in inside] == inside
    assert {pointer.segment.number for pointer, _ in found} == {1}
    # exactly one range, from a walk; up to there, where each range has to be proved
    assert len(partitions) == {"segment": 1, "walked": 1, "guessed": 4}[boundaries]
    assert max(pointer.offset for pointer, _ in found) < high
    everything: list[Filter] = [EqualTo(("segment",), 7)]
    assert read(source(tmp_path), everything)[1] == []


def test_a_wrong_guess_is_never_silent(store: LocalStore, tmp_path: Path) -> None:
    """Payloads that are themselves chains of events: the guess is wrong in the middle of one of them."""
    inner = frame(b"y" * 24)
    single(store, [inner * 20_000, b"z" * 100] * 12)
    wanted = list(events_of(store, NAME))
    assert read(source(tmp_path, boundaries="walked", rangeSize="1MiB"))[1] == wanted
    with pytest.raises(Problem, match="a payload looks like events") as caught:
        read(source(tmp_path, boundaries="guessed", rangeSize="1MiB"))
    assert "walked" in caught.value.todo


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_guessed_ranges_are_exact_or_refused(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("guesses")
    with LocalStore(folder / "streams") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamvault.spark.reading._LEAST_RANGE_SIZE", 1)
        single(store, list(payloads(60, seed, largest=3000)))
        wanted = list(events_of(store, NAME))
        try:
            found = read(source(folder, boundaries="guessed", rangeSize="512"))[1]
        except Failed:
            return  # it said so
        assert found == wanted


def test_a_cut_inside_an_event_is_refused(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 100] * 10)
    with pytest.raises(NotAnEvent):
        read(source(tmp_path, to='{"scope/stream/0.#epoch.0": 250}'))
    with pytest.raises(NotAnEvent):
        read(source(tmp_path, **{"from": '{"scope/stream/0.#epoch.0": 50}'}))


def test_what_is_truncated_fails_the_read_unless_it_may(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 92] * 100)
    store.truncate(StreamCut(NAME, {FIRST: 5000}))
    start = '{"scope/stream/0.#epoch.0": 100}'
    with pytest.raises(DataLoss, match="begins at 5000 now, not at 100"):
        read(source(tmp_path, **{"from": start}))
    found = read(source(tmp_path, **{"from": start, "failOnDataLoss": "false"}))[1]
    assert [pointer.offset for pointer, _ in found] == list(range(5000, 10_000, 100))
    assert len(read(source(tmp_path))[1]) == 50


def test_what_is_truncated_after_planning_fails_the_read_unless_it_may(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 92] * 100)
    for may in ("true", "false"):
        reader = source(tmp_path, failOnDataLoss=may).reader(source(tmp_path).schema())
        (partition,) = reader.partitions()
        offset = 3000 if may == "true" else 7000
        store.truncate(StreamCut(NAME, {FIRST: offset}))
        if may == "true":
            with pytest.raises(DataLoss, match="begins at 3000 now"):
                events_in(reader.read(partition))
        else:
            assert [pointer.offset for pointer, _ in events_in(reader.read(partition))] == list(
                range(7000, 10_000, 100)
            )


def test_batches_are_small(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b""] * 300_000 + [b"x" * 1_000_000] * 10)
    reader = source(tmp_path).reader(source(tmp_path).schema())
    (partition,) = reader.partitions()
    sizes = [(batch.num_rows, batch["payload"].nbytes) for batch in reader.read(partition)]
    assert sum(rows for rows, _ in sizes) == 300_010
    assert max(rows for rows, _ in sizes) <= stretches.BATCH_ROWS
    assert max(size for _, size in sizes) <= 4 * 1024 * 1024


def test_a_task_is_small(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x"])
    reader = source(tmp_path).reader(source(tmp_path).schema())
    (partition,) = reader.partitions()
    assert isinstance(partition, StretchPartition)


# Reading a stream as it grows


def batch_of(reader: PravegaStreamReader, start: dict[str, int], end: dict[str, int]) -> Events:
    return [event for part in reader.partitions(start, end) for event in events_in(reader.read(part))]


class Following:
    """Plays Spark: batch after batch until nothing new comes; each batch is read twice, as after a restart."""

    def __init__(self, tmp_path: Path, limit: ReadLimit | None = None, **options: str) -> None:
        made = source(tmp_path, startingOffsets="earliest", **options)
        self.reader = made.streamReader(made.schema())
        self._again = made.streamReader(made.schema())
        self.limit = limit or self.reader.getDefaultReadLimit()
        self.at = self.reader.initialOffset()
        self.batches: list[Events] = []

    def follow(self) -> list[Events]:
        begun = len(self.batches)
        while (end := self.reader.latestOffset(self.at, self.limit)) != self.at:
            batch, again = (batch_of(reader, self.at, end) for reader in (self.reader, self._again))
            assert again == batch
            self.batches.append(batch)
            self.at = end
            assert len(self.batches) < 1000
        return self.batches[begun:]


def check_order(store: LocalStore, batches: list[Events]) -> None:
    """Nothing of a segment comes together with, or after, something of one that follows it."""
    ranges = store.describe(NAME).ranges()
    read: set[SegmentId] = set()
    for batch in batches:
        now = {pointer.segment for pointer, _ in batch}
        for segment in now:
            for other in read | now:
                assert other == segment or not (
                    ranges[other].overlaps(ranges[segment]) and other.epoch >= segment.epoch
                )
        read |= now


@pytest.mark.parametrize("most", ["", "20KiB", "1"])
def test_a_stream_is_followed_over_its_scales(store: LocalStore, tmp_path: Path, most: str) -> None:
    make_stream(store, NAME, events=120 if most == "1" else 1000, largest=20_000)
    following = Following(tmp_path, **({"maxBytesPerTrigger": most} if most else {}))
    batches = following.follow()
    check_order(store, batches)
    assert sorted(event for batch in batches for event in batch) == sorted(events_of(store, NAME))
    if most == "20KiB":
        largest = max(pointer.length for batch in batches for pointer, _ in batch)
        segments = len(store.describe(NAME).tail.offsets)
        assert max(sum(p.length for p, _ in batch) for batch in batches) <= 20 * 1024 + segments * largest
    # it goes on growing, and scales with nothing in between
    segment = max(store.describe(NAME).tail.offsets)
    append_events(store, NAME, segment, [b"more"])
    held = store.describe(NAME).epochs[-1].segments[segment]
    store.scale(NAME, [segment], [held])
    epoch = store.describe(NAME).epochs[-1]
    newest = next(s for s in epoch.segments if s.epoch == epoch.number)
    store.scale(NAME, [newest], [held])
    newest = max(store.describe(NAME).tail.offsets)
    append_events(store, NAME, newest, [b"last"])
    assert [[payload for _, payload in batch] for batch in following.follow() if batch] == [[b"more"], [b"last"]]
    store.seal(NAME)
    assert following.follow() == []


def test_a_scale_of_several_waits_for_those_it_replaces_only(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"old"], segments=4)
    quarters = [KeyRange(i / 4, (i + 1) / 4) for i in range(4)]
    following = Following(tmp_path)
    following.follow()
    append_events(store, NAME, SegmentId(0, 0), [b"late"])
    # two groups in one scale: 0 is refreshed, 2 and 3 are merged; 1 stays
    store.update_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=1)))
    store.scale(NAME, [SegmentId(0, 0), SegmentId(0, 2), SegmentId(0, 3)], [quarters[0], KeyRange(0.5, 1.0)])
    for segment in store.describe(NAME).tail.offsets:
        append_events(store, NAME, segment, [b"new"])
    batches = [[(str(p.segment), payload) for p, payload in batch] for batch in following.follow()]
    first, second = (dict(batch) for batch in batches)
    assert first["0.#epoch.0"] == b"late"
    assert first["1.#epoch.0"] == b"new"
    assert len(first) == 3  # and the merged one
    assert list(second.values()) == [b"new"]


def test_a_query_ends_where_it_is_told(store: LocalStore, tmp_path: Path) -> None:
    make_stream(store, NAME, events=300, largest=2000)
    cut, wanted = store.describe(NAME).tail, list(events_of(store, NAME))
    for segment in cut.offsets:
        append_events(store, NAME, segment, [b"beyond"])
    found = Following(tmp_path, endingOffsets=text(cut)).follow()
    assert sorted(event for batch in found for event in batch) == sorted(wanted)
    # one that wants more of one segment than there is, and less of another than there is
    first, *others = cut.offsets
    mixed = StreamCut(NAME, {**cut.offsets, first: 10**9})
    found = Following(tmp_path, to=text(mixed)).follow()
    last = [payload for batch in found for _, payload in batch].count(b"beyond")
    assert last == 1
    assert others


def test_what_is_there_now_is_all_that_a_finite_query_reads(store: LocalStore, tmp_path: Path) -> None:
    make_stream(store, NAME, events=300, largest=2000)
    wanted = list(events_of(store, NAME))
    following = Following(tmp_path, limit=ReadMaxBytes(5000))
    following.reader.prepareForTriggerAvailableNow()
    segment = max(store.describe(NAME).tail.offsets)
    append_events(store, NAME, segment, [b"later"])
    store.scale(NAME, [segment], [store.describe(NAME).epochs[-1].segments[segment]])
    assert sorted(event for batch in following.follow() for event in batch) == sorted(wanted)


def test_a_query_begins_at_the_tail_unless_told_otherwise(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"before"])
    made = source(tmp_path)
    reader = made.streamReader(made.schema())
    start = reader.initialOffset()
    assert start == store.describe(NAME).tail.to_json() == reader.reportLatestOffset()
    append_events(store, NAME, FIRST, [b"after"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [p for part in reader.partitions(start, end) for _, p in events_in(reader.read(part))] == [b"after"]


def test_truncation_behind_a_query_is_harmless_and_before_it_is_not(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 92] * 100)
    followings = {may: Following(tmp_path, failOnDataLoss=may, maxBytesPerTrigger="1000") for may in ("true", "false")}
    for following in followings.values():
        following.at = {"scope/stream/0.#epoch.0": 1000}
    store.truncate(StreamCut(NAME, {FIRST: 1000}))
    assert followings["true"].reader.latestOffset(followings["true"].at, ReadMaxBytes(1000))
    store.truncate(StreamCut(NAME, {FIRST: 4000}))
    with pytest.raises(DataLoss, match="begins at 4000 now, not at 1000"):
        followings["true"].follow()
    found = [pointer.offset for batch in followings["false"].follow() for pointer, _ in batch]
    assert found == list(range(4000, 10_000, 100))


def test_a_segment_that_is_gone_whole(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x"] * 10)
    start = {may: Following(tmp_path, failOnDataLoss=may) for may in ("true", "false")}
    store.scale(NAME, [FIRST], [KeyRange(0.0, 1.0)])
    store.truncate(store.describe(NAME).tail)
    append_events(store, NAME, SegmentId(1, 1), [b"y"])
    with pytest.raises(DataLoss, match="the segment is gone"):
        start["true"].follow()
    assert [payload for batch in start["false"].follow() for _, payload in batch] == [b"y"]


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 1000)), st.integers(1, 500))
def test_shares_are_bounded_and_nobody_starves(sizes: dict[int, int], most: int) -> None:
    shares = share_out({SegmentId(0, number): size for number, size in sizes.items()}, most)
    assert shares.keys() == {SegmentId(0, number) for number, size in sizes.items() if size}
    assert all(0 < size <= sizes[segment.number] for segment, size in shares.items())
    assert sum(shares.values()) <= most + len(shares)


# Reading an archive


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_an_archive_is_read_by_its_ranges(tmp_path: Path, kind: Any) -> None:
    vault = Vault(tmp_path)
    vault.make()
    report = vault.export(*kind)
    partitions, found = read(ArchiveSource({"path": vault.archive}))
    assert found == vault.events()
    assert len(partitions) == report.ranges


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
@pytest.mark.parametrize("inside", [False, True], ids=["at the same offset", "inside"])
def test_objects_off_the_chain_are_no_rows(tmp_path: Path, kind: Any, inside: bool) -> None:
    """What a wrongly guessed start or a late run has left, of wrong lengths, or inside of events and ranges."""
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
    partitions, found = read(ArchiveSource({"path": vault.archive}))
    assert found == vault.events()
    assert len(partitions) == len(select_parts(archive.history()))
    middle = found[len(found) // 2][0]
    made = ArchiveSource({"path": vault.archive})
    reader = made.reader(made.schema())
    reader.pushFilters([EqualTo(("segment",), middle.segment.number), EqualTo(("offset",), middle.offset)])
    assert middle in [pointer for one in reader.partitions() for pointer, _ in events_in(reader.read(one))]


def _objects(vault: Vault, layout: str) -> list[tuple[SegmentId, int, int]]:
    """Segment, offset and end of each of an archive's objects."""
    if layout == "events":
        return [(pointer.segment, pointer.offset, pointer.offset + pointer.length) for pointer, _ in vault.events()]
    return [(part.segment, part.start, part.end) for part in select_parts(archive_of(vault.root).history())]


def test_filters_on_an_archive_ask_for_the_ranges_they_need_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    made = ArchiveSource({"path": vault.archive})
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
    everything = read(ArchiveSource({"path": vault.archive}))[0]
    assert sum(one.meter.gets for one in meters) == len(everything) + 2  # and the manifest with its index


def test_one_generation_or_a_part_of_an_archive(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make()
    vault.export("events")
    first = vault.events()
    cut = text(vault.store.describe(NAME).tail)
    vault.add(b"second")
    vault.export("chunks", "zstd")
    assert read(ArchiveSource({"path": vault.archive, "generation": "1"}))[1] == first
    assert {payload for _, payload in read(ArchiveSource({"path": vault.archive, "from": cut}))[1]} == {b"second"}
    assert read(ArchiveSource({"path": vault.archive, "endingOffsets": cut}))[1] == first
    chosen = ArchiveSource({"path": vault.archive, "columns": "length, offset"})
    assert chosen.schema().fieldNames() == ["length", "offset"]
    assert EVENT_SCHEMA.names == ArchiveSource({"path": vault.archive}).schema().fieldNames()
