"""The charts, as Vega-Lite specifications. Altair checks them against Vega-Lite's schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

import altair as alt

from streamvault.common.units import events_text, generations_text
from streamvault.inspect.history import MAX_MARKS, ArchiveHistory, DrawnPart, DrawnSegment, RestorePoint
from streamvault.streamstore.model import KeyRange, SegmentId

MAX_BARS = 500
"""Bars of the time line; more generations are drawn as groups of neighbours."""

LEAST_NAMED = 0.055
"""The least share of the key space at which a chart shows a segment's name, unless there are many."""
MAX_NAMES = 200

RED, GREY = "#d62f3e", "#8a8f98"
STATES = {
    "has gaps": RED,
    "held": "#e39b22",
    "locked": "#8a63c9",
    "read back": "#2f9e6e",
    "merged": "#6b8fb8",
    "not read back": "#3b7dd8",
}
"""What a bar says of a generation, the most important first, and its colour."""

HEIGHT = 340
TIMES: dict[str, Any] = {
    "x": alt.X(
        "begin:T",
        title="time (UTC)",
        scale=alt.Scale(type="utc"),
        axis=alt.Axis(
            labelOverlap=True,
            format={
                "milliseconds": "%H:%M:%S.%L",
                "seconds": "%H:%M:%S",
                "minutes": "%H:%M",
                "hours": "%H:%M",
                "date": "%b %d",
            },
        ),
    ),
    "x2": alt.X2("end"),
}
"""From when to when a mark lasts."""
KEY_SPACE: dict[str, Any] = {
    "y": alt.Y("low:Q", title="key space", scale=alt.Scale(domain=[0, 1])),
    "y2": alt.Y2("high"),
}
SIZES = "format(datum.value, '.3~s')"
"""How an axis or a legend shows a size."""
MAX_EPOCHS = 10
"""Epochs that an axis names; of more, it names some."""
RECT: Any = {"stroke": GREY, "strokeWidth": 0.6, "invalid": "show"}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a page.

    Attributes:
        name: its name in file names.
        title: its heading.
        notes: sentences below it.
        spec: the Vega-Lite specification.
    """

    name: str
    title: str
    notes: tuple[str, ...]
    spec: Mapping[str, Any]


def archive_charts(history: ArchiveHistory) -> list[Chart]:
    """Return an archive's charts."""
    charts = [_rates(history)] if len(history.points) > 1 else []
    generations = generations_chart(history.points, history.listing.dropped)
    return [*charts, generations, segments_chart(history.segments, "archived")]


def _rates(history: ArchiveHistory) -> Chart:
    notes = [
        "Colour: bytes per second of each segment between the tails of two generations.",
        "Grey: unknown, as nothing records when the first event of the first generation was written.",
    ]
    if history.drawn.joined > 1:
        notes.append(f"Up to {history.drawn.joined:,} neighbouring generations are drawn as one.")
    if history.drawn.left_out:
        notes.append(f"{history.drawn.left_out:,} marks with few bytes are left out.")
    if len(history.newest.epochs) > 1:
        notes.append("If the stream scaled between two generations, its epochs share the time between them.")
    keys = {one.segment: one.keys for one in history.segments}
    rows = [_row(part, keys[part.segment]) for part in history.drawn.parts]
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .mark_rect(**RECT)
        .encode(
            **TIMES,
            **KEY_SPACE,
            color=_shade("rate", "bytes/s"),
            tooltip=_tooltip(
                "segment", "keys", "generations", "from", "to", "bytes per second", "bytes", "events", "cut"
            ),
        )
    )
    return Chart("heat-map", "Where the bytes went", tuple(notes), _spec(chart, rows))


def _row(part: DrawnPart, keys: KeyRange) -> dict[str, Any]:
    rate = part.bytes / part.seconds if part.seconds > 0 else None
    return {
        "segment": str(part.segment),
        "keys": _keys(keys),
        "low": keys.low,
        "high": keys.high,
        "generations": _numbers(*part.generations),
        "begin": _millis(part.begin),
        "end": _millis(part.end),
        "from": _time(part.begin),
        "to": _time(part.end),
        "rate": None if rate is None else round(rate, 3),
        "bytes per second": "not known" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}",
        "bytes": f"{part.bytes:,}",
        "events": "not known" if part.events is None else events_text(part.events, part.bytes) or "none",
        "cut": f"{part.offsets[0]:,} to {part.offsets[1]:,}",
    }


def generations_chart(points: Sequence[RestorePoint], expired: int) -> Chart:
    """Return the chart of an archive's generations.

    Args:
        points: the generations, oldest first.
        expired: the newest generation that has expired; 0 if none has.
    """
    size = ceil(len(points) / MAX_BARS)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    notes = [f"Each bar stands for {size:,} generations."] if size > 1 else []
    if expired:
        notes.append(f"Expired: {generations_text(range(1, expired + 1))}.")
    if any(point.gaps for point in points):
        notes.append("Red: bytes were truncated before they could be archived.")
    shown = {_state(group) for group in groups}
    domain = [state for state in STATES if state in shown]
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .mark_rect(**RECT)
        .encode(
            **TIMES,
            y=alt.Y("size:Q", title="bytes", axis=alt.Axis(labelExpr=SIZES)),
            y2=alt.Y2Datum(0),
            color=alt.Color(
                "state:N",
                title=None,
                scale=alt.Scale(domain=domain, range=[STATES[one] for one in domain]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=_tooltip("generations", "taken", "bytes", "events", "states", "holds", "lock", "gaps"),
        )
    )
    return Chart(
        "generations", "Generations", tuple(notes), _spec(chart, [_bar(group) for group in groups], height=160)
    )


def states_of(point: RestorePoint) -> list[str]:
    """Return what is to be said of a generation."""
    said = {
        "has gaps": bool(point.gaps),
        "held": bool(point.holds),
        "locked": bool(point.lock),
        "read back": point.checked,
        "merged": bool(point.merged),
        "not read back": not point.checked,
    }
    return [state for state in STATES if said[state]]


def _state(group: Sequence[RestorePoint]) -> str:
    found = {state for point in group for state in states_of(point)}
    # a group is read back only if each of it is
    ordered = [one for one in STATES if one != "not read back"]
    ordered.insert(ordered.index("read back"), "not read back")
    return next(one for one in (list(STATES) if len(group) == 1 else ordered) if one in found)


def _bar(group: Sequence[RestorePoint]) -> dict[str, Any]:
    first, last = group[0], group[-1]
    size = sum(point.bytes for point in group)
    found = {state for point in group for state in states_of(point)}
    return {
        "generations": _numbers(first.generation, last.generation),
        "taken": _time(last.created),
        "begin": _millis(first.begin),
        "end": _millis(last.created),
        "size": size,
        "bytes": f"{size:,}",
        "events": f"{sum(point.events for point in group):,}",
        "state": _state(group),
        "states": ", ".join(state for state in STATES if state in found),
        "holds": ", ".join(sorted({hold for point in group for hold in point.holds})) or "none",
        "lock": next((point.lock for point in reversed(group) if point.lock), "none"),
        "gaps": f"{sum(point.gaps for point in group):,} bytes",
    }


def segments_chart(segments: Sequence[DrawnSegment], what: str) -> Chart:
    """Return the chart of a stream's segments by epoch.

    Args:
        segments: the segments, those of the first epochs first.
        what: what the bytes are of which the colour tells: ``archived``, or ``written``.
    """
    drawn = sorted(segments, key=lambda one: (one.last, one.segment))[-MAX_MARKS:]
    notes = [
        f"Colour: bytes {what} of each segment. A segment that was split or merged ends where its successors begin."
    ]
    if len(drawn) < len(segments):
        notes.append(f"Only the newest {len(drawn):,} of {len(segments):,} segments are drawn.")
    if any(one.bytes is None for one in drawn):
        notes.append("Grey: the segment's bytes are not known, or were truncated.")
    first, last = min(one.first for one in drawn), max(one.last for one in drawn) + 1
    next_to = _relatives(drawn) if len(drawn) <= MAX_MARKS // 5 else {}
    largest = max((one.bytes or 0 for one in drawn), default=0)
    rows = [_segment(one, largest, *next_to.get(one.segment, ("", ""))) for one in drawn]
    ticks = alt.Axis(values=list(range(first, last + 1, ceil((last - first) / MAX_EPOCHS))), format="d")
    base = alt.Chart(alt.NamedData("rows")).encode(
        x=alt.X("first:Q", title="epoch", axis=ticks, scale=alt.Scale(zero=False, nice=False)),
        y=KEY_SPACE["y"],
    )
    kin = ("predecessors", "successors") if next_to else ()
    chart: Any = base.mark_rect(**RECT).encode(
        x2="last",
        y2=KEY_SPACE["y2"],
        color=_shade("size", "bytes"),
        tooltip=_tooltip("segment", "keys", "epochs", "state", "bytes", "events", *kin),
    )
    if len(drawn) <= MAX_NAMES:
        names = (
            base.transform_filter(f"datum.high - datum.low >= {LEAST_NAMED}")
            .mark_text(align="left", baseline="bottom", dx=5, dy=-4, fontSize=11)
            .encode(
                text="segment:N",
                color=alt.condition("datum.ink", alt.value("black"), alt.value("white")),
                opacity=alt.condition(
                    f"(datum.last - datum.first) * width / {last - first} > 80", alt.value(1), alt.value(0)
                ),
            )
        )
        chart = alt.layer(chart, names)
    return Chart("segments", "Segments by epoch", tuple(notes), _spec(chart, rows))


def _segment(one: DrawnSegment, largest: int, before: str, after: str) -> dict[str, Any]:
    row = {
        "segment": str(one.segment),
        "keys": _keys(one.keys),
        "low": one.keys.low,
        "high": one.keys.high,
        "first": one.first,
        "last": one.last + 1,
        "epochs": _numbers(one.first, one.last),
        "state": "open" if one.is_open else "sealed",
        "size": one.bytes,
        "ink": one.bytes is None or one.bytes > 0.4 * largest,
        "bytes": "not known" if one.bytes is None else f"{one.bytes:,}",
        "events": "not known" if one.events is None else events_text(one.events, one.bytes or 0) or "none",
    }
    return {**row, "predecessors": before or "none", "successors": after or "none"}


def _relatives(segments: Sequence[DrawnSegment]) -> dict[SegmentId, tuple[str, str]]:
    """Return segment → its predecessors and successors."""
    begins: dict[int, list[DrawnSegment]] = {}
    ends: dict[int, list[DrawnSegment]] = {}
    for one in segments:
        begins.setdefault(one.first, []).append(one)
        ends.setdefault(one.last, []).append(one)

    def of(one: DrawnSegment, others: Iterable[DrawnSegment]) -> str:
        return ", ".join(str(other.segment) for other in others if one.keys.overlaps(other.keys))

    return {
        one.segment: (of(one, ends.get(one.first - 1, ())), of(one, begins.get(one.last + 1, ()))) for one in segments
    }


def _shade(field: str, title: str) -> alt.Color:
    scale = alt.Scale(scheme="inferno", type="sqrt", zero=True)
    return alt.Color(f"{field}:Q", title=title, scale=scale, legend=alt.Legend(labelExpr=SIZES))


def _tooltip(*names: str) -> list[Any]:
    return [alt.Tooltip(f"{name}:N", title=name) for name in names]


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _keys(keys: KeyRange) -> str:
    return f"{keys.low:.4g} to {keys.high:.4g}"


def _numbers(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _spec(chart: Any, rows: Sequence[Mapping[str, Any]], *, height: int = HEIGHT) -> dict[str, Any]:
    """Return a chart's specification; its data are added afterwards, for Altair checks each value of them, slowly."""
    spec: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    return {**spec, "config": {"scale": {"invalid": {"color": {"value": GREY}}}}, "datasets": {"rows": list(rows)}}
