"""Assign ranges to a table's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lake.sources import TableRange
from layouts.keys import table_file_key

__all__ = ["file_key", "files_of"]


def files_of(ranges: Iterable[TableRange], target_size: int) -> Iterator[tuple[TableRange, ...]]:
    """Group ranges into files: whole ranges, in order, at least one and at most ``target_size`` segment bytes.

    So files depend only on the plan and the target size, and each holds consecutive ranges.
    """
    held: list[TableRange] = []
    size = 0
    for one in ranges:
        if held and size + one.end - one.start > target_size:
            yield tuple(held)
            held, size = [], 0
        held.append(one)
        size += one.end - one.start
    if held:
        yield tuple(held)


def file_key(generation: int, ranges: tuple[TableRange, ...]) -> str:
    """Return the file's key in the table's folder, which depends only on the generation and the first range."""
    return table_file_key(generation, ranges[0].segment, ranges[0].start)
