"""Parsing and formatting of sizes, percentages, counts and durations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
    "PIB": 2**50,
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\Z")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%\Z")


def parse_size(text: str) -> int:
    """Parse a size such as ``64MiB``, ``1.5 GB`` or ``4096`` into bytes.

    Raises:
        ValueError: the text is not a size; the message gives examples.
    """
    match = _SIZE.match(text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not a size. Examples: 64MiB, 1GiB, 500MB, or a number of bytes.")
    return math.floor(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def parse_percent(text: str) -> float:
    """Parse a percentage such as ``10%`` into a fraction (above 0, at most 1).

    Raises:
        ValueError: the text is not such a percentage; the message gives an example.
    """
    match = _PERCENT.match(text.strip())
    share = float(match[1]) / 100 if match else 0.0
    if not 0.0 < share <= 1.0:
        raise ValueError(f"{text!r} is not a percentage above 0% and up to 100%. Example: 10%.")
    return share


def size_text(size: int) -> str:
    """Format a size as `parse_size` reads it back, exactly: ``64MiB``, ``1000``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit.upper()] == 0:
            return f"{size // _UNITS[unit.upper()]}{unit}"
    return str(size)


def bytes_text(size: int) -> str:
    """Format a size with three significant digits and a binary unit: ``12.3 MiB``."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size:,} B" if unit == "B" else f"{value:.{1 if value < 99.95 else 0}f} {unit}"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: ``1 event``, ``10,000 events``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def events_text(events: int, size: int) -> str:
    """Format the number of events in so many bytes: ``10,000``; empty for a byte stream, which has no events."""
    return f"{events:,}" if events or not size else ""


def generations_text(numbers: Sequence[int]) -> str:
    """Format generation numbers: ``generation 3``, ``generations 1 to 4, 7``; empty if there are none."""
    return f"generation{'s' * (len(numbers) > 1)} {numbers_text(numbers)}" if numbers else ""


def numbers_text(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order with neighbours put together: ``1 to 4, 7``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


def usd_text(value: float) -> str:
    """Format US dollars: ``1,234.50``, ``under 0.01``."""
    return f"{value:,.2f}" if value >= 0.01 or not value else "under 0.01"


def seconds_text(seconds: float) -> str:
    """Format a duration: ``0.42 s``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if seconds < 59.95:
        return f"{seconds:.{2 if seconds < 9.995 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
