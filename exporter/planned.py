"""The plan that a manifest would have had."""

from __future__ import annotations

from manifests.model import Manifest
from manifests.plan import Plan, PlannedSegment

__all__ = ["plan_of"]


def plan_of(manifest: Manifest) -> Plan:
    """The plan that an export of this generation would have had."""
    return Plan(
        generation=manifest.generation,
        created=manifest.created,
        scope=manifest.scope,
        stream=manifest.stream,
        layout=manifest.layout,
        compression=manifest.compression,
        range_size=manifest.range_size,
        configuration=manifest.configuration,
        epochs=manifest.epochs,
        from_=manifest.from_,
        to=manifest.to,
        replaces=manifest.replaces,
        segments=tuple(
            PlannedSegment(name=entry.name, start=entry.start, end=entry.end, sealed=entry.sealed)
            for entry in manifest.segments
        ),
        gaps=manifest.gaps,
        sealed=manifest.sealed,
    )
