"""Marks: what they say, and that nothing else is believed."""

from __future__ import annotations

import uuid
from itertools import pairwise
from pathlib import Path

import pytest

from manifests.entries import seal
from manifests.marks import Checked, Dropped, Hold, find_checked, find_dropped, find_hold
from objectstore.keys import checked_key, dropped_key, hold_key
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from problems import Damaged
from streamvault import export_stream
from tests.archives import NAME, two_generations
from tests.unit.small_archives import RANGE_SIZE, Vault, archive_of

PREFIX = f"{NAME}/"
OWNER = {"scope": NAME.scope, "stream": NAME.stream}


@pytest.fixture
def store() -> ObjectStore:
    return RootAddress.parse(f"memory://{uuid.uuid4().hex}").open()


def test_marks_are_read_as_they_were_written(store: ObjectStore) -> None:
    manifests = [made.manifest for made in two_generations()]
    marks = {
        checked_key(2): Checked(**OWNER, generation=2, ranges=3, digest="0" * 64, tool="t"),
        hold_key(2, "a"): Hold(**OWNER, generation=2, name="a", who="wer", why="für später"),
        dropped_key(2): Dropped.of(manifests, tool="t"),
    }
    for key, mark in marks.items():
        store.put(PREFIX + key, mark.encode())
    found = find_checked(store, NAME, 2), find_hold(store, NAME, 2, "a"), find_dropped(store, NAME, 2)
    assert found == tuple(marks.values())
    assert (find_checked(store, NAME, 1), find_hold(store, NAME, 2, "b"), find_dropped(store, NAME, 1)) == (None,) * 3


def test_generations_that_are_dropped_together_share_their_stretches() -> None:
    first, second = (made.manifest for made in two_generations())
    both, one = Dropped.of([first, second], tool=""), Dropped.of([second], tool="")
    assert (both.first, both.generation, one.first) == (1, 2, 2)
    assert [(s.segment, s.start, s.end) for s in both.stretches] == [
        (entry.name, entry.start, second.to.to_json()[entry.name]) for entry in first.segments
    ]
    assert [s.start for s in one.stretches] == [entry.start for entry in second.segments if entry.start < entry.end]


def test_layouts_that_change_are_kept_apart(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=20, largest=100)
    for layout in ("events", "chunks", "events"):
        export_stream(vault.uri(), vault.root, layout=layout, range_size=RANGE_SIZE, master="inline")  # type: ignore[arg-type]
        vault.add(b"more")
    manifests = [generation.manifest for generation in archive_of(vault.root).history().generations]
    stretches = Dropped.of(manifests, tool="").stretches
    for segment in manifests[-1].to.to_json():
        mine = sorted((s.start, s.end, s.layout) for s in stretches if s.segment == segment)
        assert [layout for _, _, layout in mine] == ["events", "chunks", "events"]
        assert all(before[1] == after[0] for before, after in pairwise(mine))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scope": "other"}, "another archive"),
        ({"generation": 3}, "another archive"),
        ({"first": 9}, "the first generation comes after the last"),
        ({"format": 2}, "a format this version does not read"),
        (
            {"stretches": [{"layout": "events", "segment": "x/y/0.#epoch.0", "start": 0, "end": 8}]},
            "no stretch of this",
        ),
        ({"stretches": [{"layout": "rows", "segment": f"{NAME}/0.#epoch.0", "start": 0, "end": 8}]}, "layout"),
        ({"stretches": [{"layout": "events", "segment": f"{NAME}/../0", "start": 0, "end": 8}]}, "not a valid file"),
        ({"stretches": [{"layout": "events", "segment": f"{NAME}/0.#epoch.0", "start": 8, "end": 8}]}, "no stretch"),
    ],
)
def test_a_mark_that_cannot_be_is_damage(store: ObjectStore, change: dict[str, object], said: str) -> None:
    mark = Dropped.of([made.manifest for made in two_generations()], tool="")
    document = {**mark.document(), **change}
    if "scope" in change:
        document["stretches"] = []
    store.put(PREFIX + dropped_key(2), seal(document))
    with pytest.raises(Damaged, match=said):
        find_dropped(store, NAME, 2)


def test_a_mark_that_was_cut_short_is_damage(store: ObjectStore) -> None:
    store.put(PREFIX + checked_key(1), b'{"format": 1, "sco')
    with pytest.raises(Damaged, match="cut short"):
        find_checked(store, NAME, 1)
