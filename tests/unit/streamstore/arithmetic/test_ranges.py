"""Validation of a scale's ranges."""

from __future__ import annotations

import pytest

from streamvault.streamstore.arithmetic.numbering import check_replaces
from streamvault.streamstore.errors import ScaleRefused
from streamvault.streamstore.model import KeyRange, SegmentId

A, B, A1, A2 = SegmentId(0, 0), SegmentId(0, 1), SegmentId(1, 2), SegmentId(1, 3)
OPEN = {A1: KeyRange(0.0, 0.25), A2: KeyRange(0.25, 0.5), B: KeyRange(0.5, 1.0)}


@pytest.mark.parametrize(
    ("seal", "ranges"),
    [
        ([A1], [KeyRange(0.0, 0.25)]),
        ([A1], [KeyRange(0.1, 0.25), KeyRange(0.0, 0.1)]),
        ([A2, B], [KeyRange(0.25, 1.0)]),
        ([B, A1], [KeyRange(0.0, 0.25), KeyRange(0.5, 0.6), KeyRange(0.6, 1.0)]),
    ],
)
def test_scale_that_covers_its_ranges_is_accepted(seal: list[SegmentId], ranges: list[KeyRange]) -> None:
    check_replaces(seal, ranges, OPEN)


@pytest.mark.parametrize(
    ("seal", "ranges"),
    [
        ([], []),
        ([A1, A1], [KeyRange(0.0, 0.25)]),
        ([A], [KeyRange(0.0, 0.5)]),
        ([A1], []),
        ([A1], [KeyRange(0.0, 0.2)]),
        ([A1], [KeyRange(0.0, 0.2), KeyRange(0.1, 0.25)]),
        ([A1], [KeyRange(0.0, 0.1), KeyRange(0.2, 0.25)]),
        ([A1, B], [KeyRange(0.0, 1.0)]),
        ([A1], [KeyRange(0.0, 0.25), KeyRange(0.0, 0.25)]),
    ],
)
def test_scale_that_does_not_cover_its_ranges_is_refused(seal: list[SegmentId], ranges: list[KeyRange]) -> None:
    with pytest.raises(ScaleRefused):
        check_replaces(seal, ranges, OPEN)
