"""What a notebook shows of results."""

from __future__ import annotations

import base64
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from streamvault import show_archive, show_timeline, write_report
from streamvault.common.report import MAX_ROWS, html_of
from streamvault.report.charts import STATES
from tests.unit.report.test_history import archived, four


@pytest.fixture
def archive() -> str:
    return archived(*four()).uri


def shown(result: object) -> str:
    text: str = result._repr_html_()  # type: ignore[attr-defined]
    ET.fromstring(f"<div>{text}</div>")  # well formed
    return text


def svgs(html: str) -> list[str]:
    return [base64.b64decode(text).decode() for text in re.findall(r"svg\+xml;base64,([\w+/=]+)", html)]


def test_timeline_is_shown_as_a_chart_and_a_table(archive: str) -> None:
    timeline = show_timeline(archive)
    html = shown(timeline)
    (svg,) = svgs(html)
    ET.fromstring(svg)
    assert STATES["not read back"] in svg
    assert len(re.findall("<path", re.findall("mark-rect.*?</g>", svg)[0])) == len(timeline.entries) == 4
    assert f'<td style="text-align:left;vertical-align:top">{timeline.archive}</td>' in html
    # read back, and merged
    entry = timeline.entries[-1]
    merged = replace(timeline, entries=(replace(entry, first=1, checked_at=entry.created),))
    assert STATES["read back"] in svgs(shown(merged))[0]
    assert svgs(shown(replace(timeline, entries=()))) == []


def test_manifest_is_shown_with_its_segments(archive: str) -> None:
    manifest = show_archive(archive)
    html = shown(manifest)
    (svg,) = svgs(html)
    for segment in ("0.#epoch.0", "1.#epoch.0", "2.#epoch.1", "3.#epoch.1"):
        assert segment in svg
    assert f">{manifest.events:,}<" in html


def test_report_shows_its_charts_while_there_are_the_files(archive: str, tmp_path: Path) -> None:
    report = write_report(archive, svg=tmp_path)
    assert svgs(shown(report)) == [Path(file).read_text() for file in report.charts]
    assert len(report.charts) == 3
    for file in report.charts:
        Path(file).unlink()
    assert svgs(shown(report)) == []


def test_table_is_shown_without_the_packages_that_draw(archive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.delitem(sys.modules, "streamvault.report.notebook", raising=False)
    monkeypatch.delitem(sys.modules, "streamvault.report.charts", raising=False)
    html = shown(show_timeline(archive))
    assert svgs(html) == []
    assert html.count("<tr>") > 4


def test_any_report_is_a_table_of_bounded_size() -> None:
    html = html_of(
        {
            "text": "<b>&",
            "count": 1234567,
            "flag": True,
            "nothing": None,
            "numbers": list(range(100)),
            "rows": [{"a": 1, "b": {"c": 2}}] * 50,
            "long": "x" * 10_000,
        }
    )
    ET.fromstring(f"<div>{html}</div>")
    assert "&lt;b&gt;&amp;" in html
    assert "1,234,567" in html
    assert "True" in html
    assert "nothing" not in html
    assert html.count("{&quot;c&quot;: 2}") == MAX_ROWS
    assert "and 80 more" in html
    assert "and 30 more" in html
    assert len(html) < 20_000
    assert "x" * 300 not in html
