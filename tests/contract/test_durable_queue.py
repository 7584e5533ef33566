"""The contract of durable queues as tests, shared by all stream stores.

The contract of durable queues on both stream stores.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamvault.common.errors import Usage
from streamvault.streamstore import lease
from streamvault.streamstore.errors import NoSuchStream
from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.queue import (
    MAX_ENTRY_BYTES,
    NOTE_BYTES,
    OVERHEAD_BYTES,
    BadEntry,
    Consumer,
    ConsumerBusy,
    EntryTooLarge,
    NotAQueue,
    Producer,
    QueueEntry,
    QueueFull,
    QueueSegment,
    encode_entry,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.pravega import PravegaServer
from tests.contract.open_stores import Open, OpenStores

LIMIT = MAX_ENTRY_BYTES + OVERHEAD_BYTES


class Handled:
    """A handler that records its entries."""

    def __init__(self) -> None:
        self.batches: list[list[QueueEntry]] = []

    def __call__(self, batch: Sequence[QueueEntry]) -> None:
        self.batches.append(list(batch))

    @property
    def contents(self) -> list[bytes]:
        return [entry.content for batch in self.batches for entry in batch]


def numbers(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def put_all(queue: QueueSegment, contents: list[bytes]) -> None:
    block, producer = b"".join(map(encode_entry, contents)), Producer(queue)
    producer._attempts(producer._append, block)


def work_off(queue: QueueSegment, *, batch_entries: int = 500) -> Handled:
    handled = Handled()
    with Consumer(queue, batch_entries=batch_entries) as consumer:
        consumer.run(handled, idle_seconds=0)
    return handled


def never(batch: Sequence[QueueEntry]) -> None:
    raise OSError("never")


class DurableQueueContract(OpenStores):
    """The behaviour of every store's durable queues.

    Attributes:
        keeps_out: whether the store itself keeps others from a segment while its appender's process lives.
    """

    keeps_out: bool

    @pytest.fixture(autouse=True)
    def short_pauses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("streamvault.streamstore.queue.LONGEST_RETRY_PAUSE", 0.05)

    @pytest.fixture
    def name(self, scope_name: str) -> StreamName:
        return StreamName(scope_name, "queue")

    @pytest.fixture
    def queue(self, store: StreamStore, name: StreamName) -> QueueSegment:
        return QueueSegment.create(store, name)

    def test_entries_are_consumed_in_order_and_removed(self, queue: QueueSegment) -> None:
        producer = Producer(queue)
        before = time.time()
        names = [producer.put(content) for content in (b"one", b"", bytes(100), frame(b"like an event"))]
        assert queue.outstanding() > 0
        handled = Handled()
        with Consumer(queue) as consumer:
            metrics = consumer.run(handled, idle_seconds=0)
        assert handled.contents == [b"one", b"", bytes(100), frame(b"like an event")]
        entries = [entry for batch in handled.batches for entry in batch]
        assert [entry.name for entry in entries] == names
        assert all(before - 0.001 <= entry.put_time <= time.time() for entry in entries)
        assert [entry.end for entry in entries[:-1]] == [entry.offset for entry in entries[1:]]
        assert (metrics.entries, metrics.outstanding_bytes, metrics.retries) == (4, 0, 0)
        assert metrics.bytes == entries[-1].end
        assert 0.0 <= metrics.latency_seconds <= time.time() - before
        assert queue.outstanding() == 0
        assert queue.store.describe(queue.name).head.offsets == {queue.segment: entries[-1].end}
        assert list(queue.store.list_streams(queue.name.scope, own=True)) == [queue.name], "the lease's stream is gone"
        assert work_off(queue).contents == []

    def test_largest_entry_is_consumed(self, queue: QueueSegment, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("streamvault.streamstore.queue.BATCH_BYTES", 1000)
        largest = bytes(MAX_ENTRY_BYTES)
        put_all(queue, [b"before", largest, b"after"])
        handled = work_off(queue)
        assert handled.contents == [b"before", largest, b"after"]
        assert [len(batch) for batch in handled.batches] == [1, 1, 1]
        with pytest.raises(EntryTooLarge, match="exceeds the maximum"):
            Producer(queue).put(largest + b"x")
        note = bytes(NOTE_BYTES)
        Producer(queue).move(largest + note, uuid.uuid4())
        assert work_off(queue).contents == [largest + note]
        with pytest.raises(EntryTooLarge, match="exceeds the maximum"):
            Producer(queue).move(largest + note + b"x", uuid.uuid4())

    def test_moved_entry_is_put_once_while_outstanding(self, queue: QueueSegment) -> None:
        name = Producer(queue).put(b"first")
        Producer(queue).move(b"second", name, unless=lambda entry: entry.name == name)
        Producer(queue).move(b"third", name, unless=lambda entry: entry.content == b"other")
        assert [[(entry.name, entry.content) for entry in batch] for batch in work_off(queue).batches] == [
            [(name, b"first"), (name, b"third")]
        ]
        Producer(queue).move(b"fourth", name, unless=lambda entry: entry.name == name)
        assert work_off(queue).contents == [b"fourth"]

    def test_consumer_stops_at_a_given_offset(self, queue: QueueSegment) -> None:
        put_all(queue, numbers(3))
        handled = Handled()
        end = queue.info().write_offset
        Producer(queue).put(b"later")
        with Consumer(queue, batch_entries=1) as consumer:
            consumer.run(handled, until=end)
        assert handled.contents == numbers(3)
        assert work_off(queue).contents == [b"later"]

    def test_batches_are_bounded_in_entries_and_bytes(
        self, queue: QueueSegment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_all(queue, numbers(25))
        assert [len(batch) for batch in work_off(queue, batch_entries=10).batches] == [10, 10, 5]
        put_all(queue, [bytes(400)] * 6)
        monkeypatch.setattr("streamvault.streamstore.queue.BATCH_BYTES", 1000)
        assert [len(batch) for batch in work_off(queue).batches] == [2, 2, 2]

    def test_queue_is_created_once_and_other_streams_are_refused(
        self, store: StreamStore, queue: QueueSegment, stores: Open
    ) -> None:
        put_all(queue, [b"kept"])
        again = QueueSegment.create(stores(), queue.name)
        assert again.segment == queue.segment
        assert QueueSegment.open(stores(), queue.name).outstanding() == queue.outstanding()
        with pytest.raises(NoSuchStream):
            QueueSegment.open(store, StreamName(queue.name.scope, "other"))
        other = StreamName(queue.name.scope, "data")
        store.create_stream(other, StreamConfiguration(scaling=Scaling(min_segments=2)))
        with pytest.raises(NotAQueue, match="is not a queue"):
            QueueSegment.create(store, other)

    def test_concurrent_producers_lose_no_entry(self, queue: QueueSegment, stores: Open) -> None:
        """Each producer's entries are there once and in its order, whichever was faster."""

        def produce(number: int) -> None:
            mine = QueueSegment.open(stores(), queue.name)
            producer = Producer(mine)
            for content in numbers(12, f"{number}-"):
                producer.put(content)

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(produce, range(3)))
        contents = work_off(queue).contents
        assert len(contents) == 36
        for number in range(3):
            assert [c for c in contents if c.startswith(b"%d-" % number)] == numbers(12, f"{number}-")

    def test_producer_waits_until_another_process_makes_room(self, queue: QueueSegment, stores: Open) -> None:
        half = bytes(LIMIT // 2)
        producer = Producer(queue, limit=LIMIT, wait_seconds=0.3)
        producer.put(half)
        with pytest.raises(QueueFull, match="the queue is full"):
            producer.put(half)
        assert queue.outstanding() == len(half) + OVERHEAD_BYTES, "nothing was put in"
        elsewhere = QueueSegment.open(stores(), queue.name)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(Producer(queue, limit=LIMIT, wait_seconds=60).put, half)
            time.sleep(0.1)
            assert not waiting.done()
            assert len(work_off(elsewhere).contents) >= 1
            waiting.result(60)
        assert queue.info().write_offset == 2 * (OVERHEAD_BYTES + len(half))
        with pytest.raises(Usage):
            Producer(queue, limit=1000)

    def test_second_consumer_is_refused(
        self, queue: QueueSegment, stores: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lease, "BEAT_SECONDS", 0.2)
        elsewhere = QueueSegment.open(stores(), queue.name)
        first = Consumer(queue)
        with pytest.raises(ConsumerBusy, match="another consumer is processing this queue"):
            Consumer(elsewhere)
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(Consumer, elsewhere, wait_seconds=60)
            time.sleep(0.3)
            assert not second.done()
            first.close()
            second.result(60).close()

    def test_silent_consumer_is_replaced_and_removes_nothing(
        self, queue: QueueSegment, stores: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lease, "BEAT_SECONDS", 3600.0)
        monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.5)
        put_all(queue, numbers(4))
        handled = Handled()
        silent = Consumer(queue, batch_entries=1)
        elsewhere = QueueSegment.open(stores(), queue.name)
        if self.keeps_out:
            with pytest.raises(ConsumerBusy):
                Consumer(elsewhere)
            silent.close()
            return
        second = Consumer(elsewhere, batch_entries=2)
        silent._lease._beat()
        with pytest.raises(ConsumerBusy, match=r"lost its lease: .*[^.]\. Run the same command again\.$"):
            silent.run(handled, idle_seconds=0)
        assert handled.contents == []
        second.run(handled, idle_seconds=0)
        second.close()
        assert handled.contents == numbers(4)

    def test_failed_batch_is_handled_again(self, queue: QueueSegment) -> None:
        put_all(queue, numbers(3))
        calls: list[list[bytes]] = []
        names: set[tuple[uuid.UUID, ...]] = set()
        told: list[str] = []

        def failing_twice(batch: Sequence[QueueEntry]) -> None:
            calls.append([entry.content for entry in batch])
            names.add(tuple(entry.name for entry in batch))
            if len(calls) <= 2:
                raise OSError(f"no luck {len(calls)}")

        with Consumer(queue, failing=lambda error, _: told.append(str(error))) as consumer:
            metrics = consumer.run(failing_twice, idle_seconds=0)
        assert calls == [numbers(3)] * 3
        assert len(names) == 1, "whoever gets an entry twice can tell"
        assert told == ["no luck 1", "no luck 2"]
        assert (metrics.entries, metrics.retries) == (3, 2)

    def test_handler_that_never_succeeds_loses_nothing(self, queue: QueueSegment) -> None:
        put_all(queue, numbers(3))
        before = queue.info()
        consumer = Consumer(queue, tries=2)
        with pytest.raises(OSError, match="never"), consumer:
            consumer.run(never)
        assert queue.info() == before
        assert work_off(queue).contents == numbers(3)

    def test_consumer_can_be_stopped_by_another_thread(self, queue: QueueSegment) -> None:
        """While idle, within a batch, and between retries of a failing one; unprocessed entries stay."""
        with Consumer(queue) as consumer:
            threading.Timer(0.1, consumer.stop).start()
            assert consumer.run(Handled()).entries == 0
        put_all(queue, numbers(4))
        with Consumer(queue, batch_entries=2) as consumer:
            assert consumer.run(lambda _: consumer.stop()).entries == 2
        tried = threading.Event()
        with Consumer(queue, failing=lambda *_: tried.set()) as consumer, ThreadPoolExecutor(1) as pool:
            running = pool.submit(consumer.run, never)
            assert tried.wait(60)
            consumer.stop()
            assert running.result(60).entries == 0
        assert work_off(queue).contents == numbers(4)[2:]

    def test_consumer_stops_when_idle(self, queue: QueueSegment, monkeypatch: pytest.MonkeyPatch) -> None:
        handled = Handled()
        with Consumer(queue) as consumer:
            wait, late = consumer._stop.wait, [b"late"]

            def wait_after_a_late_entry(seconds: float) -> bool:
                if late:
                    Producer(queue).put(late.pop())
                return wait(seconds)

            monkeypatch.setattr(consumer._stop, "wait", wait_after_a_late_entry)
            assert consumer.run(handled, idle_seconds=0.6).entries == 1
        with Consumer(queue) as consumer:
            put_all(queue, [b"x"])
            consumer.stop()
            assert consumer.run(handled).entries == 0

    @pytest.mark.parametrize(
        "foreign",
        [
            b"\xff" * 64,
            frame(b"an event that is no entry of a queue, however long it may be"),
            encode_entry(b"content")[:-1] + b"X",
            encode_entry(b"content")[:8] + b"\x02" + encode_entry(b"content")[9:],
            encode_entry(b"content")[:-1],
            frame(b""),
        ],
        ids=["bytes", "event", "checksum", "version", "torn", "empty"],
    )
    def test_invalid_entry_stops_the_consumer_and_is_kept(self, queue: QueueSegment, foreign: bytes) -> None:
        put_all(queue, numbers(3))
        good = queue.info().write_offset
        with queue.store.appender(queue.name, queue.segment) as appender:
            appender.append(foreign)
        handled = Handled()
        for _ in range(2):
            consumer = Consumer(queue)
            with pytest.raises(BadEntry) as raised, consumer:
                consumer.run(handled, idle_seconds=0)
            assert raised.value.exit_code == 3
            assert f"{queue.segment.in_stream(queue.name)} at offset {good}" in raised.value.where
        assert handled.contents == numbers(3), "what came before it was handled, once"
        assert queue.info().start_offset == good
        assert queue.info().write_offset == good + len(foreign)


class TestLocal(DurableQueueContract):
    keeps_out = True

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Open:
        return lambda: LocalStore(tmp_path / "a store")


@pytest.mark.pravega
class TestPravega(DurableQueueContract):
    keeps_out = False

    @pytest.fixture
    def open_store(self, pravega: PravegaServer) -> Open:
        address, _ = parse_stream(f"{pravega.uri}/scope/stream")
        return address.open
