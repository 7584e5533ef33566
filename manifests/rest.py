"""What of a merged generation lies behind a cut between two of its original ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import Damaged
from manifests.agreement import by_segment
from manifests.history import Generation, History
from manifests.model import GapEntry, Manifest, segment_key
from manifests.range_row import RangeRow, segment_digest
from streamstore.cuts import segments_between
from streamstore.model import SegmentId

__all__ = ["UNKNOWN", "Rest", "finish", "rest_of"]

UNKNOWN = "0" * 64
"""A digest that is found by reading."""


@dataclass(frozen=True, slots=True)
class Rest:
    """The later original generations of a merged one, as one generation, or as a plain one if it is only the last.

    Attributes:
        manifest: its manifest; events and digests are not known before it was read (see `finish`).
        parts: its ranges in the stream's order: each range of the merged one, and where (bytes) what is meant begins.
        events: how many there are.
    """

    manifest: Manifest
    parts: tuple[tuple[RangeRow, int], ...]
    events: int


def rest_of(generation: Generation, after: int) -> Rest:
    """What of a merged generation comes after one of its original ones.

    Args:
        generation: the merged one.
        after: the number of the original one, not the last.
    """
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
        segment = segment_key(entry.name)
        if segment in starts:
            size = sum(row.end - start for row, start in parts if row.segment == segment)
            found = {"start": starts[segment], "events": 0, "bytes": size, "digest": UNKNOWN}
            entries.append(entry.model_copy(update=found))
    manifest = merged.model_copy(
        update={
            "from_": cut,
            "replaces": left if len(left) > 1 else (),
            "segments": tuple(entries),
            "gaps": tuple(gap for gap in merged.gaps if _is_behind(gap, starts.get(segment_key(gap.segment)))),
            "events": 0,
            "bytes": sum(entry.bytes for entry in entries),
        }
    )
    return Rest(manifest, parts, sum(one.events for one in left))


def _is_behind(gap: GapEntry, start: int | None) -> bool:
    return start is not None and gap.end > start <= gap.start


def finish(rest: Rest, rows: Sequence[RangeRow], where: str) -> Manifest:
    """The manifest of a rest, with what its ranges were found to hold.

    Raises:
        Damaged: they do not hold as many events as the original generations had.
    """
    manifest, held = rest.manifest, by_segment(rows)
    found: dict[SegmentId, dict[str, object]] = {}
    for entry in manifest.segments:
        own = held.get(segment_key(entry.name), [])
        found[segment_key(entry.name)] = {
            "events": sum(row.events for row in own),
            "bytes": sum(row.end - row.start for row in own),
            "digest": segment_digest(row.digest for row in own),
        }
    events = sum(row.events for row in rows)
    if events != rest.events:
        what = f"generation {manifest.generation} has {events} events, its manifest says {rest.events}"
        raise Damaged(what, where=where, todo="Run 'streamvault check --read-data' on the archive.")
    entries = tuple(entry.model_copy(update=found[segment_key(entry.name)]) for entry in manifest.segments)
    return manifest.model_copy(
        update={"segments": entries, "events": events, "bytes": sum(row.end - row.start for row in rows)}
    )
