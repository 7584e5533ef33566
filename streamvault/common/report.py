"""Results of the verbs: frozen dataclasses, for ``--json``, the DAGs, the Python API and notebooks."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import import_module
from typing import Any, Literal

MAX_ROWS = 20
"""Items of a list that are shown."""

MAX_CHARACTERS = 200
"""Characters of a value that are shown."""

_EMPTY: tuple[object, ...] = (None, "", (), [], {})

_DRAWER = "streamvault.inspect.notebook"
"""The module that draws charts: in a package above, for it knows what results mean, and needs optional packages."""


def html_of(fields: Mapping[str, Any], charts: Iterable[tuple[str, str]] = ()) -> str:
    """Return a result as charts and a table, in which empty fields are left out.

    Args:
        fields: the result's fields, plain values.
        charts: each chart's title and SVG.
    """
    drawn = [
        f'<figure style="margin:0 0 1em"><figcaption><b>{escape(title)}</b></figcaption>'
        # as an image, for the names in an SVG are those of the whole page otherwise
        f'<img alt="{escape(title)}" style="max-width:100%" '
        f'src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"/></figure>'
        for title, svg in charts
    ]
    rows = [(f"<b>{escape(name)}</b>", _cell(value)) for name, value in fields.items() if value not in _EMPTY]
    return "".join(drawn) + _table(rows)


def charts_of(value: object) -> Sequence[tuple[str, str]]:
    """Return the charts of a result; none if the packages that draw are not installed."""
    try:
        drawer = import_module(_DRAWER)
    except ImportError:
        return ()
    found: Sequence[tuple[str, str]] = drawer.svgs_of(value)
    return found


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        more = [f"and {len(value) - MAX_ROWS:,} more"] if len(value) > MAX_ROWS else []
        if value and all(isinstance(one, Mapping) for one in value):
            names = list(value[0])
            rows = [[_short(one.get(name)) for name in names] for one in value[:MAX_ROWS]]
            return _table(rows, [escape(name) for name in names]) + "".join(more)
        return "<br/>".join([*map(_short, value[:MAX_ROWS]), *more])
    return _short(value)


def _short(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | list | tuple) else str(value)
    return escape(text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…")


def _table(rows: Iterable[Sequence[str]], names: Sequence[str] = ()) -> str:
    left = 'style="text-align:left;vertical-align:top"'
    head = f"<tr>{''.join(f'<th {left}>{name}</th>' for name in names)}</tr>" if names else ""
    body = "".join(f"<tr>{''.join(f'<td {left}>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base class of the reports."""

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as a dict of plain values, in the order of `attribute_names`."""
        values = asdict(self)
        return {name: values[name] for name in attribute_names(type(self))}

    @property
    def exit_code(self) -> int:
        """The exit code of a command with this result."""
        return 0

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return html_of(self.to_json())


def attribute_names(kind: type[Any]) -> list[str]:
    """Return the names of a dataclass's attributes: its own first, then those that it shares with ever more classes."""
    return list(dict.fromkeys(name for one in kind.__mro__ for name in vars(one).get("__annotations__", {})))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReport(Report):
    """Result of a verb that may start Spark.

    Attributes:
        seconds: duration, without the start of Spark.
        total_seconds: duration of the call; of the whole command on the command line.
    """

    seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(TimedReport):
    """Result of a verb that can be rehearsed.

    Attributes:
        warnings: what the user was warned of.
        dry_run: whether it was a dry run: nothing was changed, and the report says what would be done.
    """

    warnings: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """S3 requests of a run, computed from its plan. Deletions are free and not counted.

    Attributes:
        objects: objects written or read.
        objects_estimated: whether `objects` is estimated from a sample of the stream.
        puts: PUT requests.
        lists: LIST requests.
        gets: GET and HEAD requests.
        usd: list price of these requests in US dollars (S3 Standard, us-east-1: 0.005 per 1,000 PUT or LIST, 0.0004
            per 1,000 GET).
    """

    objects: int
    objects_estimated: bool
    puts: int
    lists: int
    gets: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """Bytes that were truncated before they could be archived, or that a restore left out because of damage.

    Attributes:
        segment: full name of the segment.
        start: offset of the first byte.
        end: offset after the last one.
        reason: why they are missing.
    """

    segment: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedGroup:
    """A reader group that reads a source, and what became of it.

    Attributes:
        name: its name.
        outcome: "created" on the new stream; "present", as an earlier run has created it; "noted", for a promotion, in
            an archive, or in a dry run; or "left out", with the reason.
        position: where it goes on, as a stream cut of the new stream, or of an archive's; None if that cannot be told.
        reason: why it was left out, or goes on elsewhere than where it was; else empty.
    """

    name: str
    outcome: Literal["created", "present", "noted", "left out"]
    position: Mapping[str, int] | None = None
    reason: str = ""
