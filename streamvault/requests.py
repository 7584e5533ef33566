"""What a plan asks of S3 and what that costs by the price list."""

from __future__ import annotations

from collections.abc import Sequence

from importer.plan import Part
from streamvault.reports import Cost

__all__ = ["cost_of_export", "cost_of_import"]

USD_PER_PUT = 0.005 / 1000
"""S3 Standard, us-east-1: PUT, COPY, POST and LIST requests."""

USD_PER_GET = 0.0004 / 1000
"""S3 Standard, us-east-1: GET and HEAD requests."""

KEYS_PER_LIST = 1000
FIXED_PUTS = 4
"""Plan, probe of the server, index of ranges, manifest."""


def cost_of_export(objects: int, ranges: int, *, estimated: bool) -> Cost:
    """An export: the objects, a row for every range, and the listing that proves them before the manifest."""
    lists = -(-objects // KEYS_PER_LIST) + -(-ranges // KEYS_PER_LIST) + 2
    return _cost(objects, puts=objects + ranges + FIXED_PUTS + lists, gets=2, estimated=estimated)


def cost_of_import(parts: Sequence[Part], generations: int) -> Cost:
    """An import: every object once, the listing of their keys range by range, and the manifests."""
    objects = sum(part.row.events if part.layout == "events" else 1 for part in parts)
    lists = 1 + sum(-(-part.row.events // KEYS_PER_LIST) for part in parts if part.layout == "events")
    return _cost(objects, puts=lists, gets=objects + 2 * generations, estimated=False)


def _cost(objects: int, *, puts: int, gets: int, estimated: bool) -> Cost:
    usd = round(puts * USD_PER_PUT + gets * USD_PER_GET, 4)
    return Cost(objects=objects, objects_estimated=estimated, puts=puts, gets=gets, usd=usd)
