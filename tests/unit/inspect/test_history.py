"""What is drawn of an archive, from manifests made by hand.

The axes of the charts.

What a notebook shows of results.
"""

from __future__ import annotations

import base64
import re
import sys
import uuid
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from streamvault import show_archive, show_timeline, write_report
from streamvault.common.report import MAX_ROWS, html_of
from streamvault.inspect.charts import MAX_EPOCHS, STATES, segments_chart
from streamvault.inspect.history import ArchiveHistory, DrawnSegment, gather_history, read_history
from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import Manifest
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId
from testkit.small_archives import Vault, archive_of, merge
from tests.archives import CREATED, EPOCHS, LEFT, NAME, RIGHT, Hole, Made, generation

MINUTES = (0, 10, 30, 60)
NEW = SegmentId(1, 2), SegmentId(1, 3)
SPLIT = EPOCHS.then(Epoch(1, {RIGHT: KeyRange(0.5, 1.0), NEW[0]: KeyRange(0.0, 0.25), NEW[1]: KeyRange(0.25, 0.5)}))


def taken(made: Made, minutes: int) -> Made:
    created = CREATED + timedelta(minutes=minutes)
    return Made(made.manifest.model_copy(update={"created": created}), made.rows, made.events)


def four() -> list[Made]:
    """Generations: both segments; a hole in one of them; a split of the other; one of its successors."""
    held = [
        {LEFT: [[b"a" * 92]], RIGHT: [[b"b" * 192]]},
        {LEFT: [[b"c" * 592]], RIGHT: [Hole(50), [b"d" * 92]]},
        {LEFT: [[b"e" * 92]], RIGHT: [[b"f" * 92]], NEW[0]: [[b"g" * 292]]},
        {NEW[1]: [[b"h" * 42]]},
    ]
    found: list[Made] = []
    for number, (some, minutes) in enumerate(zip(held, MINUTES, strict=True)):
        before = found[-1].manifest if found else None
        epochs = SPLIT if number > 1 else EPOCHS
        found.append(taken(generation(some, before=before, epochs=epochs), minutes))
    return found


def archived(*made: Made) -> Archive:
    archive = Archive.open(f"memory://{uuid.uuid4().hex}/{NAME}")
    for one in made:
        assert archive.commit(one.manifest, one.rows)
    return archive


@pytest.fixture
def drawn() -> ArchiveHistory:
    return read_history(archived(*four()))


def test_parts_have_the_bytes_between_two_tails_and_the_time_between_them(drawn: ArchiveHistory) -> None:
    found = {(part.generations[0], part.segment): part for part in drawn.drawn.parts}
    second = found[2, LEFT]
    assert (second.bytes, second.events, second.offsets, second.seconds) == (600, 1, (100, 700), 600)
    assert (second.begin, second.end) == (CREATED, CREATED + timedelta(minutes=10))
    assert found[2, RIGHT].bytes == 100  # without the gap
    # nobody knows when the first event was written: as wide as the next one, without a rate
    assert found[1, LEFT].seconds == 0
    assert found[1, LEFT].begin == CREATED - timedelta(minutes=10)


def test_epochs_between_two_tails_share_the_time_between_them(drawn: ArchiveHistory) -> None:
    begin, end = CREATED + timedelta(minutes=10), CREATED + timedelta(minutes=30)
    times = {part.segment: (part.begin, part.end) for part in drawn.drawn.parts if part.generations[0] == 3}
    middle = begin + (end - begin) / 2
    assert times == {LEFT: (begin, middle), RIGHT: (begin, end), NEW[0]: (middle, end), NEW[1]: (middle, end)}
    for at in (begin, middle):
        keys = sorted(one.keys.low for one in drawn.segments if times[one.segment][0] <= at < times[one.segment][1])
        assert keys[0] == 0.0
        assert len(set(keys)) == len(keys)


def test_segment_that_was_sealed_right_after_a_tail_is_not_drawn_behind_it() -> None:
    first = taken(generation({LEFT: [[b"a"]], RIGHT: [[b"b"]]}), 0)
    second = taken(generation({RIGHT: [[b"c"]], NEW[1]: [[b"d"]]}, before=first.manifest, epochs=SPLIT), 10)
    found = [part for part in read_history(archived(first, second)).drawn.parts if part.generations == (2, 2)]
    assert {part.segment for part in found} == {RIGHT, *NEW}
    assert {(part.begin, part.end) for part in found} == {(CREATED, CREATED + timedelta(minutes=10))}


def test_points_and_segments_have_totals_and_gaps(drawn: ArchiveHistory) -> None:
    assert [point.gaps for point in drawn.points] == [0, 50, 0, 0]
    assert drawn.bytes == sum(part.bytes for part in drawn.drawn.parts) == sum(one.bytes or 0 for one in drawn.segments)
    assert drawn.events == drawn.objects == 8
    assert [(one.segment, one.first, one.last, one.is_open) for one in drawn.segments] == [
        (LEFT, 0, 0, False),
        (RIGHT, 0, 1, True),
        (NEW[0], 1, 1, True),
        (NEW[1], 1, 1, True),
    ]


def test_too_many_parts_are_joined_and_nothing_is_lost() -> None:
    archive = archived(*four())
    whole = read_history(archive)
    joined = read_history(archive, 5)
    assert (whole.drawn.joined, joined.drawn.joined) == (1, 4)
    assert len(joined.drawn.parts) == 4
    assert joined.bytes == sum(part.bytes for part in joined.drawn.parts)
    found = {part.segment: part for part in joined.drawn.parts}
    assert (found[RIGHT].generations, found[RIGHT].offsets) == ((1, 4), (0, 450))
    assert found[RIGHT].end == CREATED + timedelta(minutes=60)
    listing = archive.listing()
    gathered = gather_history(archive, listing, map(archive.read_manifest, listing.spans), 1000)
    assert gathered.complete(5).drawn.parts == joined.drawn.parts
    assert gathered.points == joined.points
    few = read_history(archive, 3)  # fewer than there are segments
    assert (few.drawn.left_out, {part.segment for part in few.drawn.parts}) == (1, {LEFT, RIGHT, NEW[0]})


def test_merged_generation_is_drawn_as_the_originals(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create(segments=2)
    for payload in (b"one", b"second", b"the third"):
        if payload == b"second":  # after a gap
            vault.add(b"truncated before it was archived")
            vault.truncate(vault.described.tail)
        vault.add(payload)
        vault.export("chunks", same_stream=True)
    plain = read_history(archive_of(vault.root))
    merge(vault, 1, 2)
    found = read_history(archive_of(vault.root))
    assert [(point.merged, point.gaps) for point in found.points] == [(2, 0), (2, 80), (0, 0)]
    assert [replace(point, merged=0) for point in found.points] == list(plain.points)
    assert [replace(part, events=None) for part in found.drawn.parts] == [
        replace(part, events=None) for part in plain.drawn.parts
    ]
    assert [part.events for part in found.drawn.parts] == [None] * 4 + [1, 1]
    assert found.segments == plain.segments


def test_manifests_are_held_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archived(*four())
    read: list[int] = []
    original = Archive.read_manifest

    def noted(self: Archive, span: GenerationSpan) -> Manifest:
        read.append(span.last)
        return original(self, span)

    monkeypatch.setattr(Archive, "read_manifest", noted)
    read_history(archive)
    assert all(later == earlier + 1 for earlier, later in pairwise(read[1:]))  # each once, after the newest


@pytest.mark.parametrize("epochs", [1, 2, 13, 1000])
def test_epochs_on_an_axis_are_whole_and_few(epochs: int) -> None:
    segments = [
        DrawnSegment(
            segment=SegmentId(number, number),
            keys=KeyRange(0.0, 1.0),
            first=number,
            last=number,
            bytes=number,
            events=None,
            is_open=number == epochs - 1,
        )
        for number in range(epochs)
    ]
    first, *_ = (
        segments_chart(segments, "written").spec["layer"] if epochs < 200 else [segments_chart(segments, "").spec]
    )
    values = first["encoding"]["x"]["axis"]["values"]
    assert values[0] == 0
    assert all(isinstance(value, int) for value in values)
    assert len(values) <= MAX_EPOCHS + 1
    assert values[-1] > epochs - 1 - epochs / MAX_EPOCHS


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
    monkeypatch.delitem(sys.modules, "streamvault.inspect.notebook", raising=False)
    monkeypatch.delitem(sys.modules, "streamvault.inspect.charts", raising=False)
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
