"""Merging generations whose range sizes differ: the result follows from the first and the last generation alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamvault import compact_archive, convert_archive, export_stream, import_stream
from streamvault.common.errors import Damaged, Failed
from streamvault.exporter import archived_events
from streamvault.layouts.keys import GenerationSpan, chunk_key, plan_key
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests.plan import FinishedSpan, RangeEntry, leave_row
from streamvault.streamstore.model import SegmentId, StreamName
from testkit.small_archives import KINDS, NAME, Vault, a_root, archive_of, clear, contents, is_sound, merge
from testkit.streams import digest_of

K = 1024
SEGMENT = SegmentId(0, 0)
SIZES = ((10, 8), (3, 8), (7, 8), (4, 12))
"""Of each generation: KiB, and its range size in KiB. Ranges end at 8, 10, 13, 16, 20 and 24."""


def grown(folder: Path, kind: tuple[LayoutName, Compression], sizes: tuple[tuple[int, int], ...] = SIZES) -> Vault:
    vault = Vault(folder)
    vault.create()
    for number, (count, size) in enumerate(sizes):
        vault.add(*(bytes([number]) * (K - 8) for _ in range(count)))
        export_stream(
            vault.uri(), vault.root, layout=kind[0], compress=kind[1], range_size=size * K, master="inline[1]"
        )
    return vault


@pytest.fixture
def chunks(tmp_path: Path) -> Vault:
    return grown(tmp_path, ("chunks", ""))


def rows(vault: Vault) -> dict[tuple[int, int], list[tuple[int, int]]]:
    archive = archive_of(vault.root)
    return {
        tuple(span): [(row.start // K, row.end // K) for row in archive.load_span(span).rows[SEGMENT]]
        for span in archive.listing().spans
    }


def merges(vault: Vault, **options: Any) -> list[tuple[int, int]]:
    return [(run.first, run.generation) for run in compact_archive(vault.archive, master="inline[1]", **options).runs]


def is_the_stream(vault: Vault) -> bool:
    target = StreamName("scope", "copy")
    import_stream(vault.archive, vault.uri(target), master="inline[1]")
    with vault.store as store:
        assert digest_of(store, target) == digest_of(store, NAME)
    return is_sound(vault.root)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_generations_of_other_range_sizes_are_not_merged(tmp_path: Path, kind: tuple[LayoutName, Compression]) -> None:
    vault = grown(tmp_path, kind)
    assert merges(vault) == [(1, 4 if kind[0] == "events" else 3)]
    assert is_the_stream(vault)


def test_merged_ranges_of_several_sizes_do_not_depend_on_the_steps(tmp_path: Path) -> None:
    vault = grown(tmp_path, ("chunks", ""), ((5, 4), (3, 4), (7, 8), (4, 4), (6, 16), (9, 4)))
    twin = Vault(tmp_path, a_root())
    convert_archive(vault.archive, twin.root, layout="chunks", master="inline[1]")
    assert merges(vault) == [(1, 6)]
    for target in (9, 16, 25, 100):
        merges(twin, target=target * K)
    assert rows(twin) == rows(vault) == {(1, 6): [(0, 16), (16, 32), (32, 34)]}
    clear(twin)
    assert is_the_stream(twin)


def test_row_of_a_chunk_that_ends_elsewhere_does_not_count(chunks: Vault) -> None:
    archive, span = archive_of(chunks.root), GenerationSpan(1, 3)
    piece = RangeEntry(start=0, end=13 * K, events=13, digest="0" * 64)
    row = FinishedSpan(start=8 * K, end=13 * K, ranges=(piece.model_copy(update={"start": 8 * K, "events": 5}),))
    leave_row(archive.place, span, SEGMENT, row)
    begun(chunks, span)
    assert merges(chunks) == [(1, 3)]
    assert rows(chunks)[1, 3] == [(0, 8), (8, 16), (16, 20)]
    assert is_the_stream(chunks)


def begun(vault: Vault, span: GenerationSpan, at: str = "rewrite_range") -> None:
    """Begin a merge, and stop it once it has a plan."""

    def stopped(*_: object, **__: object) -> Any:
        raise Failed("stopped for a test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archived_events, at, stopped)
        with pytest.raises(Failed):
            merge(vault, *span)


def test_merge_that_an_earlier_version_has_planned_is_not_gone_on_with(chunks: Vault) -> None:
    span = GenerationSpan(1, 4)
    begun(chunks, span)
    assert f"{NAME}/{plan_key(span)}" in contents(chunks.root)
    assert merges(chunks) == [(1, 3)]
    assert is_the_stream(chunks)


def test_merge_is_decided_only_if_all_its_objects_are_listed(chunks: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = rows(chunks), archived_events.rewrite_range

    def losing(task: Any) -> RangeEntry:
        piece = real(task)
        archive_of(chunks.root).store.delete([f"{NAME}/{chunk_key(SEGMENT, piece.start, piece.end - piece.start)}"])
        return piece

    monkeypatch.setattr(archived_events, "rewrite_range", losing)
    with pytest.raises(Damaged, match="object is missing"):
        merges(chunks)
    assert rows(chunks) == before
    assert archive_of(chunks.root).listing().undecided == ()
