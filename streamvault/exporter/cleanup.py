"""Cleanup after a generation is published: delete strays, then the work files of its runs."""

from __future__ import annotations

from collections.abc import Iterator

from streamvault.common.progress import Progress
from streamvault.layouts.object_keys import WORK, GenerationSpan, parse_work
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.archive.plan import current_plan, ended_plans, find_plan, remove_work
from streamvault.manifests.archive.sweeping import SweepTask, remove_strays, tasks_of
from streamvault.manifests.format.field_types import segment_key
from streamvault.objectstore.errors import AccessDenied, ObjectStoreUnavailable
from streamvault.sparkrun.opening import open_runner


def clean_up(archive: Archive, span: GenerationSpan, progress: Progress, *, strays: bool) -> None:
    """Delete the strays of a published generation, if there may be any, and the work files of its runs.

    Any later run may repeat it.
    """
    if strays:
        try:
            _sweep(archive, span)
        except AccessDenied:
            progress.warn(
                "deletion is not allowed; stray objects remain, which readers skip, until a login that may delete runs"
                f" 'streamvault check {archive.uri} --repair'"
            )
        except ObjectStoreUnavailable as error:
            progress.warn(f"stray objects could not be deleted; they are harmless: {error}")
    remove_work_files(archive, span, progress)


def clean_up_again(archive: Archive, span: GenerationSpan, progress: Progress) -> None:
    """Like `clean_up`, for a generation that an earlier run published: its plan remains if that run was interrupted."""
    if find_plan(archive.place, span) is not None:
        clean_up(archive, span, progress, strays=True)


def _sweep(archive: Archive, span: GenerationSpan) -> None:
    def sweep(listing: Listing) -> None:
        if span not in listing.spans:
            return  # merged or expired meanwhile, so the objects no longer follow its index
        archive.check_contiguous(listing)  # the bytes between its cuts are no other generation's
        published = archive.load_span(span)
        tasks = list(tasks_of([published], archive.address, lambda _: ()))
        tasks += _in_other_layouts(archive, published)
        with open_runner("inline[4]") as runner:
            for _ in runner.run(remove_strays, tasks):
                pass

    archive.stable(sweep)


def _in_other_layouts(archive: Archive, published: Generation) -> Iterator[SweepTask]:
    """Yield the tasks that sweep what plans that were given up have left in another layout.

    What begins between the generation's cuts is in its layout; no other generation is in force there, now or later,
    unless a conversion of several generations has been begun there.
    """
    manifest = published.manifest
    if overlapping_plans(archive, manifest.span):
        return
    _, attempt = current_plan(archive.place, manifest.span)
    plans = ended_plans(archive.place, manifest.span, attempt)
    for layout in {plan.layout for plan in plans} - {manifest.layout}:
        for entry in manifest.segments:
            if entry.start < entry.end:
                segment = segment_key(entry.name)
                yield SweepTask(archive.address, layout, segment, entry.start, entry.end, ranges=())


def overlapping_plans(archive: Archive, span: GenerationSpan) -> list[GenerationSpan]:
    """Return the generations that overlap a published one and have a plan: one of the two is merged.

    Two conversions may have read the old archive before and after a compaction. The run of such a plan may yet publish
    objects between the same cuts, in any layout. A plan that is made after this look is dropped, because its run finds
    the generation published (`exporter.plan.settle`).
    """
    found = filter(None, map(parse_work, archive.store.folders(archive.prefix + WORK)))
    return [one for one in found if one != span and one.first <= span.last and span.first <= one.last]


def remove_work_files(archive: Archive, span: GenerationSpan, progress: Progress) -> None:
    """Delete a published generation's plan and rows.

    If deletion is not allowed, or the server becomes unavailable, they remain, which is harmless: the generation is
    published, and a later run may delete them.
    """
    try:
        remove_work(archive.place, span)
    except AccessDenied:
        progress.warn(f"deletion is not allowed; the work files of generation {span.last} remain under _work/")
    except ObjectStoreUnavailable as error:
        progress.warn(f"the work files of generation {span.last} remain under _work/ for now: {error}")
