"""The framing of a queue's entries: entries survive a round trip in any pieces, and invalid bytes are rejected."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.streamstore.queue import OVERHEAD_BYTES, BadEntry, decode_entry, encode_entry

CONTENTS = st.binary(max_size=300)
NAMES = st.uuids()
TIMES = st.floats(min_value=0, max_value=4e9)


@given(st.lists(st.tuples(CONTENTS, NAMES, TIMES), max_size=20), st.integers(0, 2**40))
def test_entries_round_trip(put: list[tuple[bytes, uuid.UUID, float]], base: int) -> None:
    buffer = b"".join(encode_entry(*one) for one in put)
    at, found = 0, []
    while (entry := decode_entry(buffer, at, base + at, "s")) is not None:
        assert entry.offset == base + at
        assert entry.end - entry.offset == OVERHEAD_BYTES + len(entry.content)
        found.append(entry)
        at = entry.end - base
    assert at == len(buffer)
    assert [(entry.content, entry.name) for entry in found] == [(content, name) for content, name, _ in put]
    assert all(abs(entry.put_time - when) < 2e-6 for entry, (_, _, when) in zip(found, put, strict=True))


@given(CONTENTS, st.data())
def test_incomplete_entry_is_waited_for(content: bytes, data: st.DataObject) -> None:
    whole = encode_entry(content)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert decode_entry(whole[:cut], 0, 0, "s") is None


@given(CONTENTS, st.data())
def test_any_changed_byte_is_found(content: bytes, data: st.DataObject) -> None:
    whole = bytearray(encode_entry(content))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with suppress(BadEntry):
        # a header that announces more bytes than there are waits for more; anything else is rejected
        assert decode_entry(whole, 0, 0, "s") is None
        assert place < 8


@given(st.binary(max_size=100))
def test_foreign_bytes_are_refused_or_cut(foreign: bytes) -> None:
    with suppress(BadEntry):
        assert decode_entry(foreign, 0, 0, "s") is None


def test_unknown_version_is_named_with_its_offset() -> None:
    later = bytearray(encode_entry(b"x"))
    later[8] = 2
    with pytest.raises(BadEntry, match="unknown entry version 2: s at offset 77"):
        decode_entry(later, 0, 77, "s")
