"""The contract of a stream store as tests: one class per implementation provides the `open_store`.

The contract of stream stores on the embedded store.

The contract of stream stores on a real Pravega, and the embedded store beside it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Event

import pytest

from streamvault.streamstore.errors import (
    InvalidCut,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    OffsetConflict,
    ScaleRefused,
    ScopeNotEmpty,
    SegmentSealed,
    SegmentTooShort,
    SegmentTruncated,
    StoreBusy,
    StreamChanged,
    StreamExists,
    StreamSealed,
)
from streamvault.streamstore.framing import MAX_APPEND_BYTES, filler, frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import (
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamName,
)
from streamvault.streamstore.numbering import predict_order
from streamvault.streamstore.own import EPHEMERAL, OWN
from streamvault.streamstore.store import SegmentAppender, StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.pravega import PravegaServer
from testkit.streams import digest_of, make_stream, shape_of
from tests.contract.open_stores import Open, OpenStores
from tests.contract.transactions import TransactionsContract

MIB = 1024 * 1024
FIRST = SegmentId(0, 0)
NEVER = SegmentId(7, 77)


def fixed(segments: int) -> StreamConfiguration:
    return StreamConfiguration(scaling=Scaling(min_segments=segments))


def events(size: int, seed: int) -> bytes:
    """About ``size`` bytes of events."""
    rng, data = random.Random(seed), bytearray()
    while len(data) < size:
        data += frame(rng.randbytes(min(rng.choice([0, 10, 100, 5000, 300_000]), size)))
    return bytes(data)


def blocks_of(data: bytes, size: int) -> list[memoryview]:
    return [memoryview(data)[at : at + size] for at in range(0, len(data), size)]


def append(store: StreamStore, stream: StreamName, segment: SegmentId, data: bytes, block: int = MIB) -> int:
    with store.appender(stream, segment) as appender:
        for piece in blocks_of(data, block):
            appender.append(piece)
        return appender.flush()


def read(store: StreamStore, stream: StreamName, segment: SegmentId, start: int, end: int) -> bytes:
    return b"".join(bytes(block) for block in store.read(stream, segment, start, end))


def append_one(appender: SegmentAppender, payload: bytes) -> None:
    appender.append(frame(payload))
    appender.flush()


def evenly(low: float, high: float, count: int) -> list[KeyRange]:
    edges = [low + (high - low) * i / count for i in range(count)] + [high]
    return [KeyRange(a, b) for a, b in pairwise(edges)]


class StreamStoreContract(OpenStores, TransactionsContract):
    """The behaviour of every stream store."""

    @pytest.fixture
    def stream(self, store: StreamStore, scope_name: str) -> StreamName:
        """A name in an existing scope; the stream does not exist."""
        store.create_scope(scope_name)
        return StreamName(scope_name, "stream")

    # Scopes and names

    def test_scope_is_created_once(self, store: StreamStore, scope_name: str) -> None:
        assert scope_name not in store.list_scopes()
        assert store.create_scope(scope_name) is True
        assert store.create_scope(scope_name) is False
        assert scope_name in store.list_scopes()
        assert list(store.list_streams(scope_name)) == []
        store.delete_scope(scope_name)
        assert scope_name not in store.list_scopes()

    def test_scopes_are_listed_in_order(self, store: StreamStore, scope_name: str) -> None:
        wanted = [f"{scope_name}-{suffix}" for suffix in ("b", "a", "a.1", "B", "10", "9")]
        for scope in wanted:
            store.create_scope(scope)
        assert [scope for scope in store.list_scopes() if scope in wanted] == sorted(wanted)

    def test_streams_are_listed_in_order(self, store: StreamStore, stream: StreamName) -> None:
        wanted = [StreamName(stream.scope, f"s{number}") for number in range(23)]
        for name in wanted:
            store.create_stream(name, fixed(1))
        assert list(store.list_streams(stream.scope)) == sorted(wanted)

    def test_internal_streams_are_listed_on_request(self, store: StreamStore, stream: StreamName) -> None:
        ours = StreamName(stream.scope, "ours")
        store.create_stream(stream, fixed(1))
        store.create_stream(ours, replace(fixed(1), tags=("other", OWN)))
        assert list(store.list_streams(stream.scope)) == [stream]
        assert list(store.list_streams(stream.scope, own=True)) == [ours, stream]
        store.update_stream(ours, replace(fixed(1), tags=("other",)))
        assert list(store.list_streams(stream.scope)) == [ours, stream]

    def test_ephemeral_streams_are_listed_on_request(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, replace(fixed(1), tags=(f"{EPHEMERAL}owner:60",)))
        assert list(store.list_streams(stream.scope)) == []
        assert list(store.list_streams(stream.scope, own=True)) == [stream]

    def test_only_an_empty_scope_is_deleted(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(1))
        with pytest.raises(ScopeNotEmpty):
            store.delete_scope(stream.scope)
        assert store.exists(stream)
        store.delete(stream)
        store.delete_scope(stream.scope)

    def test_missing_scope_is_named(self, store: StreamStore, scope_name: str) -> None:
        stream = StreamName(scope_name, "stream")
        assert not store.exists(stream)
        for action in (
            lambda: list(store.list_streams(scope_name)),
            lambda: store.create_stream(stream, fixed(1)),
            lambda: store.delete_scope(scope_name),
        ):
            with pytest.raises(NoSuchScope, match=scope_name):
                action()

    def test_missing_stream_is_named(self, store: StreamStore, stream: StreamName) -> None:
        uses: tuple[Callable[[StreamName], object], ...] = (
            store.describe,
            store.seal,
            store.delete,
            lambda name: store.segment_info(name, [FIRST]),
            lambda name: read(store, name, FIRST, 0, 0),
            lambda name: store.appender(name, FIRST),
            lambda name: store.update_stream(name, fixed(1)),
            lambda name: store.scale(name, [FIRST], [KeyRange(0.0, 1.0)]),
            lambda name: store.truncate_segment(name, FIRST, 8),
            lambda name: store.truncate(StreamCut(name, {FIRST: 0})),
        )
        for use in uses:
            with pytest.raises(NoSuchStream, match=str(stream)):
                use(stream)
            with pytest.raises(NoSuchScope, match="nowhere"):
                use(StreamName("nowhere", "stream"))

    def test_missing_segment_is_named(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(1))
        for action in (
            lambda: store.segment_info(stream, [FIRST, NEVER]),
            lambda: read(store, stream, NEVER, 0, 8),
            lambda: store.appender(stream, NEVER),
            lambda: store.truncate_segment(stream, NEVER, 8),
        ):
            with pytest.raises(NoSuchSegment, match=NEVER.in_stream(stream)):
                action()

    # Creating streams

    def test_new_stream_is_empty(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(3))
        assert store.exists(stream)
        described = store.describe(stream)
        segments = [SegmentId(0, 0), SegmentId(0, 1), SegmentId(0, 2)]
        assert described.name == stream
        assert described.configuration == fixed(3)
        assert [epoch.number for epoch in described.epochs] == [0]
        assert list(described.epochs[0].segments) == segments
        assert described.head == described.tail == StreamCut(stream, dict.fromkeys(segments, 0))
        assert not described.sealed
        for info in store.segment_info(stream, segments[::-1]):
            assert (info.start_offset, info.write_offset, info.sealed) == (0, 0, False)
        assert [info.segment for info in store.segment_info(stream, segments[::-1])] == segments[::-1]

    @pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 10, 49, 300])
    def test_segments_are_of_equal_width(self, store: StreamStore, stream: StreamName, count: int) -> None:
        store.create_stream(stream, fixed(count))
        width = 1.0 / count
        ranges = store.describe(stream).epochs[0].segments
        assert list(ranges) == [SegmentId(0, number) for number in range(count)]
        assert [held.low for held in ranges.values()] == [i * width for i in range(count)]
        # not always up to 1.0: 49 * (1 / 49) is an ulp less
        assert [held.high for held in ranges.values()] == [(i + 1) * width for i in range(count)]

    def test_stream_is_created_once(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(2))
        with pytest.raises(StreamExists, match=str(stream)) as caught:
            store.create_stream(stream, fixed(3))
        assert caught.value.exit_code == 4
        assert store.describe(stream).configuration == fixed(2)

    def test_one_of_several_concurrent_creations_succeeds(self, stores: Open, stream: StreamName) -> None:
        makers = 6
        barrier = Barrier(makers)

        def make(number: int) -> str:
            store = stores()
            barrier.wait()
            try:
                store.create_stream(stream, replace(fixed(2), tags=(f"maker-{number}",)))
            except StreamExists:
                return ""
            return f"maker-{number}"

        with ThreadPoolExecutor(makers) as pool:
            winners = [winner for winner in pool.map(make, range(makers)) if winner]
        assert len(winners) == 1
        assert store_tags(stores(), stream) == tuple(winners)

    def test_configuration_is_returned_and_can_be_updated(self, store: StreamStore, stream: StreamName) -> None:
        first = StreamConfiguration(
            scaling=Scaling(ScaleKind.BY_EVENTS, target=100, factor=2, min_segments=2),
            retention=Retention(RetentionKind.TIME, minimum=60_000, maximum=0),
            tags=("b", "a", "ünï cöde"),
        )
        store.create_stream(stream, first)
        assert store.describe(stream).configuration == first
        for second in (
            StreamConfiguration(
                scaling=Scaling(ScaleKind.BY_KBYTES, target=50, factor=3, min_segments=1),
                retention=Retention(RetentionKind.SIZE, minimum=1_000_000, maximum=2_000_000),
                tags=("c",),
                rollover_bytes=123_456_789,
                timestamp_aggregation_timeout=4_000,
            ),
            fixed(2),
        ):
            store.update_stream(stream, second)
            assert store.describe(stream).configuration == second
        assert [epoch.number for epoch in store.describe(stream).epochs] == [0]

    def test_many_tags_are_kept(self, store: StreamStore, stream: StreamName) -> None:
        tags = tuple(f"tag-{number}-{'x' * 200}" for number in range(50))
        store.create_stream(stream, replace(fixed(1), tags=tags))
        assert store_tags(store, stream) == tuple(sorted(tags))

    # Appending and reading

    def test_appended_bytes_are_read(self, store: StreamStore, stores: Open, stream: StreamName) -> None:
        store.create_stream(stream, fixed(2))
        data = frame(b"first") + frame(b"") + frame(bytes(range(256)))
        with store.appender(stream, FIRST) as appender:
            assert (appender.offset, appender.acknowledged) == (0, 0)
            for kind, event in zip((bytes, bytearray, memoryview), (b"first", b"", bytes(range(256))), strict=True):
                appender.append(kind(frame(event)))
            assert appender.offset == len(data)
            assert appender.flush() == appender.acknowledged == len(data)
        for reader in (store, stores()):
            assert read(reader, stream, FIRST, 0, len(data)) == data
            assert reader.describe(stream).tail.offsets == {FIRST: len(data), SegmentId(0, 1): 0}
            assert reader.segment_info(stream, [FIRST])[0].write_offset == len(data)

    def test_appender_continues_at_the_write_offset(self, store: StreamStore, stores: Open, stream: StreamName) -> None:
        store.create_stream(stream, fixed(1))
        data = b""
        for number in range(4):
            piece = frame(f"event {number}".encode())
            with (store if number % 2 else stores()).appender(stream, FIRST) as appender:
                assert appender.offset == appender.acknowledged == len(data)
                appender.append(piece)
            data += piece
        assert read(store, stream, FIRST, 0, len(data)) == data

    @pytest.mark.parametrize(("in_flight", "size"), [(1, 4 * MIB), (2, MAX_APPEND_BYTES), (4, 4 * MIB)])
    def test_large_blocks_are_appended(self, store: StreamStore, stream: StreamName, in_flight: int, size: int) -> None:
        store.create_stream(stream, fixed(1))
        data = random.Random(5).randbytes(17 * MIB + 13)
        with store.appender(stream, FIRST, in_flight=in_flight) as appender:
            for block in blocks_of(data, size):
                appender.append(block)
                assert 0 <= appender.offset - appender.acknowledged <= in_flight * size
            assert appender.flush() == len(data)
        assert read(store, stream, FIRST, 0, len(data)) == data

    @pytest.mark.parametrize("size", [0, MAX_APPEND_BYTES + 1])
    def test_append_refuses_a_block_of_invalid_size(self, store: StreamStore, stream: StreamName, size: int) -> None:
        store.create_stream(stream, fixed(1))
        with store.appender(stream, FIRST) as appender:
            with pytest.raises(ValueError, match="block"):
                appender.append(bytes(size))
            appender.append(frame(b"goes on"))
        assert store.segment_info(stream, [FIRST])[0].write_offset == 15

    def test_every_range_can_be_read(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(1))
        data = events(5 * MIB, 1)
        append(store, stream, FIRST, data)
        end, rng = len(data), random.Random(2)
        ranges = [(0, end), (0, 0), (end, end), (MIB - 9, MIB + 1), (2 * MIB, 4 * MIB)]
        ranges += [tuple(sorted((rng.randrange(end), rng.randrange(end)))) for _ in range(15)]
        # a segment store returns at least 8 bytes
        ranges += [(low, low + size) for low in (0, MIB - 1, MIB, end - 9) for size in (1, 4, 7, 8, 9)]
        for low, high in ranges:
            blocks = [bytes(block) for block in store.read(stream, FIRST, low, high)]
            assert b"".join(blocks) == data[low:high]
            assert all(0 < len(block) <= 2 * MIB for block in blocks)

    def test_read_refuses_an_invalid_range(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(1))
        append(store, stream, FIRST, frame(b"event"))
        for low, high in ((5, 4), (-1, 3)):
            with pytest.raises(ValueError, match="is not a range"):
                read(store, stream, FIRST, low, high)

    def test_read_beyond_the_end_is_an_error_that_names_the_segment(
        self, store: StreamStore, stream: StreamName
    ) -> None:
        store.create_stream(stream, fixed(1))
        append(store, stream, FIRST, frame(b"event"))
        store.truncate(StreamCut(stream, {FIRST: 13}))
        for low, high in ((0, 14), (13, 14), (14, 20)):
            with pytest.raises(SegmentTooShort, match="the segment ends at 13") as caught:
                read(store, stream, FIRST, low, high)
            assert FIRST.in_stream(stream) in caught.value.where
            assert caught.value.exit_code == 4

    def test_read_may_stop_early(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(1))
        data = events(6 * MIB, 3)
        append(store, stream, FIRST, data)
        for _ in range(20):
            blocks = store.read(stream, FIRST, 0, len(data))
            first = bytes(next(blocks))
            assert first == data[: len(first)]
            blocks.close()  # type: ignore[attr-defined]
        assert read(store, stream, FIRST, 0, len(data)) == data

    def test_bytes_below_a_tail_are_readable_during_appends(self, stores: Open, stream: StreamName) -> None:
        store = stores()
        store.create_stream(stream, fixed(1))
        data, stop = events(12 * MIB, 4), Event()

        def write() -> None:
            try:
                append(stores(), stream, FIRST, data, block=100_000)
            finally:
                stop.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            tails = [0]
            while not stop.is_set():
                tails.append(store.describe(stream).tail.offsets[FIRST])
                assert read(store, stream, FIRST, tails[-2], tails[-1]) == data[tails[-2] : tails[-1]]
            writing.result()
        assert tails == sorted(tails)
        assert store.describe(stream).tail.offsets[FIRST] == len(data)

    @pytest.mark.parametrize("shared", [False, True])
    def test_segments_are_appended_to_and_read_in_parallel(
        self, stores: Open, stream: StreamName, *, shared: bool
    ) -> None:
        store = stores()
        store.create_stream(stream, fixed(4))
        contents = {SegmentId(0, number): events(3 * MIB, number) for number in range(4)}

        def opened() -> StreamStore:
            return store if shared else stores()

        def fill(item: tuple[SegmentId, bytes]) -> None:
            append(opened(), stream, *item, block=300_000)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(fill, contents.items()))
            found = pool.map(lambda item: read(opened(), stream, item[0], 0, len(item[1])), [*contents.items()] * 2)
            assert list(found) == [*contents.values()] * 2

    def test_one_of_two_appenders_of_equal_blocks_is_refused(self, stores: Open, stream: StreamName) -> None:
        """Concurrent restores of the same bytes: each block is appended by one of them, and the other is refused."""
        store = stores()
        store.create_stream(stream, fixed(1))
        block, appenders, refused = frame(b"same" * 100), [store.appender(stream, FIRST)], list[Exception]()
        try:
            appenders.append(stores().appender(stream, FIRST))
        except StoreBusy as error:
            refused.append(error)
        together = Barrier(len(appenders))

        def fill(appender: SegmentAppender) -> int:
            with closing(appender):
                together.wait()
                try:
                    for _ in range(50):
                        appender.append(block)
                    appender.flush()
                except OffsetConflict as error:
                    refused.append(error)
                return appender.acknowledged

        with ThreadPoolExecutor(2) as pool:
            acknowledged = max(pool.map(fill, appenders))
        assert refused
        end = store.segment_info(stream, [FIRST])[0].write_offset
        assert end >= acknowledged
        assert read(store, stream, FIRST, 0, end) == block * (end // len(block))

    def test_one_of_two_appenders_is_refused_and_no_bytes_are_mixed(self, stores: Open, stream: StreamName) -> None:
        store = stores()
        store.create_stream(stream, fixed(1))
        ours, theirs = frame(b"ours") * 50, frame(b"theirs") * 50
        with closing(stores().appender(stream, FIRST)) as first:
            first.append(ours)
            first.flush()
            with pytest.raises((StoreBusy, OffsetConflict)):
                self._append_both(stores().appender, stream, theirs, first, ours)
            if store.segment_info(stream, [FIRST])[0].write_offset == len(ours):
                first.append(ours)
                assert first.flush() == 2 * len(ours)
                assert read(store, stream, FIRST, 0, 2 * len(ours)) == 2 * ours
            else:
                assert read(store, stream, FIRST, 0, len(ours + theirs)) == ours + theirs

    @staticmethod
    def _append_both(
        open_second: Callable[..., SegmentAppender],
        stream: StreamName,
        theirs: bytes,
        first: SegmentAppender,
        ours: bytes,
    ) -> None:
        with open_second(stream, FIRST) as second:
            second.append(theirs)
            second.flush()
        first.append(ours)  # the second appender was admitted: then the first one has lost
        first.flush()

    def test_unflushed_blocks_are_written_whole_or_not_at_all(self, stores: Open, stream: StreamName) -> None:
        store = stores()
        store.create_stream(stream, fixed(1))
        blocks = blocks_of(events(3 * MIB, 6), 500_000)
        appender = store.appender(stream, FIRST)
        for block in blocks:
            appender.append(block)
        acknowledged = appender.acknowledged
        appender.close()
        appender.close()
        with stores().appender(stream, FIRST) as again:
            edges = [0]
            for block in blocks:
                edges.append(edges[-1] + len(block))
            assert again.offset >= acknowledged
            assert again.offset in edges
            assert read(store, stream, FIRST, 0, again.offset) == b"".join(blocks)[: again.offset]

    # Scaling

    def test_scale_splits_merges_and_replaces_segments(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(2))
        left, right = SegmentId(0, 0), SegmentId(0, 1)
        append(store, stream, left, frame(b"left"))
        split = store.scale(stream, [left], [KeyRange(0.0, 0.2), KeyRange(0.2, 0.5)])
        assert split.number == 1
        assert set(split.segments) == {SegmentId(1, 2), SegmentId(1, 3), right}
        middle = next(segment for segment, held in split.segments.items() if held == KeyRange(0.2, 0.5))
        merged = store.scale(stream, [middle, right], [KeyRange(0.2, 1.0)])
        assert merged.segments[SegmentId(2, 4)] == KeyRange(0.2, 1.0)
        refreshed = store.scale(stream, [SegmentId(2, 4)], [KeyRange(0.2, 1.0)])
        assert refreshed.segments[SegmentId(3, 5)] == KeyRange(0.2, 1.0)
        described = store.describe(stream)
        assert described.epochs[1:] == (split, merged, refreshed)
        assert list(described.tail.offsets) == sorted(refreshed.segments)
        assert described.head.offsets == {left: 0, right: 0}
        infos = store.segment_info(stream, list(described.ranges()))
        assert {info.segment for info in infos if not info.sealed} == set(refreshed.segments)
        assert read(store, stream, left, 0, 12) == frame(b"left")

    @pytest.mark.parametrize("count", [2, 3, 5, 8, 13, 16, 26, 49, 85, 170, 300])
    def test_new_segments_are_numbered_as_predicted(self, store: StreamStore, stream: StreamName, count: int) -> None:
        store.create_stream(stream, fixed(1))
        rng = random.Random(count)
        low, high = sorted((rng.random(), rng.random()))
        store.scale(stream, [FIRST], [KeyRange(0.0, low), KeyRange(low, high), KeyRange(high, 1.0)])
        for wanted, shuffled in ((evenly(low, high, count), False), (evenly(low, high, count), True)):
            ranges = list(wanted)
            if shuffled:
                rng.shuffle(ranges)
            before = store.describe(stream).epochs[-1]
            inside = [segment for segment, held in before.segments.items() if low <= held.low and held.high <= high]
            number = max(segment.number for segment in before.segments) + 1
            after = store.scale(stream, inside, ranges)
            predicted = {
                SegmentId(after.number, number + place): ranges[index]
                for place, index in enumerate(predict_order(ranges))
            }
            assert {segment: after.segments[segment] for segment in predicted} == predicted
            assert set(after.segments) - set(predicted) == set(before.segments) - set(inside)

    def test_key_space_may_end_below_1(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(49))
        described = store.describe(stream)
        assert max(held.high for held in described.epochs[0].segments.values()) < 1.0
        store.truncate(described.tail)
        top = SegmentId(0, 48)
        held = described.epochs[0].segments[top]
        assert len(store.scale(stream, [top], evenly(held.low, held.high, 2)).segments) == 50

    def test_scale_of_nonadjacent_segments_is_one_epoch(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(3))
        old = store.describe(stream).epochs[0].segments
        outer = [SegmentId(0, 0), SegmentId(0, 2)]
        ranges = [old[outer[1]], *evenly(old[outer[0]].low, old[outer[0]].high, 2)]
        epoch = store.scale(stream, outer, ranges)
        assert list(epoch.segments.values()) == sorted([*ranges, old[SegmentId(0, 1)]])

    def test_invalid_scale_is_refused(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(2))
        store.scale(stream, [SegmentId(0, 0)], [KeyRange(0.0, 0.5)])
        before = store.describe(stream)
        left, right = SegmentId(1, 2), SegmentId(0, 1)
        for seal, ranges in (
            ([left], [KeyRange(0.0, 0.4)]),
            ([left], [KeyRange(0.0, 0.6)]),
            ([left], [KeyRange(0.0, 0.3), KeyRange(0.2, 0.5)]),
            ([left], [KeyRange(0.0, 0.2), KeyRange(0.3, 0.5)]),
            ([left], [KeyRange(0.0, 0.5), KeyRange(0.0, 0.5)]),
            ([left], [KeyRange(0.5, 1.0)]),
            ([left], []),
            ([], [KeyRange(0.0, 0.5)]),
            ([], []),
            ([left, left], [KeyRange(0.0, 0.5)]),
            ([SegmentId(0, 0)], [KeyRange(0.0, 0.5)]),
            ([NEVER], [KeyRange(0.0, 0.5)]),
            ([left, right], [KeyRange(0.0, 0.5), KeyRange(0.5000001, 1.0)]),
        ):
            with pytest.raises(ScaleRefused):
                store.scale(stream, seal, ranges)
        assert store.describe(stream) == before

    def test_scale_below_the_policys_minimum_is_refused(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(3))
        ranges = store.describe(stream).epochs[0].segments
        with pytest.raises(ScaleRefused):
            store.scale(stream, list(ranges)[:2], [KeyRange(0.0, ranges[SegmentId(0, 1)].high)])
        assert len(store.describe(stream).epochs) == 1

    def test_append_to_a_sealed_segment_is_refused(self, stores: Open, stream: StreamName) -> None:
        store = stores()
        store.create_stream(stream, fixed(1))
        appender = store.appender(stream, FIRST)
        appender.append(frame(b"in time"))
        appender.flush()
        stores().scale(stream, [FIRST], evenly(0.0, 1.0, 2))
        with pytest.raises(SegmentSealed, match=FIRST.in_stream(stream)):
            append_one(appender, b"too late")
        appender.close()
        info = store.segment_info(stream, [FIRST])[0]
        assert (info.write_offset, info.sealed) == (15, True)
        with pytest.raises(SegmentSealed, match=FIRST.in_stream(stream)):
            stores().appender(stream, FIRST)
        assert read(store, stream, FIRST, 0, 15) == frame(b"in time")

    # Truncating

    @staticmethod
    def _two_halves(store: StreamStore, stream: StreamName) -> tuple[SegmentId, SegmentId, bytes]:
        """One segment with events that was split, and events in the left half; the halves, the left one's bytes."""
        store.create_stream(stream, fixed(1))
        append(store, stream, FIRST, events(10_000, 10))
        left, right = store.scale(stream, [FIRST], evenly(0.0, 1.0, 2)).segments
        data = events(2 * MIB, 11)
        append(store, stream, left, data)
        return left, right, data

    def test_truncate_moves_the_head(self, store: StreamStore, stores: Open, stream: StreamName) -> None:
        left, right, data = self._two_halves(store, stream)
        cut = StreamCut(stream, {left: len(data) // 2, right: 0})
        store.truncate(cut)
        for seen in (store, stores()):
            described = seen.describe(stream)
            assert described.head == cut
            assert described.tail.offsets == {left: len(data), right: 0}
            assert [epoch.number for epoch in described.epochs] == [0, 1]
            info = seen.segment_info(stream, [left])[0]
            assert (info.start_offset, info.write_offset) == (len(data) // 2, len(data))
            assert read(seen, stream, left, len(data) // 2, len(data)) == data[len(data) // 2 :]
            for start in (0, len(data) // 2 - 1):
                with pytest.raises(SegmentTruncated) as caught:
                    read(seen, stream, left, start, len(data))
                assert caught.value.start_offset == len(data) // 2
            for action in (
                lambda seen=seen: seen.segment_info(stream, [FIRST]),
                lambda seen=seen: read(seen, stream, FIRST, 0, 8),
                lambda seen=seen: seen.appender(stream, FIRST),
            ):
                with pytest.raises(NoSuchSegment):
                    action()

    def test_truncate_accepts_a_cut_in_an_old_segment(self, store: StreamStore, stream: StreamName) -> None:
        left, right, _ = self._two_halves(store, stream)
        end = store.segment_info(stream, [FIRST])[0].write_offset
        for offset in (12, end):
            store.truncate(StreamCut(stream, {FIRST: offset}))
            assert store.describe(stream).head.offsets == {FIRST: offset}
            assert store.segment_info(stream, [FIRST])[0].start_offset == offset
        store.truncate(StreamCut(stream, {left: 0, right: 0}))
        assert store.describe(stream).head.offsets == {left: 0, right: 0}

    def test_truncate_at_or_before_the_head_changes_nothing(self, store: StreamStore, stream: StreamName) -> None:
        left, right, data = self._two_halves(store, stream)
        half = StreamCut(stream, {left: len(data) // 2, right: 0})
        store.truncate(half)
        before = store.describe(stream)
        for earlier in (half, StreamCut(stream, {left: 0, right: 0}), StreamCut(stream, {FIRST: 0})):
            store.truncate(earlier)
            assert store.describe(stream) == before

    def test_truncate_refuses_an_invalid_cut(self, store: StreamStore, stream: StreamName) -> None:
        left, right, data = self._two_halves(store, stream)
        before = store.describe(stream)
        end = store.segment_info(stream, [FIRST])[0].write_offset
        for offsets in (
            {left: len(data) + 8, right: 0},
            {left: 0},
            {left: 0, right: 0, FIRST: 0},
            {NEVER: 0, right: 0},
            {FIRST: end + 8},
        ):
            with pytest.raises(InvalidCut):
                store.truncate(StreamCut(stream, offsets))
        assert store.describe(stream) == before

    def test_segment_can_be_truncated_ahead_of_the_stream(self, store: StreamStore, stream: StreamName) -> None:
        store.create_stream(stream, fixed(1))
        start, data = 9 * MIB + 5, events(MIB, 8)
        with store.appender(stream, FIRST) as appender:
            for block in filler(start):
                appender.append(block)
                store.truncate_segment(stream, FIRST, appender.flush())
            assert store.describe(stream).head.offsets == {FIRST: 0}
            appender.append(data[:MIB])
            assert appender.flush() == start + len(data[:MIB])
        store.truncate_segment(stream, FIRST, start)
        store.truncate_segment(stream, FIRST, start)
        store.truncate_segment(stream, FIRST, 8)
        with pytest.raises(InvalidCut):
            store.truncate_segment(stream, FIRST, start + MIB + 1)
        info = store.segment_info(stream, [FIRST])[0]
        assert (info.start_offset, info.write_offset) == (start, start + MIB)
        with pytest.raises(SegmentTruncated) as caught:
            read(store, stream, FIRST, start - 1, start + 1)
        assert caught.value.start_offset == start
        store.truncate(StreamCut(stream, {FIRST: start}))
        assert store.describe(stream).head.offsets == {FIRST: start}
        assert read(store, stream, FIRST, start, start + MIB) == data[:MIB]

    def test_read_of_truncated_bytes_is_refused(self, store: StreamStore, stores: Open, stream: StreamName) -> None:
        store.create_stream(stream, fixed(1))
        data = events(40 * MIB, 9)
        append(store, stream, FIRST, data, block=4 * MIB)
        blocks = store.read(stream, FIRST, 0, len(data))
        got = bytearray(next(blocks))
        stores().truncate(StreamCut(stream, {FIRST: 35 * MIB}))
        with pytest.raises(SegmentTruncated) as caught:
            got.extend(byte for block in blocks for byte in block)
        assert caught.value.start_offset == 35 * MIB
        assert got == data[: len(got)]

    # Sealing and deleting

    def test_sealed_stream_is_readable_and_refuses_changes(
        self, store: StreamStore, stores: Open, stream: StreamName
    ) -> None:
        store.create_stream(stream, fixed(2))
        append(store, stream, FIRST, frame(b"last"))
        before = store.describe(stream)
        store.seal(stream)
        store.seal(stream)
        for seen in (store, stores()):
            assert seen.describe(stream) == replace(before, sealed=True)
            assert all(info.sealed for info in seen.segment_info(stream, list(before.tail.offsets)))
            assert read(seen, stream, FIRST, 0, 12) == frame(b"last")
            with pytest.raises(SegmentSealed):
                seen.appender(stream, FIRST)
            with pytest.raises(StreamSealed):
                seen.scale(stream, [FIRST], [KeyRange(0.0, 0.5)])
            with pytest.raises(StreamSealed):
                seen.update_stream(stream, fixed(2))
            with pytest.raises(StreamSealed):
                seen.truncate(StreamCut(stream, {FIRST: 12, SegmentId(0, 1): 0}))
            seen.truncate(before.head)

    def test_recreated_stream_continues_segment_numbers(
        self, store: StreamStore, stores: Open, stream: StreamName
    ) -> None:
        store.create_stream(stream, fixed(3))
        append(store, stream, FIRST, frame(b"old"))
        store.delete(stream)
        assert not store.exists(stream)
        assert stream not in store.list_streams(stream.scope)
        with pytest.raises(NoSuchStream):
            store.describe(stream)
        store.create_stream(stream, fixed(2))
        described = stores().describe(stream)
        assert list(described.epochs[0].segments) == [SegmentId(0, 3), SegmentId(0, 4)]
        assert described.tail.offsets == {SegmentId(0, 3): 0, SegmentId(0, 4): 0}
        store.scale(stream, [SegmentId(0, 4)], evenly(0.5, 1.0, 2))
        store.seal(stream)
        store.delete(stream)
        store.create_stream(stream, fixed(1))
        assert list(store.describe(stream).epochs[0].segments) == [SegmentId(0, 7)]
        store.delete(stream)
        store.delete_scope(stream.scope)
        store.create_scope(stream.scope)
        store.create_stream(stream, fixed(1))
        assert list(store.describe(stream).epochs[0].segments) == [SegmentId(0, 8)]

    def test_late_deletion_or_seal_spares_a_recreated_stream(self, stores: Open, stream: StreamName) -> None:
        store, elsewhere = stores(), stores()
        store.create_stream(stream, fixed(1))
        first = store.describe(stream).epochs[0]
        elsewhere.delete(stream)
        for change in (store.seal, store.delete):
            with pytest.raises(NoSuchStream):
                change(stream, first=first)
        elsewhere.create_stream(stream, fixed(1))
        for change in (store.seal, store.delete):
            with pytest.raises(StreamChanged, match="was deleted and recreated"):
                change(stream, first=first)
        described = store.describe(stream)
        assert not described.sealed
        store.seal(stream, first=described.epochs[0])
        store.delete(stream, first=described.epochs[0])
        assert not store.exists(stream)

    def test_late_update_does_not_overwrite_a_newer_configuration(self, stores: Open, stream: StreamName) -> None:
        store, elsewhere = stores(), stores()
        store.create_stream(stream, fixed(1))
        was = store.describe(stream).configuration
        wanted, others = replace(was, tags=("wanted",)), replace(was, tags=("other",))
        store.update_stream(stream, wanted, was=was)
        store.update_stream(stream, wanted, was=was)
        assert store.describe(stream).configuration == wanted
        elsewhere.update_stream(stream, others)
        with pytest.raises(StreamChanged, match="configuration was changed concurrently"):
            store.update_stream(stream, wanted, was=was)
        assert store.describe(stream).configuration == others

    def test_deletion_spares_a_stream_recreated_at_once(self, stores: Open, stream: StreamName) -> None:
        store, elsewhere = stores(), stores()

        def make() -> None:
            while True:
                with suppress(StreamExists):
                    elsewhere.create_stream(stream, fixed(1))
                    return

        with ThreadPoolExecutor(1) as other:
            for number in range(6):
                if not number:
                    store.create_stream(stream, fixed(1))
                making = other.submit(make)
                store.delete(stream)
                making.result(30)
                described = store.describe(stream)
                assert list(described.epochs[0].segments) == [SegmentId(0, number + 1)]
                assert not described.sealed

    def test_append_to_a_deleted_stream_is_refused(self, stores: Open, stream: StreamName) -> None:
        store = stores()
        store.create_stream(stream, fixed(1))
        appender = store.appender(stream, FIRST)
        appender.append(frame(b"in time"))
        appender.flush()
        stores().delete(stream)
        with pytest.raises((NoSuchStream, NoSuchSegment, SegmentSealed)):
            append_one(appender, b"too late")
        appender.close()
        assert not store.exists(stream)


def store_tags(store: StreamStore, stream: StreamName) -> tuple[str, ...]:
    return store.describe(stream).configuration.tags


class TestLocal(StreamStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Open:
        return lambda: LocalStore(tmp_path / "a store")


@pytest.mark.pravega
class TestPravega(StreamStoreContract):
    @pytest.fixture
    def open_store(self, pravega: PravegaServer) -> Open:
        address, _ = parse_stream(f"{pravega.uri}/scope/stream")
        return address.open

    def test_both_stores_agree_on_a_fixed_history(self, store: StreamStore, scope_name: str, tmp_path: Path) -> None:
        """Epochs, numbers, offsets, head and every event of a stream with all kinds of scales."""
        name = StreamName(scope_name, "stream")
        with LocalStore(tmp_path) as local:
            for place in (store, local):
                make_stream(place, name, events=3_000, largest=200_000)
            assert shape_of(local, name) == shape_of(store, name)
            assert digest_of(local, name) == digest_of(store, name)

    @pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
    def test_both_stores_agree_on_random_histories(
        self, store: StreamStore, scope_name: str, tmp_path: Path, seed: int
    ) -> None:
        name = StreamName(scope_name, "stream")
        with LocalStore(tmp_path) as local:
            for place in (store, local):
                place.create_scope(scope_name)
                random_history(place, name, seed)
            assert shape_of(local, name) == shape_of(store, name)
            assert digest_of(local, name) == digest_of(store, name)


def random_history(store: StreamStore, name: StreamName, seed: int) -> None:
    """Scales with appends between them, truncations, and the seal at times; the same for each store."""
    rng = random.Random(seed)
    count = rng.randrange(1, 5)
    store.create_stream(name, StreamConfiguration(tags=(f"seed-{seed}",)))
    store.scale(name, [SegmentId(0, 0)], evenly(0.0, 1.0, count))
    for step in range(12):
        current = store.describe(name).epochs[-1].segments
        for segment in rng.sample(sorted(current), min(len(current), 3)):
            append(store, name, segment, events(rng.randrange(1, 30_000), step))
        begin = rng.randrange(len(current))
        sealed = list(current)[begin : begin + rng.randrange(1, 4)]
        low, high = current[sealed[0]].low, current[sealed[-1]].high
        ranges = evenly(low, high, rng.choice([1, 2, 3, 7, 14]))
        rng.shuffle(ranges)
        store.scale(name, sealed, ranges)
        if rng.random() < 0.25:
            tail = store.describe(name).tail
            store.truncate(tail)
            boundary = append(store, name, min(tail.offsets), events(5_000, step))
            assert boundary > tail.offsets[min(tail.offsets)]
    if rng.random() < 0.5:
        store.seal(name)
