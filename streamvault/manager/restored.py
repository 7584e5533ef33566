"""Whether an archive has all that the unfinished target of an import holds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

from streamvault.common.errors import Conflict, Damaged, Problem
from streamvault.common.progress import Progress
from streamvault.importer.fill import FillTask, TargetSegment, compare_all
from streamvault.importer.from_archive import generation_of
from streamvault.importer.options import ImportOptions, Numbers, Offsets
from streamvault.importer.ownership import marked_import
from streamvault.importer.plan import RestorePlan, plan_restore
from streamvault.importer.planner import Planner
from streamvault.importer.target import origin_tag
from streamvault.importer.unfinished import Unfinished
from streamvault.manifests.archive.archive import Archive
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.objectstore.errors import ObjectStoreError
from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import FROM, tag_of

BY_HAND = "Repeat its command to finish it; delete it yourself only if its events are elsewhere, too."


class MayBeOnlyCopy(Conflict):
    """An unfinished target may have events that nothing else has any more."""


def check_restorable(stream: OpenStream, described: StreamDescription, *, read: bool) -> None:
    """Check that the archive from which an unfinished target is restored still gives that very import.

    The import's name is a digest of what was archived and of what is restored of it, so the same name says the same
    content. The target is compared with it as before each run of the import; with ``read``, all that it holds is.

    Args:
        stream: the target.
        described: the target, as it is now; it may have been sealed by a sweep.
        read: read the target's bytes and the archive's.

    Raises:
        MayBeOnlyCopy: it does not, or this cannot be found out.
        Conflict: something else has changed the target.
    """
    begun = marked_import(described)
    origin = tag_of(described.configuration, FROM).partition(":")[2]
    if generation_of(begun) is None:
        raise MayBeOnlyCopy(
            "an unfinished copy may have events that its source has lost", where=stream.uri, todo=BY_HAND
        )
    if not origin or origin_tag(stream.name, origin) not in described.configuration.tags:
        raise MayBeOnlyCopy("nothing shows from which archive it is restored", where=stream.uri, todo=BY_HAND)
    try:
        plan = _plan(origin, begun)
    except Problem as problem:
        raise _unreadable(stream, problem) from None
    unfinished = Unfinished.find(stream)
    if plan is None or unfinished is None:
        what = f"its archive {origin} no longer has exactly what is restored"
        raise MayBeOnlyCopy(what, where=stream.uri, todo=BY_HAND)
    segments = replace(unfinished, described=replace(unfinished.described, sealed=False)).check(plan)
    if not read:
        return
    live = {segments[old]: planned for old, planned in plan.segments.items() if segments.get(old) in unfinished.ends}
    try:
        for info in stream.store.segment_info(stream.name, list(live)):
            target, planned = TargetSegment(stream.address, stream.name, info.segment), live[info.segment]
            task = FillTask(target, WINDOW_BYTES, planned.head, planned.spans, content=plan.content)
            compare_all(stream.store, task, info.start_offset, info.write_offset)
    except (Damaged, ObjectStoreError) as problem:
        raise _unreadable(stream, problem) from None


def _unreadable(stream: OpenStream, problem: Problem) -> MayBeOnlyCopy:
    what = f"its archive cannot be read ({problem.what})"
    return MayBeOnlyCopy(what, where=stream.uri, todo=BY_HAND)


def _plan(origin: str, begun: str) -> RestorePlan | None:
    """Plan an import of an archive as it was begun; None if the archive does not give it any more."""
    archive = Archive.open(origin)
    archive.check_open(archive.listing())
    planner = Planner(archive, ImportOptions(), "inline", Progress())
    selection = planner.select(generation_of(begun))
    for offsets, numbers in product(get_args(Offsets), get_args(Numbers)):
        options = ImportOptions(offsets=offsets, numbers=numbers)
        if selection.import_id(options) == begun:
            return plan_restore(selection.content(options), options)
    return None
