"""Which generations are merged: few pieces, no byte written again often, and only what fits together."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamvault.exporter import compact
from streamvault.exporter.compact import FACTOR, choose_runs, choose_tiers
from streamvault.manifests.manifest import GroupEntry, Manifest
from streamvault.manifests.merging import as_replaced, can_merge
from tests.archives import two_generations

K = 1024


def piece(first: int, generation: int, size: int) -> Manifest:
    """A manifest with the fields that the choice needs."""
    made = two_generations()[0].manifest
    originals = tuple(range(first, generation + 1)) if first < generation else ()
    return made.model_construct(
        **{**dict(made), "generation": generation, "bytes": size, "replaces": tuple(map(_Original, originals))}
    )


class _Original:
    def __init__(self, generation: int) -> None:
        made = two_generations()[0].manifest
        self.generation, self.to, self.reader_groups = generation, made.to, made.reader_groups


def chunks(first: int, generation: int, size: int) -> Manifest:
    return piece(first, generation, size).model_copy(update={"layout": "chunks"})


def merged(pieces: list[Manifest], runs: list[tuple[Manifest, ...]]) -> list[Manifest]:
    for run in runs:
        at = pieces.index(run[0])
        one = piece(run[0].first, run[-1].generation, sum(each.bytes for each in run))
        pieces = [*pieces[:at], one, *pieces[at + len(run) :]]
    return pieces


@settings(max_examples=20)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=300))
def test_pieces_stay_few_and_bytes_are_written_again_seldom(sizes: list[int]) -> None:
    pieces: list[Manifest] = []
    moved = 0
    for number, size in enumerate(sizes, 1):
        pieces.append(piece(number, number, size))
        while runs := choose_tiers(pieces, set(), target=10**9):
            moved += sum(each.bytes for run in runs for each in run)
            pieces = merged(pieces, runs)
        levels = 1
        while FACTOR**levels <= number:
            levels += 1
        assert len(pieces) <= (FACTOR - 1) * levels
        assert moved <= levels * sum(sizes[:number])
    assert [each.first for each in pieces] == [1, *(each.generation + 1 for each in pieces[:-1])]


@given(st.lists(st.integers(0, 120), min_size=1, max_size=40), st.sets(st.integers(1, 40)), st.integers(2, 4))
def test_runs_are_as_long_as_the_target_allows(sizes: list[int], held: set[int], at_least: int) -> None:
    pieces = [piece(number, number, size) for number, size in enumerate(sizes, 1)]
    runs = choose_runs(pieces, held, target=100, at_least=at_least)
    for run in runs:
        assert len(run) >= at_least
        assert sum(each.bytes for each in run) <= 100
        assert not {each.generation for each in run} & held
        assert [each.generation for each in run] == list(range(run[0].generation, run[-1].generation + 1))
    left = merged(pieces, runs)
    assert sum(each.bytes for each in left) == sum(sizes)
    if at_least == 2 and not held:
        # no two adjacent generations that are left fit together
        alone = [each for each in left if each.first == each.generation]
        for one, other in pairwise(alone):
            if one.generation + 1 == other.generation and max(one.bytes, other.bytes) < 100:
                assert one.bytes + other.bytes > 100


@pytest.mark.parametrize(
    ("sizes", "possible"),
    [((8, 8), True), ((8, 16), True), ((48, 12, 24), True), ((8, 12), False), ((40, 80, 120), False)],
)
def test_chunks_are_merged_if_each_range_size_is_a_multiple_of_the_smaller(
    sizes: tuple[int, ...], possible: bool
) -> None:
    manifest = chunks(1, 1, 0)
    held = [manifest.model_copy(update={"range_size": size * K}) for size in sizes]
    assert can_merge(held) == possible
    assert can_merge(one.model_copy(update={"layout": "events"}) for one in held), "events do not depend on ranges"
    assert not can_merge([manifest, manifest.model_copy(update={"compression": "zstd"})])


def test_run_ends_where_the_range_size_does_not_fit_and_the_next_begins() -> None:
    held = [
        chunks(number, number, 0).model_copy(update={"range_size": size * K})
        for number, size in enumerate((8, 8, 12, 12, 24, 16), 4)
    ]
    runs = choose_runs(held, set(), target=1 << 30, at_least=1)
    assert [[one.generation for one in run] for run in runs] == [[4, 5], [6, 7, 8], [9]]


@pytest.mark.parametrize("groups", [None, 0, 1, 40])
def test_a_merged_manifest_is_smaller_than_readers_accept(monkeypatch: pytest.MonkeyPatch, groups: int | None) -> None:
    """However many generations without data there are, and however many reader groups they have noted."""
    most = 400_000
    made = two_generations()[0].manifest
    group = GroupEntry(name="group", position=made.to, id=str(UUID(int=1)), start=made.from_, end=made.to)
    noted = None if groups is None else (group,) * groups
    held = [
        made.model_copy(update={"generation": number, "bytes": 0, "reader_groups": noted}) for number in range(1, 801)
    ]
    monkeypatch.setattr(compact, "MOST_METADATA", most)
    runs = choose_runs(held, set(), target=1 << 28, at_least=2)
    assert [one for run in runs for one in run] == held
    for run in runs:
        merged = made.model_copy(update={"replaces": tuple(as_replaced(part) for one in run for part in one.originals)})
        assert len(json.dumps(merged.document()["replaces"], indent=1)) <= most
    assert len(runs) <= len(held) // 4


def test_long_run_of_one_kind_is_grouped_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each generation is compared with one of each kind, not with all before it."""
    compared = []

    def counted(manifests: Any) -> bool:
        held = list(manifests)
        compared.append(len(held))
        return can_merge(held)

    monkeypatch.setattr(compact, "can_merge", counted)
    run = [chunks(4 + number, 4 + number, 0) for number in range(50)]
    assert [len(one) for one in choose_runs(run, set(), target=1 << 30, at_least=2)] == [50]
    assert max(compared) == 2
