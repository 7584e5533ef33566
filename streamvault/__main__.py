"""``python -m streamvault``: the command line, where its script is not on the path."""

from __future__ import annotations

import sys
from pathlib import Path

if not sys.flags.safe_path and sys.path[0] != str(Path(__file__).parents[1]):
    # Python has put the working folder first, where anybody's modules may lie
    del sys.path[0]

from streamvault.cli import process

if __name__ == "__main__":
    sys.exit(process())
