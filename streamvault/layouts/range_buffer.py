"""The bytes of a range while it is written, in memory that the next range uses again."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

KEPT = 2
"""Buffers that a process keeps for its next ranges, as many as it usually fills at once."""

LARGEST_KEPT = 80 * 1024 * 1024
"""Larger buffers (bytes) are not kept; a range of the default size fits."""

_spare: deque[bytearray] = deque(maxlen=KEPT)


class RangeBuffer:
    """Bytes to be put as one object. New pages for each range would take a tenth of an export's processor time."""

    def __init__(self) -> None:
        try:
            self._held = _spare.pop()
        except IndexError:
            self._held = bytearray()
        self._size = 0

    def extend(self, data: memoryview) -> None:
        """Append bytes."""
        fitting = data[: len(self._held) - self._size]
        with memoryview(self._held) as there:
            there[self._size : self._size + len(fitting)] = fitting
        self._held.extend(data[len(fitting) :])
        self._size += len(data)

    @property
    def data(self) -> memoryview:
        """The bytes, until they are given back."""
        return memoryview(self._held)[: self._size]

    def give_back(self) -> None:
        """Let the next range have the memory, unless somebody still has a view of it.

        A request that timed out may still be sending, and a store in memory keeps what it was given.
        """
        if len(self._held) <= LARGEST_KEPT:
            with suppress(BufferError):
                self._held.pop()  # not possible while there is a view
                _spare.append(self._held)
