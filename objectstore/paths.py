"""Which keys and prefixes are allowed below a root.

One rule for every store: what is a legal key here is legal on S3, on MinIO and as a file, and cannot leave the root.
"""

from __future__ import annotations

import re

from objectstore.errors import InvalidKey

__all__ = ["check_key", "check_prefix", "is_path"]

MAX_KEY = 900
"""Characters. S3 allows 1,024 bytes; what is left is for the root's own prefix."""

# Parts of 1 to 255 characters, none of them "." or "..".
_PART = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.=+@:,~ -]{1,255}"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*")


def is_path(text: str) -> bool:
    """Whether a text is a relative path of allowed parts, without slashes at its ends."""
    return len(text) <= MAX_KEY and _PATH.fullmatch(text) is not None


def check_key(key: str) -> None:
    """Raise `InvalidKey` unless a key is relative, stays below the root and has only characters all stores keep."""
    if not is_path(key):
        raise InvalidKey("not a key", where=repr(key[:200]))


def check_prefix(prefix: str) -> None:
    """Raise `InvalidKey` unless a prefix is empty or a whole folder: legal parts and a slash at its end."""
    if prefix and not (prefix.endswith("/") and is_path(prefix[:-1])):
        raise InvalidKey("not a folder's prefix (it ends in '/')", where=repr(prefix[:200]))
