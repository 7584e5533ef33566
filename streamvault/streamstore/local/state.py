"""A segment's start and write offsets: a small file beside its data, overwritten in place.

The file has two slots, each a page with one line of JSON and a checksum; a change overwrites the older one. So one slot
is always intact on disk, and changes succeed even on a full disk.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from streamvault.streamstore.errors import StreamStoreError
from streamvault.streamstore.local.files import replace_file, write_all

_SLOT = 4096


@dataclass(frozen=True, slots=True)
class SegmentState:
    """The acknowledged stretch of a segment.

    Attributes:
        start: first offset that was not dropped (bytes); the stream's head may lie further on.
        write: where the next event goes (bytes).
        sequence: rises with each change.
    """

    start: int = 0
    write: int = 0
    sequence: int = 0


def create_state(path: Path) -> None:
    """Make the file of an empty segment."""
    replace_file(path, _encode(SegmentState()) + b" " * (_SLOT - 1) + b"\n")


def read_state(path: Path) -> SegmentState:
    """The newest state; that of an empty segment if there is no file.

    Raises:
        StreamStoreError: neither slot is whole: the file was damaged from outside.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return SegmentState()
    slots = [_decode(content[at : at + _SLOT]) for at in (0, _SLOT)]
    found = max((slot for slot in slots if slot is not None), key=lambda slot: slot.sequence, default=None)
    if found is None:
        raise StreamStoreError("a segment's state file is damaged", where=str(path))
    return found


def write_state(path: Path, *, start: int, write: int) -> None:
    """Change the state; it is on disk when this returns. The stream's lock keeps others from changing it."""
    sequence = read_state(path).sequence + 1
    handle = os.open(path, os.O_WRONLY)
    try:
        write_all(handle, _encode(SegmentState(start, write, sequence)), sequence % 2 * _SLOT)
        os.fdatasync(handle)
    finally:
        os.close(handle)


def _encode(state: SegmentState) -> bytes:
    values = [state.start, state.write, state.sequence]
    line = json.dumps({"start": state.start, "write": state.write, "sequence": state.sequence, "check": _check(values)})
    return line.encode().ljust(_SLOT - 1) + b"\n"


@lru_cache(maxsize=256)  # an appender reads it with each block
def _decode(slot: bytes) -> SegmentState | None:
    try:
        line = json.loads(slot)
        values = [line["start"], line["write"], line["sequence"]]
        return SegmentState(*values) if line["check"] == _check(values) else None
    except (ValueError, KeyError, TypeError):
        return None


def _check(values: list[int]) -> int:
    return zlib.crc32(json.dumps(values).encode())
