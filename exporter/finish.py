"""What comes after a generation is published: strays go, then what its runs left."""

from __future__ import annotations

from common.progress import Progress
from layouts.keys import GenerationSpan
from manifests.archive import Archive
from manifests.listing import Listing
from manifests.plan import find_plan, remove_work
from manifests.sweeping import remove_strays, tasks_of
from objectstore.errors import AccessDenied, ObjectStoreUnavailable
from sparkrun.opening import open_runner

__all__ = ["finish", "finish_again", "tidy_up"]


def finish(archive: Archive, generation: int, progress: Progress, *, strays: bool) -> None:
    """Sweep a published generation and remove what its runs left. Any later run may do it again.

    Args:
        archive: where.
        generation: its number.
        progress: told what had to be left.
        strays: whether objects were seen that may be none of it.
    """
    if strays:
        try:
            _sweep(archive, generation)
        except (AccessDenied, ObjectStoreUnavailable) as error:
            progress.warn(f"objects that belong to no event stay for now; they harm nobody: {error}")
    tidy_up(archive, GenerationSpan.of(generation), progress)


def finish_again(archive: Archive, generation: int, progress: Progress) -> None:
    """As `finish`, for a generation that an earlier run published: its plan is still there if that run was cut off."""
    if find_plan(archive.store, archive.prefix, GenerationSpan.of(generation)) is not None:
        finish(archive, generation, progress, strays=True)


def _sweep(archive: Archive, generation: int) -> None:
    def sweep(listing: Listing) -> None:
        span = GenerationSpan.of(generation)
        if span not in listing.spans:
            return  # merged since, or expired: what its index says need not be there, and is not all that may be
        tasks = list(tasks_of([archive.load_span(span)], archive.root, archive.prefix, lambda _: ()))
        with open_runner("inline[4]") as runner:
            for _ in runner.run(remove_strays, tasks):
                pass

    archive.stable(sweep)


def tidy_up(archive: Archive, span: GenerationSpan, progress: Progress) -> None:
    """Remove a published generation's plan and rows.

    Where deleting is not allowed, or the server goes away meanwhile, they stay, which harms nobody: the generation is
    published, and a later run may remove them.
    """
    try:
        remove_work(archive.store, archive.prefix, span)
    except AccessDenied:
        progress.warn(f"deleting is not allowed there: the work files of generation {span.last} stay under _work/")
    except ObjectStoreUnavailable as error:
        progress.warn(f"the work files of generation {span.last} stay under _work/ for now: {error}")
