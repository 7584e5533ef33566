"""Guesses where an event begins in the middle of a segment.

A payload can look like a chain of events (especially zeros), so a guess must be proved by walking from a known offset.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES

_Positions = npt.NDArray[np.intp]

_HEADER = struct.Struct(">q")

_WINDOW = 32 * 1024
"""Positions that `guess_boundary` resolves at once, so that their arrays stay in the CPU cache."""


def guess_boundary(buffer: bytes | bytearray | memoryview, base: int, *, at_end_of_segment: bool) -> int | None:
    """Find the smallest offset from which a chain of valid headers leads to the buffer's end.

    The result is a guess: a payload can look like a chain of events. Longer buffers give better guesses: the first true
    boundary is certain to be among the candidates if the buffer has `MAX_EVENT_BYTES` + 16 bytes or reaches the
    segment's end; in a shorter one, a header read one byte too late can pass for a long event cut off by the end. Takes
    time linear in the buffer's length.

    Args:
        buffer: bytes of a segment.
        base: the segment offset (bytes) of the buffer's first byte.
        at_end_of_segment: whether the buffer ends at the segment's end or at another known event boundary. If so, the
            chain must end exactly there, and the end itself is the last candidate; otherwise the last event may be cut
            off by the buffer's end.

    Returns:
        A segment offset; None if there is no candidate.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    size = len(data)
    # leads[p]: whether a chain from p leads to the end; the last entry stands for all positions beyond the end.
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
    """Return each position of a complete valid header in a window, and its event's length including the header."""
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
    """Return, for each header in ``[low, high)``, whether its chain leads to the end; later positions are resolved.

    ``begins`` is relative to ``low``; ``ends``, where their events end, is relative to the buffer.
    """
    count = len(begins)
    yes, no = count, count + 1
    which = np.full(high - low, no)  # position → its header's index
    which[begins] = np.arange(count)
    inside = ends < high
    follow = np.empty(count + 2, dtype=np.intp)  # header → the next one's index, or how the chain ends
    follow[yes:] = yes, no
    follow[:count] = np.where(inside, which[np.where(inside, ends - low, 0)], np.where(leads[ends], yes, no))
    # Pointer doubling: each round jumps twice as far, until all chains have left the window.
    while (follow[:count] < count).any():
        follow = follow.take(follow)
    resolved: npt.NDArray[np.bool_] = follow[:count] == yes
    return resolved


def _may_begin_header(piece: bytes) -> bool:
    """Return whether fewer than eight bytes can be the start of a valid header."""
    smallest: int = _HEADER.unpack(piece.ljust(HEADER_BYTES, b"\0"))[0]
    return 0 <= smallest <= MAX_EVENT_BYTES
