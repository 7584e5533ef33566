"""A streaming query of a stream, simulated without Spark: its batches, its end, scales and truncations.

How much of each segment a micro-batch reads.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from streamvault.common.errors import Problem
from streamvault.spark.pravega_reader import DataLoss, PravegaStreamReader, share_out
from streamvault.spark.pravega_source import PravegaDataSource
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from testkit.small_archives import NAME
from testkit.streams import append_events, events_of, make_stream
from tests.spark_reads import FIRST, Events, events_in, read, single, source, text


def batch_of(reader: PravegaStreamReader, start: dict[str, int], end: dict[str, int]) -> Events:
    return [event for part in reader.partitions(start, end) for event in events_in(reader.read(part))]


class Following:
    """Simulates Spark: batch after batch until nothing is new; each batch is read twice, as after a restart."""

    def __init__(self, tmp_path: Path, limit: ReadLimit | None = None, **options: str) -> None:
        made = source(tmp_path, **{"startingOffsets": "earliest", **options})
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
    """No event of a segment is in the same batch as, or in a later one than, events of its successors."""
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
def test_query_follows_a_stream_over_its_scales(store: LocalStore, tmp_path: Path, most: str) -> None:
    make_stream(store, NAME, events=120 if most == "1" else 1000, largest=20_000)
    following = Following(tmp_path, **({"maxBytesPerTrigger": most} if most else {}))
    batches = following.follow()
    check_order(store, batches)
    assert sorted(event for batch in batches for event in batch) == sorted(events_of(store, NAME))
    if most == "20KiB":
        largest = max(pointer.length for batch in batches for pointer, _ in batch)
        segments = len(store.describe(NAME).tail.offsets)
        assert max(sum(p.length for p, _ in batch) for batch in batches) <= 20 * 1024 + segments * largest
    # the stream keeps growing, and scales with nothing in between
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


@pytest.mark.parametrize("options", [{}, {"maxBytesPerTrigger": "20KiB"}, {"maxBytesPerTrigger": "1GiB"}])
@pytest.mark.parametrize("most", [1, 7, 100, 10_000])
def test_batch_has_so_many_events_at_most(
    store: LocalStore, tmp_path: Path, most: int, options: dict[str, str]
) -> None:
    make_stream(store, NAME, events=150 if most == 1 else 1000, largest=20_000)
    following = Following(tmp_path, maxEventsPerTrigger=str(most), **options)
    batches = following.follow()
    check_order(store, batches)
    assert sorted(event for batch in batches for event in batch) == sorted(events_of(store, NAME))
    segments = len(store.describe(NAME).ranges())
    assert max(map(len, batches)) <= max(most, segments)
    if most == 7 and not options:
        assert max(map(len, batches)) >= most // 2


def test_limit_by_events_is_shared_by_size_and_keeps_the_partitions(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 92] * 60_000)
    assert Following(tmp_path, maxEventsPerTrigger="25000").limit == ReadMaxRows(25_000)
    following = Following(tmp_path, maxEventsPerTrigger="25000", minPartitions="2")
    end = following.reader.latestOffset(following.at, following.limit)
    assert len(following.reader.partitions(following.at, end)) == 2
    assert [len(batch) for batch in following.follow()] == [25_000, 25_000, 10_000]
    # as a trigger that reads all at once asks for it
    everything = following.reader.latestOffset(following.reader.initialOffset(), ReadAllAvailable())
    assert everything == following.at


def test_new_segment_waits_only_for_those_it_replaces(store: LocalStore, tmp_path: Path) -> None:
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


def test_query_ends_at_its_ending_offsets(store: LocalStore, tmp_path: Path) -> None:
    make_stream(store, NAME, events=300, largest=2000)
    cut, wanted = store.describe(NAME).tail, list(events_of(store, NAME))
    for segment in cut.offsets:
        append_events(store, NAME, segment, [b"beyond"])
    found = Following(tmp_path, endingOffsets=text(cut)).follow()
    assert sorted(event for batch in found for event in batch) == sorted(wanted)
    # one that requests more of one segment than there is, and less of another
    first, *others = cut.offsets
    mixed = StreamCut(NAME, {**cut.offsets, first: 10**9})
    found = Following(tmp_path, to=text(mixed)).follow()
    last = [payload for batch in found for _, payload in batch].count(b"beyond")
    assert last == 1
    assert others


def test_available_now_reads_what_is_there_at_its_start(store: LocalStore, tmp_path: Path) -> None:
    make_stream(store, NAME, events=300, largest=2000)
    wanted = list(events_of(store, NAME))
    following = Following(tmp_path, limit=ReadMaxBytes(5000))
    following.reader.prepareForTriggerAvailableNow()
    segment = max(store.describe(NAME).tail.offsets)
    append_events(store, NAME, segment, [b"later"])
    store.scale(NAME, [segment], [store.describe(NAME).epochs[-1].segments[segment]])
    assert sorted(event for batch in following.follow() for event in batch) == sorted(wanted)


def test_end_that_a_following_query_does_not_have_is_refused(tmp_path: Path) -> None:
    made = source(tmp_path)
    for options, said in (
        ({"end_stream_cut": "latest"}, "Give unbounded, or use Trigger.AvailableNow"),
        ({"minPartitions": "2"}, "Also give boundaries=walked, or a limit such as maxBytesPerTrigger"),
        (
            {"minPartitions": "2", "boundaries": "guessed"},
            "Also give boundaries=walked, or a limit such as maxBytesPerTrigger",
        ),
    ):
        with pytest.raises(Problem, match=said):
            source(tmp_path, **options).streamReader(made.schema())
    source(tmp_path, end_stream_cut="unbounded").streamReader(made.schema())


@pytest.mark.parametrize("options", [{"boundaries": "walked"}, {"maxBytesPerTrigger": "1GiB"}])
def test_batch_has_as_many_partitions_as_wanted(store: LocalStore, tmp_path: Path, options: dict[str, str]) -> None:
    single(store, [b"x" * 999_992] * 12, segments=2)
    following = Following(tmp_path, minPartitions="6", **options)
    end = following.reader.latestOffset(following.at, following.limit)
    assert len(following.reader.partitions(following.at, end)) == 6
    assert batch_of(following.reader, following.at, end) == list(events_of(store, NAME))


def test_query_begins_at_the_tail_by_default(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"before"])
    made = source(tmp_path)
    reader = made.streamReader(made.schema())
    start = reader.initialOffset()
    assert store.describe(NAME).tail.to_json() == reader.reportLatestOffset()
    assert start.items() >= reader.reportLatestOffset().items()
    append_events(store, NAME, FIRST, [b"after"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [p for part in reader.partitions(start, end) for _, p in events_in(reader.read(part))] == [b"after"]


def test_truncation_ahead_of_a_query_is_data_loss(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x" * 92] * 100)
    followings = {may: Following(tmp_path, failOnDataLoss=may, maxBytesPerTrigger="1000") for may in ("true", "false")}
    for following in followings.values():
        following.at = following.reader.latestOffset(following.at, ReadMaxBytes(1000))
        assert following.at["scope/stream/0.#epoch.0"] == 1000
    store.truncate(StreamCut(NAME, {FIRST: 1000}))
    assert followings["true"].reader.latestOffset(followings["true"].at, ReadMaxBytes(1000))
    store.truncate(StreamCut(NAME, {FIRST: 4000}))
    with pytest.raises(DataLoss, match="now begins at 4000, not at 1000") as lost:
        followings["true"].follow()
    assert "it also needs a new checkpoint" in lost.value.todo, "Spark does not ask for startingOffsets again"
    found = [pointer.offset for batch in followings["false"].follow() for pointer, _ in batch]
    assert found == list(range(4000, 10_000, 100))


def test_segment_truncated_as_a_whole_is_data_loss(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"x"] * 10)
    start = {may: Following(tmp_path, failOnDataLoss=may) for may in ("true", "false")}
    store.scale(NAME, [FIRST], [KeyRange(0.0, 1.0)])
    store.truncate(store.describe(NAME).tail)
    append_events(store, NAME, SegmentId(1, 1), [b"y"])
    with pytest.raises(DataLoss, match="the segment was deleted"):
        start["true"].follow()
    assert [payload for batch in start["false"].follow() for _, payload in batch] == [b"y"]


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 1000)), st.integers(1, 500))
def test_shares_are_bounded_and_every_segment_has_one(sizes: dict[int, int], most: int) -> None:
    shares = share_out({SegmentId(0, number): size for number, size in sizes.items()}, most)
    assert shares.keys() == {SegmentId(0, number) for number, size in sizes.items() if size}
    assert all(0 < size <= sizes[segment.number] for segment, size in shares.items())
    assert sum(shares.values()) <= most + len(shares)


OTHER, LATE, ELSE = (StreamName(NAME.scope, name) for name in ("streams", "stream-2", "other"))


def follow_all(tmp_path: Path, pattern: str = "stream.*", **options: str) -> Following:
    return Following(tmp_path, path=f"local://{tmp_path}/streams/{NAME.scope}/", streamPattern=pattern, **options)


def add_stream(store: LocalStore, name: StreamName, events: list[bytes]) -> None:
    store.create_stream(name, StreamConfiguration())
    append_events(store, name, min(store.describe(name).ranges()), events)


def events_of_all(store: LocalStore, *names: StreamName) -> Events:
    return sorted(event for name in names for event in events_of(store, name))


@pytest.mark.parametrize("options", [{}, {"maxBytesPerTrigger": "20KiB"}, {"maxEventsPerTrigger": "50"}])
def test_pattern_follows_all_streams_and_those_that_are_new(
    store: LocalStore, tmp_path: Path, options: dict[str, str]
) -> None:
    make_stream(store, NAME, events=200, largest=5000)
    add_stream(store, OTHER, [b"other %d" % number for number in range(100)])
    add_stream(store, ELSE, [b"not matched"])
    following = follow_all(tmp_path, **options)
    found = [event for batch in following.follow() for event in batch]
    assert sorted(found) == events_of_all(store, NAME, OTHER)
    if "maxEventsPerTrigger" in options:
        assert max(map(len, following.batches)) <= 50 + len(store.describe(NAME).ranges())
    add_stream(store, LATE, [b"late"])
    append_events(store, OTHER, FIRST, [b"later"])
    batches = following.follow()
    assert sorted(payload for batch in batches for _, payload in batch) == [b"late", b"later"]
    assert b"late" not in [payload for _, payload in batches[0]], "it joins at the next batch, from its head"
    assert following.at.keys() == {str(NAME), str(OTHER), str(LATE)}
    assert following.reader.reportLatestOffset().keys() == following.at.keys()


def test_pattern_begins_at_the_tails_and_reads_a_new_stream_from_its_head(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"before"])
    following = follow_all(tmp_path, startingOffsets="latest")
    add_stream(store, LATE, [b"late"])
    assert [payload for batch in following.follow() for _, payload in batch] == [b"late"]


def test_pattern_without_a_stream_waits_for_one(store: LocalStore, tmp_path: Path) -> None:
    store.create_scope(NAME.scope)
    following = follow_all(tmp_path)
    assert following.at == {}
    assert following.follow() == []
    add_stream(store, NAME, [b"first"])
    assert [payload for batch in following.follow() for _, payload in batch] == [b"first"]


def test_pattern_that_ends_now_joins_no_new_stream(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"now"])
    following = follow_all(tmp_path)
    following.reader.prepareForTriggerAvailableNow()
    add_stream(store, LATE, [b"late"])
    append_events(store, NAME, FIRST, [b"later"])
    assert [payload for batch in following.follow() for _, payload in batch] == [b"now"]


def test_deleted_stream_of_a_pattern_is_data_loss(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"1"])
    add_stream(store, OTHER, [b"2"])
    queries = {may: follow_all(tmp_path, failOnDataLoss=may) for may in ("true", "false")}
    store.seal(OTHER)
    store.delete(OTHER)
    with pytest.raises(DataLoss, match="the stream was deleted, or is no longer matched: scope/streams"):
        queries["true"].follow()
    assert [payload for batch in queries["false"].follow() for _, payload in batch] == [b"1"]


def remove(store: LocalStore, name: StreamName) -> None:
    store.seal(name)
    store.delete(name)


def payloads_of(following: Following) -> list[bytes]:
    return [payload for batch in following.follow() for _, payload in batch]


def test_stream_that_is_not_listed_for_a_while_is_not_read_again(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"1"])
    add_stream(store, OTHER, [b"2"])
    following = follow_all(tmp_path, failOnDataLoss="false")
    assert sorted(payloads_of(following)) == [b"1", b"2"]
    narrow = follow_all(tmp_path, "stream", failOnDataLoss="false")
    narrow.at = following.at
    append_events(store, OTHER, FIRST, [b"3"])
    assert payloads_of(narrow) == []
    again = follow_all(tmp_path, failOnDataLoss="false")
    again.at = narrow.at
    assert payloads_of(again) == [b"3"]


@pytest.mark.parametrize("options", [{}, {"maxEventsPerTrigger": "50"}])
@pytest.mark.parametrize("when", ["before a batch", "after it was planned"])
@pytest.mark.parametrize("new", [[], [b"new"]])
def test_stream_of_a_pattern_that_is_made_again_stops_no_other(
    store: LocalStore, tmp_path: Path, options: dict[str, str], when: str, new: list[bytes]
) -> None:
    single(store, [b"1"])
    add_stream(store, OTHER, [b"2"])
    following = follow_all(tmp_path, failOnDataLoss="false", **options)
    start, end = following.at, None
    if when == "after it was planned":
        end = following.reader.latestOffset(start, following.limit)
    remove(store, OTHER)
    if new:
        add_stream(store, OTHER, new)
    restarted = follow_all(tmp_path, failOnDataLoss="false", **options)
    found = []
    if end is not None:
        found += [
            payload
            for part in restarted.reader.partitions(start, end)
            for _, payload in events_in(restarted.reader.read(part))
        ]
    restarted.at = end or start
    assert sorted(found + payloads_of(restarted)) == [b"1", *new]


def test_tasks_of_a_pattern_go_on_without_a_deleted_stream(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"1"])
    add_stream(store, OTHER, [b"2"])
    following = follow_all(tmp_path, failOnDataLoss="false")
    parts = following.reader.partitions(following.at, following.reader.latestOffset(following.at, following.limit))
    remove(store, OTHER)
    assert [payload for part in parts for _, payload in events_in(following.reader.read(part))] == [b"1"]


@pytest.mark.parametrize("options", [{}, {"maxBytesPerTrigger": "200"}, {"maxEventsPerTrigger": "2"}])
def test_limited_query_passes_a_segment_that_was_truncated_to_its_end(
    store: LocalStore, tmp_path: Path, options: dict[str, str]
) -> None:
    single(store, [b"x" * 92] * 10)
    following = Following(tmp_path, failOnDataLoss="false", **options)
    following.at = following.reader.latestOffset(following.at, ReadMaxBytes(200))
    store.truncate(StreamCut(NAME, {FIRST: 1000}))
    store.scale(NAME, [FIRST], [KeyRange(0.0, 1.0)])
    append_events(store, NAME, max(store.describe(NAME).tail.offsets), [b"after"])
    assert payloads_of(following) == [b"after"]


def test_batch_of_a_pattern_has_all_streams(store: LocalStore, tmp_path: Path) -> None:
    single(store, [b"1"] * 3, segments=2)
    add_stream(store, OTHER, [b"2"])
    add_stream(store, ELSE, [b"3"])
    given = {"path": f"local://{tmp_path}/streams/{NAME.scope}", "streamPattern": "stream.*"}
    parts, found = read(source(tmp_path, **given))
    assert (len(parts), sorted(found)) == (3, events_of_all(store, NAME, OTHER))
    assert len(read(source(tmp_path, **given), [EqualTo(("segment",), 1)])[0]) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "local:///a/s/", "streamPattern": "("}, "is not a regular expression"),
        ({"path": "local:///a/s/", "streamPattern": ".*", "stream": "t"}, "Give either stream or streamPattern"),
        ({"controller": "pravega://h:1", "streamPattern": ".*"}, "the option is missing: option scope"),
        ({"path": "pravega://h:1", "streamPattern": ".*"}, "the scope is missing"),
        ({"path": "pravega://h:1/s/", "streamPattern": ".*", "archive": "/v/s/t"}, "an archive belongs to one stream"),
        (
            {"path": "pravega://h:1/s/", "streamPattern": ".*", "from": '{"s/t/0.#epoch.0": 1}'},
            "segment of another stream",
        ),
    ],
)
def test_wrong_pattern_is_one_line(tmp_path: Path, options: dict[str, str], said: str) -> None:
    del tmp_path
    with pytest.raises(Problem, match=said) as wrong:
        PravegaDataSource(options).schema()
    assert "\n" not in str(wrong.value)
