"""What the user of an import is warned of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from streamvault.common.report import GapReport
from streamvault.common.times import age_text, moment_text
from streamvault.importer.plan import RestorePlan, scaling_warnings
from streamvault.importer.planner import PlannedRestore
from streamvault.streamstore.model import RetentionKind


def warnings_of(planned: PlannedRestore, gaps: Sequence[GapReport], moment: datetime | None) -> Iterator[str]:
    """Yield what the user is warned of.

    Args:
        planned: what is restored.
        gaps: its gaps.
        moment: the time up to which it is restored; None if none was given.
    """
    selection, plan = planned.selection, planned.plan
    history = selection.source.history
    if moment is not None:
        created = history.newest.created
        before = age_text((moment - created).total_seconds())
        taken = f"the tail of generation {history.generation} was taken {before} before {moment_text(moment)}"
        yield f"{taken}, at {moment_text(created)}; events written in between are not restored"
    if selection.from_cut is None and history.first > 1:
        gone = "generation 1 has" if history.first == 2 else f"generations 1 to {history.first - 1} have"
        yield f"the beginning is missing: {gone} expired, so the archive begins with generation {history.first}"
    for gap in gaps:
        yield f"gap in the archive: {gap.segment} bytes {gap.start} to {gap.end}: {gap.reason}"
    if filled := sum(segment.gap_bytes for segment in plan.segments.values()):
        yield f"{filled} bytes of gaps lie between archived events; --offsets keep puts events of zero bytes there"
    yield from scaling_warnings(history.description.configuration, plan.configuration)
    yield from _retention_warning(plan)
    if plan.replay.moved:
        most = max(moved.ulps for moved in plan.replay.moved)
        yield (
            f"{len(plan.replay.moved)} key-range boundaries move by up to {most} ulps, "
            "so that the segments keep their numbers"
        )


def _retention_warning(plan: RestorePlan) -> Iterator[str]:
    """Warn of events that the store may delete under the restored retention policy."""
    policy = plan.configuration.retention
    if policy.kind is RetentionKind.SIZE and plan.bytes > policy.minimum:
        what = f"keeps {policy.minimum} of {plan.bytes} restored bytes: the store may delete the oldest events at once"
    elif policy.kind is RetentionKind.TIME:
        kept = age_text(policy.minimum / 1000)
        what = f"keeps events for {kept}, counted from the restore: the store deletes them after that"
    else:
        return
    yield f"the archived retention policy {what}; --retention off restores the stream without it"
