"""Bytes of a range that were compared block by block."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import pytest

from streamvault.common.errors import Damaged
from streamvault.layouts.archived_range import BLOCK_BYTES, ArchivedRange
from streamvault.layouts.keys import PlaceAddress
from streamvault.layouts.layout import open_layout
from streamvault.manifests import damage
from streamvault.manifests.damage import ArchivedPart, DigestMismatch, read_blocks, with_block_checksums
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
KINDS = [("chunks", ""), ("chunks", "zstd"), ("events", "")]


@pytest.fixture(params=KINDS, ids=["raw", "zstd", "events"])
def part(request: pytest.FixtureRequest) -> ArchivedPart:
    """All of a range of four MiB and a bit, as it is archived."""
    name, compression = request.param
    address = PlaceAddress(RootAddress.parse(a_root()), "")
    layout = open_layout(name, compression)
    written = layout.write_run(address.open(), SEGMENT, [EventBlock(START, memoryview(RAW), len(EVENTS))])
    digest = hashlib.sha256(RAW).hexdigest()
    row = ArchivedRange(SEGMENT, START, START + len(RAW), len(EVENTS), digest, *written)
    return ArchivedPart.all_of(address, name, row)


def bytes_of(part: ArchivedPart, low: int, high: int, **options: int) -> bytes:
    return b"".join(read_blocks(replace(part, start=START + low, end=START + high), **options))


def flip(part: ArchivedPart, at: int) -> None:
    """Change the object that has a byte of the range."""
    store = part.place.store
    entries = list(store.list(""))
    entry = entries[at * len(entries) // len(RAW)]
    data = bytearray(store.get(entry.key))
    data[at * len(data) // len(RAW) if len(entries) == 1 else -1] ^= 1
    store.delete([entry.key])
    store.put(entry.key, bytes(data))


EDGES = [(0, 1), (0, len(RAW)), (BLOCK_BYTES - 1, BLOCK_BYTES + 1), (len(RAW) - 1, len(RAW)), (5, 5), (7, 3_000_000)]


@pytest.mark.parametrize(("low", "high"), EDGES)
def test_blocks_are_the_bytes(part: ArchivedPart, low: int, high: int) -> None:
    assert bytes_of(part, low, high) == RAW[low:high]
    assert bytes_of(part, low, high, window=1) == RAW[low:high]


def test_range_without_checksums_is_compared_before_its_first_byte(
    part: ArchivedPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is buffered, or does not fit into the window."""
    monkeypatch.setattr(damage, "BESIDES", 0)
    bare = replace(part, row=replace(part.row, block_checksums=""))
    for window in (1, 64 * BLOCK_BYTES):
        assert bytes_of(bare, 7, 3_000_000, window=window) == RAW[7:3_000_000]
    assert part.row.block_checksums in {"", with_block_checksums(bare).row.block_checksums}
    flip(part, len(RAW) - 1)
    for window in (1, 64 * BLOCK_BYTES):
        with pytest.raises(Damaged):
            next(read_blocks(replace(bare, end=START + 1), window))


@pytest.mark.parametrize("at", [0, 1_500_000, len(RAW) - 1])
def test_changed_block_is_not_handed_out(part: ArchivedPart, at: int) -> None:
    """Of a range with checksums, the others are."""
    flip(part, at)
    for number in BLOCKS:
        low, high = number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, len(RAW))
        if part.row.block_checksums and not low <= at < high:
            assert bytes_of(part, low, high) == RAW[low:high]
            continue
        with pytest.raises(Damaged) as caught:
            next(read_blocks(replace(part, start=START + low, end=START + high)))
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
        next(read_blocks(ArchivedPart.all_of(address, "chunks", wrong)))


def test_only_the_blocks_that_are_asked_for_are_read(part: ArchivedPart, monkeypatch: pytest.MonkeyPatch) -> None:
    metered = MeteredStore(part.place.store)
    place = part.place._replace(store=metered)
    monkeypatch.setattr(PlaceAddress, "open", lambda _: place)
    bytes_of(part, 2 * BLOCK_BYTES + 5, 2 * BLOCK_BYTES + 6)
    most = BLOCK_BYTES * 1.1 if part.row.block_checksums else len(RAW) * 1.1
    assert metered.meter.bytes_got <= most
    assert bool(part.row.block_checksums) == (part.layout == "chunks")
