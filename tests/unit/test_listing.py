"""Which manifests are in force, by the names alone."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.listing import Listing, read_listing
from objectstore.keys import checked_key, deleted_key, dropped_key, hold_key, manifest_key, ranges_key
from objectstore.uri import RootAddress

PREFIX = "scope/stream/"


def listing_of(*keys: str) -> Listing:
    store = RootAddress.parse(f"memory://{uuid.uuid4().hex}").open()
    for key in keys:
        store.put(PREFIX + key, b"")
    return read_listing(store, PREFIX)


def published(*numbers: int) -> list[str]:
    return [key(number) for number in numbers for key in (manifest_key, ranges_key)]


def test_nothing() -> None:
    listing = listing_of()
    assert (listing.generations, listing.newest, listing.dropped, listing.missing) == ((), 0, 0, None)


def test_a_dropped_mark_hides_all_up_to_it_at_once() -> None:
    before = listing_of(*published(1, 2, 3), checked_key(1), checked_key(3), hold_key(3, "a"), hold_key(3, "B"))
    assert before.generations == (1, 2, 3)
    assert before.unchecked == (2,)
    assert before.holds == {3: ("B", "a")}
    assert before.missing is None

    after = listing_of(*published(1, 2, 3), checked_key(1), checked_key(3), dropped_key(2))
    assert (after.generations, after.dropped, after.newest) == ((3,), 2, 3)
    assert (after.checked, after.holds, after.missing) == ({3}, {}, None)
    assert after.unfinished == (2,)
    assert set(after.remains) == {1, 2}
    assert set(after.remains[1]) == {manifest_key(1), ranges_key(1), checked_key(1)}


def test_a_deletion_that_is_through_is_not_unfinished() -> None:
    listing = listing_of(*published(6), dropped_key(2), dropped_key(5), deleted_key(5))
    assert (listing.dropped, listing.unfinished) == (5, (2,))


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        (published(2, 3), 1),
        (published(1, 3), 2),
        ([*published(5), dropped_key(3)], 4),
        ([dropped_key(3)], 4),
        ([*published(1, 2), dropped_key(3)], 4),
        ([*published(4), dropped_key(3)], None),
    ],
)
def test_a_lost_manifest_is_told_apart_from_an_expired_one(keys: list[str], missing: int | None) -> None:
    assert listing_of(*keys).missing == missing


@given(st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)))
def test_what_is_in_force_lies_behind_the_newest_dropped_mark(
    manifests: set[int], dropped: set[int], checked: set[int]
) -> None:
    listing = listing_of(*map(manifest_key, manifests), *map(dropped_key, dropped), *map(checked_key, checked))
    head = max(dropped, default=0)
    assert listing.dropped == head
    assert list(listing.generations) == sorted(number for number in manifests if number > head)
    assert listing.newest == max(manifests | dropped | {0}) or not listing.generations
    assert set(listing.remains) == {number for number in manifests | checked if number <= head}
    expected = set(range(head + 1, max([*listing.generations, head + bool(head)], default=0) + 1))
    assert listing.missing == min(expected - manifests, default=None)


def test_a_merged_generation_hides_what_it_stands_for_at_once() -> None:
    listing = listing_of(*published(1, 2, 3, 4, 5), manifest_key(4, 2), checked_key(4), hold_key(3, "a"))
    assert listing.names == ((1, 1), (4, 2), (5, 5))
    assert (listing.generations, listing.newest, listing.missing) == ((1, 4, 5), 5, None)
    assert listing.replaced == ((2, 2), (3, 3), (4, 4))
    assert (listing.checked, listing.holds) == (frozenset(), {4: ("a",)})
    assert [listing.holder(number) for number in range(7)] == [None, 1, 4, 4, 4, 5, None]
    assert (listing.within(5, 2), listing.within(4, 1), listing.within(3, 1)) == ((4, 5), (1, 4), ())

    larger = listing_of(*published(2, 3, 4), manifest_key(4, 2), manifest_key(5, 1), checked_key(5, 1))
    assert (larger.names, larger.checked) == (((5, 1),), {5})
    assert larger.replaced == ((2, 2), (3, 3), (4, 2), (4, 4))


@pytest.mark.parametrize("dropped", [1, 2, 3])
def test_a_dropped_mark_within_makes_it_void(dropped: int) -> None:
    listing = listing_of(*published(1, 2, 3, 4), manifest_key(4, 1), dropped_key(dropped))
    assert listing.generations == tuple(range(dropped + 1, 5))
    assert (listing.void, listing.replaced, listing.missing) == (((4, 1),), (), None)


def test_a_dropped_mark_beyond_takes_it_whole() -> None:
    listing = listing_of(*published(5), manifest_key(4, 1), ranges_key(4, 1), dropped_key(4))
    assert (listing.names, listing.void) == (((5, 5),), ())
    assert set(listing.remains[4]) == {manifest_key(4, 1), ranges_key(4, 1)}


SPANS = st.tuples(st.integers(1, 12), st.integers(1, 12)).filter(lambda name: name[0] > name[1])


@given(st.sets(SPANS, max_size=6), st.sets(st.integers(1, 12)))
def test_nothing_is_in_force_twice_or_lost(spans: set[tuple[int, int]], dropped: set[int]) -> None:
    """All plain ones are there: whatever marks and merged ones there are, each original above the head is held once."""
    plain = [manifest_key(number) for number in range(1, 13)]
    listing = listing_of(*plain, *(manifest_key(*name) for name in spans), *map(dropped_key, dropped))
    held = [number for last, first in listing.names for number in range(first, last + 1)]
    assert held == list(range(max(dropped, default=0) + 1, 13))
    assert all(name in spans or name[0] == name[1] for name in listing.names)
    assert all(first > listing.dropped for _, first in listing.names)
