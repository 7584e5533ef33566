"""What is wrong though every signature is right, and what is reported without being damage.

The schemas that an export has noted: what keeps them, and what shows that they were altered.
"""

from __future__ import annotations

import gzip
import hashlib
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
    list_archives,
    promote_replica,
    read_archive,
    replicate_stream,
    rotate_stream,
    show_status,
    show_timeline,
    write_table,
)
from streamvault.common.errors import Conflict, Damaged, Usage
from streamvault.exporter import convert as converting
from streamvault.exporter.run import ExportRun
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import (
    GenerationSpan,
    PlaceAddress,
    checked_key,
    chunk_key,
    event_key,
    manifest_key,
    plan_key,
    ranges_key,
)
from streamvault.layouts.layout import LayoutName
from streamvault.manifests.archive import NoSuchArchive
from streamvault.manifests.damage import ArchivedPart, damage_of
from streamvault.manifests.decisions import Checked, find_checked
from streamvault.manifests.files import seal
from streamvault.manifests.history import by_segment, with_rows
from streamvault.manifests.index import encode_ranges
from streamvault.manifests.manifest import IndexEntry, SegmentEntry
from streamvault.objectstore.uri import RootAddress
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.streamstore.model import SegmentId, StreamName
from testkit.killed import stopped_at
from testkit.lakes import rows_of
from testkit.small_archives import (
    NAME,
    Vault,
    a_root,
    a_vault,
    archive_of,
    contents,
    is_sound,
    objects_of,
    replace_object,
)
from testkit.streams import frame
from tests.told import Ran
from tests.unit.lake.test_registry import DATA, Group, export, framed

FIRST = GenerationSpan.of(1)
SEGMENT = SegmentId(0, 0)


vault = a_vault(events=40, largest=300, exports=[("chunks", "")])


def sign_again(vault: Vault, rows: list[ArchivedRange]) -> None:
    """Replace the index, and the manifest by one that agrees with it."""
    archive = archive_of(vault.root)
    index = encode_ranges(NAME, rows)
    manifest = with_rows(archive.manifest(), rows, None, "").model_copy(update={"index": IndexEntry.of(index)})
    replace_object(vault.root, f"{NAME}/{ranges_key(FIRST)}", index)
    replace_object(vault.root, f"{NAME}/{manifest_key(FIRST)}", manifest.encode())
    assert by_segment(rows).keys() == archive.history().generations[0].rows.keys()


@pytest.mark.parametrize("layout", ["chunks", "events"])
def test_wrong_number_of_events_is_damage(tmp_path: Path, layout: LayoutName) -> None:
    """The listing of layout `events` shows it, too, but does not say that the range has its digest."""
    vault = Vault(tmp_path)
    vault.make(events=40, largest=300)
    vault.export(layout)
    history = archive_of(vault.root).history()
    rows = [row for segment in history.segments() for _, row in history.ranges(segment)]
    at, first = max(enumerate(rows), key=lambda found: found[1].events)
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    replace_object(vault.root, f"{NAME}/{checked_key(FIRST)}", None)
    wrong = ArchivedRange(first.segment, first.start, first.end, first.events - 1, first.digest, first.frames)
    sign_again(vault, [*rows[:at], wrong, *rows[at + 1 :]])
    report = check_archive(vault.archive, read_data=True, master="inline")
    (damage,) = report.damage
    counts = f"it has {first.events} events, and the index says {wrong.events}"
    assert damage.what == f"the range matches its digest, but {counts}"
    assert report.ranges_read == report.ranges == len(rows)


LARGE, SMALL = frame(b"x" * (8 * 1024 * 1024 + 1)), frame(b"y")


@pytest.mark.parametrize(
    ("data", "events", "right"),
    [
        (LARGE, 1, True),
        (SMALL + SMALL, 2, True),
        (LARGE + SMALL, 1, False),
        (SMALL + LARGE, 1, False),
        (LARGE + SMALL, 2, False),
        (SMALL + LARGE, 2, False),
        (SMALL[:-1], 1, False),
    ],
    ids=["large", "small", "large-small-1", "small-large-1", "large-small-2", "small-large-2", "cut"],
)
def test_large_event_is_alone_in_its_range(data: bytes, events: int, right: bool) -> None:
    address = PlaceAddress(RootAddress.parse(a_root()), "")
    row = ArchivedRange(SEGMENT, 0, len(data), events, hashlib.sha256(data).hexdigest())
    address.open().store.put(chunk_key(SEGMENT, 0, len(data)), data)
    assert bool(damage_of(ArchivedPart.all_of(address, "chunks", row))) is not right


@pytest.mark.parametrize("segment", [0, -1], ids=["sealed", "open"])
def test_state_of_a_segment_follows_from_the_epochs(vault: Vault, segment: int) -> None:
    manifest = archive_of(vault.root).manifest()
    entries = [entry.document() for entry in manifest.segments]
    entries[segment] = {**entries[segment], "sealed": not entries[segment]["sealed"]}
    assert SegmentEntry.model_validate_json(manifest.segments[segment].encode()).sealed is (segment == 0)
    replace_object(vault.root, f"{NAME}/{manifest_key(FIRST)}", seal({**_document(manifest), "segments": entries}))
    with pytest.raises(Damaged, match="sealed that is open in the last epoch"):
        check_archive(vault.archive)


def _document(manifest: object) -> dict[str, object]:
    document = dict(manifest.document())  # type: ignore[attr-defined]
    del document["segments"]
    return document


def test_plan_that_cannot_be_read_is_no_damage(vault: Vault) -> None:
    objects_of(vault.root).put(f"{NAME}/{plan_key(GenerationSpan.of(2))}", b"x")
    report = check_archive(vault.archive, read_data=True, master="inline")
    assert report.ok
    (note,) = report.notes
    assert "the plan of generation 2, which is not published, cannot be read" in note


@pytest.mark.parametrize(
    "other",
    [lambda _: b"x", Checked.encode, lambda mark: mark.model_copy(update={"generation": 2}).encode()],
    ids=["garbage", "another's", "another manifest's"],
)
def test_mark_that_is_not_of_the_generation_counts_for_no_verb(vault: Vault, other: Callable[[Checked], bytes]) -> None:
    assert check_archive(vault.archive, read_data=True, master="inline").marked == (1,)
    vault.add(b"more")
    vault.export("chunks")
    mark = find_checked(objects_of(vault.root), NAME, FIRST)
    assert mark is not None
    replace_object(vault.root, f"{NAME}/{checked_key(GenerationSpan.of(2))}", other(mark))
    assert [bool(entry.checked_at) for entry in show_timeline(vault.archive).entries] == [True, False]
    assert [one.unchecked_generations for one in show_status(vault.root).statuses] == [1]
    report = check_archive(vault.archive, read_data=True, master="inline")
    assert report.ok
    (note,) = report.notes
    assert note.startswith("generation 2 does not count as read back")


FOREIGN = ("README", "_manifest/README", "_manifest/0000000001.json.bak", "events-old/a", "zzz/b")


def test_foreign_objects_are_reported(vault: Vault) -> None:
    store = objects_of(vault.root)
    history = archive_of(vault.root).history()
    _, row = next(history.ranges(history.segments()[-1]))
    stray = event_key(row.segment, row.start, 20)
    for key in (*FOREIGN, stray):
        store.put(f"{NAME}/{key}", b"x")
    report = check_archive(vault.archive)
    assert (report.ok, report.stray_keys) == (True, (f"{NAME}/{stray}",))
    (note,) = report.notes
    assert note.startswith(f"{len(FOREIGN)} objects in the archive's folder")
    assert all(f"{NAME}/{key}" in note for key in FOREIGN)


@pytest.fixture
def begun(tmp_path: Path) -> tuple[Vault, Vault]:
    """An archive whose beginning has expired, and what a conversion of it leaves that is killed early."""
    vault = Vault(tmp_path)
    vault.make(events=20, largest=100)
    for number in range(3):
        vault.add(b"%d" % number)
        rotate_stream(vault.uri(), vault.root, layout="chunks", keep=1, master="inline")
    target = Vault(tmp_path, a_root())
    with stopped_at(converting, "convert_generation"):
        convert_archive(vault.archive, target.root, layout="events", master="inline")
    assert [key for key in contents(target.root) if "/decisions/" not in key] == []
    return vault, target


BEFORE_IT_HAS_ANYTHING: dict[str, tuple[Callable[[Vault], object], type[Exception]]] = {
    "check": (lambda target: check_archive(target.archive), NoSuchArchive),
    "import": (
        lambda target: import_stream(target.archive, target.uri(StreamName("scope", "b")), master="inline"),
        NoSuchArchive,
    ),
    "export": (lambda target: export_stream(target.uri(), target.root, master="inline"), Conflict),
    "rotate": (lambda target: rotate_stream(target.uri(), target.root, master="inline"), Conflict),
}


@pytest.mark.timeout(60)  # without the rule, an export would begin again and again
@pytest.mark.parametrize("verb", BEFORE_IT_HAS_ANYTHING)
def test_conversion_that_has_only_begun_is_no_damage(begun: tuple[Vault, Vault], verb: str) -> None:
    vault, target = begun
    before = contents(target.root)
    run, error = BEFORE_IT_HAS_ANYTHING[verb]
    with pytest.raises(error, match="a conversion into this archive has begun"):
        run(target)
    assert contents(target.root) == before
    assert list_archives(target.root) == []
    convert_archive(vault.archive, target.root, layout="events", master="inline")
    assert check_archive(target.archive, read_data=True, master="inline").ok
    assert [one.problem for one in list_archives(target.root)] == [""]


def test_manifest_is_decoded_again_only_if_it_has_changed(vault: Vault) -> None:
    archive, key = archive_of(vault.root), f"{NAME}/{manifest_key(FIRST)}"
    first, data = archive.manifest(), contents(vault.root)[key]
    assert archive.manifest() is first
    assert archive_of(vault.root).found()[1] == hashlib.sha256(data).hexdigest()
    replace_object(vault.root, key, data.replace(b'"tool": "', b'"tool": "x'))
    with pytest.raises(Damaged, match="SHA-256"):
        archive.manifest()
    replace_object(vault.root, key, data)
    assert archive.manifest() is first


def add(schooled: Vault, number: int, encoding: int) -> None:
    schooled.add(framed(encoding, gzip.compress(b'{"id": %d}' % number)))


@pytest.fixture
def schooled(tmp_path: Path) -> Vault:
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


def test_what_remains_after_an_expiry_is_decoded_without_a_registry(schooled: Vault) -> None:
    assert noted(schooled.root) == [None, [0], [0, 1], [0, 1]]
    rotate_stream(schooled.uri(), schooled.root, keep=1, master="inline")
    assert noted(schooled.root) == [[0, 1]]
    write_table(schooled.archive, format="parquet", decode="registry", master="inline")
    assert [row["id"] for row in rows_of(schooled.root)] == [3]
    add(schooled, 4, 0)
    rotate_stream(schooled.uri(), schooled.root, keep=1, master="inline")
    assert noted(schooled.root) == [[0, 1]]
    write_table(schooled.archive, master="inline")
    assert [row["id"] for row in rows_of(schooled.root)] == [3, 4]


@pytest.mark.parametrize("options", [{"limit": 1}, {"generation": 1}])
def test_events_before_the_first_notes_are_decoded(schooled: Vault, options: dict[str, int]) -> None:
    found = read_archive(schooled.archive, decode="registry", **options).read_all()
    assert (found["id"].to_pylist(), found["_error"].null_count) == ([0], 1)


def test_what_is_restored_up_to_the_first_notes_has_schemas(schooled: Vault) -> None:
    said = pytest.raises(Conflict, match="the schemas cannot be registered with their ids")
    with Group(0) as server, said:  # but they are noted
        import_stream(schooled.archive, schooled.uri(NAME), generation=1, schemas=server.url, master="inline")


def tear(schooled: Vault) -> None:
    """Damage the manifest of the newest generation."""
    key = f"{NAME}/{manifest_key(GenerationSpan.of(4))}"
    replace_object(schooled.root, key, contents(schooled.root)[key][:-40])


def forge(schooled: Vault) -> None:
    """Give the newest generation another schema."""
    alter(schooled, 4, sealed=True)


@pytest.mark.parametrize("harm", [tear, forge])
def test_newest_generation_that_is_bad_keeps_none_before_it_from_being_decoded(
    schooled: Vault, harm: Callable[[Vault], None]
) -> None:
    harm(schooled)
    for options in ({"limit": 2}, {"generation": 3}):
        found = read_archive(schooled.archive, decode="registry", **options).read_all()
        assert found["id"].to_pylist() == [0, 1, 2][: found.num_rows]
    kept = ArchiveDataSource({"path": schooled.archive, "generation": "3", "decode": "registry"})
    assert "id" in kept.schema().names
    with pytest.raises((Damaged, Conflict)):
        decoded(schooled.root)


def test_only_what_the_fingerprints_cover_is_registered(schooled: Vault) -> None:
    options: dict[str, Any] = {"generation": 1, "schemas": "http://127.0.0.1:1", "master": "inline"}
    pinned = archive_of(schooled.root).found(1)[1]
    with pytest.raises(Usage, match="the archive has recorded no schemas"):
        import_stream(schooled.archive, schooled.uri(NAME), fingerprints=[pinned], **options)


def test_unfinished_export_is_not_resumed_with_another_group(schooled: Vault) -> None:
    other = Vault(schooled.folder, a_root())
    with Group(1) as server:
        with patch.object(ExportRun, "run", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            export(other, server)
        for group in ("another", None):
            with pytest.raises(Usage, match="other options: schema_group group"):
                export_stream(other.uri(), other.root, schemas=server.url, schema_group=group, master="inline")
        export(other, server)


def test_show_says_how_many_encodings_are_recorded(schooled: Vault, ran: Ran) -> None:
    assert re.search(r"(?m)^schemas +2 encodings of the group group$", ran("show", schooled.archive, code=0).out)
    assert "schemas" not in ran("show", schooled.archive, "--generation", "1", code=0).out


def test_merged_generation_has_the_notes_of_all(schooled: Vault) -> None:
    compact_archive(schooled.archive, at_least=2, master="inline")
    assert noted(schooled.root) == [[0, 1]]
    assert is_sound(schooled.root)
    assert decoded(schooled.root) == [0, 1, 2, 3]


def test_converted_archive_has_the_same_notes(schooled: Vault) -> None:
    root = a_root()
    convert_archive(schooled.archive, root, layout="chunks", master="inline")
    assert noted(root) == noted(schooled.root)
    add(schooled, 4, 1)
    export(schooled)
    add(schooled, 5, 1)
    export(schooled)
    compact_archive(schooled.archive, at_least=2, master="inline")
    convert_archive(schooled.archive, root, layout="chunks", master="inline")
    assert noted(root) == [None, [0], [0, 1], [0, 1], [0, 1]]
    assert decoded(root) == list(range(6))


def test_an_archive_that_a_promoted_replica_continues_keeps_its_notes(schooled: Vault, tmp_path: Path) -> None:
    standby = Vault(tmp_path / "standby", schooled.root)
    replicate_stream(schooled.archive, standby.uri(), master="inline")
    promote_replica(standby.uri())
    add(standby, 4, 1)
    export(standby)
    assert noted(schooled.root) == [None, [0], [0, 1], [0, 1], [0, 1]]
    assert decoded(schooled.root) == list(range(5))


def test_a_deletion_deletes_the_notes(schooled: Vault) -> None:
    assert [DATA.encode() in data for data in contents(schooled.root).values()].count(True) == 3
    delete_archive(schooled.archive, yes=True)
    assert not any(DATA.encode() in data for data in contents(schooled.root).values())


def alter(schooled: Vault, generation: int, *, sealed: bool) -> None:
    """Replace a schema in a manifest, and its SHA-256 if it is sealed."""
    key = f"{NAME}/{manifest_key(GenerationSpan.of(generation))}"
    data = contents(schooled.root)[key].replace(DATA.encode(), b64encode(b"{}"))
    document = json.loads(data)
    del document["sha256"]
    replace_object(schooled.root, key, seal(document) if sealed else data)


def test_changed_notes_are_damage(schooled: Vault) -> None:
    alter(schooled, 2, sealed=False)
    with pytest.raises(Damaged, match="the file was changed after it was written"):
        check_archive(schooled.archive)


def test_forged_notes_are_shown_by_the_fingerprint_and_by_the_mark(schooled: Vault) -> None:
    fingerprints = list(check_archive(schooled.archive, read_data=True, master="inline").fingerprints.values())
    assert check_archive(schooled.archive, fingerprints=fingerprints).ok
    for generation in (2, 3, 4):
        alter(schooled, generation, sealed=True)
    with pytest.raises(Damaged, match="not the expected one"):
        check_archive(schooled.archive, fingerprints=fingerprints)
    notes = check_archive(schooled.archive, read_data=True, master="inline").notes
    told = [note.partition(":")[0] for note in notes]
    assert told == [f"generation {number} does not count as read back" for number in (2, 3, 4)]
    with pytest.raises(Damaged, match="the mark belongs to a different manifest"):
        rotate_stream(schooled.uri(), schooled.root, truncate_source=True, master="inline")


def test_forged_notes_of_one_generation_stop_what_decodes(schooled: Vault) -> None:
    alter(schooled, 2, sealed=True)
    with pytest.raises(Conflict, match="have recorded different schemas: encoding 0 of group has two schemas"):
        decoded(schooled.root)
    assert "have recorded different schemas" in " ".join(check_archive(schooled.archive, master="inline").notes)
