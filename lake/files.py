"""Which ranges make a file of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from manifests.history import Generation
from manifests.range_row import RangeRow
from objectstore.keys import table_file_key

__all__ = ["file_key", "files_of", "rows_in_order"]


def rows_in_order(generation: Generation) -> Iterator[RangeRow]:
    """A generation's ranges in the stream's order: by epoch, number and offset."""
    for segment in sorted(generation.rows):
        yield from generation.rows[segment]


def files_of(rows: Iterable[RangeRow], target_size: int) -> Iterator[tuple[RangeRow, ...]]:
    """Ranges put together to files: whole ranges in order, up to the target size (segment bytes), one at least.

    So files depend on the generation and the target size alone, and each holds a stretch of the stream's order.
    """
    held: list[RangeRow] = []
    size = 0
    for row in rows:
        if held and size + row.end - row.start > target_size:
            yield tuple(held)
            held, size = [], 0
        held.append(row)
        size += row.end - row.start
    if held:
        yield tuple(held)


def file_key(generation: int, rows: Sequence[RangeRow]) -> str:
    """The file's key in the table's folder: named after generation and first range alone."""
    first = rows[0]
    return table_file_key(generation, first.segment.epoch, first.segment.number, first.start)
