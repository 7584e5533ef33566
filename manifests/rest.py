"""What of a merged generation lies behind a cut between two of its original ones."""

from __future__ import annotations

from collections.abc import Sequence

from manifests.agreement import by_segment
from manifests.history import Generation, History
from manifests.model import Manifest, segment_key
from manifests.range_row import RangeRow, segment_digest
from problems import Damaged
from streamstore.cuts import segments_between
from streamstore.model import SegmentId

__all__ = ["finish", "rest_of"]

Part = tuple[RangeRow, int]
"""A range, and where in it (bytes) what is meant of it begins."""


def rest_of(generation: Generation, after: int) -> tuple[Manifest, list[Part]]:
    """The later original generations of a merged one, as one generation, or as a plain one if it is only the last.

    Args:
        generation: the merged one.
        after: the number of the original one that it follows.

    Returns:
        Its manifest, whose counts and digests are not known before it was read (see `finish`), and its ranges.
    """
    merged = generation.manifest
    cut = next(one.to for one in merged.replaces if one.generation == after)
    left = tuple(one for one in merged.replaces if one.generation > after)
    between = segments_between(History([generation]).description, cut, merged.to)
    starts = {segment: start for segment, (start, _) in between.items()}
    parts = [
        (row, max(row.start, start))
        for segment, start in sorted(starts.items())
        for row in generation.rows.get(segment, ())
        if row.end > start
    ]
    manifest = merged.model_copy(
        update={
            "from_": cut,
            "replaces": left if len(left) > 1 else (),
            "segments": tuple(
                entry.model_copy(update={"start": starts[segment_key(entry.name)]})
                for entry in merged.segments
                if segment_key(entry.name) in starts
            ),
            "gaps": tuple(
                gap
                for gap in merged.gaps
                if (start := starts.get(segment_key(gap.segment))) is not None and gap.end > start <= gap.start
            ),
            "events": sum(one.events for one in left),
        }
    )
    return manifest, parts


def finish(manifest: Manifest, rows: Sequence[RangeRow], where: str) -> Manifest:
    """The manifest of a rest, with what its ranges were found to hold.

    Raises:
        Damaged: they do not hold as many events as the original generations had.
    """
    held = by_segment(rows)
    found: dict[SegmentId, dict[str, object]] = {}
    for entry in manifest.segments:
        own = held.get(segment_key(entry.name), [])
        found[segment_key(entry.name)] = {
            "events": sum(row.events for row in own),
            "bytes": sum(row.end - row.start for row in own),
            "digest": segment_digest(row.digest for row in own),
        }
    events = sum(row.events for row in rows)
    if events != manifest.events:
        what = f"generation {manifest.generation} has {events} events, its manifest says {manifest.events}"
        raise Damaged(what, where=where, todo="Run 'streamvault check --read-data' on the archive.")
    entries = tuple(entry.model_copy(update=found[segment_key(entry.name)]) for entry in manifest.segments)
    return manifest.model_copy(update={"segments": entries, "bytes": sum(row.end - row.start for row in rows)})
