"""Parsing and formatting of timestamps and durations."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal

from streamvault.common.errors import Usage
from streamvault.common.sizes import seconds_text

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
        months = " There is no unit for months: three are 90d." if minutes else ""
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
