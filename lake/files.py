"""Which ranges make a file of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from layouts.keys import table_file_key
from streamstore.model import SegmentId

__all__ = ["Stretch", "file_key", "files_of"]


class Stretch(Protocol):
    """A range: what of which segment (bytes)."""

    @property
    def segment(self) -> SegmentId:
        """Which segment."""

    @property
    def start(self) -> int:
        """First offset."""

    @property
    def end(self) -> int:
        """Offset after the last byte."""


S = TypeVar("S", bound=Stretch)


def files_of(rows: Iterable[S], target_size: int) -> Iterator[tuple[S, ...]]:
    """Ranges put together to files: whole ranges in order, up to the target size (segment bytes), one at least.

    So files depend on the plan and the target size alone, and each holds a stretch of the stream's order.
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


def file_key(generation: int, rows: Sequence[Stretch]) -> str:
    """The file's key in the table's folder: named after generation and first range alone."""
    first = rows[0]
    return table_file_key(generation, first.segment, first.start)
