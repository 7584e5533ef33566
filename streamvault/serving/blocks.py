"""Blocks of archived ranges, compared before they are handed out: the only place where archived bytes come in.

Only a whole range has a digest, and a reader wants a part of it long before all of it is read. The index has checksums
of the blocks of a chunk, by which they are compared. Any other range is read whole once and compared with its digest
before its first byte is handed out, which yields the digests with which its blocks are compared from then on.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from streamvault.common.errors import Damaged
from streamvault.layouts import archived_range
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.events import LAYOUT as EVENTS
from streamvault.layouts.layout import LAYOUTS, open_layout, open_reader
from streamvault.manifests.damage import ArchivedPart, compared_blocks, damaged_range, read_verified
from streamvault.objectstore.bulk import as_block, in_blocks
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import ANY_EVENT_BYTES

BLOCK_BYTES = 2 * archived_range.BLOCK_BYTES
"""What is fetched and kept at once: a few blocks that have a checksum, as each request costs as much as its bytes."""

WINDOW_BYTES = 4 * 1024 * 1024
"""Read ahead while a range or a block is read."""

WHOLE_RANGE_BYTES = 24 * 1024 * 1024
"""What a range takes that is read whole: the window, and an event of 8 MiB, which the client library has, too."""

DIGEST_BYTES = hashlib.sha256().digest_size

MOST_IN_CHAIN = 128 * 1024
"""Boundaries that are kept of a range: of smaller events, a block takes more requests than its listing adds."""

Room = Callable[[int], bool]
"""Takes so many bytes of the cache's memory; False if there are not as many."""


@dataclass(frozen=True, slots=True)
class KnownRange:
    """A range whose blocks can be compared.

    Attributes:
        part: all of the range.
        digests: SHA-256 of each of its blocks, when the range had its own; empty if the index has checksums of them.
        edges: of objects that are events, boundaries of events in the range, ascending, which need not be all; empty if
            any byte may be read.
    """

    part: ArchivedPart
    digests: bytes = b""
    edges: array[int] = field(default_factory=lambda: array("q"))

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        return 1000 + len(self.digests) + len(self.edges) * self.edges.itemsize


@dataclass(frozen=True, slots=True)
class Learned:
    """A range that was read whole and has its digest.

    Attributes:
        known: the range.
        blocks: those of its blocks that there was room for, by number.
        chain: of objects that are events, all boundaries, as bytes; empty if there are too many.
    """

    known: KnownRange
    blocks: Mapping[int, memoryview]
    chain: memoryview


def blocks_of(row: ArchivedRange) -> int:
    """Return the number of a range's blocks."""
    return -(-(row.end - row.start) // BLOCK_BYTES)


def compared_block(known: KnownRange, number: int, chain: memoryview | None = None) -> memoryview:
    """Return one block of a range, after it was compared with its digest or checksums.

    Args:
        known: the range.
        number: the block's number.
        chain: see `Learned.chain`; without it, the block's objects are listed.

    Raises:
        Damaged: an object is missing or has the wrong size, or the bytes are not those that were archived.
    """
    part, row, edges = known.part, known.part.row, known.edges
    start = row.start + number * BLOCK_BYTES
    end = min(start + BLOCK_BYTES, row.end)
    if not known.digests:
        return compared_blocks(replace(part, start=start, end=end), WINDOW_BYTES)
    read: Iterator[bytes | memoryview]
    if chain:
        offsets = chain.cast("q")
        some = offsets[bisect_right(offsets, start) - 1 : bisect_left(offsets, end) + 1]
        read = EVENTS.read_chain(part.place, part.segment, some, start, end, WINDOW_BYTES)
    else:
        held = row
        if edges:
            low, high = edges[bisect_right(edges, start) - 1], edges[bisect_left(edges, end)]
            held = replace(row, start=low, end=high, digest="", block_checksums="")
        read = open_reader(part.layout).read_range(part.place, held, start, end, WINDOW_BYTES)
    block = as_block(read)
    if hashlib.sha256(block).digest() != known.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]:
        raise damaged_range(part)
    return block


def learn(part: ArchivedPart, room: Room, first: int = 0) -> Learned:
    """Read a range whole, compare its digest, and return it with those of its blocks.

    Memory: the window, a block, and those blocks from ``first`` on for which there is room.

    Raises:
        DigestMismatch, Damaged: as `manifests.damage.read_verified`.
    """
    row, kept, digests = part.row, dict[int, memoryview](), bytearray()
    chained = part.layout in LAYOUTS and open_layout(part.layout).one_object_per_event and not row.is_large
    splitter = EventSplitter(row.start, str(row.segment), largest=ANY_EVENT_BYTES, starts=True) if chained else None
    edges, chain = (array("q", [row.start] if chained else []) for _ in range(2))

    def compared() -> Iterator[bytes | memoryview]:
        for data in read_verified(part, WINDOW_BYTES):
            for some in splitter.feed(data) if splitter is not None else ():
                edges.append(some.end)
                if chain and len(chain) + some.count <= MOST_IN_CHAIN:
                    chain.extend(() if some.starts is None else (some.offset + some.starts[1:]).tolist())
                    chain.append(some.end)
                else:
                    del chain[:]
            yield data

    try:
        for number, block in enumerate(in_blocks(compared(), BLOCK_BYTES)):
            digests += hashlib.sha256(block).digest()
            if number >= first and room(len(block)):
                kept[number] = memoryview(bytes(block))
    except NotAnEvent as error:
        raise Damaged(error.what, where=part.place.uri, todo="Run 'streamvault check' on the archive.") from None
    return Learned(KnownRange(part, bytes(digests), edges), kept, memoryview(chain.tobytes()))
