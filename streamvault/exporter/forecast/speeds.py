"""How long a core works for what is moved: constants, measured as docs/performance.md says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of a core.

    Attributes:
        gigabyte: for 10^9 bytes of the segments.
        million: for a million objects of one event, besides their bytes; of a listing, for a million keys.
    """

    gigabyte: float
    million: float

    def hours(self, size: int, objects: int) -> float:
        """Return the hours for so many bytes, and so many objects besides them."""
        return (size / 1e9 * self.gigabyte + objects / 1e6 * self.million) / 3600


EXPORT = Speed(2.4, 189.0)
IMPORT = Speed(1.6, 255.0)
READ = Speed(1.1, 253.0)
LIST = Speed(0.0, 10.0)
