"""A source loses only bytes that were compared, by the same run, with the archive's; a stream that cannot be compared
with an archive does not continue it unless the user says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, compact_archive, export_stream, import_stream, rotate_stream
from streamvault.common.errors import Conflict, Damaged
from streamvault.exporter import rotate as rotation
from streamvault.exporter import truncate
from streamvault.exporter.reports import RotateReport
from streamvault.layouts.chunks import ChunksLayout
from streamvault.layouts.events import EventsLayout
from streamvault.layouts.keys import truncation_key
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import Decision, Truncation
from streamvault.manifests.manifest import Manifest
from streamvault.objectstore.store import InArchiveClass
from streamvault.sources import archive_comparison, identity
from streamvault.streamstore.model import KeyRange, SegmentId
from testkit.small_archives import (
    KINDS,
    NAME,
    Vault,
    archive_of,
    contents,
    data_keys,
    merge,
    objects_of,
    replace_object,
)
from testkit.streams import append_events

FIRST = SegmentId(0, 0)
HALVES = (KeyRange(0, 0.5), KeyRange(0.5, 1))
kinds = pytest.mark.parametrize(("layout", "compress"), KINDS, ids=["events", "chunks", "zstd"])


def made(folder: Path, *payloads: bytes, root: str = "", segments: int = 1) -> Vault:
    vault = Vault(folder, root) if root else Vault(folder)
    vault.create(segments)
    vault.add(*payloads)
    return vault


def split(vault: Vault) -> None:
    with vault.store as store:
        store.scale(NAME, [FIRST], list(HALVES))


def export(vault: Vault, **options: Any) -> int:
    return export_stream(vault.uri(), vault.root, master="inline", **{"layout": "chunks", **options}).generation


def rotate(vault: Vault, **options: Any) -> RotateReport:
    return rotate_stream(vault.uri(), vault.root, master="inline", **{"layout": "chunks", **options})


def truncating(vault: Vault, **options: Any) -> RotateReport:
    return rotate(vault, truncate_source=True, **options)


def payloads_of(vault: Vault) -> Sequence[bytes]:
    return [payload for _, payload in vault.events()]


def is_refused(vault: Vault, match: str, **options: Any) -> None:
    """Check that a truncation is refused, and that nothing was lost."""
    before = payloads_of(vault)
    with pytest.raises(Conflict, match=match):
        truncating(vault, **options, dry_run=True)
    with pytest.raises(Conflict, match=match):
        truncating(vault, **options)
    assert payloads_of(vault) == before


@kinds
def test_stream_of_another_cluster_that_was_scaled_alike_is_refused(
    tmp_path: Path, layout: LayoutName, compress: Compression
) -> None:
    """Right after the scale there is no witness: the segments of the cut are empty."""
    mine = made(tmp_path / "mine", b"event", b"mine-")
    split(mine)
    export(mine, layout=layout, compress=compress)
    assert not archive_of(mine.root).manifest().witness
    for payloads, why in (((b"event", b"other"), "differ"), ((b"event", b"mine-", b"more"), "ends at")):
        other = made(tmp_path / payloads[-1].decode(), *payloads, root=mine.root)
        split(other)
        other.add(b"new")
        with pytest.raises(Conflict, match=why):
            export(other, layout=layout)
        is_refused(other, why, layout=layout)
    mine.add(b"new")
    assert truncating(mine, layout=layout).truncated
    assert payloads_of(mine) == []


def test_restored_stream_that_was_scaled_alike_is_refused(tmp_path: Path) -> None:
    vault = made(tmp_path, *(b"day%d" % i for i in range(10)))
    rotate(vault)
    vault.add(*(b"bad%d" % i for i in range(9)))
    split(vault)
    rotate(vault)
    again = Vault(tmp_path / "again", vault.root)
    import_stream(vault.archive, again.uri(), generation=1, master="inline")
    again.add(*(b"good%d" % i for i in range(9)))
    split(again)
    again.add(b"later")
    is_refused(again, "0.#epoch.0 ends at")
    assert check_archive(vault.archive, read_data=True, master="inline").ok


def test_each_segment_that_loses_bytes_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own witness is the same, that of its neighbour is not there: the bytes of the neighbour's parent decide."""
    mine, other = (made(tmp_path / name, segments=2) for name in ("mine", "other"))
    for vault, word in ((mine, b"mine-"), (other, b"other")):
        with vault.store as store:
            append_events(store, NAME, FIRST, [b"same", word])
            append_events(store, NAME, SegmentId(0, 1), [b"same"])
            store.scale(NAME, [FIRST], [KeyRange(0, 0.25), KeyRange(0.25, 0.5)])
    export(mine)
    other = replace(other, root=mine.root)
    other.add(b"new")
    is_refused(other, r"0\.#epoch\.0 differ")
    monkeypatch.setattr("streamvault.exporter.plan.check_continues", lambda *_, **__: None)
    is_refused(other, r"0\.#epoch\.0 differ")


@kinds
def test_long_ranges_are_compared_by_their_last_bytes(
    tmp_path: Path, layout: LayoutName, compress: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_comparison, "WITNESS_BYTES", 100)
    monkeypatch.setattr(identity, "WITNESS_BYTES", 1)  # zeros in either
    events = [b"%04d" % i for i in range(1000)]
    mine = made(tmp_path / "mine", *events, b"same\0")
    export(mine, layout=layout, compress=compress)
    other = made(tmp_path / "other", *events[:-1], b"9999", b"same\0", root=mine.root)
    is_refused(other, "differ", layout=layout)
    assert truncating(mine, layout=layout).truncated
    assert mine.described.head == mine.described.tail


def test_head_beyond_the_archive_is_not_passed_over(tmp_path: Path) -> None:
    mine = made(tmp_path / "mine", b"mine")
    export(mine)
    other = made(tmp_path / "other", *[b"other"] * 9, root=mine.root)
    for vault in (other, mine):
        if vault is mine:
            mine.add(b"lost", b"more")
        vault.truncate(26 if vault is other else 24)
        with pytest.raises(Conflict, match=r"nothing in the stream can be compared.*same_stream=True") as caught:
            export(vault)
        assert caught.value.exit_code == 4
        assert archive_of(mine.root).generations() == [1]
    with pytest.raises(Conflict, match="nothing in the stream can be compared"):
        export_stream(mine.uri(), mine.root, master="inline", dry_run=True)
    assert export(mine, same_stream=True) == 2
    assert archive_of(mine.root).manifest().gaps


def test_nights_go_on_without_confirmation(tmp_path: Path) -> None:
    """A stream that is empty, or begins where the archive ends, is no other stream."""
    vault = made(tmp_path)
    assert truncating(vault).generation == 1
    split(vault)
    assert truncating(vault).generation == 2
    vault.add(b"one")
    assert truncating(vault).truncated
    assert truncating(vault).export.unchanged
    vault.add(b"two")
    assert truncating(vault, keep=1).expired == (1, 2, 3)
    with vault.store as store:
        store.scale(NAME, list(store.describe(NAME).tail.offsets), [KeyRange(0, 1)])
    assert truncating(vault).generation == 5
    assert truncating(vault).export.unchanged
    vault.add(b"three")
    assert truncating(vault).generation == 6
    assert payloads_of(vault) == []


@pytest.mark.parametrize("expired", [False, True])
def test_what_lies_before_the_archive_is_not_truncated(tmp_path: Path, expired: bool) -> None:
    vault = made(tmp_path, b"never", b"archived")
    export(vault, from_cut=vault.described.tail.to_json()) if not expired else None
    if expired:
        cut = vault.described.tail.to_json()
        vault.add(b"one")
        export(vault, from_cut=cut)
        vault.add(b"two")
        export(vault)
        assert rotate(vault, keep=1).expired == (1,)
    vault.add(b"more")
    is_refused(vault, "before the archive's beginning, which were never archived")
    is_refused(vault, "before the archive's beginning, which were never archived", same_stream=True)
    vault.truncate(29)
    assert truncating(vault, same_stream=expired).truncated


def test_expired_data_is_truncated_only_if_confirmed(tmp_path: Path) -> None:
    """The segment is known to be the archived one, but only a decision says that what has expired was archived."""
    vault = made(tmp_path, b"one")
    export(vault)
    vault.add(b"two")
    assert rotate(vault, keep=1).expired == (1,)
    is_refused(vault, r"no longer has the bytes .* of segment 0\.#epoch\.0, .*same_stream=True")
    assert truncating(vault, same_stream=True).truncated
    assert payloads_of(vault) == []


def test_segment_that_has_expired_is_truncated_only_if_confirmed(tmp_path: Path) -> None:
    vault = made(tmp_path, b"one")
    export(vault)
    split(vault)
    vault.add(b"two")
    assert rotate(vault, keep=1).expired == (1,)
    is_refused(vault, r"no longer has the bytes .* of segment 0\.#epoch\.0, .*same_stream=True")
    assert truncating(vault, same_stream=True).truncated
    assert payloads_of(vault) == []


def test_beginning_that_is_not_recorded_is_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in archives whose generations an earlier release let expire."""
    expire = Decision.expire
    monkeypatch.setattr(Decision, "expire", lambda self, upto, *_: expire(self, upto))
    monkeypatch.setattr(Archive, "check_beginning", lambda *_: None)  # as long as the first manifest is there
    vault = made(tmp_path, b"one")
    export(vault)
    vault.add(b"two")
    assert rotate(vault, keep=1).expired == (1,)
    is_refused(vault, "whether they had all of it is not recorded.*same_stream=True")
    assert truncating(vault, same_stream=True).truncated


def test_the_source_is_truncated_before_generations_expire(tmp_path: Path) -> None:
    vault = made(tmp_path, b"one")
    export(vault)
    split(vault)
    vault.add(b"two")
    report = truncating(vault, keep=1)
    assert (report.truncated, report.expired) == (True, (1,))
    assert payloads_of(vault) == []


@kinds
def test_merged_generations_are_compared(tmp_path: Path, layout: LayoutName, compress: Compression) -> None:
    vault = made(tmp_path, b"one", b"two")
    for word in (b"three", b"four"):
        export(vault, layout=layout, compress=compress)
        vault.add(word)
    compact_archive(vault.archive, master="inline")
    split(vault)
    assert truncating(vault, layout=layout, compress=compress).truncated
    assert payloads_of(vault) == []


def test_segment_whose_end_is_a_gap_is_not_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored stream has filler there; nothing says that it is only filler."""
    vault = made(tmp_path, b"one", b"two")
    export(vault)
    vault.add(b"gone")
    vault.truncate(vault.described.tail)
    export(vault, same_stream=True)
    assert archive_of(vault.root).manifest().gaps
    again = Vault(tmp_path / "again", vault.root)
    import_stream(vault.archive, again.uri(), master="inline")
    assert again.described.tail.offsets == vault.described.tail.offsets
    is_refused(again, "nothing in the stream can be compared")
    monkeypatch.setattr("streamvault.exporter.plan.check_continues", lambda *_, **__: None)
    is_refused(again, "no longer has the bytes")


@pytest.mark.parametrize("layout", [EventsLayout, ChunksLayout])
def test_cold_data_stop_a_truncation(
    tmp_path: Path, layout: type[EventsLayout | ChunksLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = made(tmp_path, *[b"x" * 100] * 50)
    rotate(vault, layout=layout.name)

    def read(*_: object) -> Any:
        raise InArchiveClass.of("GLACIER", "s3://bucket/key")

    monkeypatch.setattr(layout, "read_range", read)
    monkeypatch.setattr(archive_comparison, "WITNESS_BYTES", 100)
    before = payloads_of(vault)
    with pytest.raises(InArchiveClass, match="streamvault warm"):
        truncating(vault, layout=layout.name)
    assert payloads_of(vault) == before
    monkeypatch.undo()
    assert truncating(vault, layout=layout.name).truncated


def test_source_that_is_truncated_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = made(tmp_path, b"one", b"two")
    rotate(vault)
    real = truncate.held_below

    def held_below(*arguments: Any) -> Any:
        found = real(*arguments)
        vault.truncate(vault.described.tail)
        return found

    monkeypatch.setattr(truncate, "held_below", held_below)
    assert truncating(vault).truncated
    assert vault.described.head == vault.described.tail


def marked(vault: Vault) -> list[str]:
    """Archive three generations, and read them back by a check; returns the keys of their objects."""
    for payload in (b"one", b"two", b"three"):
        vault.add(payload, payload)
        export(vault)
    assert check_archive(vault.archive, read_data=True, master="inline").marked == (1, 2, 3)
    return data_keys(vault.root)


def is_kept(vault: Vault, match: str) -> None:
    """Check that a rotation finds damage before it truncates, and that nothing was lost."""
    before = payloads_of(vault)
    with pytest.raises(Damaged, match=match):
        truncating(vault, keep=1)
    assert payloads_of(vault) == before
    assert archive_of(vault.root).generations() == [1, 2, 3]


@pytest.mark.parametrize("left", [None, b"short"], ids=["missing", "cut"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_objects_that_are_gone_since_they_were_read_back_keep_the_source(
    tmp_path: Path, number: int, left: bytes | None
) -> None:
    """A mark may be a year old: what it proves then is looked for again before the source loses it."""
    vault = made(tmp_path, b"first")
    key = marked(vault)[number]
    data = contents(vault.root)[key]
    replace_object(vault.root, key, left)
    is_kept(vault, f"(no such object|the object is too short).*{key}")
    replace_object(vault.root, key, data)
    assert truncating(vault).truncated


def test_marks_that_were_copied_without_all_data_keep_the_source(tmp_path: Path) -> None:
    vault = made(tmp_path, b"first")
    missing = marked(vault)[1]
    copied = replace(vault, root=Vault(tmp_path).root)
    for key, data in contents(vault.root).items():
        if key != missing:
            objects_of(copied.root).put(key, data)
    is_kept(copied, f"no such object.*{missing}")


def test_what_the_source_has_lost_before_is_not_looked_for_again(tmp_path: Path) -> None:
    vault = made(tmp_path, b"first")
    key = marked(vault)[0]
    assert truncating(vault).truncated
    replace_object(vault.root, key, None)
    vault.add(b"new")
    assert truncating(vault).truncated
    assert payloads_of(vault) == []


def test_generation_that_was_merged_since_it_was_read_back_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = made(tmp_path, b"first")
    marked(vault)
    real = rotation.last_checked

    def merged_meanwhile(archive: Archive) -> Manifest | None:
        found = real(archive)
        merge(vault, 2, 3)
        return found

    monkeypatch.setattr(rotation, "last_checked", merged_meanwhile)
    report = truncating(vault)
    assert (report.truncated, report.ranges_compared) == (True, 2)


def test_only_notes_of_truncations_that_are_done_are_deleted(tmp_path: Path) -> None:
    """A later rotation may be about to truncate further; and a note is there at least until its truncation is done."""
    vault = made(tmp_path, b"one")
    truncating(vault)
    archive = archive_of(vault.root)
    assert archive.listing().truncations == ()
    vault.add(b"later")
    vault.export()
    for generation in (1, 2):
        note = Truncation.of(NAME, generation)
        archive.store.put(archive.prefix + truncation_key(generation), note.encode())
    truncate.forget_truncations(archive, archive.listing(), 1)
    assert archive.listing().truncations == (2,)
    vault.add(b"two")
    assert truncating(vault).truncated
    assert archive.listing().truncations == ()
