"""Plan the scales that give a new stream the source's segments: same numbers, epochs and key ranges.

The store numbers the segments of a scale in its own order (`streamstore.arithmetic.numbering`). Where that order would
give other numbers than the source's (most scales of the auto-scaler), inner boundaries move by the fewest ulps that
give the source's numbers; a moved boundary stays in place as long as it exists. The hash of a routing key has 52 bits,
so a move by a few ulps changes the segment of almost no key.

Some histories cannot be repeated with their numbers: those of a name that was used before, those with a transaction
that was committed over a scale (Pravega then repeats two earlier epochs, with their numbers), and a few scales into
many segments. With mapped numbers they are repeated all the same: same epochs and key ranges, the store's numbers
(`streamstore.arithmetic.counterparts`). Everything here is in the source's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from streamvault.common.errors import Failed
from streamvault.importer.options import Numbers
from streamvault.importer.reports import MovedBoundary
from streamvault.streamstore.arithmetic.numbering import nudge
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId

MAP_NUMBERS = "Give --numbers map to restore the stream with other segment numbers."
"""What to do where numbers cannot be kept."""


class CannotReplay(Failed):
    """No sequence of scales can give a new stream the source's segment numbers."""


@dataclass(frozen=True, slots=True)
class ScaleStep:
    """One scale to replay.

    Attributes:
        epoch: the epoch it begins.
        seal: the segments it seals; each must be full first.
        ranges: the new key ranges, in the order of the request.
        opens: the source's segments that the new ones correspond to.
    """

    epoch: int
    seal: tuple[SegmentId, ...]
    ranges: tuple[KeyRange, ...]
    opens: Mapping[SegmentId, KeyRange]


@dataclass(frozen=True, slots=True)
class Replay:
    """The scales that create the target's epochs.

    Attributes:
        first: the epoch that the new stream must start with.
        steps: the scales, in order.
        epochs: the target's epochs, with their final boundaries.
        moved: the boundaries that differ from the source's.
    """

    first: Epoch
    steps: tuple[ScaleStep, ...]
    epochs: tuple[Epoch, ...]
    moved: tuple[MovedBoundary, ...]


def plan_replay(epochs: Sequence[Epoch], numbers: Numbers = "keep") -> Replay:
    """Plan the scales for a source's epochs (from 0 on, in order).

    Args:
        epochs: the epochs.
        numbers: ``"keep"`` if the segments must get the source's numbers; with ``"map"`` boundaries are still moved
            where that keeps numbers in order, and stay in place where it does not.

    Raises:
        CannotReplay: the segments cannot get the source's numbers: a scale cannot create one of the epochs (a
            transaction was committed over a scale), or no boundaries near the source's give these numbers.
    """
    _check_start(epochs)
    here: dict[SegmentId, KeyRange] = dict(epochs[0].segments)
    highest = max(segment.number for segment in here)
    made = [epochs[0]]
    steps: list[ScaleStep] = []
    moved: list[MovedBoundary] = []
    kept = True
    for before, after in pairwise(epochs):
        seal = tuple(segment for segment in before.segments if segment not in after.segments)
        opens = sorted(segment for segment in after.segments if segment not in before.segments)
        expected = [SegmentId(after.number, highest + 1 + i) for i in range(len(opens))]
        kept = kept and opens == expected
        if not opens or not (kept or numbers == "map"):
            raise CannotReplay(
                f"the segment numbers of epoch {after.number} cannot be reproduced: a transaction was committed across "
                "a scale",
                where=", ".join(map(str, opens[:3])),
                todo=MAP_NUMBERS,
            )
        highest = max(highest, *(segment.number for segment in opens))
        fixed = _outer_boundaries([before.segments[s] for s in seal], [here[s] for s in seal])
        source_ranges = [after.segments[s] for s in opens]
        ranges = nudge(source_ranges, fixed) if kept else None
        if ranges is None and numbers == "keep":
            raise CannotReplay(
                f"no boundaries near the source's give the {len(opens)} segments of epoch {after.number} the source's "
                "numbers",
                todo=MAP_NUMBERS,
            )
        ranges = ranges or [
            KeyRange(fixed.get(held.low, held.low), fixed.get(held.high, held.high)) for held in source_ranges
        ]
        for segment in seal:
            del here[segment]
        steps.append(ScaleStep(after.number, seal, tuple(ranges), dict(zip(opens, ranges, strict=True))))
        moved += _moves(after.number, source_ranges, ranges, fixed)
        here.update(steps[-1].opens)
        made.append(Epoch(after.number, dict(here)))
    return Replay(epochs[0], tuple(steps), tuple(made), tuple(moved))


def _check_start(epochs: Sequence[Epoch]) -> None:
    numbers = [epoch.number for epoch in epochs]
    first = sorted(epochs[0].segments) if epochs else []
    whole = bool(first) and first == [SegmentId(0, first[0].number + i) for i in range(len(first))]
    if numbers != list(range(len(epochs))) or not whole:
        raise CannotReplay("the source's epochs do not start at 0 with consecutively numbered segments of epoch 0")


def _outer_boundaries(source: Sequence[KeyRange], target: Sequence[KeyRange]) -> dict[float, float]:
    """Map the outer boundaries of the sealed key ranges, which cannot move, from source to target."""
    ends = {r.low: t.low for r, t in zip(source, target, strict=True)}
    ends.update({r.high: t.high for r, t in zip(source, target, strict=True)})
    inner = {r.low for r in source} & {r.high for r in source}
    return {boundary: ends[boundary] for boundary in ends if boundary not in inner}


def _moves(
    epoch: int, source: Sequence[KeyRange], target: Sequence[KeyRange], fixed: Mapping[float, float]
) -> list[MovedBoundary]:
    pairs = {s.low: t.low for s, t in zip(source, target, strict=True) if s.low not in fixed}
    return [
        MovedBoundary(epoch=epoch, source_position=s, target_position=t, ulps=_ulps(s, t))
        for s, t in sorted(pairs.items())
        if s != t
    ]


def _ulps(a: float, b: float) -> int:
    return abs(int(np.float64(a).view(np.int64)) - int(np.float64(b).view(np.int64)))
