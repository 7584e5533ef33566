"""The part of a merged generation after one of its original generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamvault.manifests.archive.agreement import with_rows
from streamvault.manifests.archive.history import Generation, History
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.manifests.format.entries import GapEntry
from streamvault.manifests.format.manifest import Manifest
from streamvault.streamstore.arithmetic.cuts import segments_between

UNKNOWN = "0" * 64
"""Placeholder for a digest that is computed by reading."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """The later original generations of a merged one, as one generation; a plain one if it is only the last.

    Attributes:
        manifest: its manifest; events and digests are unknown until it is read (see `completed`).
        parts: its ranges in the stream's order: each range of the merged one, and the offset (bytes) at which the
            remainder begins.
        events: number of events.
    """

    manifest: Manifest
    parts: tuple[tuple[ArchivedRange, int], ...]
    events: int

    def completed(self, rows: Sequence[ArchivedRange], where: str) -> Manifest:
        """Return the complete manifest, given the ranges as read.

        Raises:
            Damaged: the ranges do not have as many events as the original generations.
        """
        return with_rows(self.manifest, rows, self.events, where)


def remainder_of(generation: Generation, after: int) -> Remainder:
    """Return the part of a merged generation after one of its original generations, which is not the last."""
    merged = generation.manifest
    cut = next(one.to for one in merged.replaces if one.generation == after)
    left = tuple(one for one in merged.replaces if one.generation > after)
    between = segments_between(History([generation]).description, cut, merged.to)
    starts = {segment: start for segment, (start, _) in between.items()}
    parts = tuple(
        (row, max(row.start, start))
        for segment, start in sorted(starts.items())
        for row in generation.rows.get(segment, ())
        if row.end > start
    )
    entries = []
    for entry in merged.segments:
        segment = entry.id
        if segment in starts:
            size = sum(row.end - start for row, start in parts if row.segment == segment)
            found = {"start": starts[segment], "events": 0, "bytes": size, "digest": UNKNOWN}
            entries.append(entry.model_copy(update=found))
    manifest = merged.model_copy(
        update={
            "from_": cut,
            "replaces": left if len(left) > 1 else (),
            "segments": tuple(entries),
            "gaps": tuple(gap for gap in merged.gaps if _is_after(gap, starts.get(gap.id))),
            "events": 0,
            "bytes": sum(entry.bytes for entry in entries),
        }
    )
    return Remainder(manifest, parts, sum(one.events for one in left))


def _is_after(gap: GapEntry, start: int | None) -> bool:
    return start is not None and gap.end > start <= gap.start
