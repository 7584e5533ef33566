"""Validation of keys and prefixes.

One rule for every store: a valid key is valid on S3, on MinIO and as a file name, and stays below the root.
"""

from __future__ import annotations

import re

from streamvault.objectstore.errors import InvalidKey

MAX_KEY = 900
"""Maximum length (characters). S3 allows 1,024 bytes; the rest is for the root's prefix."""

# Parts of 1 to 255 characters, none of them "." or "..".
_PART = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.=+@:,~ -]{1,255}"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*")


def is_path(text: str) -> bool:
    """Return whether a text is a valid relative path, without leading or trailing slash."""
    return len(text) <= MAX_KEY and _PATH.fullmatch(text) is not None


def check_key(key: str) -> None:
    """Raise `InvalidKey` unless a key is relative, stays below the root and has only characters all stores preserve."""
    if not is_path(key):
        raise InvalidKey("invalid key", where=repr(key[:200]))


def check_prefix(prefix: str) -> None:
    """Raise `InvalidKey` unless a prefix is empty or a valid path with a trailing slash."""
    if prefix and not (prefix.endswith("/") and is_path(prefix[:-1])):
        raise InvalidKey("invalid prefix (it must end in '/')", where=repr(prefix[:200]))
