"""JSON of others: what is rejected before or after it is parsed, whoever parses it."""

from __future__ import annotations

import json

MOST_VALUES = 3_000_000
"""Values of a JSON text: 2 bytes can be a value that takes a hundred in memory."""


def has_too_many(text: bytes) -> bool:
    """Return whether a JSON text, which need not be parsed yet, may have more than `MOST_VALUES` values."""
    return len(text) > MOST_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES


def check_names(text: bytes) -> None:
    """Check that no object of a JSON text has a name twice: readers differ in which value they take.

    Raises:
        ValueError: one has, or the text is nested too deeply.
    """
    try:
        json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r:.100} twice in one object")
