"""Which layout a new generation may have."""

from __future__ import annotations

from typing import get_args

from common.errors import Usage
from manifests.model import Compression, Layout

__all__ = ["check_layout"]


def check_layout(layout: str, compress: str) -> None:
    """Refuse a layout that there is not, or a compression that it cannot have.

    Raises:
        Usage: it is.
    """
    if layout not in get_args(Layout):
        raise Usage("no such layout", where=repr(layout), todo=f"Use {' or '.join(get_args(Layout))}.")
    if compress not in get_args(Compression) or (compress and layout != "chunks"):
        raise Usage("layout chunks can be compressed, with zstd", where=f"{layout}, compress {compress!r}")
