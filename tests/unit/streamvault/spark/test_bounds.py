"""Filters as bounds of segments and offsets."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from streamvault.spark.batch_reader import Bounds
from streamvault.streamstore.model import SegmentId

columns = st.sampled_from([("epoch",), ("segment",), ("offset",), ("length",), ("a", "b")])
numbers = st.integers(0, 6)
filters = st.one_of(
    st.builds(EqualTo, columns, numbers),
    st.builds(GreaterThan, columns, numbers),
    st.builds(GreaterThanOrEqual, columns, numbers),
    st.builds(LessThan, columns, numbers),
    st.builds(LessThanOrEqual, columns, numbers),
    st.builds(In, columns, st.lists(numbers, max_size=3).map(tuple)),
    st.builds(IsNotNull, columns),
    st.builds(lambda column, value: Not(EqualTo(column, value)), columns, numbers),
)


def passes(one: Filter, row: dict[tuple[str, ...], int]) -> bool:
    """Whether a row passes; a filter on another column may."""
    if isinstance(one, Not):
        return True
    value = row.get(one.attribute)  # type: ignore[attr-defined]
    if value is None or isinstance(one, IsNotNull):
        return True
    literal: Any = one.value  # type: ignore[attr-defined]
    compare = {
        EqualTo: lambda: value == literal,
        GreaterThan: lambda: value > literal,
        GreaterThanOrEqual: lambda: value >= literal,
        LessThan: lambda: value < literal,
        LessThanOrEqual: lambda: value <= literal,
        In: lambda: value in literal,
    }
    return bool(compare[type(one)]())


@given(st.lists(filters, max_size=4), numbers, numbers, st.integers(0, 6), st.integers(1, 4))
def test_bounds_leave_out_no_event_that_passes(
    taken: list[Filter], epoch: int, number: int, start: int, size: int
) -> None:
    bounds = Bounds()
    bounds.take(taken)
    segment = SegmentId(epoch, number)
    rows = [{("epoch",): epoch, ("segment",): number, ("offset",): offset} for offset in range(start, start + size)]
    passing = [row[("offset",)] for row in rows if all(passes(one, row) for one in taken)]
    if passing:
        assert bounds.meet(segment, start, start + size)
        assert bounds.start_at <= passing[0]
        assert bounds.stop_at(start + size) > passing[-1]
    only_offsets = all(isinstance(one, (EqualTo, GreaterThan, GreaterThanOrEqual)) for one in taken)
    if not passing and only_offsets:
        assert not bounds.meet(segment, start, start + size)
