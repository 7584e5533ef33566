"""Merging generations whose range sizes differ, and any sequence of merges: the archive holds the stream."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    export_stream,
    hold_archive,
    import_stream,
    release_archive,
    rotate_stream,
)
from streamvault.common.errors import Damaged, Failed
from streamvault.exporter import archived_events
from streamvault.layouts.keys import GenerationSpan, chunk_key, plan_key
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests.merging import delete_replaced
from streamvault.manifests.plan import FinishedSpan, RangeEntry, leave_row
from streamvault.manifests.verbs.delete import NoSuchHold
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName
from testkit.killed import stopped_at
from testkit.small_archives import KINDS, NAME, Vault, a_root, archive_of, clear, contents, is_sound, merge, segments_of

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
    assert vault.digest(target) == vault.digest()
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
    with stopped_at(archived_events, at, Failed("stopped for a test")):
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


RANGE_SIZE = 2048
CHUNKS: dict[str, Any] = {"layout": "chunks", "range_size": RANGE_SIZE, "master": "inline[2]"}

Step = tuple[str, int]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("export"), st.integers(1, 40)),
        st.tuples(st.just("expire"), st.integers(1, 6)),
        st.tuples(st.just("hold"), st.integers(0, 5)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("compact"), st.sampled_from([2000, 8000, 1_000_000])),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    min_size=4,
    max_size=10,
)


def take(vault: Vault, step: Step) -> None:
    what, size = step
    archive = archive_of(vault.root)
    if what == "export":
        vault.add(*(b"%d" % index * (index % 7) for index in range(size)))
        export_stream(vault.uri(), vault.root, **CHUNKS)
    elif what == "expire":
        rotate_stream(vault.uri(), vault.root, keep=size, **CHUNKS)
    elif what == "hold":
        listing = archive.listing()
        originals = range(listing.dropped + 1, listing.newest + 1)
        hold_archive(vault.archive, "a", generation=originals[size % len(originals)])
    elif what == "release":
        with suppress(NoSuchHold):
            release_archive(vault.archive, "a")
    elif what == "compact":
        compact_archive(vault.archive, target=size, master="inline[2]")
    else:
        clear(vault)


def equals_the_stream(vault: Vault, cuts: dict[int, StreamCut]) -> None:
    archive = archive_of(vault.root)
    history, listing = archive.history(), archive.listing()
    assert history.tail == cuts[history.generation]
    assert history.head == cuts[listing.dropped]
    for number in range(listing.dropped + 1, listing.newest + 1):
        assert archive.history(number).tail == cuts[number]
    held: dict[str, bytes] = {}
    for (_, segment), data in sorted(segments_of(vault.root).items()):
        held[segment] = held.get(segment, b"") + data
    with vault.store as store:
        for segment, (start, end) in segments_between(history.description, history.head, history.tail).items():
            until = store.segment_info(NAME, [segment])[0].write_offset if end is None else end
            assert held.get(str(segment), b"") == b"".join(map(bytes, store.read(NAME, segment, start, until)))


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_archive_equals_the_stream_after_any_steps(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(Path(folder), a_root())
        vault.make(events=30, largest=400)
        cuts: dict[int, StreamCut] = {}
        for step in [("export", 5), ("export", 9), *steps, ("clear", 0)]:
            take(vault, step)
            manifest = archive_of(vault.root).manifest()
            if not cuts:
                cuts[0] = manifest.from_
            cuts[manifest.generation] = manifest.to
            equals_the_stream(vault, cuts)
            report = check_archive(vault.archive)
            assert report.ok, (step, report.findings)
        report = check_archive(vault.archive, read_data=True, master="inline[2]")
        assert report.ok, report.findings
        # none of the replaced objects is left
        assert archive_of(vault.root).listing().replaced == ()
        deleted, _ = delete_replaced(archive_of(vault.root))
        assert deleted.objects == 0
