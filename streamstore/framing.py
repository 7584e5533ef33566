"""Events as a segment's bytes: framing, and finding where one begins; `streamstore.splitting` goes the other way.

An event is an 8-byte header (int32 type = 0, int32 payload length, big-endian) and its payload. Read as one big-endian
int64, a header is valid if it is from 0 to `MAX_EVENT_BYTES`: one comparison an event. A segment holds nothing but
events, and its bytes do not say where one begins: that has to be known, or guessed (`guess_boundary`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from common.errors import Problem
from streamstore.boundary import guess_boundary
from streamstore.errors import StreamStoreError
from streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES

__all__ = [
    "MAX_BLOCK_BYTES",
    "NotAnEvent",
    "filler",
    "frame",
    "frame_into",
    "frame_many",
    "guess_boundary",
]

MAX_BLOCK_BYTES = 4 * 1024 * 1024
"""The largest block (bytes) that is appended at once."""

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">q")


class NotAnEvent(StreamStoreError):
    """No event begins, or ends, where one should: the segment holds foreign data, or the offset is wrong.

    Attributes:
        offset: where in the segment (bytes).
        length: if an event may begin there that is only larger than was accepted, its length with the header; else 0.
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "", offset: int = -1, length: int = 0) -> None:
        super().__init__(what, where=where, todo=todo)
        self.offset = offset
        self.length = length

    def __reduce__(self) -> tuple[object, ...]:
        return _not_an_event, (self.what, self.where, self.todo, self.offset, self.length)


def _not_an_event(what: str, where: str, todo: str, offset: int, length: int) -> Problem:
    return NotAnEvent(what, where=where, todo=todo, offset=offset, length=length)


def frame(payload: Buffer) -> bytes:
    """One event: header and payload.

    Raises:
        NotAnEvent: the payload is larger than 8 MiB.
    """
    return _header(len(payload)) + bytes(payload)


def frame_into(block: bytearray, payload: Buffer) -> None:
    """Add one event at the end of a block.

    Raises:
        NotAnEvent: the payload is larger than 8 MiB; the block is unchanged.
    """
    block += _header(len(payload))
    block += payload


def frame_many(payloads: Iterable[Buffer], block_bytes: int = MAX_BLOCK_BYTES) -> Iterator[bytearray | memoryview]:
    """Events as blocks to append, each at most ``block_bytes``; the caller may keep them.

    Blocks hold whole events, but an event that does not fit into one block comes alone, in several.

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
        raise NotAnEvent(f"a payload of {length} bytes is larger than an event may be ({MAX_EVENT_BYTES})")
    return _HEADER.pack(length)


def filler(length: int) -> Iterator[bytes]:
    """Blocks of whole events that fill exactly ``length`` bytes; each block is one event of zeros.

    A run that was stopped between two blocks goes on with a filler of what is left.

    Raises:
        ValueError: the length is from 1 to 7, or negative: no events are that long.
    """
    if length < 0 or 0 < length < HEADER_BYTES:
        raise ValueError(f"no events fill {length} bytes")
    while length:
        size = min(length, MAX_BLOCK_BYTES)
        if 0 < length - size < HEADER_BYTES:
            size -= HEADER_BYTES
        yield frame(bytes(size - HEADER_BYTES))
        length -= size
