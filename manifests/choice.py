"""Validation of the layout and compression of a new generation."""

from __future__ import annotations

from typing import get_args

from common.errors import Usage
from manifests.model import Compression, Layout

__all__ = ["check_layout"]


def check_layout(layout: str, compress: str) -> None:
    """Reject unknown layouts, and compressions that a layout does not support.

    Raises:
        Usage: the layout or compression is not valid.
    """
    if layout not in get_args(Layout):
        raise Usage("unknown layout", where=repr(layout), todo=f"Use {' or '.join(get_args(Layout))}.")
    if compress not in get_args(Compression) or (compress and layout != "chunks"):
        raise Usage("only layout chunks can be compressed, with zstd", where=f"{layout}, compress {compress!r}")
