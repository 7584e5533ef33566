"""The checksums of ranges' blocks that an archive notes, through all verbs that write archives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from streamvault import check_archive, convert_archive, delete_archive, import_stream, rotate_stream, write_table
from streamvault.common.errors import Damaged
from streamvault.common.units import now_utc
from streamvault.layouts.archived_range import ArchivedRange, BlockChecksums, block_checksums_hash
from streamvault.layouts.keys import GenerationSpan, blocks_key, checked_key, manifest_key, plan_key, ranges_key
from streamvault.layouts.layout import Compression
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.damage import ArchivedPart, read_verified
from streamvault.manifests.files import find_file
from streamvault.manifests.merging import delete_replaced
from streamvault.manifests.noted_blocks import NotedBlocks, with_noted_blocks
from streamvault.manifests.verbs import check_ranges
from streamvault.manifests.verbs.reports import CheckReport
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import AccessDenied
from streamvault.streamstore.model import StreamName
from testkit.small_archives import (
    NAME,
    RANGE_SIZE,
    Vault,
    a_root,
    archive_of,
    before_a_decision,
    clear,
    contents,
    data_keys,
    is_sound,
    merge,
    objects_of,
    replace_object,
)
from tests.commands.manifests.test_check_notes import sign_again

RESTORED = StreamName("scope", "restored")
WRONG = "the range matches its digest, but the checksums of its blocks do not match its bytes"


@pytest.fixture(params=["", "zstd"], ids=["raw", "zstd"])
def vault(tmp_path: Path, request: pytest.FixtureRequest) -> Vault:
    """An archive of three generations."""
    made = Vault(tmp_path)
    made.make(events=40, largest=9000)
    for number in range(3):
        made.add(b"%d" % number * 50)
        made.export("chunks", request.param)
    return made


def parts_of(archive: Archive) -> list[ArchivedPart]:
    history = archive.history()
    held = [(layout, row) for segment in history.segments() for layout, row in history.ranges(segment)]
    return [ArchivedPart.all_of(archive.address, layout, row) for layout, row in held]


def checksums_of(part: ArchivedPart) -> str:
    """The checksums of a range's blocks."""
    checksums = BlockChecksums()
    for block in read_verified(part):
        checksums.update(block)
    return checksums.finish()[1]


def are_noted(archive: Archive) -> bool:
    """Whether each range has those of its bytes; fails if they are wrong."""
    found = set()
    for part in parts_of(archive):
        found.add(part.row.block_checksums == checksums_of(part))
        assert part.row.block_checksums in {"", checksums_of(part)}
    (all_or_none,) = found
    return all_or_none


@pytest.mark.parametrize("compress", ["", "zstd"])
def test_new_chunks_have_them_and_tables_and_events_do_not(vault: Vault, compress: Compression) -> None:
    assert are_noted(archive_of(vault.root))
    merge(vault, 1, 3)
    assert are_noted(archive_of(vault.root))
    chunks, events = a_root(), a_root()
    convert_archive(vault.archive, chunks, layout="chunks", compress=compress, master="inline")
    assert are_noted(archive_of(chunks))
    assert is_sound(chunks)
    convert_archive(vault.archive, events, layout="events", master="inline")
    assert not are_noted(archive_of(events))
    write_table(vault.archive, table="orders", format="parquet", master="inline")
    table = archive_of(vault.root).table_archive("orders")
    rows = [row for one in table.history().generations for some in one.rows.values() for row in some]
    assert {row.block_checksums for row in rows} == {""}


def test_wrong_ones_in_the_index_are_damage_and_take_nothing_of_the_data(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=40, largest=9000)
    vault.export("chunks")
    rows = [part.row for part in parts_of(archive_of(vault.root))]
    at, first = max(enumerate(rows), key=lambda found: found[1].events)
    wrong: ArchivedRange = replace(first, block_checksums="AAAAAAAAAAA=")
    sign_again(vault, [*rows[:at], wrong, *rows[at + 1 :]])
    report = check_archive(vault.archive, read_data=True, master="inline")
    (damage,) = report.damage
    assert damage.what == WRONG
    assert report.marked == ()
    import_stream(vault.archive, vault.uri(RESTORED), skip_damaged=True, master="inline")
    assert vault.digest(RESTORED) == vault.digest()


def test_a_check_holds_hashes_unless_it_is_to_note_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the index has those of some ranges, what is noted has those of all."""
    vault = Vault(tmp_path)
    vault.make(events=40, largest=9000)
    vault.export("chunks")
    parts, held = parts_of(archive_of(vault.root)), list[str]()
    compare = check_ranges._compare_blocks

    def noting(part: ArchivedPart) -> object:
        held.append(part.row.block_checksums)
        return compare(part)

    monkeypatch.setattr(check_ranges, "_compare_blocks", noting)
    sign_again(vault, [replace(parts[0].row, block_checksums=""), *(part.row for part in parts[1:])])
    assert read_all(vault).notes == ("the checksums of blocks were recorded for generation 1",)
    assert sorted(held) == sorted(["", *(part.row.block_checksums for part in parts[1:])])
    noted = find_file(NotedBlocks, objects_of(vault.root), key_of(1))
    assert noted is not None
    assert noted.ranges == tuple(part.row.block_checksums for part in parts)
    del held[:]
    assert (read_all(vault).ok, read_all(vault).notes) == (True, ())
    assert sorted(held) == sorted(2 * [block_checksums_hash(part.row.block_checksums) for part in parts])


NOTED = ".blocks.json"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vault:
    """An archive of three generations, as an earlier release writes them."""
    with monkeypatch.context() as patched:
        patched.setattr("streamvault.manifests.index.MAX_WITH_BLOCKS", 0)
        made = Vault(tmp_path)
        made.make(events=40, largest=9000)
        for number in range(3):
            made.add(b"%d" % number * 50)
            made.export("chunks")
    assert not are_noted(archive_of(made.root))
    return made


def read_all(vault: Vault) -> CheckReport:
    return check_archive(vault.archive, read_data=True, master="inline")


def noted_keys(vault: Vault) -> list[str]:
    return [key for key in contents(vault.root) if key.endswith(NOTED)]


def key_of(number: int) -> str:
    return f"{NAME}/{blocks_key(GenerationSpan.of(number))}"


def test_check_that_reads_all_notes_those_of_an_older_archive(old: Vault) -> None:
    assert not check_archive(old.archive, subset=0.9, master="inline").damage
    assert noted_keys(old) == []
    report = read_all(old)
    assert report.notes == ("the checksums of blocks were recorded for generation 1, generation 2, generation 3",)
    assert noted_keys(old) == [key_of(number) for number in (1, 2, 3)]
    archive = archive_of(old.root)
    for each in archive.history().generations:
        held = with_noted_blocks(archive.place, each)
        for row in (row for rows in held.rows.values() for row in rows):
            part = ArchivedPart.all_of(archive.address, held.layout, row)
            assert checksums_of(part) == row.block_checksums != ""
    before = contents(old.root)
    assert (read_all(old).ok, read_all(old).notes, contents(old.root)) == (True, (), before)


def test_nothing_is_noted_of_a_damaged_archive_nor_of_events(old: Vault) -> None:
    events = a_root()
    convert_archive(old.archive, events, layout="events", master="inline")
    assert is_sound(events)
    assert not [key for key in contents(events) if key.endswith(NOTED)]
    replace_object(old.root, data_keys(old.root)[0], None)
    assert not read_all(old).ok
    assert noted_keys(old) == []


def changed(**update: object) -> Callable[[NotedBlocks], bytes]:
    return lambda noted: noted.model_copy(update=update).encode()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: b"x", "not complete JSON"),
        (lambda noted: noted.encode()[:-3], "not complete JSON"),
        (lambda noted: noted.encode().replace(b'"ranges"', b'"Ranges"'), "SHA-256 does not match|valid"),
        (changed(generation=2), "those of another generation"),
        (changed(stream="other"), "those of another generation"),
        (changed(digest="0" * 64), "those of another generation"),
        (lambda noted: changed(ranges=noted.ranges[1:])(noted), "not those of the ranges"),
        (lambda noted: changed(ranges=("x", *noted.ranges[1:]))(noted), "not those of the ranges"),
        (lambda noted: changed(ranges=("", *noted.ranges[1:]))(noted), "not those of the ranges"),
    ],
)
def test_note_that_is_not_of_the_generation_is_damage_and_named(
    old: Vault, change: Callable[[NotedBlocks], bytes], expected: str
) -> None:
    read_all(old)
    noted = find_file(NotedBlocks, objects_of(old.root), key_of(1))
    assert noted is not None
    replace_object(old.root, key_of(1), change(noted))
    with pytest.raises(Damaged, match=expected) as caught:
        check_archive(old.archive)
    assert key_of(1) in caught.value.where
    assert f"Delete {old.root}/{key_of(1)}" in caught.value.todo
    import_stream(old.archive, old.uri(RESTORED), master="inline")  # which compares digests
    replace_object(old.root, key_of(1), None)
    assert read_all(old).notes == ("the checksums of blocks were recorded for generation 1",)


def test_wrong_noted_ones_are_damage(old: Vault) -> None:
    read_all(old)
    noted = find_file(NotedBlocks, objects_of(old.root), key_of(2))
    assert noted is not None
    replace_object(
        old.root, key_of(2), noted.model_copy(update={"ranges": ("AAAAAAAAAAA=",) * len(noted.ranges)}).encode()
    )
    assert check_archive(old.archive).ok
    report = read_all(old)
    assert {one.generation for one in report.damage} == {2}
    assert {one.what for one in report.damage} == {WRONG}


def late(old: Vault, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> CheckReport:
    """Check everything, stopped before the first note."""
    before_a_decision(monkeypatch, happens, part=NOTED)
    return read_all(old)


def rotate(vault: Vault, keep: int) -> object:
    return rotate_stream(vault.uri(), vault.root, keep=keep, layout="chunks", range_size=RANGE_SIZE, master="inline")


def test_late_notes_go_with_the_next_deletion(old: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    late(old, monkeypatch, lambda: rotate(old, keep=1))
    assert noted_keys(old) == [key_of(number) for number in (1, 2, 3)]
    assert is_sound(old.root)
    rotate(old, keep=1)
    assert noted_keys(old) == [key_of(3)]


def test_late_notes_of_merged_generations_go_with_the_next_deletion(
    old: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merged() -> None:
        merge(old, 1, 3)
        clear(old)

    late(old, monkeypatch, merged)
    assert key_of(1) in noted_keys(old)
    assert is_sound(old.root)
    delete_replaced(archive_of(old.root), now=now_utc() + timedelta(hours=2))
    assert {key_of(1), key_of(2), key_of(3)}.isdisjoint(noted_keys(old))


def test_late_notes_bring_no_deleted_archive_back(old: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    late(old, monkeypatch, lambda: delete_archive(old.archive, yes=True))
    assert noted_keys(old)
    with pytest.raises(NoSuchArchive, match="the archive was deleted"):
        check_archive(old.archive)
    assert not delete_archive(old.archive, yes=True).unchanged
    assert noted_keys(old) == []


def test_two_checks_at_once_note_each_generation_once(old: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[CheckReport] = []
    assert late(old, monkeypatch, lambda: others.append(read_all(old))).ok
    assert others[0].notes == ("the checksums of blocks were recorded for generation 1, generation 2, generation 3",)
    assert is_sound(old.root)


def test_note_without_its_manifest_shows_that_the_generation_was_published(old: Vault) -> None:
    read_all(old)
    for key in (manifest_key, ranges_key, checked_key):
        replace_object(old.root, f"{NAME}/{key(GenerationSpan.of(3))}", None)
    with pytest.raises(Damaged, match="the manifest of generation 3 is missing"):
        check_archive(old.archive)
    with pytest.raises(Damaged, match="the manifest of generation 3 is missing"):
        old.export("chunks")
    objects_of(old.root).put(f"{NAME}/{plan_key(GenerationSpan.of(3))}", b"")  # of a run that is later still
    assert archive_of(old.root).listing().missing == 3


def test_login_that_may_not_write_them_gets_a_note(old: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    put = ObstoreStore.put

    def refused(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        if key.endswith(NOTED):
            raise AccessDenied("access denied", where=key)
        put(self, key, data)

    monkeypatch.setattr(ObstoreStore, "put", refused)
    report = read_all(old)
    assert (report.ok, report.marked) == (True, (1, 2, 3))
    assert report.notes == (f"the checksums of blocks of generation 1 cannot be recorded: access denied: {key_of(1)}",)
