"""Events as Arrow batches: every event with its own pointer, wherever the blocks are cut."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.lake import read
from streamvault.lake.read import EVENT_SCHEMA, batch_of, event_batches
from streamvault.streamstore.events import EventBlock
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import EventPointer, SegmentId, StreamName
from testkit.streams import frame

STREAM, SEGMENT = StreamName("scope", "stream"), SegmentId(3, 7)
payloads = st.lists(st.one_of(st.binary(max_size=40), st.just(b"same size"), st.just(bytes(16))), max_size=60)


@given(payloads, st.lists(st.integers(1, 200), max_size=20), st.integers(0, 2**62))
def test_every_event_has_its_pointer(events: list[bytes], cuts: list[int], start: int) -> None:
    data = b"".join(map(frame, events))
    blocks, at = [], 0
    for cut in [*cuts, len(data)]:
        blocks.append(data[at : at + cut])
        at += cut
    rows = pa.Table.from_batches(event_batches(STREAM, SEGMENT, start, blocks), EVENT_SCHEMA).to_pylist()
    assert [row["payload"] for row in rows] == events
    offset = start
    for row, payload in zip(rows, events, strict=True):
        pointer = EventPointer(STREAM, SEGMENT, offset, 8 + len(payload))
        assert row["pointer"] == str(pointer)
        assert (row["scope"], row["stream"], row["epoch"], row["segment"]) == ("scope", "stream", 3, 7)
        assert (row["offset"], row["length"]) == (offset, 8 + len(payload))
        offset += 8 + len(payload)


@given(payloads, st.permutations(EVENT_SCHEMA.names), st.integers(1, 8))
def test_batch_is_the_same_whether_or_not_the_starts_are_known(
    events: list[bytes], names: list[str], some: int
) -> None:
    schema = pa.schema([EVENT_SCHEMA.field(name) for name in names[:some]])
    data = b"".join(map(frame, events))
    bare = EventBlock(5, memoryview(data), len(events))
    rows = batch_of(STREAM, SEGMENT, bare, schema).to_pylist()
    assert rows == [row for batch in event_batches(STREAM, SEGMENT, 5, [data], schema) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == events if "payload" in schema.names else len(rows) == len(events)


def test_large_block_makes_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "BATCH_BYTES", 1000)
    data = frame(b"x" * 92) * 100 + frame(b"y" * 5000)
    made = list(event_batches(STREAM, SEGMENT, 0, [data]))
    assert max(batch.num_rows for batch in made) <= 10
    assert sum(batch.num_rows for batch in made) == 101


def test_small_blocks_do_not_make_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "BATCH_BYTES", 1000)
    data = frame(b"x" * 92) * 100 + frame(b"y" * 50)
    reused = bytearray(70)

    def blocks() -> Iterator[memoryview]:
        for at in range(0, len(data), 70):
            some = data[at : at + 70]
            reused[: len(some)] = some
            yield memoryview(reused)[: len(some)]

    made = list(event_batches(STREAM, SEGMENT, 0, blocks()))
    assert len(made) == 11
    assert [row for batch in made for row in batch["payload"].to_pylist()] == [b"x" * 92] * 100 + [b"y" * 50]


def test_batch_holds_no_memory_of_its_block() -> None:
    block = bytearray(frame(b"one") + frame(b"two"))
    batch = next(event_batches(STREAM, SEGMENT, 0, [block]))
    block[:] = bytes(len(block))
    assert batch["payload"].to_pylist() == [b"one", b"two"]


@pytest.mark.parametrize("data", [frame(b"whole") + frame(b"cut")[:-1], b"\xff" * 16])
def test_invalid_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(NotAnEvent):
        list(event_batches(STREAM, SEGMENT, 0, [data]))
