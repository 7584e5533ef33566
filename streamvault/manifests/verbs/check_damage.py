"""What a check says about damage: the generations that it is in, and what can be restored."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from streamvault.manifests.archive.damage import Lost
from streamvault.manifests.archive.history import History
from streamvault.manifests.verbs.reports import DamageReport
from streamvault.streamstore.model import SegmentId


def damage_reports(history: History, found: Iterable[Lost]) -> tuple[DamageReport, ...]:
    """Return each damage with the generation that holds it."""
    reports = []
    for lost in found:
        generation, cut = history.holder(lost.segment, lost.start)
        reports.append(
            DamageReport(
                generation=generation,
                cut=cut.to_json(),
                segment=lost.segment.in_stream(history.stream),
                start=lost.start,
                end=lost.end,
                lost_events=lost.events,
                what=lost.what,
            )
        )
    return tuple(reports)


def last_intact(history: History, found: Iterable[Lost]) -> int:
    """Return the newest original generation before the first damage; 0 if there is none."""
    lowest: dict[SegmentId, int] = {}  # a segment's generations are in the order of its offsets
    for lost in found:
        lowest[lost.segment] = min(lost.start, lowest.get(lost.segment, lost.start))
    damaged = min((history.holder(*place)[0] for place in lowest.items()), default=history.generation + 1)
    return damaged - 1 if damaged > history.first else 0


def restoring(archive: str, intact: int) -> str:
    """Return the command that restores what is intact: up to a generation, or else all but the damaged ranges."""
    rest = f"--generation {intact}" if intact else "--skip-damaged"
    return f"streamvault import {shlex.quote(archive)} STREAM {rest}"
