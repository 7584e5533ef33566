"""A rotation destroys only bytes of a source that it has seen itself, there and in the archive.

Whoever may create objects can forge marks, generations, and what an unfinished export has left; digests match then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    check_archive,
    compact_archive,
    export_stream,
    follow_stream,
    import_stream,
    rotate_stream,
    show_status,
)
from streamvault.common.errors import Damaged
from streamvault.exporter import rotate, run, truncate
from streamvault.exporter.reports import RotateReport
from streamvault.layouts.keys import GenerationSpan, Place, chunk_key, manifest_key, ranges_key, row_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.decisions import Decision, mark_checked
from streamvault.manifests.history import with_rows
from streamvault.manifests.index import encode_ranges
from streamvault.manifests.manifest import IndexEntry, Manifest
from streamvault.manifests.plan import FinishedSpan, Gap, leave_row
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.sources import archive_comparison
from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.uri import parse_stream
from testkit.small_archives import (
    NAME,
    RANGE_SIZE,
    Vault,
    a_root,
    archive_of,
    contents,
    data_keys,
    forge_gaps,
    objects_of,
    replace_object,
)

SEGMENT = SegmentId(0, 0)
EVENTS = tuple(b"%03d" % number * 300 for number in range(100))
"""A hundred events in a range each, or a few; the last 80 are more than a witness has."""
SIZE = 908
"""Of an event with its header (bytes)."""
OPTIONS: dict[str, Any] = {"layout": "chunks", "range_size": RANGE_SIZE, "master": "inline"}


def made(folder: Path, root: str = "", events: tuple[bytes, ...] = EVENTS) -> Vault:
    vault = Vault(folder, root or a_root())
    vault.create()
    vault.add(*events)
    return vault


def other(folder: Path, root: str) -> Vault:
    """A stream whose first events differ, to be archived in place of another one."""
    return made(folder, root, (*(bytes(900) for _ in range(10)), *EVENTS[10:]))


def export(vault: Vault, **options: Any) -> None:
    export_stream(vault.uri(), vault.root, **OPTIONS, **options)


def truncating(vault: Vault, **options: Any) -> RotateReport:
    return rotate_stream(vault.uri(), vault.root, truncate_source=True, **{**OPTIONS, **options})


def is_kept(vault: Vault, match: str, **options: Any) -> None:
    """Check that a rotation finds that the archive is not what it says, and that nothing was lost."""
    before = vault.events()
    for _ in range(2):
        with pytest.raises(Damaged, match=match) as caught:
            truncating(vault, **options)
        assert caught.value.exit_code == 3
    assert vault.events() == before


def with_gaps(folder: Path) -> Vault:
    """A stream, and a forged first generation that has only its last range."""
    honest = made(folder)
    export(honest)
    forged = replace(honest, root=a_root())
    forge_gaps(archive_of(honest.root), archive_of(forged.root))
    return forged


def test_gap_that_the_stream_still_has_keeps_it(tmp_path: Path) -> None:
    vault = with_gaps(tmp_path)
    match = r"generation 1 calls bytes 0 to \d+ of 0\.#epoch\.0 a gap, but the stream still has them"
    is_kept(vault, match, same_stream=True)
    with pytest.raises(Damaged, match=match):
        truncating(vault, dry_run=True)
    for dry_run in (False, True):
        report = export_stream(vault.uri(), vault.root, dry_run=dry_run, **OPTIONS)
        assert report.unchanged
        assert "calls bytes 0 to" in "".join(report.warnings)
    status = show_status(vault.uri().rpartition("/")[0] + "/", root=vault.root)
    assert "calls bytes 0 to" in "".join(status.warnings)
    head = vault.described.tail
    vault.truncate(head)  # Pravega's retention has deleted them: then it is a gap
    vault.add(b"new")
    assert truncating(vault).truncated
    status = show_status(vault.uri().rpartition("/")[0] + "/", root=vault.root)
    assert status.warnings == ()


def status_of(vault: Vault) -> tuple[int | None, int | None, tuple[str, ...]]:
    """What `status` says that is not archived, that lies before the archive's beginning, and its warnings."""
    report = show_status(vault.uri().rpartition("/")[0] + "/", root=vault.root)
    (one,) = report.live_streams
    return one.unarchived, one.before_archive, report.warnings


def exporting(vault: Vault, **options: Any) -> tuple[str, ...]:
    return export_stream(vault.uri(), vault.root, **OPTIONS, **options).warnings


def test_what_lies_before_the_archive_is_said(tmp_path: Path) -> None:
    """By status always; by an export while the archive has one generation, but not by that of ``--from`` itself."""
    vault = made(tmp_path)
    cut, before = vault.described.tail, 100 * SIZE
    vault.add(b"archived")
    assert exporting(vault, from_cut=cut.to_json()) == ()
    match = (
        r"before the archive's beginning, which were never archived \(88\.7 KiB\).* truncate the stream there yourself"
    )
    for new in (False, False, True):
        vault.add(*[b"new"] * new)
        for dry_run in (True, False):
            (warning,) = exporting(vault, dry_run=dry_run)
            assert re.search(match, warning)
    vault.add(b"newer")
    assert exporting(vault) == ()
    for expired in ((), (1, 2)):
        assert rotate_stream(vault.uri(), vault.root, keep=3 - len(expired), **OPTIONS).expired == expired
        count, found, (warning,) = status_of(vault)
        assert (count, found) == (0, before)
        assert re.search(match, warning)
    vault.truncate(cut)
    assert status_of(vault) == (0, 0, ())


@pytest.mark.parametrize("recorded", [True, False])
def test_what_was_archived_and_has_expired_is_not_said(
    tmp_path: Path, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rotation that does not truncate leaves it in the stream."""
    expire = Decision.expire
    monkeypatch.setattr(Decision, "expire", lambda self, upto, head, _: expire(self, upto, head if recorded else None))
    monkeypatch.setattr(Archive, "check_beginning", lambda *_: None)  # as long as the first manifest is there
    vault = made(tmp_path)
    export(vault)
    vault.add(b"new")
    assert rotate_stream(vault.uri(), vault.root, keep=1, **OPTIONS).expired == (1,)
    vault.add(b"newer")
    assert exporting(vault) == ()
    assert status_of(vault) == (0, 0 if recorded else None, ())


def test_generation_with_such_a_gap_does_not_expire(tmp_path: Path) -> None:
    """It is what shows that the archive is not what it says."""
    vault = with_gaps(tmp_path)
    for number in range(2):
        vault.add(b"%d" % number)
        with suppress(Damaged):
            rotate_stream(vault.uri(), vault.root, keep=1, **OPTIONS)
    for dry_run in (True, False):
        with pytest.raises(Damaged, match=r"generation 1 calls bytes 0 to \d+ .*a gap, but the stream still has them"):
            rotate_stream(vault.uri(), vault.root, keep=1, dry_run=dry_run, **OPTIONS)
    assert archive_of(vault.root).listing().dropped == 0
    vault.truncate(vault.described.tail)
    assert rotate_stream(vault.uri(), vault.root, keep=1, **OPTIONS).expired == (1, 2)


def test_gap_into_which_the_stream_was_truncated_keeps_the_rest(tmp_path: Path) -> None:
    """It may be of an event that was truncated in its middle, so only a truncation asks about it."""
    vault = with_gaps(tmp_path)
    vault.truncate(SIZE)
    assert export_stream(vault.uri(), vault.root, **OPTIONS).warnings == ()
    is_kept(vault, r"calls bytes 908 to \d+ of 0\.#epoch\.0 a gap.*truncated inside an event")


def test_bytes_that_no_generation_has_keep_the_stream(tmp_path: Path) -> None:
    """A forged generation that begins behind the end of the one before it."""
    vault = made(tmp_path)
    export(vault)
    low = vault.described.tail
    vault.add(b"lost" * 100)
    high = vault.described.tail
    vault.add(b"new")
    export(vault)
    archive = archive_of(vault.root)
    manifest, rows = forged_from(archive, low.offsets[SEGMENT], high.offsets[SEGMENT])
    for key, data in ((ranges_key(manifest.span), rows), (manifest_key(manifest.span), manifest.encode())):
        replace_object(vault.root, archive.prefix + key, data)
    start, end = low.offsets[SEGMENT], high.offsets[SEGMENT]
    is_kept(vault, f"no generation has bytes {start} to {end} of 0.#epoch.0, which the stream still has")


def forged_from(archive: Archive, low: int, high: int) -> tuple[Manifest, bytes]:
    """Generation 2, without its bytes from ``low`` to ``high``; its last range is exported once more from there."""
    found = archive.load(2)
    row = found.rows[SEGMENT][-1]
    whole = archive_comparison.read_verified(ArchivedPart.all_of(archive.address, found.layout, row))
    data = b"".join(map(bytes, whole))[high - low :]
    digest = archive_comparison.digest_of([data])
    short = replace(row, start=high, events=1, digest=digest, crc64nvme="", block_checksums="")
    archive.store.put(archive.prefix + chunk_key(SEGMENT, high, len(data)), data)
    index = encode_ranges(NAME, [short])
    entry = found.manifest.segments[0].model_copy(update={"start": high})
    cut = replace(found.manifest.from_, offsets={SEGMENT: high})
    manifest = found.manifest.model_copy(
        update={"from_": cut, "segments": (entry,), "index": IndexEntry.of(index)},
    )
    return with_rows(manifest, [short], None, ""), index


@pytest.mark.parametrize("head", [0, 908], ids=["whole", "from the middle of a range"])
@pytest.mark.parametrize("marked", [False, True], ids=["unmarked", "marked"])
def test_generation_with_other_bytes_and_their_digests_keeps_the_stream(
    tmp_path: Path, head: int, marked: bool
) -> None:
    vault = made(tmp_path / "mine")
    forger = other(tmp_path / "other", vault.root)
    export(forger)
    if marked:
        assert check_archive(vault.archive, read_data=True, master="inline").marked == (1,)
    vault.truncate(head)
    is_kept(vault, r"generation 1 differs from the stream; nothing was truncated: .*0\.#epoch\.0 bytes")


def test_mark_does_not_let_a_stream_lose_what_was_swapped_since(tmp_path: Path) -> None:
    vault = made(tmp_path)
    export(vault)
    assert check_archive(vault.archive, read_data=True, master="inline").marked == (1,)
    key = data_keys(vault.root)[0]
    data = contents(vault.root)[key]
    for head in (0, SIZE):  # a whole range, and the rest of one
        vault.truncate(head)
        replace_object(vault.root, key, bytes(len(data)))
        is_kept(vault, "do not match the manifest")
        replace_object(vault.root, key, data)
    report = truncating(vault)
    assert (report.truncated, report.checked) == (True, ())
    assert report.ranges_compared == report.ranges_read == len(archive_of(vault.root).load(1).rows[SEGMENT])
    assert vault.events() == []


def left_unfinished(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an export that is killed right before it publishes."""

    def killed(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr("streamvault.exporter.run.record_end", killed)
        export(vault)


@pytest.mark.parametrize("forged", [False, True])
def test_what_another_export_has_left_is_compared(
    tmp_path: Path, forged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = made(tmp_path / "mine")
    left_unfinished(other(tmp_path / "other", vault.root) if forged else vault, monkeypatch)
    if forged:
        is_kept(vault, "generation 1 differs from the stream")
        return
    report = truncating(vault)
    assert (report.export.resumed, report.export.moved_bytes, report.truncated) == (True, 0, True)
    assert report.ranges_compared == report.ranges_read, "read back once, and in the source once more"


def test_row_of_a_gap_that_the_stream_still_has_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = made(tmp_path)
    left_unfinished(vault, monkeypatch)
    archive = archive_of(vault.root)
    key = archive.prefix + row_key(GenerationSpan.of(1), SEGMENT, 0)
    row = FinishedSpan(
        start=0, end=5 * SIZE, ranges=(), gaps=(Gap(start=0, end=5 * SIZE, reason="truncated at the source"),)
    )
    objects_of(vault.root).delete([key])
    leave_row(archive.place, GenerationSpan.of(1), SEGMENT, row)
    with pytest.raises(Damaged, match=r"generation 1 calls bytes 0 to 4540 .* is now abandoned. Run the same"):
        export(vault)
    report = truncating(vault)
    assert (report.export.gaps, report.truncated) == ((), True)


def test_row_that_another_run_has_left_meanwhile_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task has read other bytes than its row says, which is somebody else's."""
    vault, real = made(tmp_path), run.leave_row

    def late(place: Place, span: GenerationSpan, segment: SegmentId, row: FinishedSpan, *, attempt: int) -> Any:
        data = bytes(frame(bytes(900))) * row.events
        if row.start == 0:
            forged = row.ranges[0].model_copy(
                update={"digest": archive_comparison.digest_of([data]), "block_checksums": ""}
            )
            real(place, span, segment, row.model_copy(update={"ranges": (forged,)}), attempt=attempt)
            replace_object(vault.root, place.prefix + chunk_key(segment, 0, len(data)), data)
        return real(place, span, segment, row, attempt=attempt)

    monkeypatch.setattr(run, "leave_row", late)
    is_kept(vault, "generation 1 differs from the stream")


def test_range_that_was_archived_but_not_read_back_by_this_run_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has marked the generation right after it was published."""
    vault, real = made(tmp_path), rotate.read_back

    def marked(archive: Archive, *others: Any) -> Any:
        mark_checked(archive.store, archive.load(1))
        replace_object(vault.root, data_keys(vault.root)[0], bytes(5 * SIZE))
        return real(archive, *others)

    monkeypatch.setattr(rotate, "read_back", marked)
    before = vault.events()
    with pytest.raises(Damaged, match="do not match the manifest"):
        truncating(vault)
    assert vault.events() == before


def test_archive_that_lacks_a_generation_keeps_the_stream(tmp_path: Path) -> None:
    vault = made(tmp_path)
    for number in range(3):
        vault.add(b"%d" % number)
        export(vault)
    archive = archive_of(vault.root)
    newest = archive.manifest()
    replace_object(vault.root, archive.prefix + manifest_key(GenerationSpan.of(2)), None)
    before, (source, _) = vault.events(), parse_stream(vault.uri())
    with pytest.raises(Damaged, match="the manifest of generation 2 is missing"):
        truncate.truncate_source(archive, source, newest, truncate.SeenRanges(), same_stream=False, run=lambda _: None)
    assert vault.events() == before


@pytest.mark.parametrize("following", [False, True])
def test_usual_rotation_reads_each_byte_of_the_source_once(
    tmp_path: Path, following: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has just archived and read back is not read again because the source loses it."""
    read, got = 0, list[str]()
    real, get = LocalStore.read, ObstoreStore.get

    def counted(self: LocalStore, *place: Any) -> Iterator[memoryview]:
        nonlocal read
        for block in real(self, *place):
            read += len(block)
            yield block

    def listed(self: ObstoreStore, key: str, *most: int) -> bytes:
        got.append(key)
        return get(self, key, *most)

    monkeypatch.setattr(LocalStore, "read", counted)
    monkeypatch.setattr(ObstoreStore, "get", listed)
    figures = []
    for truncates in (False, True):
        vault, read = made(tmp_path / f"{truncates}"), 0
        got.clear()
        if following:
            options = {**OPTIONS, "lasting": 1.0, "every": 10.0}
            assert (
                bool(follow_stream(vault.uri(), vault.root, rotate=True, truncate_source=truncates, **options).cut)
                == truncates
            )
        else:
            report = rotate_stream(vault.uri(), vault.root, truncate_source=truncates, **OPTIONS)
            assert (report.truncated, report.ranges_compared) == (truncates, 0)
        figures.append((read, sum("/chunks/" in key for key in got)))
    assert 0 < figures[1][0] - figures[0][0] <= 2 * 64 * 1024, "only the last bytes of the segment"
    assert figures[1][1] == figures[0][1], "the archive's data are read back once"


def test_merged_and_partly_truncated_generations_are_compared(tmp_path: Path) -> None:
    vault = made(tmp_path)
    export(vault)
    vault.add(b"more")
    export(vault)
    compact_archive(vault.archive, master="inline")
    assert check_archive(vault.archive, read_data=True, master="inline").marked == (2,)
    vault.truncate(SIZE)
    report = truncating(vault, dry_run=True)
    assert report.ranges_compared == len(archive_of(vault.root).load(2).rows[SEGMENT])
    assert truncating(vault).ranges_compared == report.ranges_compared
    assert vault.events() == []


@pytest.mark.parametrize("head", [908, None], ids=["in part", "all"])
def test_what_is_truncated_while_it_is_compared_is_left_out(
    tmp_path: Path, head: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = made(tmp_path)
    export(vault)
    assert check_archive(vault.archive, read_data=True, master="inline").marked == (1,)
    real = archive_comparison.read_verified

    def meanwhile(*arguments: Any) -> Any:
        vault.truncate(vault.described.tail if head is None else head)
        return real(*arguments)

    monkeypatch.setattr(archive_comparison, "read_verified", meanwhile)
    assert truncating(vault).truncated
    assert vault.events() == []


def test_filler_of_a_restore_is_no_gap_that_the_stream_still_has(tmp_path: Path) -> None:
    """A restored stream has filler in place of the archive's gaps, and its tags say where."""
    vault = made(tmp_path)
    export(vault)
    vault.add(b"gone" * 10)
    vault.truncate(vault.described.tail)
    vault.add(*EVENTS)
    export(vault, same_stream=True)
    assert archive_of(vault.root).manifest().gaps
    for tagged in (False, True):
        again = Vault(tmp_path / f"again-{tagged}", vault.root)
        import_stream(vault.archive, again.uri(), master="inline")
        if tagged:
            assert truncating(again).truncated
            assert again.events() == []
        else:
            was = again.configuration()
            again.update_stream(NAME, replace(was, tags=()))
            is_kept(again, "calls bytes .* a gap, but the stream still has them")
