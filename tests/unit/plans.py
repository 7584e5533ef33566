"""Plans of a small stream, and rows of finished ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamvault.manifests.manifest import GapEntry, PlannedSegment
from streamvault.manifests.plan import FinishedSpan, Gap, Plan, RangeEntry
from streamvault.streamstore.model import StreamCut
from tests.archives import CREATED, LEFT, NAME, RIGHT, two_generations

PREFIX = "scope/stream/"
DIGEST = "ab" * 32


def plan_of(generation: int = 1, *, end: int = 500, **changes: Any) -> Plan:
    manifest = two_generations()[0].manifest
    values: dict[str, Any] = {
        "generation": generation,
        "created": CREATED,
        "scope": "scope",
        "stream": "stream",
        "layout": "events",
        "range_size": 64,
        "configuration": manifest.configuration,
        "epochs": manifest.epochs,
        "from_": StreamCut(NAME, {LEFT: 0, RIGHT: 0}),
        "to": StreamCut(NAME, {LEFT: end, RIGHT: 9}),
        "segments": (
            PlannedSegment(name=LEFT.in_stream(NAME), start=0, end=end, sealed=False),
            PlannedSegment(name=RIGHT.in_stream(NAME), start=0, end=9, sealed=False),
        ),
        "gaps": (GapEntry(segment=RIGHT.in_stream(NAME), start=0, end=9, reason="truncated"),),
        "sealed": False,
    }
    return Plan(**(values | changes))


Bounds = Sequence[tuple[int, int]]


def finished(start: int, end: int, pieces: Bounds, gaps: Bounds) -> FinishedSpan:
    return FinishedSpan(
        start=start,
        end=end,
        ranges=tuple(RangeEntry(start=low, end=high, events=1, digest=DIGEST) for low, high in pieces),
        gaps=tuple(Gap(start=low, end=high, reason="truncated") for low, high in gaps),
    )


def row(start: int, *pieces: tuple[int, int], gaps: Bounds = (), end: int | None = None) -> FinishedSpan:
    held = pieces or ((start, start + 10),)
    return finished(start, max(high for _, high in (*held, *gaps)) if end is None else end, held, gaps)
