"""Derives a plan from a manifest."""

from __future__ import annotations

from streamvault.manifests.archive.plan import Plan
from streamvault.manifests.format.entries import PlannedSegment
from streamvault.manifests.format.model import Manifest


def plan_of(manifest: Manifest) -> Plan:
    """Return the plan that an export of the generation would have had."""
    return Plan(
        **manifest.in_common(),
        range_size=manifest.range_size,
        segments=tuple(
            PlannedSegment(name=entry.name, start=entry.start, end=entry.end, sealed=entry.sealed)
            for entry in manifest.segments
        ),
        gaps=manifest.gaps,
        sealed=manifest.sealed,
    )
