"""Results as HTML: a notebook shows an object that has ``_repr_html_`` by it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

MAX_ROWS = 20
"""Items of a list that are shown."""

MAX_CHARACTERS = 200
"""Characters of a value that are shown."""

_EMPTY: tuple[object, ...] = (None, "", (), [], {})

_DRAWER = "streamvault.report.notebook"
"""The module that draws charts: in a package above, for it knows what results mean, and needs optional packages."""


def html_of(fields: Mapping[str, Any], charts: Iterable[tuple[str, str]] = ()) -> str:
    """Return a result as charts and a table, in which empty fields are left out.

    Args:
        fields: the result's fields, plain values.
        charts: each chart's title and SVG.
    """
    drawn = [
        f'<figure style="margin:0 0 1em"><figcaption><b>{escape(title)}</b></figcaption>'
        f'<img alt="{escape(title)}" style="max-width:100%" src="data:image/svg+xml;base64,{_base64(svg)}"/></figure>'
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


def _base64(svg: str) -> str:
    # as an image, for the names in an SVG are those of the whole page otherwise
    return b64encode(svg.encode()).decode()


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
