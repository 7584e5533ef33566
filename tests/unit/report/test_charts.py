"""The axes of the charts."""

from __future__ import annotations

import pytest

from streamvault.report.charts import MAX_EPOCHS, segments_chart
from streamvault.report.history import DrawnSegment
from streamvault.streamstore.model import KeyRange, SegmentId


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
