"""Checksums that a store keeps of its objects, by which they can be compared without being read."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

B = TypeVar("B", bound=bytes | bytearray | memoryview)


@dataclass(frozen=True, slots=True)
class KeptChecksums:
    """What a store says of an object without reading it.

    Attributes:
        size: bytes.
        crc64nvme: CRC64NVME of all of its bytes, in base64 as S3 has it; empty if the store keeps none.
        sha256: SHA-256 of all of its bytes, in base64; empty if the store keeps none.
    """

    size: int
    crc64nvme: str = ""
    sha256: str = ""


class RunningChecksum:
    """The CRC64NVME of consecutive blocks, so far."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, block: bytes | bytearray | memoryview) -> None:
        """Append a block."""
        self._value = _model().calc(block, self._value)

    def of(self, blocks: Iterable[B]) -> Iterator[B]:
        """Yield the blocks; each is appended first."""
        for block in blocks:
            self.update(block)
            yield block

    @property
    def text(self) -> str:
        """The value in base64, as S3 has it."""
        return base64.b64encode(self._value.to_bytes(8)).decode()


def crc64nvme(data: bytes | bytearray | memoryview) -> str:
    """Return the CRC64NVME of some bytes in base64, as S3 has it."""
    found = RunningChecksum()
    found.update(data)
    return found.text


@cache
def _model() -> Any:
    from anycrc import Model  # noqa: PLC0415  (15 ms, which only what writes chunks needs)

    return Model("CRC64-NVME")
