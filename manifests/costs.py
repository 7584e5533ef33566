"""What a plan asks of S3 and what that costs by the price list."""

from __future__ import annotations

from collections.abc import Sequence

from common.report import Cost
from layouts.chunks import part_bytes
from layouts.windows import WINDOW
from manifests.model import Layout
from manifests.range_row import RangeRow

__all__ = ["cost_of_conversion", "cost_of_export", "cost_of_handoff", "cost_of_import"]

USD_PER_PUT = 0.005 / 1000
"""S3 Standard, us-east-1: PUT, COPY, POST and LIST requests."""

USD_PER_GET = 0.0004 / 1000
"""S3 Standard, us-east-1: GET and HEAD requests."""

KEYS_PER_LIST = 1000
FIXED_PUTS = 3
"""Plan, index of ranges, manifest."""

END_PUTS = 1
"""How an export's plan ended."""

PROBE_PUTS = 9
"""What a new archive's server is asked first: eight objects and a listing."""


def cost_of_export(objects: int, ranges: int, *, estimated: bool, first: bool) -> Cost:
    """An export: the objects, a row for every range, and the listing that proves them before the manifest.

    Args:
        objects: data objects.
        ranges: of the plan.
        estimated: whether `objects` is an estimate.
        first: whether this makes the archive.
    """
    lists = -(-objects // KEYS_PER_LIST) + -(-ranges // KEYS_PER_LIST) + 2
    puts = objects + ranges + FIXED_PUTS + END_PUTS + PROBE_PUTS * first + lists
    return _cost(objects, puts=puts, gets=2, estimated=estimated)


def cost_of_import(ranges: Sequence[tuple[str, RangeRow, int]], generations: int) -> Cost:
    """An import: every object once (a chunk in parts), the listing of the events' keys, and the manifests.

    Args:
        ranges: layout, the range, and how many bytes of it are restored.
        generations: how many manifests are read.
    """
    objects, lists, gets = _reading(ranges)
    return _cost(objects, puts=lists + 1, gets=gets + 2 * generations, estimated=False)


def cost_of_conversion(rows: Sequence[tuple[Layout, RangeRow]], layout: Layout) -> Cost:
    """A conversion: what importing the old archive reads, and what exporting the new one writes."""
    _, lists, gets = _reading([(stored, row, row.end - row.start) for stored, row in rows])
    objects = len(rows) if layout == "chunks" else sum(row.events for _, row in rows)
    return _cost(objects, puts=objects + len(rows) + FIXED_PUTS + lists, gets=gets, estimated=False)


def cost_of_handoff(rows: Sequence[tuple[str, RangeRow]], files: int) -> Cost:
    """A handoff: what importing reads, and the table's files, each looked for before it is put."""
    _, lists, gets = _reading([(stored, row, row.end - row.start) for stored, row in rows])
    return _cost(files, puts=files + FIXED_PUTS + lists, gets=gets + files, estimated=False)


def _reading(ranges: Sequence[tuple[str, RangeRow, int]]) -> tuple[int, int, int]:
    """Objects, LIST and GET requests of reading ranges: (layout, the range, bytes of it)."""
    events = [row.events for layout, row, _ in ranges if layout == "events"]
    chunks = [-(-size // part_bytes(row.extent, WINDOW)) for layout, row, size in ranges if layout != "events"]
    lists = sum(-(-count // KEYS_PER_LIST) for count in events)
    return sum(events) + len(chunks), lists, sum(events) + sum(chunks)


def _cost(objects: int, *, puts: int, gets: int, estimated: bool) -> Cost:
    usd = round(puts * USD_PER_PUT + gets * USD_PER_GET, 4)
    return Cost(objects=objects, objects_estimated=estimated, puts=puts, gets=gets, usd=usd)
