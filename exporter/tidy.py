"""Removing what the runs of a published generation left."""

from __future__ import annotations

from manifests.archive import Archive
from manifests.plan import remove_work
from objectstore.errors import AccessDenied
from sparkrun.progress import Progress

__all__ = ["tidy_up"]


def tidy_up(archive: Archive, generation: int, progress: Progress, first: int | None = None) -> None:
    """Remove the generation's plan and rows; where deleting is not allowed they stay, which harms nobody."""
    try:
        remove_work(archive.store, archive.prefix, generation, first)
    except AccessDenied:
        progress.warn(f"deleting is not allowed there: the work files of generation {generation} stay under _work/")
