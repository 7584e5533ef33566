"""CRC64NVME as S3 computes it."""

from __future__ import annotations

import base64
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streamvault.objectstore.store import RunningChecksum, crc64nvme


def by_table(body: bytes) -> str:
    """As the NVM Express specification defines it, with the bits of each byte in reverse order."""
    found = 2**64 - 1
    for byte in body:
        found = TABLE[(found ^ byte) & 0xFF] ^ found >> 8
    return base64.b64encode((found ^ 2**64 - 1).to_bytes(8)).decode()


def _entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ 0x9A6C9329AC4BC9B5 * (value & 1)
    return value


TABLE = [_entry(value) for value in range(256)]


@given(st.binary(max_size=3000), st.lists(st.integers(0, 3000), max_size=4))
def test_blocks_have_the_checksum_of_the_specification(body: bytes, cuts: list[int]) -> None:
    assert crc64nvme(body) == by_table(body)
    found = RunningChecksum()
    blocks = [memoryview(body)[low:high] for low, high in pairwise(sorted({0, len(body), *cuts}))]
    assert b"".join(found.of(blocks)) == body
    assert found.text == by_table(body)


def test_known_values() -> None:
    assert crc64nvme(b"123456789") == "rosUhgp5mIg="
    assert crc64nvme(b"") == "AAAAAAAAAAA="
    assert crc64nvme(bytearray(100_003)) == by_table(bytes(100_003))
