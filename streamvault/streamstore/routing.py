"""Maps routing keys to segments exactly as Pravega's own clients do."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

import mmh3
import numpy as np
import numpy.typing as npt

from streamvault.streamstore.model import KeyRange, SegmentId

_SEED = 1741865571
"""The clients' hash seed: the Java hash of the word EventRouter."""


def key_position(key: str) -> float:
    """Return a routing key's position in the key space [0, 1).

    MurmurHash3 (128 bits, x64) over the key's UTF-16 code units, little-endian; the upper 52 bits of the first half
    are the fraction. Checked against io.pravega:pravega-common:0.13.0, class HashHelper.
    """
    first = mmh3.hash64(key.encode("utf-16-le", errors="surrogatepass"), _SEED, signed=False)[0]
    return float((first >> 12) / (1 << 52))


class SegmentRouter:
    """Finds the segment for a key among open segments, which cover the key space once."""

    def __init__(self, segments: Mapping[SegmentId, KeyRange]) -> None:
        ordered = sorted(segments.items(), key=lambda item: item[1].low)
        self.segments = [segment for segment, _ in ordered]
        self._lows = [held.low for _, held in ordered]

    def index_of(self, key: str) -> int:
        """Return the index in `segments` of the segment that owns a routing key."""
        return max(bisect_right(self._lows, key_position(key)) - 1, 0)

    def indexes(self, positions: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        """Return the index in `segments` for each of many key space positions."""
        found: npt.NDArray[np.intp] = np.searchsorted(np.array(self._lows), positions, side="right") - 1
        return np.maximum(found, 0)
