"""The totals of an archive, which `ls` takes from its newest manifest and its oldest one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streamvault import check_archive, convert_archive, list_archives, rotate_stream, write_table
from streamvault.common.errors import Damaged
from streamvault.layouts.keys import GenerationSpan, manifest_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import GapEntry, Manifest, Totals
from streamvault.streamstore.model import StreamCut
from testkit.small_archives import (
    NAME,
    RANGE_SIZE,
    Vault,
    a_root,
    archive_of,
    contents,
    merge,
    objects_of,
    replace_object,
)
from tests.counting import counted


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """A stream of six generations, of which the third and the fifth have gaps."""
    made = Vault(tmp_path)
    made.create()
    for number in range(1, 7):
        made.add(*(b"%d" % number * (10 * number) for _ in range(number)))
        if number in {3, 5}:
            made.truncate(made.tail().popitem()[1])
            made.add(b"after the gap")
        made.export("chunks", same_stream=number in {3, 5})
    return made


def rotate(vault: Vault, keep: int) -> None:
    rotate_stream(vault.uri(), vault.root, layout="chunks", range_size=RANGE_SIZE, keep=keep, master="inline")


def add_one(vault: Vault) -> None:
    vault.add(b"one more")
    vault.export("chunks")


def convert(vault: Vault) -> None:
    root = a_root()
    convert_archive(vault.archive, root, layout="events", master="inline")
    for key, data in contents(root).items():
        objects_of(vault.root).put(f"converted/{key}", data)


def hand_off(vault: Vault) -> None:
    write_table(vault.archive, format="parquet", master="inline")


def forget_totals(vault: Vault) -> None:
    """Leave the manifests as an earlier release has written them."""
    for number in range(1, 7):
        forge(vault, number, None)


Step = Callable[[Vault], object]
CASES: dict[str, Sequence[Step]] = {
    "as exported": [],
    "merged": [lambda vault: merge(vault, 2, 4)],
    "merged from the first": [lambda vault: merge(vault, 1, 3)],
    "merged twice": [lambda vault: merge(vault, 2, 3), lambda vault: merge(vault, 2, 5), add_one],
    "expired": [lambda vault: rotate(vault, 3)],
    "expired, then merged": [lambda vault: rotate(vault, 4), lambda vault: merge(vault, 3, 5), add_one],
    "merged, then expired": [lambda vault: merge(vault, 2, 3), lambda vault: rotate(vault, 4), add_one],
    "converted": [lambda vault: rotate(vault, 4), convert],
    "a table": [
        lambda vault: rotate(vault, 4),
        hand_off,
        add_one,
        hand_off,
        lambda vault: merge(vault, 4, 6),
        hand_off,
    ],
    "a table of merged generations": [lambda vault: merge(vault, 2, 3), hand_off, add_one, hand_off],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_totals_are_those_of_the_generations_in_force(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, steps: Sequence[Step]
) -> None:
    for step in steps:
        step(vault)
    with counted(monkeypatch) as requests:
        found = list_archives(vault.root)
    # a decision, the newest manifest with its mark, and the oldest of each
    assert requests[0].gets <= 4 * len(found)
    assert len(found) == 1 + bool({convert, hand_off} & set(steps))
    for one in found:
        archive = Archive.open(one.archive)
        there = archive.table_archive(one.table) if one.table else archive
        expected = summed(there)
        assert (one.events, one.bytes, one.gap_bytes) == tuple(expected[name] for name in Totals.model_fields)
    assert found[0].gap_bytes
    assert not any("totals" in note for note in check_archive(vault.archive, master="inline").notes)


def summed(archive: Archive) -> Counter[str]:
    found = Counter[str]()
    for span in archive.listing().spans:
        manifest = archive.read_manifest(span)
        found.update(events=manifest.events, bytes=manifest.bytes)
        found.update(gap_bytes=sum(gap.end - gap.start for gap in manifest.gaps))
    return found


def forge(vault: Vault, generation: int, before: Totals | None) -> Manifest:
    """Sign a manifest again with other totals."""
    forged = archive_of(vault.root).manifest(generation).model_copy(update={"before": before})
    replace_object(vault.root, f"{NAME}/{manifest_key(GenerationSpan.of(generation))}", forged.encode())
    return forged


def test_totals_of_an_earlier_release_are_added_up(vault: Vault) -> None:
    expected = list_archives(vault.root)
    forget_totals(vault)
    assert list_archives(vault.root) == expected
    add_one(vault)
    assert archive_of(vault.root).manifest().before is None
    (found,) = list_archives(vault.root)
    assert (found.events, found.problem) == (expected[0].events + 1, "")


def test_wrong_totals_are_noted(vault: Vault) -> None:
    forge(vault, 6, Totals(events=1))
    report = check_archive(vault.archive, master="inline")
    assert (report.ok, report.notes) == (
        True,
        ("generation 6 has wrong totals of the generations before it, which 'ls' and 'status' show",),
    )


def test_totals_that_are_impossible_are_a_problem(vault: Vault) -> None:
    rotate(vault, 2)
    forge(vault, 6, Totals())
    (found,) = list_archives(vault.root)
    assert "generation 6 has lower totals than there were before generation 5" in found.problem


def test_gaps_beyond_all_limits_end_no_listing(vault: Vault) -> None:
    newest = archive_of(vault.root).manifest()
    end = 2**63 - 1
    (entry,) = newest.segments
    entry = entry.model_copy(update={"end": end})
    gaps = 2 * (GapEntry(segment=entry.name, start=entry.start, end=end, reason="forged"),)
    to = StreamCut(NAME, dict.fromkeys(newest.to.offsets, end))
    members = {"segments": (entry,), "gaps": gaps, "to": to, "witness": ()}
    replace_object(
        vault.root,
        f"{NAME}/{manifest_key(GenerationSpan.of(6))}",
        newest.model_copy(update=members).encode(),
    )
    (found,) = list_archives(vault.root)
    assert found.gap_bytes > end
    with pytest.raises(Damaged, match="are not contiguous"):
        check_archive(vault.archive, master="inline")


def test_totals_before_the_first_generation_are_noted(vault: Vault) -> None:
    forge(vault, 1, Totals(events=1))
    assert "generation 1 has wrong totals" in " ".join(check_archive(vault.archive, master="inline").notes)


def test_totals_beyond_all_limits_are_not_carried_on(vault: Vault) -> None:
    forge(vault, 6, Totals(bytes=2**63 - 1))
    add_one(vault)
    assert archive_of(vault.root).manifest().before is None
