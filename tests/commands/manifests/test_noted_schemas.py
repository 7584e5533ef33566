"""The schemas that an export has noted: what keeps them, and what shows that they were altered."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    delete_archive,
    export_stream,
    import_stream,
    promote_replica,
    read_archive,
    replicate_stream,
    rotate_stream,
    write_table,
)
from streamvault.common.errors import Conflict, Damaged, Usage
from streamvault.exporter.run import ExportRun
from streamvault.layouts.keys import GenerationSpan, manifest_key
from streamvault.manifests.files import seal
from streamvault.spark.archive_source import ArchiveDataSource
from testkit.lakes import rows_of
from testkit.small_archives import NAME, Vault, a_root, archive_of, contents, is_sound, replace_object
from tests.told import Ran
from tests.unit.lake.test_registry import DATA, Group, export, framed


def add(vault: Vault, number: int, encoding: int) -> None:
    vault.add(framed(encoding, gzip.compress(b'{"id": %d}' % number)))


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """An archive of four generations: one before the registry, two that note what it has by then, one without it."""
    made = Vault(tmp_path)
    made.create()
    add(made, 0, 0)
    export(made)
    with Group(1) as server:
        add(made, 1, 0)
        export(made, server)
        server.encodings = 2
        add(made, 2, 1)
        export(made, server)
    add(made, 3, 1)
    export(made)
    return made


def noted(root: str) -> list[list[int] | None]:
    """The encodings that each generation has noted."""
    groups = [one.manifest.schemas for one in archive_of(root).history().generations]
    assert {len(group.unused) for group in groups if group} == {1}
    return [[one.encoding for one in group.entries] if group else None for group in groups]


def decoded(root: str) -> list[int]:
    """The field of all events, without a registry."""
    return list(read_archive(f"{root}/{NAME}", decode="registry", columns=["offset"]).read_all()["id"].to_pylist())


def test_what_remains_after_an_expiry_is_decoded_without_a_registry(vault: Vault) -> None:
    assert noted(vault.root) == [None, [0], [0, 1], [0, 1]]
    rotate_stream(vault.uri(), vault.root, keep=1, master="inline")
    assert noted(vault.root) == [[0, 1]]
    write_table(vault.archive, format="parquet", decode="registry", master="inline")
    assert [row["id"] for row in rows_of(vault.root)] == [3]
    add(vault, 4, 0)
    rotate_stream(vault.uri(), vault.root, keep=1, master="inline")
    assert noted(vault.root) == [[0, 1]]
    write_table(vault.archive, master="inline")
    assert [row["id"] for row in rows_of(vault.root)] == [3, 4]


@pytest.mark.parametrize("options", [{"limit": 1}, {"generation": 1}])
def test_events_before_the_first_notes_are_decoded(vault: Vault, options: dict[str, int]) -> None:
    found = read_archive(vault.archive, decode="registry", **options).read_all()
    assert (found["id"].to_pylist(), found["_error"].null_count) == ([0], 1)


def test_what_is_restored_up_to_the_first_notes_has_schemas(vault: Vault) -> None:
    said = pytest.raises(Conflict, match="the schemas cannot be registered with their ids")
    with Group(0) as server, said:  # but they are noted
        import_stream(vault.archive, vault.uri(NAME), generation=1, schemas=server.url, master="inline")


def tear(vault: Vault) -> None:
    """Damage the manifest of the newest generation."""
    key = f"{NAME}/{manifest_key(GenerationSpan.of(4))}"
    replace_object(vault.root, key, contents(vault.root)[key][:-40])


def forge(vault: Vault) -> None:
    """Give the newest generation another schema."""
    alter(vault, 4, sealed=True)


@pytest.mark.parametrize("harm", [tear, forge])
def test_newest_generation_that_is_bad_keeps_none_before_it_from_being_decoded(
    vault: Vault, harm: Callable[[Vault], None]
) -> None:
    harm(vault)
    for options in ({"limit": 2}, {"generation": 3}):
        found = read_archive(vault.archive, decode="registry", **options).read_all()
        assert found["id"].to_pylist() == [0, 1, 2][: found.num_rows]
    kept = ArchiveDataSource({"path": vault.archive, "generation": "3", "decode": "registry"})
    assert "id" in kept.schema().names
    with pytest.raises((Damaged, Conflict)):
        decoded(vault.root)


def test_only_what_the_fingerprints_cover_is_registered(vault: Vault) -> None:
    options: dict[str, Any] = {"generation": 1, "schemas": "http://127.0.0.1:1", "master": "inline"}
    pinned = archive_of(vault.root).found(1)[1]
    with pytest.raises(Usage, match="the archive has recorded no schemas"):
        import_stream(vault.archive, vault.uri(NAME), fingerprints=[pinned], **options)


def test_unfinished_export_is_not_resumed_with_another_group(vault: Vault) -> None:
    other = Vault(vault.folder, a_root())
    with Group(1) as server:
        with patch.object(ExportRun, "run", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            export(other, server)
        for group in ("another", None):
            with pytest.raises(Usage, match="other options: schema_group group"):
                export_stream(other.uri(), other.root, schemas=server.url, schema_group=group, master="inline")
        export(other, server)


def test_show_says_how_many_encodings_are_recorded(vault: Vault, ran: Ran) -> None:
    assert re.search(r"(?m)^schemas +2 encodings of the group group$", ran("show", vault.archive, code=0).out)
    assert "schemas" not in ran("show", vault.archive, "--generation", "1", code=0).out


def test_merged_generation_has_the_notes_of_all(vault: Vault) -> None:
    compact_archive(vault.archive, at_least=2, master="inline")
    assert noted(vault.root) == [[0, 1]]
    assert is_sound(vault.root)
    assert decoded(vault.root) == [0, 1, 2, 3]


def test_converted_archive_has_the_same_notes(vault: Vault) -> None:
    root = a_root()
    convert_archive(vault.archive, root, layout="chunks", master="inline")
    assert noted(root) == noted(vault.root)
    add(vault, 4, 1)
    export(vault)
    add(vault, 5, 1)
    export(vault)
    compact_archive(vault.archive, at_least=2, master="inline")
    convert_archive(vault.archive, root, layout="chunks", master="inline")
    assert noted(root) == [None, [0], [0, 1], [0, 1], [0, 1]]
    assert decoded(root) == list(range(6))


def test_an_archive_that_a_promoted_replica_continues_keeps_its_notes(vault: Vault, tmp_path: Path) -> None:
    standby = Vault(tmp_path / "standby", vault.root)
    replicate_stream(vault.archive, standby.uri(), master="inline")
    promote_replica(standby.uri())
    add(standby, 4, 1)
    export(standby)
    assert noted(vault.root) == [None, [0], [0, 1], [0, 1], [0, 1]]
    assert decoded(vault.root) == list(range(5))


def test_a_deletion_deletes_the_notes(vault: Vault) -> None:
    assert [DATA.encode() in data for data in contents(vault.root).values()].count(True) == 3
    delete_archive(vault.archive, yes=True)
    assert not any(DATA.encode() in data for data in contents(vault.root).values())


def alter(vault: Vault, generation: int, *, sealed: bool) -> None:
    """Replace a schema in a manifest, and its SHA-256 if it is sealed."""
    key = f"{NAME}/{manifest_key(GenerationSpan.of(generation))}"
    data = contents(vault.root)[key].replace(DATA.encode(), b64encode(b"{}"))
    document = json.loads(data)
    del document["sha256"]
    replace_object(vault.root, key, seal(document) if sealed else data)


def test_changed_notes_are_damage(vault: Vault) -> None:
    alter(vault, 2, sealed=False)
    with pytest.raises(Damaged, match="the file was changed after it was written"):
        check_archive(vault.archive)


def test_forged_notes_are_shown_by_the_fingerprint_and_by_the_mark(vault: Vault) -> None:
    fingerprints = list(check_archive(vault.archive, read_data=True, master="inline").fingerprints.values())
    assert check_archive(vault.archive, fingerprints=fingerprints).ok
    for generation in (2, 3, 4):
        alter(vault, generation, sealed=True)
    with pytest.raises(Damaged, match="not the expected one"):
        check_archive(vault.archive, fingerprints=fingerprints)
    notes = check_archive(vault.archive, read_data=True, master="inline").notes
    told = [note.partition(":")[0] for note in notes]
    assert told == [f"generation {number} does not count as read back" for number in (2, 3, 4)]
    with pytest.raises(Damaged, match="the mark belongs to a different manifest"):
        rotate_stream(vault.uri(), vault.root, truncate_source=True, master="inline")


def test_forged_notes_of_one_generation_stop_what_decodes(vault: Vault) -> None:
    alter(vault, 2, sealed=True)
    with pytest.raises(Conflict, match="have recorded different schemas: encoding 0 of group has two schemas"):
        decoded(vault.root)
    assert "have recorded different schemas" in " ".join(check_archive(vault.archive, master="inline").notes)
