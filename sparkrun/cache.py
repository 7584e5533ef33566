"""The cache folder, for files that can be recreated."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return Streamvault's folder in the user's cache (``$XDG_CACHE_HOME`` or ``~/.cache``); it may not exist yet."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "streamvault"
