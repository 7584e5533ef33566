"""The plan of a converted generation: what an unfinished conversion has begun is resumed, or given up."""

from __future__ import annotations

from streamvault.common.errors import Conflict
from streamvault.exporter.options import ExportOptions
from streamvault.exporter.plan import PlannedGeneration
from streamvault.exporter.plan_options import check_can_restart, other_options_error
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.listing import Listing, manifest_lost
from streamvault.manifests.archive.plan import Plan, current_plan, ended_plans

ANOTHER_ROOT = "Convert to another root."


def draft_conversion(archive: Archive, plan: Plan, *, restart: bool) -> PlannedGeneration:
    """Return what `exporter.plan.settle` is to do next about a generation of a converted archive, and write nothing.

    Args:
        archive: the new archive.
        plan: the plan that a new conversion of the generation has.
        restart: give up an unfinished conversion with other options.

    Returns:
        The unfinished plan (`PlannedGeneration.resumed`), or the new one; None if another run has published a part of
        the generation meanwhile. `PlannedGeneration.gave_up` as for `exporter.plan.draft_plan`.

    Raises:
        Usage: an unfinished conversion has other options, or objects whose names the new ones would need.
        Conflict: something else has begun the generation.
        Damaged: the newest manifest was lost.
    """

    def is_late(listing: Listing) -> bool:
        if listing.orphans:
            raise manifest_lost(listing, archive.uri)
        return listing.newest >= plan.first

    if archive.stable(is_late):
        return PlannedGeneration(None, None)
    found, attempt = current_plan(archive.place, plan.span)
    for ended in ended_plans(archive.place, plan.span, attempt):
        _check_same_generation(ended, plan, archive)
        _check_names(ended, plan, archive)
    if found is None:
        return PlannedGeneration(plan, None, attempt)
    _check_same_generation(found, plan, archive)
    if found == plan:
        return PlannedGeneration(found, None, attempt, resumed=True)
    if not restart:
        options = [f"--layout {found.layout}", f"--compress {found.compression or 'none'}"]
        where = f"{archive.uri}, generation {plan.generation}"
        raise other_options_error(options, where, "Give these options to resume it, or give it up with --restart.")
    _check_names(found, plan, archive)
    return PlannedGeneration(plan, None, attempt, gave_up=found)


def _check_same_generation(found: Plan, plan: Plan, archive: Archive) -> None:
    if found != plan.model_copy(update={"layout": found.layout, "compression": found.compression}):
        where = f"{archive.uri}, generation {plan.generation}"
        todo = "Finish it, or convert to another root."
        raise Conflict("an export or another conversion has begun the generation", where=where, todo=todo)


def _check_names(given_up: Plan, plan: Plan, archive: Archive) -> None:
    options = ExportOptions(layout=plan.layout, compress=plan.compression, content=plan.content)
    check_can_restart(given_up, options, None, archive.uri, todo=ANOTHER_ROOT)
