"""What an archive's index records of a range. It needs no pyarrow, as tasks use it."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from streamvault.objectstore.store import RunningChecksum
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, ContentKind, Range

B = TypeVar("B", bound=bytes | bytearray | memoryview)

BLOCK_BYTES = 1024 * 1024
"""Bytes of a block of a range; the last one may be shorter. A compressed frame holds one."""

CHECKSUM_BYTES = 8


@dataclass(frozen=True, slots=True, order=True)
class ArchivedRange(Range):
    """An archived range of a segment: a row of its generation's index.

    Attributes:
        events: number of events; 0 only for a range of a byte stream.
        digest: SHA-256 of the segment's bytes from `start` to `end`, hexadecimal.
        frames: size of each compressed frame (bytes), in order; empty if the range is not compressed.
        crc64nvme: CRC64NVME of its object's bytes, in base64 as S3 has it; empty if it is not known, or if the range is
            not one object.
        block_checksums: CRC64NVME of each block of the segment's bytes from `start` on (`BLOCK_BYTES`), 8 bytes each,
            in base64; empty if they are not known.

    Ranges that differ only in checksums are equal: earlier releases do not record them.
    """

    events: int
    digest: str
    frames: tuple[int, ...] = ()
    crc64nvme: str = field(default="", compare=False)
    block_checksums: str = field(default="", compare=False)

    @property
    def content(self) -> ContentKind:
        """What the range holds."""
        return "events" if self.events else "bytes"

    @property
    def is_large(self) -> bool:
        """Whether it is one event of more than 8 MiB, which is always a separate range."""
        return self.events == 1 and self.end - self.start > HEADER_BYTES + MAX_EVENT_BYTES


class BlockChecksums:
    """The CRC64NVME of each block of a range's bytes, and of all of them; they are appended in order."""

    def __init__(self) -> None:
        self._whole, self._block, self._size = RunningChecksum(), RunningChecksum(), 0
        self._ended = bytearray()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        left = memoryview(data)
        while left:
            part = left[: BLOCK_BYTES - self._size]
            self._block.update(part)
            self._size += len(part)
            left = left[len(part) :]
            if self._size == BLOCK_BYTES:
                self._end_block()

    def of(self, blocks: Iterable[B]) -> Iterator[B]:
        """Yield the blocks; each is appended first."""
        for block in blocks:
            self.update(block)
            yield block

    def finish(self) -> tuple[str, str]:
        """Return `ArchivedRange.crc64nvme`, as of an object with just these bytes, and `block_checksums`."""
        if self._size:
            self._end_block()
        return self._whole.text, base64.b64encode(self._ended).decode()

    def _end_block(self) -> None:
        self._whole.append(self._block, self._size)
        self._ended += self._block.value.to_bytes(CHECKSUM_BYTES)
        self._block, self._size = RunningChecksum(), 0


def block_checksums_length(size: int) -> int:
    """Return the length of the text (`ArchivedRange.block_checksums`) of a range of this size (bytes)."""
    return -(-CHECKSUM_BYTES * -(-size // BLOCK_BYTES) // 3) * 4


def are_block_checksums(text: str, size: int) -> bool:
    """Check whether a text is the checksums of the blocks of a range of this size (bytes)."""
    try:
        return len(binascii.a2b_base64(text, strict_mode=True)) == CHECKSUM_BYTES * -(-size // BLOCK_BYTES)
    except ValueError:
        return False


def block_checksums_hash(text: str) -> str:
    """Return 12 characters by which a range's checksums of blocks differ from others; none for none."""
    return base64.b64encode(hashlib.blake2b(text.encode(), digest_size=8).digest()).decode() if text else ""


def digest_of(blocks: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of all blocks, hexadecimal."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def segment_digest(digests: Iterable[str]) -> str:
    """Return a segment's digest: the SHA-256 of its ranges' raw digests in order."""
    return digest_of(bytes.fromhex(one) for one in digests)
