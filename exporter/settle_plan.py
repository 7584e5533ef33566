"""Creates or resumes the plan of the next generation, which fixes its head and tail."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exporter.identity import check_same_stream
from exporter.make_plan import Wanted, make_plan
from layouts.keys import GenerationSpan
from manifests.archive import Archive
from manifests.model import Manifest
from manifests.plan import Plan, create_plan, current_plan, ended_plans, remove_work
from streamstore.own import describe_source
from streamstore.store import StreamStore

__all__ = ["Planned", "settle_plan"]


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan to work on.

    Attributes:
        plan: the plan; None if the newest generation already has everything.
        newest: the newest generation's manifest, if there is one.
        attempt: number of the plan, see `layouts.keys.work_folder`.
        adopted: whether an earlier or concurrent run created the plan.
    """

    plan: Plan | None
    newest: Manifest | None
    attempt: int = 1
    adopted: bool = False


def settle_plan(archive: Archive, store: StreamStore, wanted: Wanted, source: str) -> Planned:
    """Return the plan of the unfinished generation, or create the next one, create-only.

    Args:
        archive: the archive.
        store: the stream's store.
        wanted: the options of a new plan.
        source: the store's address as given by the user.

    Raises:
        InvalidCut, Usage: a cut is not valid.
        Conflict: the stream is not the one archived or planned, or is not a user's stream.
    """
    while True:
        newest = archive.newest()
        generation = newest.generation + 1 if newest else 1
        plan, attempt = current_plan(archive.store, archive.prefix, generation)
        described = describe_source(store, archive.stream)
        asked = wanted
        for ended in ended_plans(archive.store, archive.prefix, generation, attempt):
            check_same_stream(described, store, ended)
            if ended.layout == asked.layout:  # chunks have the same names, compressed or not
                asked = replace(asked, compression=ended.compression)
        if plan is not None:
            check_same_stream(described, store, plan)
            return Planned(plan, newest, attempt, adopted=True)
        plan = make_plan(described, store, newest, asked, source)
        if plan is None:
            return Planned(None, newest)
        plan, created = create_plan(archive.store, archive.prefix, plan, attempt)
        if not created:
            continue  # another run was first; its plan may have ended meanwhile
        if generation > archive.listing().newest:
            return Planned(plan, newest, attempt)
        # Another run has published this generation meanwhile and deleted its plan, so this plan is too late.
        remove_work(archive.store, archive.prefix, GenerationSpan.of(generation))
