"""The folder for what is made once on a machine and can be made again."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Ours in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``); it may not be there yet."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "streamvault"
