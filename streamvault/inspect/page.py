"""The page: what it says of each archive and stream, and the HTML file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from streamvault.common.units import bytes_text, count_text, events_text, seconds_moment_text, usd_text
from streamvault.common.version import VERSION
from streamvault.inspect.charts import Chart, archive_charts, segments_chart, states_of
from streamvault.inspect.history import ArchiveHistory, DrawnSegment, RestorePoint
from streamvault.manifests.verbs.costs import list_prices
from streamvault.manifests.verbs.reports import ArchiveSummary
from streamvault.streamstore.model import StreamDescription

MAX_POINTS = 100
"""Restore points that a section lists."""

SVG_WIDTH = 900
SVG_CONFIG = {"aria": False, "background": "white", "font": "DejaVu Sans, sans-serif", "view": {"stroke": "#d1d9e0"}}

_IDS = re.compile(r"\b(clip|gradient_)\d+\b")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """What the page has of an archive or a stream.

    Attributes:
        anchor: names it in the page.
        title: its heading.
        uri: its URI.
        facts: figures, each with its name and value, and whether it is bad news.
        charts: its charts.
        warnings: what it lacks, or what is wrong.
        points: its restore points, the newest first.
        points_note: what the restore points are.
        costs: the monthly price in each storage class.
        costs_note: what that is the price of.
    """

    anchor: str
    title: str
    uri: str
    facts: Sequence[Row]
    charts: Sequence[Chart]
    warnings: Sequence[str] = ()
    points: Sequence[Row] = ()
    points_note: str = ""
    costs: Sequence[Row] = ()
    costs_note: str = ""


def archive_section(anchor: str, title: str, history: ArchiveHistory, unarchived: int | None = None) -> PageSection:
    """Return the section of an archive.

    Args:
        anchor: names it in the page.
        title: its heading.
        history: what the manifests tell.
        unarchived: bytes of the stream that are not archived yet; None if that was not asked for.
    """
    newest, points, costs = history.newest, history.points, _costs(history)
    epochs = newest.epochs
    facts = [
        _fact("stream", str(newest.name)),
        _fact("generations in force", f"{len({point.merged or point.generation for point in points}):,}"),
        _fact("newest", f"{points[-1].created:%Y-%m-%d %H:%M:%S} UTC"),
        _fact("events", events_text(history.events, history.bytes) or "a byte stream"),
        _fact("bytes", bytes_text(history.bytes)),
        _fact("segments, epochs", f"{len(history.segments):,}, {len(epochs):,}"),
        _fact("layout", f"{newest.layout} ({newest.compression})" if newest.compression else newest.layout),
        _fact("read back", f"{sum(point.checked for point in points):,} of {len(points):,}"),
        _fact("expired", f"up to generation {history.listing.dropped}" if history.listing.dropped else "none"),
        _fact("tags", ", ".join(newest.configuration.tags) or "none"),
        _fact("stream sealed", "yes" if newest.sealed else "no"),
    ]
    used = history.storage_class or "STANDARD"
    facts += [
        _fact(f"USD a month ({cost['storage_class']})", cost["usd"]) for cost in costs if cost["storage_class"] == used
    ]
    if history.gaps:
        facts.append(_fact("gaps", f"{history.gaps:,} bytes", is_bad=True))
    if unarchived is not None:
        facts.append(_fact("not archived yet", bytes_text(unarchived)))
    more = f"; 'streamvault timeline' lists all {len(points):,}" if len(points) > MAX_POINTS else ""
    return PageSection(
        anchor=anchor,
        title=title,
        uri=history.archive.uri,
        facts=facts,
        charts=archive_charts(history),
        warnings=history.warnings,
        points=[_point(history.archive.uri, point) for point in reversed(points[-MAX_POINTS:])],
        points_note=f"Newest first{more}. STREAM stands for the new stream's URI.",
        costs=costs,
        costs_note=_costs_note(history),
    )


def stream_section(anchor: str, uri: str, stream: StreamDescription, segments: Sequence[DrawnSegment]) -> PageSection:
    """Return the section of a stream."""
    size = sum(one.bytes or 0 for one in segments)
    gone = sum(one.bytes is None for one in segments)
    facts = [
        _fact("bytes", bytes_text(size)),
        _fact("open segments", f"{sum(one.is_open for one in segments):,}"),
        _fact("segments, epochs", f"{len(segments):,}, {len(stream.epochs):,}"),
        _fact("truncated segments", f"{gone:,}"),
        _fact("scaling", stream.configuration.scaling.kind.value),
        _fact("retention", stream.configuration.retention.kind.value),
        _fact("tags", ", ".join(stream.configuration.tags) or "none"),
        _fact("sealed", "yes" if stream.sealed else "no"),
    ]
    return PageSection(
        anchor=anchor, title=str(stream.name), uri=uri, facts=facts, charts=[segments_chart(segments, "written")]
    )


def index_row(anchor: str, name: str, summary: ArchiveSummary) -> Row:
    """Return the row of an archive or table in the index."""
    return {
        "anchor": anchor,
        "name": name,
        "problem": summary.problem,
        "generations": f"{summary.generations_in_force:,}",
        "events": events_text(summary.events, summary.bytes) or "-",
        "bytes": bytes_text(summary.bytes),
        "layout": f"table {summary.table}" if summary.table else summary.layout,
        "newest": seconds_moment_text(summary.created).removesuffix("Z"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """The page.

    Attributes:
        title: its heading.
        subtitle: what is below the heading.
        sections: its sections.
        index: a row for each archive; empty for a page of one archive or stream.
    """

    title: str
    subtitle: str
    sections: Sequence[PageSection]
    index: Sequence[Row] = field(default=())

    def html(self) -> str:
        """Return the HTML file."""
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
        template = environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
        # a library's own text, in which nothing may end the element
        scripts = Markup(_scripts().replace("</script", "<\\/script"))  # noqa: S704
        return template.render(
            title=self.title,
            subtitle=self.subtitle,
            sections=self.sections,
            index=self.index,
            version=VERSION,
            scripts=scripts,
        )


def svg_of(chart: Chart) -> str:
    """Return a chart as an SVG image."""
    spec = {**chart.spec, "width": SVG_WIDTH}
    text: str = vl_convert.vegalite_to_svg(spec, vl_version=_vega_lite(), config=SVG_CONFIG)
    # Vega numbers these through all charts of a process; a chart's file is to be the same each time
    numbers: dict[str, str] = {}
    return _IDS.sub(lambda found: numbers.setdefault(found[0], f"{found[1]}{len(numbers)}"), text)


@cache
def _scripts() -> str:
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_vega_lite())


@cache
def _vega_lite() -> str:
    """Return the version of Vega-Lite: the newest that vl-convert brings."""
    return max(vl_convert.get_vegalite_versions(), key=lambda one: tuple(map(int, one.split("."))))


def _fact(name: str, value: str, *, is_bad: bool = False) -> Row:
    return {"name": name, "value": value, "is_bad": is_bad}


def _point(archive: str, point: RestorePoint) -> Row:
    states = [state for state in states_of(point) if state not in {"has gaps", "held", "locked", "merged"}]
    if point.merged and point.merged != point.generation:
        states.append(f"merged into {point.merged}")
    states += [f"held: {', '.join(point.holds)}"] if point.holds else []
    states += [f"locked: {point.lock}"] if point.lock else []
    return {
        "generation": point.generation,
        "taken": f"{point.created:%Y-%m-%d %H:%M:%S}",
        "events": events_text(point.events, point.bytes) or "-",
        "bytes": bytes_text(point.bytes),
        "state": ", ".join(states),
        "gaps": f"gaps: {point.gaps:,} bytes" if point.gaps else "",
        "command": f"streamvault import {shlex.quote(archive)} STREAM --generation {point.generation}",
    }


def _costs(history: ArchiveHistory) -> list[Row]:
    prices = list_prices()
    return [
        {
            "storage_class": name,
            "usd": usd_text(one.usd_a_month(history.objects, history.bytes, prices.standard)),
            "days": str(one.least_days),
            "is_used": name == history.storage_class,
        }
        for name, one in prices.classes.items()
    ]


def _costs_note(history: ArchiveHistory) -> str:
    about = "" if history.newest.layout == "events" else "about "
    raw = ", before compression" if history.newest.compression else ""
    used = f" The newest generation's objects are in {history.storage_class}." if history.storage_class else ""
    return (
        f"The price of {about}{count_text(history.objects, 'data object')} and {bytes_text(history.bytes)}{raw}, at the"
        f" list prices of {list_prices().date} ({list_prices().source}).{used}"
    )
