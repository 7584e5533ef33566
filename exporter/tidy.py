"""Removing what the runs of a published generation left."""

from __future__ import annotations

from manifests.archive import Archive
from manifests.plan import remove_work
from objectstore.errors import AccessDenied, ObjectStoreUnavailable
from sparkrun.progress import Progress

__all__ = ["tidy_up"]


def tidy_up(archive: Archive, generation: int, progress: Progress, first: int | None = None) -> None:
    """Remove the generation's plan and rows.

    Where deleting is not allowed, or the server goes away meanwhile, they stay, which harms nobody: the generation is
    published, and a later run may remove them.
    """
    try:
        remove_work(archive.store, archive.prefix, generation, first)
    except AccessDenied:
        progress.warn(f"deleting is not allowed there: the work files of generation {generation} stay under _work/")
    except ObjectStoreUnavailable as error:
        progress.warn(f"the work files of generation {generation} stay under _work/ for now: {error}")
