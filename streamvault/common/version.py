"""The installed version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("streamvault")
except PackageNotFoundError:  # run from a source tree that was not installed
    VERSION = "0+unknown"

TOOL = f"streamvault {VERSION}"
