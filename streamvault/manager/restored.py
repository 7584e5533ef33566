"""Whether an archive has all that the unfinished target of an import holds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

from streamvault.common.errors import Conflict, Problem
from streamvault.common.progress import Progress
from streamvault.importer.from_archive import generation_of
from streamvault.importer.options import ImportOptions, Numbers, Offsets
from streamvault.importer.ownership import marked_import
from streamvault.importer.plan import RestorePlan, plan_restore
from streamvault.importer.planner import Planner
from streamvault.importer.target import origin_tag
from streamvault.importer.unfinished import Unfinished
from streamvault.manifests.archive.archive import Archive
from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import FROM, tag_of

BY_HAND = "Repeat its command to finish it; delete it yourself only if its events are elsewhere, too."


class MayBeOnlyCopy(Conflict):
    """An unfinished target may have events that nothing else has any more."""


def check_restorable(stream: OpenStream, described: StreamDescription) -> None:
    """Check that the archive from which an unfinished target is restored still gives that very import.

    The import's name is a digest of what was archived and of what is restored of it, so the same name says the same
    content. The target is compared with it as before each run of the import.

    Args:
        stream: the target.
        described: the target, as it is now; it may have been sealed by a sweep.

    Raises:
        MayBeOnlyCopy: it does not, or this cannot be found out.
        TargetTaken: something else has changed the target.
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
        what = f"its archive cannot be read ({problem.what})"
        raise MayBeOnlyCopy(what, where=stream.uri, todo=BY_HAND) from None
    unfinished = Unfinished.find(stream)
    if plan is None or unfinished is None:
        what = f"its archive {origin} no longer has exactly what is restored"
        raise MayBeOnlyCopy(what, where=stream.uri, todo=BY_HAND)
    replace(unfinished, described=replace(unfinished.described, sealed=False)).check(plan)


def _plan(origin: str, begun: str) -> RestorePlan | None:
    """Plan an import of an archive as it was begun; None if the archive does not give it any more."""
    planner = Planner(Archive.open(origin), ImportOptions(), "inline", Progress())
    selection = planner.select(generation_of(begun))
    for offsets, numbers in product(get_args(Offsets), get_args(Numbers)):
        options = ImportOptions(offsets=offsets, numbers=numbers)
        if selection.import_id(options) == begun:
            return plan_restore(selection.content(options), options)
    return None
