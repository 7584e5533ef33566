"""Blocks of a range that were compared with their checksums."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import pytest

from streamvault.common.errors import Damaged
from streamvault.layouts.archived_range import BLOCK_BYTES, ArchivedRange
from streamvault.layouts.keys import PlaceAddress
from streamvault.layouts.layout import open_layout
from streamvault.manifests.damage import ArchivedPart, DigestMismatch, compared_blocks
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.events import EventBlock
from streamvault.streamstore.model import SegmentId
from testkit.small_archives import a_root
from testkit.streams import frame
from tests.metered import MeteredStore

SEGMENT, START = SegmentId(3, 7), 1000
EVENTS = [frame(random.Random(seed).randbytes(60_000)) for seed in range(75)]
RAW = b"".join(EVENTS)
BLOCKS = range(-(-len(RAW) // BLOCK_BYTES))


@pytest.fixture(params=["", "zstd"], ids=["raw", "zstd"])
def part(request: pytest.FixtureRequest) -> ArchivedPart:
    """All of a range of four MiB and a bit, as it is archived."""
    address = PlaceAddress(RootAddress.parse(a_root()), "")
    layout = open_layout("chunks", request.param)
    written = layout.write_run(address.open(), SEGMENT, [EventBlock(START, memoryview(RAW), len(EVENTS))])
    digest = hashlib.sha256(RAW).hexdigest()
    row = ArchivedRange(SEGMENT, START, START + len(RAW), len(EVENTS), digest, *written)
    return ArchivedPart.all_of(address, "chunks", row)


def blocks_of(part: ArchivedPart, first: int, last: int) -> memoryview:
    start, end = START + first * BLOCK_BYTES, START + min(last * BLOCK_BYTES, len(RAW))
    return compared_blocks(replace(part, start=start, end=end))


def flip(part: ArchivedPart, at: int) -> None:
    """Change the object that has a byte of the range."""
    store = part.place.store
    entries = list(store.list(""))
    entry = entries[at * len(entries) // len(RAW)]
    data = bytearray(store.get(entry.key))
    data[at * len(data) // len(RAW) if len(entries) == 1 else -1] ^= 1
    store.delete([entry.key])
    store.put(entry.key, bytes(data))


EDGES = [(0, 1), (0, len(BLOCKS)), (1, 3), (len(BLOCKS) - 1, len(BLOCKS))]


@pytest.mark.parametrize(("first", "last"), EDGES)
def test_blocks_are_the_bytes(part: ArchivedPart, first: int, last: int) -> None:
    assert blocks_of(part, first, last) == RAW[first * BLOCK_BYTES : last * BLOCK_BYTES]


@pytest.mark.parametrize("at", [0, 1_500_000, len(RAW) - 1])
def test_changed_block_is_not_handed_out(part: ArchivedPart, at: int) -> None:
    """The others are."""
    flip(part, at)
    for number in BLOCKS:
        if number != at // BLOCK_BYTES:
            assert blocks_of(part, number, number + 1) == RAW[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
            continue
        for first in (number, 0):
            with pytest.raises(Damaged) as caught:
                blocks_of(part, first, number + 1)
            assert f"{SEGMENT}" in caught.value.where or "chunks/" in caught.value.where


def test_frame_that_is_valid_and_has_other_bytes_is_not_handed_out() -> None:
    """A frame's own checksum does not notice that another one took its place."""
    address, layout = PlaceAddress(RootAddress.parse(a_root()), ""), open_layout("chunks", "zstd")
    written = layout.write_run(address.open(), SEGMENT, [EventBlock(START, memoryview(RAW), len(EVENTS))])
    other = layout.write_run(
        PlaceAddress(RootAddress.parse(a_root()), "").open(), SEGMENT, [EventBlock(START, memoryview(RAW[::-1]), 1)]
    )
    row = ArchivedRange(SEGMENT, START, START + len(RAW), 75, "ab" * 32, *written)
    wrong = replace(row, block_checksums=other.block_checksums)
    with pytest.raises(DigestMismatch, match="do not match"):
        compared_blocks(ArchivedPart.all_of(address, "chunks", wrong))


def test_only_the_blocks_that_are_asked_for_are_read(part: ArchivedPart, monkeypatch: pytest.MonkeyPatch) -> None:
    metered = MeteredStore(part.place.store)
    place = part.place._replace(store=metered)
    monkeypatch.setattr(PlaceAddress, "open", lambda _: place)
    blocks_of(part, 2, 3)
    assert metered.meter.bytes_got <= BLOCK_BYTES * 1.1
