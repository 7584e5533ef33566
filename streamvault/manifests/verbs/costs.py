"""Requests that a plan makes to S3, and their cost by the price list."""

from __future__ import annotations

from collections.abc import Sequence

from streamvault.common.report import Cost
from streamvault.layouts.chunks import requests_to_read
from streamvault.layouts.layout import LAYOUTS, LayoutName, open_layout
from streamvault.manifests.format.archived_range import ArchivedRange

USD_PER_PUT = 0.005 / 1000
"""Price of PUT, COPY, POST and LIST requests: S3 Standard, us-east-1."""

USD_PER_GET = 0.0004 / 1000
"""Price of GET and HEAD requests: S3 Standard, us-east-1."""

KEYS_PER_LIST = 1000
FIXED_PUTS = 3
"""Plan, index of ranges, manifest."""

END_PUTS = 1
"""The record of how an export's plan ended."""

PROBE_PUTS = 9
"""The test of a new archive's server: eight objects and a listing."""


def cost_of_export(objects: int, ranges: int, *, estimated: bool, first: bool) -> Cost:
    """Return the cost of an export: the objects, a row per range, and the listing that verifies them.

    Args:
        objects: number of data objects.
        ranges: number of the plan's ranges.
        estimated: whether `objects` is an estimate.
        first: whether the export creates the archive.
    """
    lists = -(-objects // KEYS_PER_LIST) + -(-ranges // KEYS_PER_LIST) + 2
    puts = objects + ranges + FIXED_PUTS + END_PUTS + PROBE_PUTS * first + lists
    return _cost(objects, puts=puts, gets=2, estimated=estimated)


def cost_of_import(ranges: Sequence[tuple[str, ArchivedRange, int]], generations: int) -> Cost:
    """Return the cost of an import: each object once, the listing of events' keys, the manifests.

    A compressed chunk is read in parts.

    Args:
        ranges: layout, range, and the bytes of it that are restored.
        generations: number of manifests read.
    """
    objects, lists, gets = _reading(ranges)
    return _cost(objects, puts=lists + 1, gets=gets + 2 * generations, estimated=False)


def cost_of_conversion(rows: Sequence[tuple[LayoutName, ArchivedRange]], layout: LayoutName) -> Cost:
    """Return the cost of a conversion: reading the old archive as for an import, writing the new one as an export."""
    _, lists, gets = _reading([(stored, row, row.end - row.start) for stored, row in rows])
    objects = open_layout(layout).object_count(len(rows), sum(row.events for _, row in rows))
    return _cost(objects, puts=objects + len(rows) + FIXED_PUTS + lists, gets=gets, estimated=False)


def cost_of_handoff(rows: Sequence[tuple[str, ArchivedRange]], files: int) -> Cost:
    """Return the cost of a handoff: reading as for an import, and the table's files, each looked up before its PUT."""
    _, lists, gets = _reading([(stored, row, row.end - row.start) for stored, row in rows])
    return _cost(files, puts=files + FIXED_PUTS + lists, gets=gets + files, estimated=False)


def _reading(ranges: Sequence[tuple[str, ArchivedRange, int]]) -> tuple[int, int, int]:
    """Return the objects, LIST and GET requests of reading ranges, given as (layout, range, bytes of it)."""
    each = {name for name in LAYOUTS if open_layout(name).one_object_per_event}
    events = [row.events for layout, row, _ in ranges if layout in each]
    chunks = [requests_to_read(row.stored, size) for layout, row, size in ranges if layout not in each]
    lists = sum(-(-count // KEYS_PER_LIST) for count in events)
    return sum(events) + len(chunks), lists, sum(events) + sum(chunks)


def _cost(objects: int, *, puts: int, gets: int, estimated: bool) -> Cost:
    usd = round(puts * USD_PER_PUT + gets * USD_PER_GET, 4)
    return Cost(objects=objects, objects_estimated=estimated, puts=puts, gets=gets, usd=usd)
