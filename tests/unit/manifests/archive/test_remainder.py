"""What is left of a merged generation after one of its originals is what a merge of the later ones would be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamvault.common.errors import Damaged
from streamvault.manifests.archived_range import ArchivedRange
from streamvault.manifests.history import Generation, by_segment
from streamvault.manifests.merging import Merger, remainder_of
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId
from tests.archives import EPOCHS, LEFT, RIGHT, Hole, Made, generation

NEW = SegmentId(1, 2)
SCALED = (*EPOCHS, Epoch(1, {RIGHT: KeyRange(0.5, 1.0), NEW: KeyRange(0.0, 0.5)}))


def three() -> list[Made]:
    """The left segment has gaps and ends in the second generation, the right one has a gap in each."""
    first = generation({LEFT: [[b"a"], Hole(9), [b"b" * 40]], RIGHT: [Hole(100), [b"c", b"d"]]})
    held = {LEFT: [Hole(30), [b"e"]], NEW: [[b"f", b""]], RIGHT: [[b"g"], Hole(7), [b"h"]]}
    second = generation(held, before=first.manifest, epochs=SCALED)
    third = generation({NEW: [[b"i"]], RIGHT: [Hole(5), [b"j"]]}, before=second.manifest, epochs=SCALED)
    return [first, second, third]


def merged(*held: Made) -> Generation:
    """Their merge, or the only one."""
    rows = sorted((row for made in held for row in made.rows), key=lambda row: (row.segment, row.start))
    ranges = by_segment(rows)
    if len(held) == 1:
        return Generation(held[0].manifest, ranges)
    merger = Merger([Generation(made.manifest, by_segment(made.rows)) for made in held], "here")
    return Generation(merger.manifest(ranges, tool="streamvault test"), ranges)


@pytest.mark.parametrize("after", [1, 2])
def test_remainder_is_the_merge_of_the_later_originals(after: int) -> None:
    held = three()
    rest = merged(*held[after:])
    found = remainder_of(merged(*held), after)
    rows = [row for segment in sorted(rest.rows) for row in rest.rows[segment]]
    assert found.parts == tuple((row, row.start) for row in rows)
    assert found.events == rest.manifest.events
    assert found.manifest.bytes == rest.manifest.bytes
    assert found.completed(rows, "here") == rest.manifest
    with pytest.raises(Damaged, match=r"has \d+ events, but its manifest says"):
        found.completed(rows[1:], "here")


def test_range_across_the_cut_belongs_to_the_remainder_from_the_cut_on() -> None:
    held = three()
    whole = merged(*held)
    before, after, *later = whole.rows[RIGHT]
    joined = ArchivedRange(RIGHT, before.start, after.end, before.events + after.events, "0" * 64)
    found = remainder_of(replace(whole, rows={**whole.rows, RIGHT: [joined, *later]}), 1)
    assert [part for part in found.parts if part[0].segment == RIGHT] == [
        (joined, held[0].manifest.to.offsets[RIGHT]),
        *((row, row.start) for row in later),
    ]
    assert found.manifest.bytes == merged(*held[1:]).manifest.bytes
