"""What is drawn of an archive, from manifests made by hand."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import Manifest
from streamvault.report.history import ArchiveHistory, gather_history, read_history
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId
from testkit.small_archives import Vault, archive_of, merge
from tests.archives import CREATED, EPOCHS, LEFT, NAME, RIGHT, Hole, Made, generation

MINUTES = (0, 10, 30, 60)
NEW = SegmentId(1, 2), SegmentId(1, 3)
SPLIT = (
    *EPOCHS,
    Epoch(1, {RIGHT: KeyRange(0.5, 1.0), NEW[0]: KeyRange(0.0, 0.25), NEW[1]: KeyRange(0.25, 0.5)}),
)


def taken(made: Made, minutes: int) -> Made:
    created = CREATED + timedelta(minutes=minutes)
    return Made(made.manifest.model_copy(update={"created": created}), made.rows, made.events)


def four() -> list[Made]:
    """Generations: both segments; a hole in one of them; a split of the other; one of its successors."""
    held = [
        {LEFT: [[b"a" * 92]], RIGHT: [[b"b" * 192]]},
        {LEFT: [[b"c" * 592]], RIGHT: [Hole(50), [b"d" * 92]]},
        {LEFT: [[b"e" * 92]], RIGHT: [[b"f" * 92]], NEW[0]: [[b"g" * 292]]},
        {NEW[1]: [[b"h" * 42]]},
    ]
    found: list[Made] = []
    for number, (some, minutes) in enumerate(zip(held, MINUTES, strict=True)):
        before = found[-1].manifest if found else None
        epochs = SPLIT if number > 1 else EPOCHS
        found.append(taken(generation(some, before=before, epochs=epochs), minutes))
    return found


def archived(*made: Made) -> Archive:
    archive = Archive.open(f"memory://{uuid.uuid4().hex}/{NAME}")
    for one in made:
        assert archive.commit(one.manifest, one.rows)
    return archive


@pytest.fixture
def drawn() -> ArchiveHistory:
    return read_history(archived(*four()))


def test_parts_have_the_bytes_between_two_tails_and_the_time_between_them(drawn: ArchiveHistory) -> None:
    found = {(part.generations[0], part.segment): part for part in drawn.parts}
    second = found[2, LEFT]
    assert (second.bytes, second.events, second.offsets, second.seconds) == (600, 1, (100, 700), 600)
    assert (second.begin, second.end) == (CREATED, CREATED + timedelta(minutes=10))
    assert found[2, RIGHT].bytes == 100  # without the gap
    # nobody knows when the first event was written: as wide as the next one, without a rate
    assert found[1, LEFT].seconds == 0
    assert found[1, LEFT].begin == CREATED - timedelta(minutes=10)


def test_epochs_between_two_tails_share_the_time_between_them(drawn: ArchiveHistory) -> None:
    begin, end = CREATED + timedelta(minutes=10), CREATED + timedelta(minutes=30)
    times = {part.segment: (part.begin, part.end) for part in drawn.parts if part.generations[0] == 3}
    middle = begin + (end - begin) / 2
    assert times == {LEFT: (begin, middle), RIGHT: (begin, end), NEW[0]: (middle, end), NEW[1]: (middle, end)}
    for at in (begin, middle):
        keys = sorted(one.keys.low for one in drawn.segments if times[one.segment][0] <= at < times[one.segment][1])
        assert keys[0] == 0.0
        assert len(set(keys)) == len(keys)


def test_segment_that_was_sealed_right_after_a_tail_is_not_drawn_behind_it() -> None:
    first = taken(generation({LEFT: [[b"a"]], RIGHT: [[b"b"]]}), 0)
    second = taken(generation({RIGHT: [[b"c"]], NEW[1]: [[b"d"]]}, before=first.manifest, epochs=SPLIT), 10)
    found = [part for part in read_history(archived(first, second)).parts if part.generations == (2, 2)]
    assert {part.segment for part in found} == {RIGHT, *NEW}
    assert {(part.begin, part.end) for part in found} == {(CREATED, CREATED + timedelta(minutes=10))}


def test_points_and_segments_have_totals_and_gaps(drawn: ArchiveHistory) -> None:
    assert [point.gaps for point in drawn.points] == [0, 50, 0, 0]
    assert drawn.bytes == sum(part.bytes for part in drawn.parts) == sum(one.bytes or 0 for one in drawn.segments)
    assert drawn.events == drawn.objects == 8
    assert [(one.segment, one.first, one.last, one.is_open) for one in drawn.segments] == [
        (LEFT, 0, 0, False),
        (RIGHT, 0, 1, True),
        (NEW[0], 1, 1, True),
        (NEW[1], 1, 1, True),
    ]


def test_too_many_parts_are_joined_and_nothing_is_lost() -> None:
    archive = archived(*four())
    whole = read_history(archive)
    joined = read_history(archive, 5)
    assert (whole.joined, joined.joined) == (1, 4)
    assert len(joined.parts) == 4
    assert joined.bytes == sum(part.bytes for part in joined.parts)
    found = {part.segment: part for part in joined.parts}
    assert (found[RIGHT].generations, found[RIGHT].offsets) == ((1, 4), (0, 450))
    assert found[RIGHT].end == CREATED + timedelta(minutes=60)
    listing = archive.listing()
    gathered = gather_history(archive, listing, map(archive.read_manifest, listing.spans), 1000)
    assert gathered.history(5) == joined
    few = read_history(archive, 3)  # fewer than there are segments
    assert (few.left_out, {part.segment for part in few.parts}) == (1, {LEFT, RIGHT, NEW[0]})


def test_merged_generation_is_drawn_as_the_originals(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create(segments=2)
    for payload in (b"one", b"second", b"the third"):
        if payload == b"second":  # after a gap
            vault.add(b"truncated before it was archived")
            vault.truncate(vault.described.tail)
        vault.add(payload)
        vault.export("chunks", same_stream=True)
    plain = read_history(archive_of(vault.root))
    merge(vault, 1, 2)
    found = read_history(archive_of(vault.root))
    assert [(point.merged, point.gaps) for point in found.points] == [(2, 0), (2, 80), (0, 0)]
    assert [replace(point, merged=0) for point in found.points] == list(plain.points)
    assert [replace(part, events=None) for part in found.parts] == [replace(part, events=None) for part in plain.parts]
    assert [part.events for part in found.parts] == [None] * 4 + [1, 1]
    assert found.segments == plain.segments


def test_manifests_are_held_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archived(*four())
    read: list[int] = []
    original = Archive.read_manifest

    def noted(self: Archive, span: GenerationSpan) -> Manifest:
        read.append(span.last)
        return original(self, span)

    monkeypatch.setattr(Archive, "read_manifest", noted)
    read_history(archive)
    assert all(later == earlier + 1 for earlier, later in pairwise(read[1:]))  # each once, after the newest
