"""Before a generation is published: every key of it is there, and none that a wrong guess left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from manifests.model import Layout
from manifests.rows import Piece
from objectstore.layouts import open_layout
from objectstore.uri import RootAddress
from streamstore.model import SegmentId

__all__ = ["SweepTask", "sweep", "sweep_tasks"]

PIECES_A_TASK = 16
"""Ranges that one task follows: a gigabyte of events, unless ranges are small."""


@dataclass(frozen=True, slots=True)
class SweepTask:
    """A segment of an unpublished generation, or a stretch of it, and what it has to hold.

    Attributes:
        root, prefix, layout: the archive. segment: which.
        start, end: the stretch (bytes). pieces: what is archived of it, in order; the rest holds nothing.
    """

    root: RootAddress
    prefix: str
    layout: Layout
    segment: SegmentId
    start: int
    end: int
    pieces: tuple[Piece, ...]


def sweep_tasks(whole: SweepTask) -> Iterator[SweepTask]:
    """A segment's task in parts that can be done side by side."""
    at = whole.start
    for first in range(0, len(whole.pieces), PIECES_A_TASK):
        pieces = whole.pieces[first : first + PIECES_A_TASK]
        is_last = first + PIECES_A_TASK >= len(whole.pieces)
        end = whole.end if is_last else pieces[-1].end
        yield replace(whole, start=at, end=end, pieces=pieces)
        at = end
    if not whole.pieces:
        yield whole


def sweep(task: SweepTask) -> int:
    """Follow the listing along the pieces and remove what is too much; returns how many objects were removed.

    Raises:
        Damaged: an object that this generation wrote is gone again.
    """
    layout, objects = open_layout(task.layout), task.root.open()
    place = (objects, task.prefix, task.segment.epoch, task.segment.number)
    removed, at = 0, task.start
    for run in _runs(task.pieces):
        start, end = run[0][0], run[-1][1]
        removed += layout.remove_all(*place, at, start) if at < start else 0
        removed += layout.remove_extra(*place, run)
        at = end
    return removed + (layout.remove_all(*place, at, task.end) if at < task.end else 0)


def _runs(pieces: tuple[Piece, ...]) -> list[list[tuple[int, int]]]:
    """The pieces' starts and ends, those together that follow each other."""
    runs: list[list[tuple[int, int]]] = []
    for piece in pieces:
        if runs and runs[-1][-1][1] == piece.start:
            runs[-1].append((piece.start, piece.end))
        else:
            runs.append([(piece.start, piece.end)])
    return runs
