"""Lines that the results of several commands have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from streamvault.cli.output import Results
from streamvault.common.report import CarriedGroup, Cost, TimedReport
from streamvault.common.sizes import bytes_text, seconds_text, size_text
from streamvault.exporter.reports import ConvertReport, ExportReport

MAX_RENUMBERED = 20
"""How many renumbered segments are printed."""


def time_text(report: TimedReport) -> str:
    """Return how long a command took."""
    return f"{seconds_text(report.seconds)} (total {seconds_text(report.total_seconds)})"


def exact_text(size: int) -> str:
    """Return a size in bytes, and in a larger unit if it has one: ``2,048 (2.0 KiB)``."""
    return f"{size:,} ({bytes_text(size)})" if size >= 1024 else str(size)


def price_text(usd: float, about: str) -> str:
    """Return a price in dollars; ``about`` is what stands before one that is estimated."""
    return f"{about}{usd:,.2f}" if usd >= 0.01 else "under 0.01"


def cost_fields(cost: Cost | None) -> dict[str, str]:
    """Return the lines about a plan's cost; empty if there is no plan."""
    if cost is None:
        return {}
    about = "about " if cost.objects_estimated else ""
    price = price_text(cost.usd, about)
    return {
        "objects": f"{about}{cost.objects:,}",
        "requests": f"{about}{cost.puts:,} PUT, {cost.lists:,} LIST, {cost.gets:,} GET",
        "list price": f"{price} USD for the requests (S3 Standard, us-east-1)",
    }


def plan_fields(report: ExportReport | ConvertReport) -> dict[str, str]:
    """Return the lines about the unfinished run that an export or a conversion resumes or gives up."""
    return {
        "resumes": _options_text(report.resumes) if report.dry_run else "",
        "gives up" if report.dry_run else "gave up": _options_text(report.gave_up),
    }


def _options_text(options: dict[str, Any] | None) -> str:
    if options is None:
        return ""
    size = size_text(options["range_size"])
    kept = ", ".join(f"{name} {options[name]}" for name in ("content", "layout", "compress"))
    return f"an unfinished run with {kept}, range size {size}"


def print_groups(results: Results, groups: Sequence[CarriedGroup]) -> None:
    """Print what became of reader groups, a line for each; the position of one that is still to be created."""
    for one in groups:
        results.line(f"reader group {one.name}: {one.outcome}{f' ({one.reason})' if one.reason else ''}")
        if one.outcome == "left out" and one.position is not None:
            results.line(f"  continues at {json.dumps(one.position)}")


def print_new_places(results: Results, renumbered: Mapping[str, str], shifts: Mapping[str, int] | None = None) -> None:
    """Print which segments have other numbers than the source's, at most a few, and which have other offsets."""
    for old, new in islice(renumbered.items(), MAX_RENUMBERED):
        results.line(f"renumbered: {old} of the source is {new}")
    if len(renumbered) > MAX_RENUMBERED:
        results.line(f"renumbered: {len(renumbered) - MAX_RENUMBERED:,} more segments (--json lists all)")
    for segment, size in (shifts or {}).items():
        results.line(f"shifted: every offset of {segment} is {size:,} lower than in the source")
