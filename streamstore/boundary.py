"""Guessing where an event begins in the middle of a segment.

The bytes do not say it: a payload can look like a chain of events (zeros above all), so a guess has to be proved by
walking from an offset that is known.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES

__all__ = ["guess_boundary"]

_Positions = npt.NDArray[np.intp]

_HEADER = struct.Struct(">q")

_WINDOW = 32 * 1024
"""How many positions `guess_boundary` resolves together: their arrays stay in the processor's cache."""


def guess_boundary(buffer: bytes | bytearray | memoryview, base: int, *, at_end_of_segment: bool) -> int | None:
    """The smallest offset from which a chain of valid headers leads through to the buffer's end.

    It is a guess: a payload can look like a chain of events. The longer the buffer, the better: the first true boundary
    is sure to be among the candidates if the buffer has `MAX_EVENT_BYTES` + 16 bytes or reaches the segment's end, and
    in a shorter one a header read one byte too late passes for a long event that the end cuts. Time is linear in the
    buffer's length whatever it holds.

    Args:
        buffer: bytes of a segment.
        base: the offset (bytes) of the buffer's first byte in the segment; the result counts from there.
        at_end_of_segment: the buffer ends at the segment's end, or at another offset where an event ends for certain:
            the chain has to end right there, and the end itself is the last candidate. Otherwise the last event may
            be cut by the buffer's end.

    Returns:
        An offset in the segment; None if there is no candidate.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    size = len(data)
    # leads[p]: whether a chain from p leads to the end; the last one stands for all that lies beyond the end.
    leads = np.zeros(size + 2, dtype=np.bool_)
    leads[size:] = True, not at_end_of_segment
    last = size - HEADER_BYTES
    if not at_end_of_segment:
        for position in range(max(last + 1, 0), size):
            leads[position] = _may_begin_header(bytes(data[position:]))
    for low in range(last // _WINDOW * _WINDOW, -1, -_WINDOW):
        high = min(low + _WINDOW, last + 1)
        begins, lengths = _headers(data[low : high + HEADER_BYTES - 1])
        leads[low + begins] = _resolve(begins, np.minimum(low + begins + lengths, size + 1), low, high, leads)
    candidates = leads[: size + 1 if at_end_of_segment else max(last + 1, 0)]
    return base + int(candidates.argmax()) if candidates.any() else None


def _headers(window: npt.NDArray[np.uint8]) -> tuple[_Positions, _Positions]:
    """Each position where a valid header lies whole in a window, and its event's length with the header."""
    zero = window == 0
    pairs = zero[:-1] & zero[1:]
    fits = pairs[:-6] & pairs[2:-4] & zero[4:-3]
    fits &= window[5:-2] <= MAX_EVENT_BYTES >> 16
    begins = np.flatnonzero(fits)
    lengths = window[begins + 5].astype(np.intp) << 16 | window[begins + 6].astype(np.intp) << 8 | window[begins + 7]
    allowed = lengths <= MAX_EVENT_BYTES
    return begins[allowed], HEADER_BYTES + lengths[allowed]


def _resolve(
    begins: _Positions, ends: _Positions, low: int, high: int, leads: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Whether a chain from each header of the window ``[low, high)`` leads to the end; all behind it are known.

    ``begins`` counts from ``low``; ``ends``, where their events end, from the buffer's beginning.
    """
    count = len(begins)
    yes, no = count, count + 1
    which = np.full(high - low, no)  # position → its header's index
    which[begins] = np.arange(count)
    inside = ends < high
    follow = np.empty(count + 2, dtype=np.intp)  # header → the next one's index, or how the chain ends
    follow[yes:] = yes, no
    follow[:count] = np.where(inside, which[np.where(inside, ends - low, 0)], np.where(leads[ends], yes, no))
    # Each goes on to where the one that it leads to goes: ever twice as far, until all have left the window.
    while (follow[:count] < count).any():
        follow = follow.take(follow)
    resolved: npt.NDArray[np.bool_] = follow[:count] == yes
    return resolved


def _may_begin_header(piece: bytes) -> bool:
    """Whether fewer than eight bytes can be the beginning of a valid header."""
    smallest: int = _HEADER.unpack(piece.ljust(HEADER_BYTES, b"\0"))[0]
    return 0 <= smallest <= MAX_EVENT_BYTES
