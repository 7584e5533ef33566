"""Parsing and formatting of sizes, percentages, counts, timestamps and durations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from streamvault.common.errors import Usage
from streamvault.common.neighbours import joined

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
    spans = joined(((n, n) for n in numbers), lambda one, next_: (one[0], next_[1]) if next_[0] == one[1] + 1 else None)
    return ", ".join(f"{first} to {last}" if first < last else f"{first}" for first, last in spans)


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


_SECONDS = {"w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"\s*".join(rf"(?:([0-9]{{1,15}}(?:\.[0-9]+)?)\s*{unit})?" for unit in _SECONDS), re.ASCII)


LONGEST_SECONDS = 365_000 * 86_400
"""A thousand years: with more, times leave what the platform can represent."""


def parse_duration(text: str) -> float:
    """Parse a duration such as ``90d``, ``36h``, ``1h30m``, ``2w`` or ``0.5s`` into seconds.

    Raises:
        ValueError: the text is not a duration; the message gives examples.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration. Examples: 90d, 2w, 36h, 1h30m, 30s.")
    seconds = sum(Decimal(count) * _SECONDS[unit] for unit, count in zip(_SECONDS, match.groups("0"), strict=True))
    if seconds > LONGEST_SECONDS:
        raise ValueError(f"{text!r} is too long: a duration is at most {duration_text(LONGEST_SECONDS)}.")
    return float(seconds)


def parse_age(text: str) -> float:
    """Parse the age from which on something is deleted, into seconds: a duration. One below an hour is written twice.

    So ``3m`` for three months deletes nothing: ``3m 3m`` is three minutes.

    Raises:
        ValueError: the text is not a duration, or is below an hour and not written twice; the message says how.
    """
    halves = text.split()
    if len(halves) == 2 and halves[0] == halves[1]:
        return parse_duration(halves[0])
    seconds = parse_duration(text)
    if seconds < _SECONDS["h"]:
        minutes = "m" in text
        unit = "minute" if minutes else "second"
        count = f"{seconds / _SECONDS[unit[0]]:g}"
        todo = f"Write it twice if that is meant: '{text.strip()} {text.strip()}'."
        months = " There is no unit for months: use 90d for three." if minutes else ""
        raise ValueError(f"{text!r} is {count} {unit}{'s' * (count != '1')}. {todo}{months}")
    return seconds


def age_option_text(seconds: float) -> str:
    """Format an age as `parse_age` reads it back."""
    text = duration_text(seconds)
    return text if seconds >= _SECONDS["h"] else f"{text} {text}"


def duration_text(seconds: float) -> str:
    """Format a duration in its largest whole unit, as `parse_duration` reads it back: ``90d``, ``10m``, ``0.5s``."""
    for unit in "dhm":
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{int(seconds) // _SECONDS[unit]}{unit}"
    exact = Decimal(repr(seconds)).normalize() if math.isfinite(seconds) else seconds  # repr: as it was given
    return f"{exact:f}s"


def parse_moment(value: str | datetime, what: str) -> datetime:
    """Convert a timestamp to UTC.

    Args:
        value: RFC 3339 text, or a timezone-aware datetime.
        what: the option it comes from, for the message.

    Raises:
        Usage: the value is neither.
    """
    todo = "Examples: 2026-01-31T18:00:00Z, 2026-01-31T19:00:00+01:00."
    if not isinstance(value, str | datetime):
        raise Usage(f"{what} is not a time", where=repr(value), todo=todo)
    try:
        moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    except ValueError:
        raise Usage(f"{what} is not a time", where=repr(value), todo=todo) from None
    if moment.tzinfo is None:
        raise Usage(f"{what} has no time zone", where=str(value), todo=todo)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Usage(f"{what} is not a time", where=str(value), todo=todo) from None


def moment_text(moment: datetime) -> str:
    """Format a timestamp as RFC 3339 in UTC, as used in manifests."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def seconds_moment_text(text: str) -> str:
    """Shorten an RFC 3339 text in UTC to seconds, for a table: ``2026-01-31 18:00:00Z``, which `parse_moment` reads."""
    return f"{text[:19].replace('T', ' ')}Z" if text.endswith("Z") else text


def exact_moment_text(text: str) -> str:
    """Format an RFC 3339 text in UTC for people, unrounded: ``2026-01-31 18:00:00.25Z``; `parse_moment` reads it."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    exact = f"{whole}.{fraction}".rstrip("0").rstrip(".") if fraction else whole
    return f"{exact.replace('T', ' ')}Z" if text.endswith("Z") else text


def now_utc() -> datetime:
    """Return the current time in UTC, in milliseconds."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def age_text(seconds: float) -> str:
    """Format a time span in its two largest units: ``3 d 04 h``, ``2 h 05 min``, ``1 min 03 s``, ``0.25 s``."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    days, hours = divmod(round(seconds) // 3600, 24)
    return f"{days} d {hours:02d} h" if days else seconds_text(seconds)
