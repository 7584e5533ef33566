"""Epochs as Pravega creates them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from streamvault.manifests.format.entries import EpochEntry
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId


@pytest.mark.parametrize("count", [1, 3, 7, 49, 98, 103, 1000])
def test_key_ranges_that_end_an_ulp_below_one_are_accepted(count: int) -> None:
    width = 1.0 / count
    ranges = {SegmentId(0, i): KeyRange(i * width, min((i + 1) * width, 1.0)) for i in range(count)}
    assert EpochEntry.of(Epoch(0, ranges)).value().segments == ranges


def test_key_ranges_with_a_hole_at_the_end_are_refused() -> None:
    with pytest.raises(ValidationError, match="does not cover"):
        EpochEntry.of(Epoch(0, {SegmentId(0, 0): KeyRange(0.0, 0.999999)}))
