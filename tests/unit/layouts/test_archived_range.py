"""The checksums of a range's blocks."""

from __future__ import annotations

import base64
import random

import pytest

from streamvault.layouts.archived_range import (
    BLOCK_BYTES,
    BlockChecksums,
    are_block_checksums,
    block_checksums_length,
)
from streamvault.objectstore.store import crc64nvme

DATA = random.Random(1).randbytes(2 * BLOCK_BYTES + 99)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, len(DATA)])
@pytest.mark.parametrize("step", [300_007, BLOCK_BYTES, 4 * BLOCK_BYTES])
def test_checksums_do_not_depend_on_how_the_bytes_are_appended(size: int, step: int) -> None:
    found = BlockChecksums()
    for low in range(0, size, step):
        found.update(DATA[low : min(low + step, size)])
    whole, blocks = found.finish()
    each = [crc64nvme(DATA[low : min(low + BLOCK_BYTES, size)]) for low in range(0, size, BLOCK_BYTES)]
    assert whole == crc64nvme(DATA[:size])
    assert blocks == base64.b64encode(b"".join(map(base64.b64decode, each))).decode()
    assert len(blocks) == block_checksums_length(size)
    assert are_block_checksums(blocks, size)
    assert found.finish() == (whole, blocks)


@pytest.mark.parametrize("text", ["", "AAAAAAAAAAA", "AAAAAAAAAAA=\n", "AAAAAAAAAA==", "AAAA" * 6, "ä" * 12, "." * 12])
def test_other_texts_are_no_checksums_of_a_block(text: str) -> None:
    assert are_block_checksums("AAAAAAAAAAA=", 1)
    assert not are_block_checksums(text, 1)
