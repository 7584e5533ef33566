"""Unfinished work: plans that are fixed once, rows of finished ranges, and their removal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from streamvault.common.errors import Damaged
from streamvault.layouts.keys import GenerationSpan, Place, plan_key, row_key
from streamvault.manifests.files import seal
from streamvault.manifests.plan import (
    Plan,
    RangeEntry,
    create_plan,
    current_plan,
    end_plan,
    find_plan,
    find_rows,
    leave_row,
    remove_work,
)
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import SegmentId
from tests.archives import DIGEST, LEFT, NAME, PREFIX, plan_of, row

FIRST = GenerationSpan.of(1)


@pytest.fixture
def place(unique_name: str) -> Place:
    return Place(RootAddress.parse(f"memory://{unique_name}").open(), PREFIX)


def test_first_plan_holds(place: Place) -> None:
    assert find_plan(place, FIRST) is None
    first, second = plan_of(end=500), plan_of(end=600)
    assert create_plan(place, first) == (first, True)
    assert create_plan(place, second) == (first, False)
    assert find_plan(place, FIRST) == first
    assert first.bytes == 509
    assert first.name == NAME


def changed(plan: Plan, **changes: object) -> bytes:
    return seal({**plan.document(), **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"format": 3}, "unsupported format version"),
        ({"generation": 2}, "belongs to another archive"),
        (
            {"witness": [{"segment": "scope/stream/0.#epoch.0", "offset": 0, "length": 1, "digest": "0" * 64}]},
            "witness",
        ),
        ({"stream": "../other"}, "invalid stream name"),
        ({"segments": []}, "segments are not those between the cuts"),
        ({"to": {"scope/stream/0.#epoch.0": 500}}, "names no segment for the keys"),
        ({"epochs": []}, "epochs"),
        ({"range_size": 0}, "range_size"),
    ],
)
def test_invalid_plan_is_damage(place: Place, changes: dict[str, object], expected: str) -> None:
    place.store.put(PREFIX + plan_key(FIRST), changed(plan_of(), **changes))
    for attempt in (lambda: find_plan(place, FIRST), lambda: create_plan(place, plan_of())):
        with pytest.raises(Damaged, match=r"_work/0000000001/plan\.json") as caught:
            attempt()
        assert expected in str(caught.value)
        assert str(caught.value).isprintable()


def test_ended_plan_is_followed_by_another_attempt(place: Place) -> None:
    assert current_plan(place, FIRST) == (None, 1)
    create_plan(place, plan_of())
    leave_row(place, FIRST, LEFT, row(0))
    before = [found.key for found in place.store.list(PREFIX)]
    assert current_plan(place, FIRST) == (plan_of(), 1)
    end_plan(place, FIRST, 1, "its cut lies inside an event")
    end_plan(place, FIRST, 1, "said twice")
    assert current_plan(place, FIRST) == (None, 2)
    assert set(before) < {found.key for found in place.store.list(PREFIX)}
    other = plan_of(end=90)
    assert create_plan(place, other, 2) == (other, True)
    assert create_plan(place, plan_of(), 2) == (other, False)
    assert current_plan(place, FIRST) == (other, 2)
    leave_row(place, FIRST, LEFT, row(20), attempt=2)
    assert [found.start for _, found in find_rows(place, FIRST)] == [0]
    assert [found.start for _, found in find_rows(place, FIRST, attempt=2)] == [20]
    remove_work(place, FIRST)
    assert list(place.store.list(PREFIX)) == []


def test_plan_of_another_stream_is_not_taken_up(place: Place) -> None:
    place.store.put("scope/other/" + plan_key(FIRST), plan_of().encode())
    with pytest.raises(Damaged, match="the plan belongs to another archive"):
        find_plan(Place(place.store, "scope/other/"), FIRST)


def test_removing_the_work_of_a_generation_leaves_the_others(place: Place) -> None:
    for generation in (1, 2):
        create_plan(place, plan_of(generation))
        for number in range(1200 if generation == 1 else 1):
            leave_row(place, GenerationSpan.of(generation), LEFT, row(number * 10))
    remove_work(place, FIRST)
    assert [found.key for found in place.store.list(PREFIX)] == [
        PREFIX + row_key(GenerationSpan.of(2), SegmentId(0, 0), 0),
        PREFIX + plan_key(GenerationSpan.of(2)),
    ]
    remove_work(place, FIRST)


def test_plan_is_removed_last(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as anything is left of the work, its plan tells the next run that there is."""
    create_plan(place, plan_of())
    leave_row(place, FIRST, LEFT, row(0))
    end_plan(place, FIRST, 1)
    delete, seen = ObstoreStore.delete, []

    def watched(self: ObstoreStore, keys: Sequence[str]) -> None:
        assert find_plan(place, FIRST) == plan_of()
        delete(self, keys)
        seen.append([found.key for found in place.store.list(PREFIX)])

    monkeypatch.setattr(ObstoreStore, "delete", watched)
    remove_work(place, FIRST)
    assert seen == [[PREFIX + plan_key(FIRST)], []]


def test_first_row_holds(place: Place) -> None:
    first, second = row(0, (0, 10)), row(0, (0, 20))
    assert leave_row(place, FIRST, LEFT, first) == first
    assert leave_row(place, FIRST, LEFT, second) == first


def test_rows_are_found_in_the_streams_order(place: Place) -> None:
    create_plan(place, plan_of())
    left = {
        (segment, start): leave_row(place, FIRST, segment, row(start))
        for segment in (SegmentId(10, 2), SegmentId(2, 10), LEFT)
        for start in (10**18, 0, 9, 100)
    }
    place.store.put(f"{PREFIX}_work/0000000001/foreign.txt", b"x")
    leave_row(place, GenerationSpan.of(2), LEFT, row(0))
    assert list(find_rows(place, FIRST)) == [(key[0], left[key]) for key in sorted(left)]


def test_row_of_a_range_with_gaps_round_trips(place: Place) -> None:
    met = row(0, (0, 10), (30, 40), gaps=((10, 30),))
    before = row(50, (50, 60), gaps=((40, 50),))
    for one in (met, before):
        leave_row(place, FIRST, LEFT, one)
    assert [found for _, found in find_rows(place, FIRST)] == [met, before]
    assert (met.events, met.bytes, met.follows_truncation) == (2, 20, False)
    assert before.follows_truncation


@pytest.mark.parametrize(
    ("pieces", "gaps", "end"),
    [
        (((0, 10),), (), 20),
        (((5, 10),), (), None),
        (((0, 10), (20, 30)), (), None),
        (((0, 10), (5, 30)), (), None),
        (((0, 10),), ((20, 30),), None),
        (((0, 10),), ((10, 3),), 3),
        (((0, 3),), (), None),  # no room for its header
    ],
)
def test_invalid_row_is_refused(
    pieces: tuple[tuple[int, int], ...], gaps: tuple[tuple[int, int], ...], end: int | None
) -> None:
    with pytest.raises(ValueError, match=r"ranges and gaps|events than fit its size"):
        row(0, *pieces, gaps=gaps, end=end)


def test_row_with_checksums_of_another_number_of_blocks_is_refused() -> None:
    given: dict[str, Any] = {"start": 0, "end": 2**20 + 1, "events": 1, "digest": DIGEST}
    two, one = "A" * 21 + "A==", "A" * 11 + "="
    assert RangeEntry(**given, block_checksums=two).of_segment(LEFT).block_checksums == two
    for text in (one, "x"):
        with pytest.raises(ValueError, match="invalid checksums of blocks"):
            RangeEntry(**given, block_checksums=text)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", row(7).encode(), row(0).encode()[:-9]])
def test_row_of_something_else_is_damage(place: Place, data: bytes) -> None:
    place.store.put(PREFIX + row_key(FIRST, SegmentId(0, 0), 0), data)
    for attempt in (lambda: list(find_rows(place, FIRST)), lambda: leave_row(place, FIRST, LEFT, row(0))):
        with pytest.raises(Damaged, match=r"/0000000000000000000\.json") as caught:
            attempt()
        assert str(caught.value).isprintable()


class Vanishing:
    """A store from which another run deletes everything between the listing and the reading."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.uri = store.uri

    def list(self, prefix: str, after: str = "") -> Iterator[Any]:
        found = list(self._store.list(prefix, after))
        self._store.delete([one.key for one in found])
        return iter(found)

    def get(self, key: str, at_most: int) -> bytes:
        return self._store.get(key, at_most)


def test_rows_removed_by_another_run_are_no_error(place: Place) -> None:
    for start in range(0, 400, 10):
        leave_row(place, FIRST, LEFT, row(start))
    assert list(find_rows(Place(Vanishing(place.store), PREFIX), FIRST)) == []  # type: ignore[arg-type]  # two of its methods do
