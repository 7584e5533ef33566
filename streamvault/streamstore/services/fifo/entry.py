"""One entry as a segment's bytes: an event whose payload is a small head and what was put in.

The head, big-endian: uint8 version = 1, uint64 time of the put (microseconds since 1970, UTC), 16 bytes that name the
entry (a random UUID), uint32 CRC-32 of these 25 bytes and of the content. See docs/reference/format.md.
"""

from __future__ import annotations

import struct
import time
import uuid
import zlib
from dataclasses import dataclass

from streamvault.common.errors import Damaged, Usage
from streamvault.streamstore.arithmetic.framing import frame
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES

MAX_ENTRY_BYTES = 1024 * 1024
"""The largest content that is put in. An entry is appended whole or not at all, so it fits into one block."""

NOTE_BYTES = 64 * 1024
"""Extra content allowed for an entry moved from another queue: room to note the reason."""

VERSION = 1

_EVENT = struct.Struct(">q")
_HEAD = struct.Struct(">BQ16s")
_CHECK = struct.Struct(">I")

OVERHEAD_BYTES = HEADER_BYTES + _HEAD.size + _CHECK.size
"""Bytes of an entry in the segment in addition to its content."""


class BadEntry(Damaged):
    """Bytes in a queue that are not an entry. They are kept."""


class EntryTooLarge(Usage):
    """The content exceeds the maximum entry size. Nothing was added."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """An entry as it comes out of a queue.

    Attributes:
        content: what was put in.
        name: the entry's own: 16 bytes, the same each time it is handed out.
        put_time: when it was put (seconds since 1970, UTC, by the producer's clock).
        offset: where it begins in the segment (bytes). end: where the next one begins.
    """

    content: bytes
    name: uuid.UUID
    put_time: float
    offset: int
    end: int


def encode_entry(
    content: bytes, name: uuid.UUID | None = None, put_time: float | None = None, *, limit: int = MAX_ENTRY_BYTES
) -> bytes:
    """An entry as the bytes to append.

    Args:
        content: what to put in.
        name: a new one if not given.
        put_time: seconds since 1970; now if not given.
        limit: bytes that the content may have.

    Raises:
        EntryTooLarge: the content is larger than that.
    """
    if len(content) > limit:
        raise EntryTooLarge(f"a queue entry of {len(content)} bytes exceeds the maximum of {limit}")
    micros = round((time.time() if put_time is None else put_time) * 1e6)
    head = _HEAD.pack(VERSION, micros, (name or uuid.uuid4()).bytes)
    return frame(head + _CHECK.pack(zlib.crc32(content, zlib.crc32(head))) + content)


def decode_entry(buffer: bytes | bytearray, at: int, offset: int, where: str) -> QueueEntry | None:
    """The entry at a position of a buffer, and at ``offset`` of its segment; None if the buffer ends before it does.

    Raises:
        BadEntry: the bytes are not an entry; names segment and offset.
    """
    if len(buffer) - at < HEADER_BYTES:
        return None
    (length,) = _EVENT.unpack_from(buffer, at)
    if not 0 <= length <= MAX_EVENT_BYTES:
        raise bad_entry("no event begins here", where, offset)
    if not _HEAD.size + _CHECK.size <= length <= _HEAD.size + _CHECK.size + MAX_ENTRY_BYTES + NOTE_BYTES:
        raise bad_entry(f"an event of {length} bytes is not a queue entry", where, offset)
    end = at + HEADER_BYTES + length
    if len(buffer) < end:
        return None
    head = bytes(buffer[at + HEADER_BYTES : at + HEADER_BYTES + _HEAD.size])
    version, micros, name = _HEAD.unpack(head)
    if version != VERSION:
        raise bad_entry(f"unknown entry version {version}", where, offset)
    (check,) = _CHECK.unpack_from(buffer, at + HEADER_BYTES + _HEAD.size)
    content = bytes(buffer[at + OVERHEAD_BYTES : end])
    if zlib.crc32(content, zlib.crc32(head)) != check:
        raise bad_entry("an entry's checksum is wrong", where, offset)
    return QueueEntry(content, uuid.UUID(bytes=name), micros / 1e6, offset, offset + HEADER_BYTES + length)


def bad_entry(what: str, where: str, offset: int) -> BadEntry:
    """Build the error for bytes at an offset of a segment."""
    return BadEntry(
        f"the queue cannot be read: {what}",
        where=f"{where} at offset {offset}",
        todo="Nothing was dropped. Find out what else writes here; `streamvault queue skip` removes these bytes.",
    )
