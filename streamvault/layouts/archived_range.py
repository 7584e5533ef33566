"""What an archive's index records of a range. It needs no pyarrow, as tasks use it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, ContentKind, Range


@dataclass(frozen=True, slots=True, order=True)
class ArchivedRange(Range):
    """An archived range of a segment: a row of its generation's index.

    Attributes:
        events: number of events; 0 only for a range of a byte stream.
        digest: SHA-256 of the segment's bytes from `start` to `end`, hexadecimal.
        frames: size of each compressed frame (bytes), in order; empty if the range is not compressed.
        crc64nvme: CRC64NVME of its object's bytes, in base64 as S3 has it; empty if it is not known, or if the range is
            not one object. Ranges that differ only in this are equal: earlier releases do not record it.
    """

    events: int
    digest: str
    frames: tuple[int, ...] = ()
    crc64nvme: str = field(default="", compare=False)

    @property
    def content(self) -> ContentKind:
        """What the range holds."""
        return "events" if self.events else "bytes"

    @property
    def is_large(self) -> bool:
        """Whether it is one event of more than 8 MiB, which is always a separate range."""
        return self.events == 1 and self.end - self.start > HEADER_BYTES + MAX_EVENT_BYTES


def digest_of(blocks: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of all blocks, hexadecimal."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def segment_digest(digests: Iterable[str]) -> str:
    """Return a segment's digest: the SHA-256 of its ranges' raw digests in order."""
    return digest_of(bytes.fromhex(one) for one in digests)
