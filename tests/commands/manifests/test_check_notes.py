"""What is wrong though every signature is right, and what is reported without being damage."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from streamvault import (
    check_archive,
    convert_archive,
    export_stream,
    import_stream,
    list_archives,
    rotate_stream,
    show_status,
    show_timeline,
)
from streamvault.common.errors import Conflict, Damaged
from streamvault.exporter import convert as converting
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
from streamvault.streamstore.model import SegmentId, StreamName
from testkit.killed import stopped_at
from testkit.small_archives import NAME, Vault, a_root, a_vault, archive_of, contents, objects_of, replace_object
from testkit.streams import frame

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
