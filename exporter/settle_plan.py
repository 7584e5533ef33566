"""Deciding what the next generation holds: head and tail are fixed here, once."""

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
        plan: None if the newest generation already holds all that was asked for.
        attempt: which plan of its generation it is, see `layouts.keys.work_folder`.
        newest: the newest generation's manifest, if there is one.
        adopted: whether the plan is one that an earlier or concurrent run made.
    """

    plan: Plan | None
    newest: Manifest | None
    attempt: int = 1
    adopted: bool = False


def settle_plan(archive: Archive, store: StreamStore, wanted: Wanted, source: str) -> Planned:
    """Take up the unfinished generation's plan, or make the next one, create-only.

    Args:
        archive: where to.
        store: what has the stream.
        wanted: what the user asked for.
        source: the store's address as it was given.

    Raises:
        InvalidCut, Usage: a cut cannot be meant. Conflict: the stream is not the one archived or planned, or not
            a user's.
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
            continue  # another run was first; its plan may have ended since
        if generation > archive.listing().newest:
            return Planned(plan, newest, attempt)
        # Another run published this generation after we looked and has tidied its plan away: ours comes too late.
        remove_work(archive.store, archive.prefix, GenerationSpan.of(generation))
