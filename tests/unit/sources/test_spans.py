from hypothesis import given
from hypothesis import strategies as st

from streamvault.sources.spans import span_of, spans_of


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
