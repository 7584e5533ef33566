"""How much of each segment a micro-batch reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamvault.spark.pravega_source import share_out
from streamvault.streamstore.model import SegmentId


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 1000)), st.integers(1, 500))
def test_shares_are_bounded_and_every_segment_has_one(sizes: dict[int, int], most: int) -> None:
    shares = share_out({SegmentId(0, number): size for number, size in sizes.items()}, most)
    assert shares.keys() == {SegmentId(0, number) for number, size in sizes.items() if size}
    assert all(0 < size <= sizes[segment.number] for segment, size in shares.items())
    assert sum(shares.values()) <= most + len(shares)
