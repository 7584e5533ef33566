"""Assign ranges to a table's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from layouts.keys import table_file_key
from streamstore.model import SegmentId

__all__ = ["SegmentRange", "file_key", "files_of"]


class SegmentRange(Protocol):
    """A range of a segment (bytes)."""

    @property
    def segment(self) -> SegmentId:
        """The segment."""

    @property
    def start(self) -> int:
        """First offset."""

    @property
    def end(self) -> int:
        """Offset after the last byte."""


S = TypeVar("S", bound=SegmentRange)


def files_of(rows: Iterable[S], target_size: int) -> Iterator[tuple[S, ...]]:
    """Group ranges into files: whole ranges, in order, at least one and at most ``target_size`` segment bytes.

    So files depend only on the plan and the target size, and each holds consecutive ranges.
    """
    held: list[S] = []
    size = 0
    for row in rows:
        if held and size + row.end - row.start > target_size:
            yield tuple(held)
            held, size = [], 0
        held.append(row)
        size += row.end - row.start
    if held:
        yield tuple(held)


def file_key(generation: int, rows: Sequence[SegmentRange]) -> str:
    """Return the file's key in the table's folder, which depends only on the generation and the first range."""
    first = rows[0]
    return table_file_key(generation, first.segment, first.start)
