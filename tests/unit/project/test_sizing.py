"""The table of docs/sizing.md is what `plan` computes."""

from __future__ import annotations

from streamvault import plan_archive
from streamvault.layouts.layout import LayoutName
from tests.pages import DOCS

SIZES = {"10 GB": 10**10, "1 TB": 10**12, "100 TB": 10**14}
EVENTS = {"100 B": 108, "1 KiB": 1032, "64 KiB": 65544}
"""The sizes of events, with their headers."""
KINDS: list[tuple[str, LayoutName]] = [*((event, "events") for event in EVENTS), ("any", "chunks")]


def dollars(amount: float) -> str:
    return f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}"


def row(size: str, event: str, layout: LayoutName) -> str:
    events = SIZES[size] // EVENTS.get(event, 1032)
    plan = plan_archive(segments=16, bytes=SIZES[size], events=events, layout=layout, exports=30)
    export, restore, _, read_back = plan.work
    month = {each.storage_class: each.usd_month for each in plan.storage}
    cells = [size, event, f"`{layout}`", f"{plan.objects:,}", *map(dollars, (export.usd, read_back.usd, restore.usd))]
    return f"| {' | '.join([*cells, dollars(month['STANDARD']), dollars(month['GLACIER_IR'])])} |"


def test_table_of_the_page() -> None:
    page = (DOCS / "sizing.md").read_text().splitlines()
    rows = [row(size, event, layout) for size in SIZES for event, layout in KINDS]
    assert [line for line in page if line.startswith(tuple(f"| {size}" for size in SIZES))] == rows, "\n".join(rows)
