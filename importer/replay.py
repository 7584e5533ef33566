"""The scales that turn a fresh stream into one with the source's segments: same numbers, epochs and key ranges.

The store numbers the segments of a scale in an order of its own (`streamstore.numbering`). Where the source's numbers
would come out otherwise (most scales of the auto-scaler), inner boundaries are moved by a few ulps, the fewest that
give the source's numbers; a moved boundary stays where it is for as long as it exists. The hash of a routing key has
52 bits, so such a move changes the home of next to no key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from common.errors import Failed
from streamstore.model import Epoch, KeyRange, SegmentId
from streamstore.numbering import nudge

__all__ = ["CannotReplay", "MovedBoundary", "Replay", "ScaleStep", "plan_replay"]


class CannotReplay(Failed):
    """No sequence of scales gives a new stream the source's segments."""


@dataclass(frozen=True, slots=True)
class MovedBoundary:
    """A boundary between two key ranges that had to move.

    Attributes:
        epoch: the first epoch that has it.
        source: where it lies in the source. target: where it will lie.
        ulps: how many doubles lie between the two.
    """

    epoch: int
    source: float
    target: float
    ulps: int


@dataclass(frozen=True, slots=True)
class ScaleStep:
    """One scale to replay.

    Attributes:
        epoch: the epoch it has to open.
        seal: the segments it seals; each has to hold all its bytes before.
        ranges: the new key ranges in the order to request them.
        opens: the segments that the store has to open.
    """

    epoch: int
    seal: tuple[SegmentId, ...]
    ranges: tuple[KeyRange, ...]
    opens: Mapping[SegmentId, KeyRange]


@dataclass(frozen=True, slots=True)
class Replay:
    """How to make the epochs.

    Attributes:
        first: the epoch a new stream has to start with.
        steps: the scales, in order.
        epochs: the target's epochs, with boundaries where they will lie.
        moved: the boundaries that lie elsewhere than the source's.
    """

    first: Epoch
    steps: tuple[ScaleStep, ...]
    epochs: tuple[Epoch, ...]
    moved: tuple[MovedBoundary, ...]


def plan_replay(epochs: Sequence[Epoch]) -> Replay:
    """Plan the scales of a source's epochs (from 0 on, in order).

    Raises:
        CannotReplay: the history has an epoch that no scale makes (of a transaction committed over a scale), or there
            are no boundaries near the source's that give its numbers.
    """
    _check_start(epochs)
    here: dict[SegmentId, KeyRange] = dict(epochs[0].segments)
    highest = max(segment.number for segment in here)
    made = [epochs[0]]
    steps: list[ScaleStep] = []
    moved: list[MovedBoundary] = []
    for before, after in pairwise(epochs):
        seal = tuple(segment for segment in before.segments if segment not in after.segments)
        opens = sorted(segment for segment in after.segments if segment not in before.segments)
        expected = [SegmentId(after.number, highest + 1 + i) for i in range(len(opens))]
        if opens != expected or not opens:
            raise CannotReplay(
                f"epoch {after.number} of the source was not made by a scale (a transaction was committed over one)",
                where=", ".join(map(str, opens[:3])),
                todo="Such a history cannot be given to a new stream.",
            )
        highest += len(opens)
        fixed = _outer_boundaries([before.segments[s] for s in seal], [here[s] for s in seal])
        ranges = _place([after.segments[s] for s in opens], fixed, after.number)
        for segment in seal:
            del here[segment]
        steps.append(ScaleStep(after.number, seal, tuple(ranges), dict(zip(opens, ranges, strict=True))))
        moved += _moves(after.number, [after.segments[s] for s in opens], ranges, fixed)
        here.update(steps[-1].opens)
        made.append(Epoch(after.number, dict(here)))
    return Replay(epochs[0], tuple(steps), tuple(made), tuple(moved))


def _check_start(epochs: Sequence[Epoch]) -> None:
    numbers = [epoch.number for epoch in epochs]
    first = sorted(epochs[0].segments) if epochs else []
    whole = bool(first) and first == [SegmentId(0, first[0].number + i) for i in range(len(first))]
    if numbers != list(range(len(epochs))) or not whole:
        raise CannotReplay("the source's epochs do not start at 0 with segments of epoch 0 numbered one after another")


def _outer_boundaries(source: Sequence[KeyRange], target: Sequence[KeyRange]) -> dict[float, float]:
    """Where the ends of what a scale seals lie in the source → in the target: these cannot move."""
    ends = {r.low: t.low for r, t in zip(source, target, strict=True)}
    ends.update({r.high: t.high for r, t in zip(source, target, strict=True)})
    inner = {r.low for r in source} & {r.high for r in source}
    return {boundary: ends[boundary] for boundary in ends if boundary not in inner}


def _place(source: Sequence[KeyRange], fixed: Mapping[float, float], epoch: int) -> list[KeyRange]:
    placed = nudge(source, fixed)
    if placed is None:
        raise CannotReplay(
            f"no boundaries near the source's give epoch {epoch}'s {len(source)} new segments the source's numbers",
            todo="The events can be restored only into a stream with other segment numbers.",
        )
    return placed


def _moves(
    epoch: int, source: Sequence[KeyRange], target: Sequence[KeyRange], fixed: Mapping[float, float]
) -> list[MovedBoundary]:
    pairs = {s.low: t.low for s, t in zip(source, target, strict=True) if s.low not in fixed}
    return [MovedBoundary(epoch, s, t, _ulps(s, t)) for s, t in sorted(pairs.items()) if s != t]


def _ulps(a: float, b: float) -> int:
    return abs(int(np.float64(a).view(np.int64)) - int(np.float64(b).view(np.int64)))
