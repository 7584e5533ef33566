"""Which manifests are in force: those that the newest decision keeps, and no others."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.units import now_utc
from streamvault.layouts.keys import (
    GenerationSpan,
    Place,
    checked_key,
    decision_key,
    manifest_key,
    plan_key,
    ranges_key,
)
from streamvault.manifests import listing
from streamvault.manifests.decisions import Decision, Hold
from streamvault.manifests.listing import Listing, manifest_lost, read_listing
from streamvault.objectstore.uri import RootAddress
from tests.archives import new_decision

PREFIX = "scope/stream/"
NOTHING = new_decision(0)


def listing_of(*keys: str, decision: Decision = NOTHING) -> Listing:
    store = RootAddress.parse(f"memory://{uuid.uuid4().hex}").open()
    for key in keys:
        store.put(PREFIX + key, b"")
    if decision is not NOTHING:
        store.put(PREFIX + decision_key(1), decision.numbered(1).encode())
    return read_listing(Place(store, PREFIX))


def published(*numbers: int) -> list[str]:
    return [key(GenerationSpan.of(number)) for number in numbers for key in (manifest_key, ranges_key)]


def checked(*numbers: int) -> list[str]:
    return [checked_key(GenerationSpan.of(number)) for number in numbers]


def merged(first: int, last: int) -> str:
    return manifest_key(GenerationSpan(first, last))


def hold(number: int, name: str) -> Hold:
    return Hold(generation=number, name=name, who="", why="", created=now_utc())


def test_listings_of_the_same_objects_are_equal() -> None:
    first = listing_of(*published(1))
    assert all(listing_of(*published(1)) == first for _ in range(100))  # which takes longer than the clock's resolution


def test_expiry_hides_all_generations_up_to_it() -> None:
    decision = NOTHING.hold(hold(3, "a")).hold(hold(3, "B"))
    before = listing_of(*published(1, 2, 3), *checked(1, 3), decision=decision)
    assert before.generations == (1, 2, 3)
    assert before.unchecked == (2,)
    assert before.holds == {3: ("B", "a")}
    assert (before.missing, before.unfinished) == (None, False)

    after = listing_of(*published(1, 2, 3), *checked(1, 3), decision=NOTHING.expire(2))
    assert (after.generations, after.dropped, after.newest) == ((3,), 2, 3)
    assert (after.checked, after.holds, after.missing) == ({3}, {}, None)
    assert after.unfinished
    assert set(after.remains) == {*published(1, 2), *checked(1)}
    assert not listing_of(*published(3), decision=NOTHING.expire(2).sweep(2)).unfinished


@pytest.mark.parametrize(
    ("keys", "dropped", "missing"),
    [
        (published(2, 3), 0, 1),
        (published(1, 3), 0, 2),
        (published(5), 3, 4),
        ([], 3, 4),
        (published(1, 2), 3, 4),
        (published(4), 3, None),
    ],
)
def test_missing_manifest_is_told_apart_from_an_expired_one(keys: list[str], dropped: int, missing: int | None) -> None:
    assert listing_of(*keys, decision=NOTHING.expire(dropped) if dropped else NOTHING).missing == missing


@pytest.mark.parametrize(
    "late",
    [published(2), [key for key in published(1, 2, 3) if key != manifest_key(GenerationSpan.of(3))]],
    ids=["middle", "newest"],
)
def test_generation_missing_from_one_listing_is_looked_for_again(
    late: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of a listing are of different moments."""
    keys = listing._keys
    seen = [[key for key in published(1, 2, 3) if key not in late]] if len(late) == 2 else [late]
    monkeypatch.setattr(listing, "_keys", lambda *where: seen.pop() if seen else keys(*where))
    found = listing_of(*published(1, 2, 3))
    assert (found.generations, found.missing, found.orphans) == ((1, 2, 3), None, ())


def test_generations_with_a_hole_are_not_a_whole() -> None:
    found = listing_of(*published(1, 3))
    assert found.within(GenerationSpan(1, 3)) == ()
    assert found.within(GenerationSpan(3, 3)) == (GenerationSpan.of(3),)


def test_hundreds_of_generations_are_in_force() -> None:
    found = listing_of(*(manifest_key(GenerationSpan.of(number)) for number in range(1, 301)))
    assert found.missing is None
    assert found.within(GenerationSpan(299, 300)) == found.spans[298:]
    assert (found.holder(300), found.holder(301)) == (GenerationSpan.of(300), None)


def test_generation_with_a_mark_or_an_index_but_no_plan_was_published() -> None:
    newest, after = GenerationSpan.of(3), GenerationSpan.of(4)
    marked = listing_of(*published(1, 2), *checked(3))
    indexed = listing_of(*published(1, 2), ranges_key(newest), ranges_key(after))
    assert (marked.missing, marked.orphans, marked.begun) == (3, (newest,), ())
    assert (indexed.missing, indexed.orphans) == (3, (newest, after))
    begun = listing_of(*published(1, 2), ranges_key(newest), plan_key(newest))
    assert (begun.missing, begun.orphans, begun.begun) == (None, (), (newest,))
    both = listing_of(*published(1, 2), ranges_key(newest), *checked(3), plan_key(newest))
    assert (both.missing, both.orphans) == (3, (newest,))
    expired = listing_of(*published(4), ranges_key(newest), *checked(3), decision=NOTHING.expire(3))
    assert (expired.missing, expired.orphans) == (None, ())
    decision = NOTHING.merge(GenerationSpan(1, 3), 0)
    whole = listing_of(merged(1, 3), ranges_key(newest), *checked(3), decision=decision)
    assert (whole.missing, whole.orphans) == (None, ())


def test_merged_generation_whose_manifest_is_lost_is_missing() -> None:
    assert listing_of(*published(1, 2, 3), decision=NOTHING.merge(GenerationSpan(2, 3), 0)).missing == 2
    assert listing_of(*published(1, 2), decision=NOTHING.merge(GenerationSpan(1, 2), 0)).missing == 1


TWICE = NOTHING.merge(GenerationSpan(1, 2), 0).merge(GenerationSpan(3, 4), 0)
COPY = "Without a copy, export"


@pytest.mark.parametrize(
    ("keys", "decision", "key", "first", "said"),
    [
        (published(1, 3), NOTHING, manifest_key(GenerationSpan.of(2)), 2, ["'import --generation 1'"]),
        (published(2, 3), NOTHING, manifest_key(GenerationSpan.of(1)), 1, []),
        (
            [*published(1, 2), *checked(3)],
            NOTHING,
            manifest_key(GenerationSpan.of(3)),
            3,
            ["'import --generation 2'", COPY],
        ),
        ([merged(1, 2)], TWICE, merged(3, 4), 3, ["'import --generation 2'", COPY]),
        ([merged(1, 2), *published(5)], TWICE, merged(3, 4), 3, ["'import --generation 2'"]),
        # published by another run, and lost, since the listing
        (published(1), NOTHING, manifest_key(GenerationSpan.of(2)), 2, ["'import --generation 1'", COPY]),
    ],
)
def test_advice_on_a_lost_manifest_names_the_object_and_what_is_left(
    keys: list[str], decision: Decision, key: str, first: int, said: list[str]
) -> None:
    lost = manifest_lost(listing_of(*keys, decision=decision), "memory://vault/scope/stream")
    assert (lost.what, lost.where) == (f"the manifest of generation {first} is missing", "memory://vault/scope/stream")
    todo = str(lost.todo)
    assert f"Restore {key} from a version or a copy" in todo
    assert all(text in todo for text in said)
    assert todo.count("--generation") + todo.count(COPY) == len(said)


def test_merged_generation_counts_once_it_is_decided() -> None:
    keys = [*published(1, 2, 3, 4, 5), merged(2, 4), *checked(4, 5)]
    before = listing_of(*keys)
    assert (before.generations, before.undecided, before.replaced) == ((1, 2, 3, 4, 5), ((2, 4),), ())

    listing = listing_of(*keys, decision=NOTHING.hold(hold(3, "a")).merge(GenerationSpan(2, 4), 0))
    assert listing.spans == ((1, 1), (2, 4), (5, 5))
    assert (listing.generations, listing.newest, listing.missing) == ((1, 4, 5), 5, None)
    assert (listing.replaced, listing.undecided) == (((2, 2), (3, 3), (4, 4)), ())
    assert (listing.checked, listing.holds) == ({5}, {4: ("a",)})
    assert [listing.holder(number) for number in range(7)] == [None, (1, 1), (2, 4), (2, 4), (2, 4), (5, 5), None]
    within = [listing.within(GenerationSpan(first, last)) for first, last in ((2, 5), (1, 4), (1, 3))]
    assert within == [((2, 4), (5, 5)), ((1, 1), (2, 4)), ()]

    keys = [*published(2, 3, 4), merged(2, 4), merged(1, 5), checked_key(GenerationSpan(1, 5))]
    larger = listing_of(*keys, decision=NOTHING.merge(GenerationSpan(2, 4), 0).merge(GenerationSpan(1, 5), 0))
    assert (larger.spans, larger.checked) == (((1, 5),), {5})
    assert larger.replaced == ((2, 2), (2, 4), (3, 3), (4, 4))


def test_late_manifests_never_count() -> None:
    """A manifest that was put when its generation had expired, or had been merged with others, in whole or in part."""
    decision = NOTHING.expire(2).merge(GenerationSpan(5, 6), 0)
    keys = [*published(3, 4, 7), merged(5, 6), ranges_key(GenerationSpan(5, 6))]
    late = [*published(1, 2, 5, 6), merged(2, 4), merged(4, 5), merged(6, 7)]
    listing = listing_of(*keys, *late, decision=decision)
    assert listing.spans == ((3, 3), (4, 4), (5, 6), (7, 7))
    assert listing.replaced == ((4, 5), (5, 5), (6, 6), (6, 7))
    assert set(listing.remains) == {*published(1, 2), merged(2, 4)}
    decision = listing.decision
    assert [decision.is_over(GenerationSpan(*one)) for one in ((1, 2), (2, 3), (4, 5), (6, 6), (6, 7))] == [True] * 5
    assert [decision.is_over(GenerationSpan(*one)) for one in ((3, 4), (5, 6), (4, 6), (5, 7), (8, 8))] == [False] * 5


def test_expiry_takes_a_merged_generation_whole() -> None:
    listing = listing_of(
        *published(5),
        merged(1, 4),
        ranges_key(GenerationSpan(1, 4)),
        decision=NOTHING.merge(GenerationSpan(1, 4), 0).expire(4),
    )
    assert (listing.spans, listing.undecided) == (((5, 5),), ())
    assert set(listing.remains) == {merged(1, 4), ranges_key(GenerationSpan(1, 4))}


STEPS = st.lists(st.tuples(st.integers(0, 11), st.integers(1, 6)), max_size=6)


@given(STEPS)
def test_each_generation_is_in_force_once_until_it_is_over(steps: list[tuple[int, int]]) -> None:
    """Whatever is decided, each original above the head is held once; all manifests ever made lie about."""
    keys = [manifest_key(GenerationSpan.of(number)) for number in range(1, 13)]
    decision, over = NOTHING, set[GenerationSpan]()
    listing = listing_of(*keys)
    for at, count in steps:
        chosen = listing.spans[at % len(listing.spans) :][:count]
        if len(chosen) > 1:
            merged = GenerationSpan(chosen[0].first, chosen[-1].last)
            keys.append(manifest_key(merged))
            decision = decision.merge(merged, 0)
        elif len(listing.spans) > 1:
            decision = decision.expire(listing.spans[0].last)
        listing = listing_of(*dict.fromkeys(keys), decision=decision)
        held = [number for span in listing.spans for number in span.generations]
        assert held == list(range(decision.dropped + 1, 13))
        assert listing.missing is None
        every = {GenerationSpan(first, last) for last in range(1, 13) for first in range(1, last + 1)}
        now = {span for span in every if listing.decision.is_over(span)}
        assert over <= now
        assert not now.intersection(listing.spans)
        over = now
