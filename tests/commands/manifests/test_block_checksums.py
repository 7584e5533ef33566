"""The checksums of ranges' blocks that an archive notes, through all verbs that write archives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamvault import check_archive, convert_archive, import_stream, write_table
from streamvault.layouts.archived_range import ArchivedRange, BlockChecksums
from streamvault.layouts.layout import Compression
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart, read_verified
from streamvault.streamstore.model import StreamName
from testkit.small_archives import Vault, a_root, archive_of, is_sound, merge
from tests.commands.manifests.test_check_notes import sign_again

RESTORED = StreamName("scope", "restored")


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


def are_noted(archive: Archive) -> bool:
    """Whether each range has those of its bytes; fails if they are wrong."""
    found = set()
    for part in parts_of(archive):
        checksums = BlockChecksums()
        for block in read_verified(part):
            checksums.update(block)
        found.add(part.row.block_checksums == checksums.finish()[1])
        assert part.row.block_checksums in {"", checksums.finish()[1]}
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
    assert damage.what == "the range has its digest, but the checksums of its blocks are not those of its bytes"
    assert report.marked == ()
    import_stream(vault.archive, vault.uri(RESTORED), skip_damaged=True, master="inline")
    assert vault.digest(RESTORED) == vault.digest()
