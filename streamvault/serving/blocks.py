"""Blocks of archived ranges, compared before they are handed out: the only place where archived bytes come in.

Only a whole range has a digest, and a reader wants a part of it long before all of it is read. So a range is read whole
once and compared with its digest before its first byte is handed out; the checksums of its blocks that this yields are
what each later block is compared with.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from streamvault.common.errors import Damaged
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.layout import LAYOUTS, open_layout, open_reader
from streamvault.manifests.damage import ArchivedPart, damaged_range, read_verified
from streamvault.objectstore.store import crc64nvme
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import ANY_EVENT_BYTES

BLOCK_BYTES = 4 * 1024 * 1024
"""What is fetched, compared and kept at once."""

WINDOW_BYTES = 4 * 1024 * 1024
"""Read ahead while a range or a block is read."""

Room = Callable[[int], bool]
"""Takes so many bytes of the cache's memory; False if there are not as many."""


@dataclass(frozen=True, slots=True)
class BlockSums:
    """What the blocks of a range are compared with.

    Attributes:
        checks: the CRC64NVME of each block of `BLOCK_BYTES`, in base64.
        edges: boundaries of events in the range, ascending, which need not be all; empty if any byte may be read.
    """

    checks: tuple[str, ...]
    edges: array[int]


@dataclass(frozen=True, slots=True)
class Learned:
    """A range that was read whole and has its digest.

    Attributes:
        sums: what its blocks are compared with from now on.
        blocks: those of its blocks that there was room for, by number.
    """

    sums: BlockSums
    blocks: Mapping[int, memoryview]


def blocks_of(row: ArchivedRange) -> int:
    """Return the number of a range's blocks."""
    return -(-(row.end - row.start) // BLOCK_BYTES)


def compared_block(part: ArchivedPart, number: int, sums: BlockSums) -> memoryview:
    """Return one block of a range, after it was compared with its checksum.

    Args:
        part: all of the range.
        number: which of its blocks.
        sums: what is known of them.

    Raises:
        Damaged: an object is missing or has the wrong size, or the bytes are not those that were archived.
    """
    row = part.row
    start = row.start + number * BLOCK_BYTES
    end = min(start + BLOCK_BYTES, row.end)
    if sums.edges:
        # of objects that are events, only those of the block are listed: the range's chain is known
        low = sums.edges[bisect_right(sums.edges, start) - 1]
        high = sums.edges[bisect_left(sums.edges, end)]
        row = replace(row, start=low, end=high, digest="")
    read = open_reader(part.layout).read_range(part.place, row, start, end, WINDOW_BYTES)
    parts = [memoryview(one) for one in read]
    block = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
    if len(block) != end - start or crc64nvme(block) != sums.checks[number]:
        raise damaged_range(part)
    return block


def learn(part: ArchivedPart, room: Room, first: int = 0) -> Learned:
    """Read a range whole, compare its digest, and return the checksums of its blocks.

    Memory: the window, a block, and those blocks from ``first`` on for which there is room.

    Raises:
        DigestMismatch, Damaged: as `manifests.damage.read_verified`.
    """
    row, checks, kept = part.row, list[str](), dict[int, memoryview]()
    chained = part.layout in LAYOUTS and open_layout(part.layout).one_object_per_event and not row.is_large
    splitter = EventSplitter(row.start, str(row.segment), largest=ANY_EVENT_BYTES) if chained else None
    edges = array("q", [row.start]) if chained else array("q")

    def compared() -> Iterator[bytes | memoryview]:
        for data in read_verified(part, WINDOW_BYTES):
            if splitter is not None:
                edges.extend(some.end for some in splitter.feed(data))
            yield data

    try:
        for block in _cut(compared()):
            if len(checks) >= first and room(len(block)):
                kept[len(checks)] = memoryview(bytes(block))
            checks.append(crc64nvme(block))
    except NotAnEvent as error:
        raise Damaged(error.what, where=part.place.uri, todo="Run 'streamvault check' on the archive.") from None
    return Learned(BlockSums(tuple(checks), edges), kept)


def _cut(parts: Iterator[bytes | memoryview]) -> Iterator[bytearray]:
    """Yield the bytes as blocks of `BLOCK_BYTES`; each is valid until the next one is asked for."""
    held = bytearray()
    for part in parts:
        rest = memoryview(part)
        while rest.nbytes:
            taken = rest[: BLOCK_BYTES - len(held)]
            held += taken
            rest = rest[len(taken) :]
            if len(held) == BLOCK_BYTES:
                yield held
                held = bytearray()
    if held:
        yield held
