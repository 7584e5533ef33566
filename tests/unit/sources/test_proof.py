"""The proof of boundaries: the chain finds the true ones, in whatever order ranges finish and whatever was guessed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.errors import Failed
from streamvault.manifests.plan import FinishedSpan
from streamvault.manifests.spans import Span, span_of, spans_of
from streamvault.sources.proof import SegmentChain, spans_to_run
from streamvault.streamstore.model import SegmentId
from tests import archives as plans


def row(start: int, end: int, *, gaps: tuple[tuple[int, int], ...] = ()) -> FinishedSpan:
    """A range that is whole except for gaps."""
    edges = [start, *(edge for gap in gaps for edge in gap), end]
    pieces = [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
    return plans.finished(start, end, pieces, gaps)


def true_rows(boundaries: list[int], size: int) -> list[FinishedSpan]:
    """The ranges of a segment with these event boundaries."""
    rows, at, end = [], boundaries[0], boundaries[-1]
    while at < end:
        limit = (at // size + 1) * size
        following = next((b for b in boundaries if b >= limit), end)
        rows.append(row(at, following))
        at = following
    return rows


@given(
    sizes=st.lists(st.integers(8, 90), min_size=1, max_size=60),
    start=st.integers(0, 200),
    size=st.integers(16, 100),
    wrong=st.lists(st.integers(0, 5000), max_size=8),
    seed=st.integers(0, 999),
)
def test_chain_ends_up_with_the_true_ranges(
    sizes: list[int], start: int, size: int, wrong: list[int], seed: int
) -> None:
    boundaries = [start]
    for one in sizes:
        boundaries.append(boundaries[-1] + one)
    truth = {r.start: r for r in true_rows(boundaries, size)}
    chain = SegmentChain(start, boundaries[-1], size)
    lies = [row(w, w + 20) for w in wrong if start < w < boundaries[-1] and w not in boundaries]
    rows = [*truth.values(), *lies]
    random.Random(seed).shuffle(rows)
    for one in rows[: len(rows) // 2]:
        chain.add(one)
    asked = 0
    while (span := chain.prove()) is not None:
        assert span.known
        assert span.low in truth, "a proved boundary is a true one"
        assert span.high == min((span.low // size + 1) * size, boundaries[-1])
        chain.add(truth[span.low])
        asked += 1
    assert asked <= len(truth)
    assert [(p.start, p.end) for p in chain.ranges()] == [(r.start, r.end) for r in truth.values()]
    assert not list(chain.gaps())


def test_what_is_left_begins_at_a_proved_boundary() -> None:
    chain = SegmentChain(0, 300, 100)
    chain.add(row(0, 120))
    asked = []

    for spans in spans_to_run({SegmentId(0, 0): chain}, lambda _, gap: gap):
        for _, span in spans:
            asked.append(span)
            chain.add(row(span.low, span.high))
    assert asked == [Span(120, 200, known=True), Span(200, 300, known=False)]


def test_spans_in_which_a_range_begins_are_not_open() -> None:
    chain = SegmentChain(50, 1000, 100)
    chain.add(row(50, 110))
    chain.add(row(310, 400))
    assert [span.low for span in chain.open_spans()] == [100, 200, 400, 500, 600, 700, 800, 900]


def test_gap_before_a_range_begins_where_the_chain_stood() -> None:
    chain = SegmentChain(0, 300, 100)
    chain.add(row(0, 105))
    # the task of the second span found the source's head at 180
    chain.add(plans.row(180, (180, 210), gaps=((100, 180),)))
    chain.add(row(210, 300))
    assert chain.prove() is None
    assert [(g.start, g.end) for g in chain.gaps()] == [(105, 180)]
    assert [(p.start, p.end) for p in chain.ranges()] == [(0, 105), (180, 210), (210, 300)]


def test_step_that_another_run_decided_first_holds() -> None:
    """This run finds that all before 180 is truncated; the other one was in time to archive it."""
    chain = SegmentChain(0, 300, 100)
    chain.add(row(0, 105))
    chain.add(plans.row(180, (180, 300), gaps=((100, 180),)))
    asked: list[FinishedSpan] = []

    def decide(gap: FinishedSpan) -> FinishedSpan:
        asked.append(gap)
        return row(105, 180)

    assert chain.prove(decide) is None
    assert [(one.start, one.end, len(one.gaps)) for one in asked] == [(105, 180, 1)]
    assert list(chain.gaps()) == []
    assert [(p.start, p.end) for p in chain.ranges()] == [(0, 105), (105, 180), (180, 300)]


def test_gap_inside_a_range_stays_where_it_is() -> None:
    chain = SegmentChain(0, 200, 100)
    chain.add(row(0, 110, gaps=((40, 70),)))
    chain.add(row(110, 200))
    assert chain.prove() is None
    assert [(g.start, g.end) for g in chain.gaps()] == [(40, 70)]


def test_neighbouring_gaps_are_joined() -> None:
    chain = SegmentChain(0, 200, 100)
    chain.add(row(0, 150, gaps=((0, 150),)))
    chain.add(row(150, 200, gaps=((150, 170),)))
    assert chain.prove() is None
    assert [(g.start, g.end) for g in chain.gaps()] == [(0, 170)]


def test_range_beyond_the_end_is_refused() -> None:
    chain = SegmentChain(0, 150, 100)
    chain.add(row(0, 110))
    chain.add(row(110, 160))
    with pytest.raises(Failed, match="inside an event"):
        chain.prove()


@given(start=st.integers(0, 5000), length=st.integers(0, 5000), size=st.integers(1, 700))
def test_spans_cover_the_segment_once_and_cut_at_multiples(start: int, length: int, size: int) -> None:
    spans = list(spans_of(start, start + length, size))
    assert sum(span.high - span.low for span in spans) == length
    assert [span.low for span in spans[1:]] == [span.high for span in spans[:-1]]
    assert all(span.low % size == 0 for span in spans[1:])
    assert [span.known for span in spans] == [True] + [False] * (len(spans) - 1) if spans else True


@given(start=st.integers(0, 5000), length=st.integers(1, 5000), size=st.integers(1, 700), data=st.data())
def test_span_of_a_boundary_ends_where_the_planned_span_ends(
    start: int, length: int, size: int, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(start, start + length - 1))
    planned = next(span for span in spans_of(start, start + length, size) if span.low <= offset < span.high)
    assert span_of(offset, start + length, size).high == planned.high
