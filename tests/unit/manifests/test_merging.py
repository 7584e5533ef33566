"""What is left of a merged generation after one of its originals is what a merge of the later ones would be.

Deletion of what merges have replaced: the only copy that was read back stays, whatever happens meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamvault import compact_archive, export_stream
from streamvault.common.errors import Damaged, Failed
from streamvault.common.progress import Progress
from streamvault.common.units import now_utc
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import GenerationSpan, checked_key, chunk_key
from streamvault.manifests import merging
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import find_checked
from streamvault.manifests.history import Generation, by_segment
from streamvault.manifests.merging import Merger, delete_replaced, remainder_of, replacements
from streamvault.manifests.verbs.check import read_back
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.inline import InlineRunner
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId
from testkit.small_archives import NAME, Vault, archive_of, contents, merge, objects_of, replace_object
from tests.archives import EPOCHS, LEFT, RIGHT, Hole, Made, generation

NEW = SegmentId(1, 2)
SCALED = EPOCHS.then(Epoch(1, {RIGHT: KeyRange(0.5, 1.0), NEW: KeyRange(0.0, 0.5)}))


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


LATER = timedelta(hours=2)
RANGE_SIZE = 16 * 1024
SEGMENT = SegmentId(0, 0)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """Four generations; the second ends in the middle of a cell, in which the third and the fourth go on."""
    vault = Vault(tmp_path)
    vault.create()
    for number, size in enumerate((1000, 1000, 300, 100)):
        vault.add(*(bytes([number]) * size for _ in range(10)))
        export_stream(vault.uri(), vault.root, layout="chunks", range_size=RANGE_SIZE, master="inline[1]")
    return vault


def reads_back(vault: Vault, *numbers: int) -> None:
    read_back(archive_of(vault.root), lambda: InlineRunner(1), Progress(), numbers)


def chunks_of(vault: Vault, first: int, last: int) -> set[str]:
    rows = archive_of(vault.root).load_span(GenerationSpan(first, last)).rows[SEGMENT]
    return {f"{NAME}/{chunk_key(SEGMENT, row.start, row.end - row.start)}" for row in rows}


def once_before(monkeypatch: pytest.MonkeyPatch, name: str, happens: Callable[[], object]) -> None:
    real = getattr(merging, name)

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(merging, name, real)
        happens()
        return real(*arguments)

    monkeypatch.setattr(merging, name, late)


@pytest.mark.parametrize("name", ["open_locks", "_ends", "_delete"])
def test_copy_that_was_read_back_stays_if_it_is_merged_meanwhile(
    vault: Vault, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion pauses anywhere after it has found what is due; what is merged then has no mark yet."""
    merge(vault, 1, 2)
    reads_back(vault, 2)
    proved = chunks_of(vault, 1, 2)
    if name == "open_locks":

        def late(_: object) -> None:
            merge(vault, 1, 3)

        monkeypatch.setattr(RootAddress, "open_locks", late)
    else:
        once_before(monkeypatch, name, lambda: merge(vault, 1, 3))
    deleted, _ = delete_replaced(archive_of(vault.root), now=now_utc() + LATER)
    assert deleted.objects > 0
    assert archive_of(vault.root).listing().spans == ((1, 3), (4, 4))
    assert proved <= set(contents(vault.root))


def test_mark_of_another_manifest_keeps_what_was_replaced(vault: Vault) -> None:
    merge(vault, 1, 2)
    reads_back(vault, 1, 2, 3, 4)
    key = f"{NAME}/{checked_key(GenerationSpan(1, 2))}"
    mark = find_checked(objects_of(vault.root), NAME, GenerationSpan(1, 2))
    assert mark is not None
    replace_object(vault.root, key, mark.model_copy(update={"digest": "0" * 64}).encode())
    before = contents(vault.root)
    with pytest.raises(Damaged, match="to a different manifest"):
        delete_replaced(archive_of(vault.root), now=now_utc() + LATER)
    assert contents(vault.root) == before


def stopped(*_: object, **__: object) -> Any:
    raise Failed("stopped for a test")


def test_span_in_force_without_its_mark_stops_the_deletion(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """An abandoned merge of 2 and 3 lies across two others, of which one was not read back."""

    reads_back(vault, 1, 2, 3, 4)
    with monkeypatch.context() as patch:
        patch.setattr(Archive, "decide", stopped)
        with pytest.raises(Failed):
            merge(vault, 2, 3)
    proved = chunks_of(vault, 3, 3)
    merge(vault, 1, 2)
    merge(vault, 3, 4)
    reads_back(vault, 2)
    archive = archive_of(vault.root)
    waiting = delete_replaced(archive, now=now_utc() + LATER)[1]
    assert [(one.span, one.unchecked) for one in waiting] == [((1, 2), (4,)), ((3, 4), (4,))]
    assert proved <= set(contents(vault.root))
    # the next compaction reads back what is needed, and clears everything
    monkeypatch.setattr("streamvault.exporter.compact.now_utc", lambda: now_utc() + LATER)
    monkeypatch.setattr(merging, "now_utc", lambda: now_utc() + LATER)
    report = compact_archive(vault.archive, target=1, master="inline[1]")
    assert report.waits_until == ""
    assert replacements(archive, archive.listing()) == []


def test_compaction_reads_back_what_lies_beside_an_abandoned_merge(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generation 3 is not merged, so nothing else would read it back; the abandoned merge of 2 and 3 waits for it."""
    with monkeypatch.context() as patch:
        patch.setattr(Archive, "decide", stopped)
        with pytest.raises(Failed):
            merge(vault, 2, 3)
    merge(vault, 1, 2)
    monkeypatch.setattr("streamvault.exporter.compact.now_utc", lambda: now_utc() + LATER)
    monkeypatch.setattr(merging, "now_utc", lambda: now_utc() + LATER)
    assert compact_archive(vault.archive, target=1, master="inline[1]").waits_until == ""
    assert archive_of(vault.root).listing().checked == {2, 3}


def due(vault: Vault) -> datetime:
    archive = archive_of(vault.root)
    return max(one.due for one in replacements(archive, archive.listing()))


def test_each_merge_has_its_own_grace(vault: Vault) -> None:
    """A later merge with a shorter grace does not shorten that of an earlier one, nor a longer one that of its own."""
    merge(vault, 1, 2, grace=24 * 3600.0)
    promised = due(vault)
    merge(vault, 1, 3, grace=600.0)
    assert due(vault) == promised
    merge(vault, 1, 4, grace=48 * 3600.0)
    assert due(vault) > promised + timedelta(hours=23)
    reads_back(vault, 4)
    assert delete_replaced(archive_of(vault.root), now=promised)[0].objects == 0
