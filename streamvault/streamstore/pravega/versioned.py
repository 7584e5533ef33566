"""Reads and writes values as Pravega's Java client serializes them (its ``VersionedSerializer``).

A value is a format byte (0), for a value of several kinds the kind's byte, a version byte, the number of revisions, and
each revision: its number, its length as int32, its fields. A revision adds fields to those of the revisions before it.
Numbers are big-endian. What is not exactly as known here is an error: a newer client may mean something else by it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TypeVar

from streamvault.streamstore.errors import UnreadableReaderGroup

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TEXT = "surrogateescape"
"""Java's own UTF-8 differs for rare characters; a text that is only compared may hold any bytes."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class JavaFields:
    """The fields of a revision, or a whole serialized value, read from the beginning on.

    Every method raises `UnreadableReaderGroup` if the bytes are not what is asked for.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Number of bytes that were not read yet."""
        return len(self._data) - self._at

    def take(self, length: int) -> bytes:
        """Read so many bytes."""
        if not 0 <= length <= self.left:
            raise UnreadableReaderGroup(f"a serialized value ends {length - self.left} bytes too early")
        begin, self._at = self._at, self._at + length
        return self._data[begin : self._at]

    def byte(self) -> int:
        """Read an unsigned byte."""
        return self.take(1)[0]

    def int32(self) -> int:
        """Read an int."""
        return int(_INT32.unpack(self.take(4))[0])

    def int64(self) -> int:
        """Read a long."""
        return int(_INT64.unpack(self.take(8))[0])

    def text(self) -> str:
        """Read a text: its length as uint16, and its bytes."""
        return self.take(int.from_bytes(self.take(2), "big")).decode(errors=_TEXT)

    def count(self) -> int:
        """Read a compact int: 1, 2 or 4 bytes by its first bits."""
        first = self.byte()
        if first < 0x80:
            return first
        if first < 0xC0:
            return (first & 0x3F) << 8 | self.byte()
        return (first & 0x3F) << 24 | int.from_bytes(self.take(3), "big")

    def array(self) -> bytes:
        """Read bytes with their number before them."""
        return self.take(self.count())

    def mapping(self, key: Callable[[JavaFields], Key], value: Callable[[JavaFields], Value]) -> dict[Key, Value]:
        """Read a map, given what reads a key and a value."""
        return {key(self): value(self) for _ in range(self.count())}

    def longs(self) -> list[int]:
        """Read a collection of longs."""
        return [self.int64() for _ in range(self.count())]

    def format(self) -> None:
        """Read the format byte."""
        if found := self.byte():
            raise _newer(f"format {found}")

    def revisions(self, known: int, *, of: str) -> list[JavaFields]:
        """Read a value's version and revisions, up to the end.

        Args:
            known: number of revisions that are known here of version 0.
            of: what the value is, for the error.

        Returns:
            The fields of each revision; those that an older client has not written are absent.
        """
        if version := self.byte():
            raise _newer(f"version {version} of {of}")
        found = []
        for number in range(self.byte()):
            if (revision := self.byte()) != number or number >= known:
                raise _newer(f"revision {revision} of {of}")
            found.append(JavaFields(self.take(self.int32())))
        if not found:
            raise UnreadableReaderGroup(f"{of} without content")
        self.end()
        return found

    def end(self) -> None:
        """Check that nothing is left but zeros: the client pads an initial state with them."""
        if any(self.take(self.left)):
            raise _newer("more bytes than known")


def _newer(what: str) -> UnreadableReaderGroup:
    return UnreadableReaderGroup(f"serialized by a client that is not known here ({what})")


def value(*revisions: bytes, kind: int | None = None) -> bytes:
    """Serialize a value of version 0 from the fields of its revisions."""
    head = bytes([0] if kind is None else [0, kind]) + bytes([0, len(revisions)])
    return head + b"".join(
        bytes([number]) + _INT32.pack(len(fields)) + fields for number, fields in enumerate(revisions)
    )


def int32(number: int) -> bytes:
    """Serialize an int."""
    return _INT32.pack(number)


def int64(number: int) -> bytes:
    """Serialize a long."""
    return _INT64.pack(number)


def text(content: str) -> bytes:
    """Serialize a text of ASCII characters."""
    return len(content).to_bytes(2, "big") + content.encode("ascii")


def count(number: int) -> bytes:
    """Serialize a compact int (from 0 to 2^30 - 1)."""
    if number < 1 << 7:
        return bytes([number])
    if number < 1 << 14:
        return (1 << 15 | number).to_bytes(2, "big")
    return (3 << 30 | number).to_bytes(4, "big")


def compact(number: int) -> bytes:
    """Serialize a compact long (from 0 to 2^62 - 1)."""
    return _by_length(number, 6)


def compact_signed(number: int) -> bytes:
    """Serialize a compact signed long that is not negative (up to 2^61 - 1)."""
    return _by_length(number, 5)


def _by_length(number: int, bits: int) -> bytes:
    """Serialize a number in 1, 2, 4 or 8 bytes, as the bits right before the value's say; ``bits`` is for 1 byte."""
    power = next(power for power in range(4) if number < 1 << bits + 8 * ((1 << power) - 1))
    length = 1 << power
    return (power << bits + 8 * (length - 1) | number).to_bytes(length, "big")


def array(content: bytes) -> bytes:
    """Serialize bytes with their number before them."""
    return count(len(content)) + content


def mapping(entries: Mapping[bytes, bytes]) -> bytes:
    """Serialize a map from the serialized keys and values."""
    return count(len(entries)) + b"".join(key + content for key, content in entries.items())
