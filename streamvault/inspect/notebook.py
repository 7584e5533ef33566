"""The charts of results, for notebooks. They show what a result says; nothing is read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from streamvault.common.units import parse_moment
from streamvault.inspect.charts import Chart, generations_chart, segments_chart
from streamvault.inspect.history import FIRST_SPAN, RestorePoint, spans_of
from streamvault.inspect.page import svg_of
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.verbs.reports import Timeline


def svgs_of(value: object) -> list[tuple[str, str]]:
    """Return the title and the SVG of each chart of a result."""
    return [(chart.title, svg_of(chart)) for chart in _charts(value)]


def _charts(value: object) -> Iterator[Chart]:
    match value:
        case Timeline(entries=entries) if entries:
            yield generations_chart(list(_points(value)), value.expired_up_to)
        case Manifest():
            totals = {one.id: (one.bytes, one.events) for one in value.segments}
            yield segments_chart(list(spans_of(value.epochs, totals)), "archived")
        case _:
            pass


def _points(timeline: Timeline) -> Iterator[RestorePoint]:
    taken = [parse_moment(entry.created, "a generation's time") for entry in timeline.entries]
    width = taken[1] - taken[0] if len(taken) > 1 else timedelta(0)
    ends = pairwise([taken[0] - (width if width > timedelta(0) else FIRST_SPAN), *taken])
    for entry, (begin, end) in zip(timeline.entries, ends, strict=True):
        yield RestorePoint(
            generation=entry.generation,
            created=end,
            begin=min(begin, end),
            events=entry.events,
            bytes=entry.bytes,
            gaps=0,  # a timeline does not tell
            merged=entry.generation if entry.first < entry.generation else 0,
            checked=bool(entry.checked_at),
            holds=entry.holds,
        )
