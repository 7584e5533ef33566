"""Frames events into segment bytes; `streamstore.events` is the reverse.

An event is an 8-byte header (int32 type = 0, int32 payload length, big-endian) and its payload. Read as one big-endian
int64, a header is valid if it is between 0 and `MAX_EVENT_BYTES`: one comparison per event. A segment consists only of
events and has no markers for their starts: an event's offset must be known, or guessed
(`streamstore.walking`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from streamvault.streamstore.errors import StreamStoreError
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, ContentKind

MAX_APPEND_BYTES = HEADER_BYTES + MAX_EVENT_BYTES
"""The largest block (bytes) that can be appended at once: an event of 8 MiB."""

MAX_BLOCK_BYTES = 4 * 1024 * 1024
"""The largest block (bytes) of several events: larger ones in flight can overfill a segment store's cache."""

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">q")


class NotAnEvent(StreamStoreError):
    """No event begins or ends at an expected offset: the segment holds other data, or the offset is wrong.

    Attributes:
        offset: the segment offset (bytes).
        length: if the event may merely exceed the accepted size, its length including the header; else 0.
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "", offset: int = -1, length: int = 0) -> None:
        super().__init__(what, where=where, todo=todo)
        self.offset = offset
        self.length = length


def pieces(data: memoryview) -> Iterator[memoryview]:
    """Yield the same bytes in blocks of at most `MAX_BLOCK_BYTES`, without a copy."""
    return (data[at : at + MAX_BLOCK_BYTES] for at in range(0, len(data), MAX_BLOCK_BYTES))


def frame(payload: Buffer) -> bytes:
    """Frame one event: header and payload.

    Raises:
        NotAnEvent: the payload is larger than 8 MiB.
    """
    return _header(len(payload)) + bytes(payload)


def frame_into(block: bytearray, payload: Buffer) -> None:
    """Append one event to a block.

    Raises:
        NotAnEvent: the payload is larger than 8 MiB; the block is unchanged.
    """
    block += _header(len(payload))
    block += payload


def frame_many(payloads: Iterable[Buffer], block_bytes: int = MAX_BLOCK_BYTES) -> Iterator[bytearray | memoryview]:
    """Frame events into blocks of at most ``block_bytes``; the caller may keep them.

    Blocks hold whole events, except that an event larger than a block is split over several blocks of its own.

    Raises:
        NotAnEvent: a payload is larger than 8 MiB.
    """
    block = bytearray()
    for payload in payloads:
        size = HEADER_BYTES + len(payload)
        if block and len(block) + size > block_bytes:
            yield block
            block = bytearray()
        frame_into(block, payload)
        if size > block_bytes:
            whole = memoryview(block)
            yield from (whole[start : start + block_bytes] for start in range(0, size, block_bytes))
            block = bytearray()
    if block:
        yield block


def _header(length: int) -> bytes:
    if length > MAX_EVENT_BYTES:
        raise NotAnEvent(f"a payload of {length} bytes exceeds the maximum of {MAX_EVENT_BYTES}")
    return _HEADER.pack(length)


def filler(length: int) -> Iterator[bytes]:
    """Yield filler events of exactly ``length`` bytes in total; each block is one event of zeros.

    A run interrupted between two blocks resumes with a filler of the remaining length.

    Raises:
        ValueError: the length is negative or from 1 to 7: no event is that short.
    """
    if length < 0 or 0 < length < HEADER_BYTES:
        raise ValueError(f"{length} bytes cannot be filled with events: an event has at least {HEADER_BYTES}")
    while length:
        size = min(length, MAX_BLOCK_BYTES)
        if 0 < length - size < HEADER_BYTES:
            size -= HEADER_BYTES
        yield frame(bytes(size - HEADER_BYTES))
        length -= size


def filler_text(length: int, content: ContentKind) -> str:
    """Say what takes the place of a gap: ``one event of 1,234 zero bytes``."""
    if content == "bytes" or length < HEADER_BYTES:
        return f"{length:,} zero bytes"
    sizes = [len(block) - HEADER_BYTES for block in filler(length)]
    if len(sizes) == 1:
        return f"one event of {sizes[0]:,} zero bytes"
    return f"{len(sizes):,} events of {sum(sizes):,} zero bytes together"


def zeros(length: int) -> Iterator[bytes]:
    """Yield filler of exactly ``length`` bytes for a byte stream: zeros, not framed."""
    for start in range(0, length, MAX_BLOCK_BYTES):
        yield bytes(min(MAX_BLOCK_BYTES, length - start))
