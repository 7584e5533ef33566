"""Byte streams, whose segments hold no events: archived, checked, restored and rotated like others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    copy_stream,
    export_stream,
    follow_stream,
    get_event,
    import_stream,
    read_archive,
    rotate_stream,
    show_archive,
    table_ddl,
    write_table,
)
from streamvault.common.errors import Failed, Usage
from streamvault.importer import run as import_run
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.sources.reader import NotEvents
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamName
from testkit.killed import stopped_at
from testkit.small_archives import KINDS, NAME, RANGE_SIZE, Vault, a_root, archive_of, clear, contents, data_keys
from testkit.streams import append_bytes, make_byte_stream

FIRST = SegmentId(0, 0)
RESTORED = replace(NAME, stream="restored")
INLINE: dict[str, Any] = {"master": "inline"}


def single(tmp_path: Path, size: int) -> Vault:
    """A stream of one segment."""
    vault = Vault(tmp_path)
    vault.create()
    add(vault, size)
    return vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    with vault.store as store:
        make_byte_stream(store, NAME)
    return vault


def add(vault: Vault, size: int) -> None:
    """Append bytes to every open segment."""
    with vault.store as store:
        for segment, offset in store.describe(NAME).tail.offsets.items():
            seed = hashlib.sha256(f"{segment} {offset}".encode()).digest()
            append_bytes(store, NAME, segment, (b"\xff" + seed * (size // 32 + 1))[:size])


def export(vault: Vault, root: str = "", **options: Any) -> Any:
    return export_stream(vault.uri(), root or vault.root, **{"range_size": RANGE_SIZE, **INLINE, **options})


def rows(root: str) -> list[ArchivedRange]:
    history = archive_of(root).history()
    return [row for segment in history.segments() for _, row in history.ranges(segment)]


def bounds(root: str) -> list[tuple[int, int]]:
    return [(row.start, row.end) for row in rows(root)]


def is_sound(root: str) -> None:
    report = check_archive(f"{root}/{NAME}", read_data=True, **INLINE)
    assert report.ok, report.findings
    assert (report.events, report.strays, report.ranges_read) == (0, 0, report.ranges)


def is_restored(vault: Vault, name: StreamName = RESTORED, **options: Any) -> None:
    import_stream(vault.archive, vault.uri(name), **INLINE, **options)
    assert vault.bytes_of(name) == vault.bytes_of()
    assert vault.shape(name) == vault.shape()


@pytest.mark.parametrize("compress", ["", "zstd"])
def test_byte_stream_is_restored_as_it_was(vault: Vault, compress: Compression) -> None:
    report = export(vault, content="bytes", compress=compress)
    held = vault.bytes_of()
    assert (report.events, report.bytes) == (0, sum(len(data) for _, data in held.values()))
    for row in rows(vault.root):
        start, data = held[str(row.segment)]
        assert row.digest == hashlib.sha256(data[row.start - start : row.end - start]).hexdigest()
        assert row.end - row.start == RANGE_SIZE or row.start == start or row.end == start + len(data)
        assert row.start % RANGE_SIZE == 0 or row.start == start
    manifest = show_archive(vault.archive)
    assert (manifest.content, manifest.layout, manifest.document()["content"]) == ("bytes", "chunks", "bytes")
    is_sound(vault.root)
    is_restored(vault)
    assert import_stream(vault.archive, vault.uri(RESTORED), again=True, **INLINE).unchanged
    is_restored(vault, replace(NAME, stream="read-back"), read_back=True)


@pytest.mark.parametrize("size", [0, 1, 7, RANGE_SIZE - 1, RANGE_SIZE, RANGE_SIZE + 1, 2 * RANGE_SIZE])
def test_ranges_end_at_multiples_of_the_range_size(tmp_path: Path, size: int) -> None:
    vault = single(tmp_path, size)
    rehearsed = export(vault, content="bytes", dry_run=True)
    report = export(vault, content="bytes")
    expected = [(low, min(low + RANGE_SIZE, size)) for low in range(0, size, RANGE_SIZE)]
    assert bounds(vault.root) == expected
    assert (rehearsed.bytes, rehearsed.events, rehearsed.cost.objects) == (size, 0, len(expected))
    assert (report.ranges, report.bytes, len(data_keys(vault.root))) == (len(expected), size, len(expected))
    is_sound(vault.root)
    is_restored(vault)


def test_later_generations_continue_with_bytes(tmp_path: Path) -> None:
    vault = single(tmp_path, 5000)
    export(vault, content="bytes")
    add(vault, 3)
    assert export(vault).bytes == 3
    add(vault, 6000)
    assert export(vault, layout="chunks", content="bytes").generation == 3
    assert export(vault).unchanged
    assert bounds(vault.root) == [(0, 4096), (4096, 5000), (5000, 5003), (5003, 8192), (8192, 11003)]
    is_sound(vault.root)
    is_restored(vault)
    second = replace(NAME, stream="second")
    assert import_stream(vault.archive, vault.uri(second), generation=2, **INLINE).bytes == 5003


@pytest.mark.parametrize("verb", [export_stream, rotate_stream, follow_stream])
def test_later_generations_are_compressed_without_saying_what_they_hold(tmp_path: Path, verb: Any) -> None:
    vault = single(tmp_path, 3 * RANGE_SIZE)
    export(vault, content="bytes")
    add(vault, RANGE_SIZE)
    more = {"lasting": 0.001, "retry_for": 0} if verb is follow_stream else {}
    verb(vault.uri(), vault.root, compress="zstd", **more, **INLINE)
    newest = archive_of(vault.root).manifest()
    assert (newest.generation, newest.content, newest.compression) == (2, "bytes", "zstd")
    assert check_archive(vault.archive, read_data=True, **INLINE).ok


def test_events_cannot_be_compressed_one_by_one(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=5, largest=50)
    for options in ({}, {"content": "events"}, {"layout": "events"}):
        with pytest.raises(Usage, match="layout events does not support the compression"):
            export_stream(vault.uri(), vault.root, compress="zstd", **INLINE, **options)
    assert contents(vault.root) == {}


def test_gap_is_filled_with_zeros(tmp_path: Path) -> None:
    """A gap of a byte stream can be shorter than an event."""
    vault = single(tmp_path, 5000)
    vault.truncate(5)
    export(vault, content="bytes")
    add(vault, 100)
    vault.truncate(5003)
    report = export(vault, same_stream=True)
    assert [(gap.start, gap.end) for gap in report.gaps] == [(5000, 5003)]
    is_sound(vault.root)
    import_stream(vault.archive, vault.uri(RESTORED), **INLINE)
    shifted = import_stream(vault.archive, vault.uri(replace(NAME, stream="shifted")), offsets="shift", **INLINE)
    assert list(shifted.shifts.values()) == [5]
    ((start, data),) = vault.bytes_of(RESTORED).values()
    ((base, rest),) = vault.bytes_of(replace(NAME, stream="shifted")).values()
    ((_, tail),) = vault.bytes_of().values()
    assert (start, len(data), data[4995:]) == (5, 5095, bytes(3) + tail)
    assert (base, rest) == (0, data[:4995] + data[4998:])


@pytest.mark.parametrize("compress", ["", "zstd"])
@pytest.mark.parametrize("head", [6000, 8192, 9001, 20_000])
def test_bytes_that_are_truncated_during_the_run_are_a_gap(
    tmp_path: Path, head: int, compress: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, read, begun = single(tmp_path, 20_000), LocalStore.read, False

    def truncating(self: LocalStore, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[Any]:
        nonlocal begun
        if start == 4096 and not begun:
            begun = True
            yield next(iter(read(self, stream, segment, 4096, 4106)))
            vault.truncate(head)
            start = 4106
        yield from read(self, stream, segment, start, end)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "read", truncating)
        report = export(vault, content="bytes", compress=compress, master="inline[1]")
    assert [(gap.start, gap.end) for gap in report.gaps] == [(4106, head)]
    kept = [(low, min(low + RANGE_SIZE, 20_000)) for low in range(head // RANGE_SIZE * RANGE_SIZE, 20_000, RANGE_SIZE)]
    after = [(max(low, head), high) for low, high in kept if high > head]
    assert bounds(vault.root) == [(0, 4096), (4096, 4106), *after]
    is_sound(vault.root)
    import_stream(vault.archive, vault.uri(RESTORED), **INLINE)


@pytest.mark.parametrize(("layout", "compress"), KINDS)
def test_export_without_the_option_names_it(vault: Vault, layout: LayoutName, compress: Compression) -> None:
    with pytest.raises(NotEvents, match=r"no event begins at offset \d+:.*`export --content bytes`"):
        export(vault, layout=layout, compress=compress)
    assert export(vault, content="bytes").generation == 1
    assert show_archive(vault.archive).compression == compress
    is_sound(vault.root)
    is_restored(vault)


def test_event_stream_can_be_archived_as_bytes(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=100)
    export(vault, content="bytes")
    is_sound(vault.root)
    import_stream(vault.archive, vault.uri(RESTORED), **INLINE)
    assert vault.digest(RESTORED) == vault.digest()


def test_part_between_cuts_at_any_offsets(tmp_path: Path) -> None:
    vault = single(tmp_path, 10_000)
    ((_, data),) = vault.bytes_of().values()
    low, high = ({f"{NAME}/0.#epoch.0": offset} for offset in (5, 9001))
    root = a_root()
    assert export(vault, root, content="bytes", from_cut=low, to_cut=high).bytes == 8996
    is_sound(root)
    export(vault, content="bytes")
    for name, archive, cuts in (
        ("cut", vault.archive, {"from_cut": low, "to_cut": high}),
        ("all", f"{root}/{NAME}", {}),
    ):
        for offsets, base in (("keep", 5), ("shift", 0)):
            target = replace(NAME, stream=f"{name}-{offsets}")
            report = import_stream(archive, vault.uri(target), offsets=offsets, **cuts, **INLINE)  # type: ignore[arg-type]
            assert (report.bytes, report.events) == (8996, 0)
            assert list(vault.bytes_of(target).values()) == [(base, data[5:9001])]


def test_killed_import_of_a_part_is_resumed(tmp_path: Path) -> None:
    """What an earlier run appended is compared with the bytes of a range, of which only a part was restored."""
    vault = single(tmp_path, 10_000)
    export(vault, content="bytes")
    cuts: dict[str, Any] = {"from_cut": {f"{NAME}/0.#epoch.0": 3}, "to_cut": {f"{NAME}/0.#epoch.0": 9001}}
    with stopped_at(import_run, "verify_range", Failed("killed")):
        import_stream(vault.archive, vault.uri(RESTORED), **cuts, **INLINE)
    report = import_stream(vault.archive, vault.uri(RESTORED), **cuts, **INLINE)
    assert (report.resumed, report.bytes, report.moved_bytes, report.events) == (True, 8998, 0, 0)
    again = import_stream(vault.archive, vault.uri(RESTORED), again=True, **cuts, **INLINE)
    assert (again.unchanged, again.verified, again.bytes, again.events) == (True, True, 8998, 0)
    ((_, data),) = vault.bytes_of().values()
    assert list(vault.bytes_of(RESTORED).values()) == [(3, data[3:9001])]


def test_deleted_stream_is_restored_under_its_own_name(vault: Vault) -> None:
    export(vault, content="bytes")
    before = list(vault.bytes_of().values())
    vault.delete()
    report = import_stream(vault.archive, vault.uri(), numbers="map", **INLINE)
    assert len(report.renumbered) == report.segments
    assert list(vault.bytes_of().values()) == before


def test_rotation_keeps_generations_with_bytes(tmp_path: Path) -> None:
    vault = single(tmp_path, 5000)
    options: dict[str, Any] = {"keep": 2, "truncate_source": True, "range_size": RANGE_SIZE, **INLINE}
    assert rotate_stream(vault.uri(), vault.root, content="bytes", **options).expired == ()
    for number in (2, 3):
        add(vault, 777)
        report = rotate_stream(vault.uri(), vault.root, **options)
        assert (report.checked, report.expired) == ((number,), (1,) if number == 3 else ())
    assert bounds(vault.root) == [(5000, 5777), (5777, 6554)]
    assert vault.described.head.offsets == {FIRST: 6554}
    is_sound(vault.root)


def test_compaction_joins_ranges_of_bytes(tmp_path: Path) -> None:
    vault = single(tmp_path, 5000)
    export(vault, content="bytes")
    for size in (7, 3, 5000):
        add(vault, size)
        export(vault)
    assert compact_archive(vault.archive, **INLINE).runs
    assert bounds(vault.root) == [(0, 4096), (4096, 8192), (8192, 10_010)]
    clear(vault)
    is_sound(vault.root)
    is_restored(vault)
    assert import_stream(vault.archive, vault.uri(replace(NAME, stream="two")), generation=2, **INLINE).bytes == 5007


def test_conversion_compresses(vault: Vault) -> None:
    export(vault, content="bytes")
    other = a_root()
    convert_archive(vault.archive, other, layout="chunks", compress="zstd", **INLINE)
    assert bounds(other) == bounds(vault.root)
    assert show_archive(f"{other}/{NAME}").content == "bytes"
    is_sound(other)
    add(vault, 10)
    assert export(vault, other, compress="zstd", layout="chunks").bytes == 20


REFUSED: dict[str, tuple[Callable[[Vault], object], str]] = {
    "layout": (lambda v: export(v, layout="events"), r"cannot have layout events.* Use layout='chunks'"),
    "both": (lambda v: export(v, a_root(), content="bytes", layout="events"), r"cannot have layout events"),
    "content": (lambda v: export(v, content="events"), r"the archive holds bytes, not events: scope/stream, gen.* 1"),
    "rotate": (lambda v: rotate_stream(v.uri(), v.root, content="events", **INLINE), r"the archive holds bytes"),
    "follow": (lambda v: follow_stream(v.uri(), v.root, content="events", **INLINE), r"the archive holds bytes"),
    "dry run": (lambda v: export(v, content="events", dry_run=True), r"the archive holds bytes"),
    "convert": (lambda v: convert_archive(v.archive, a_root(), layout="events", **INLINE), r"cannot have layout ev"),
    "get": (lambda v: get_event(v.archive, f"{NAME}/0.#epoch.0:0-9"), r"is of a byte stream"),
    "cat": (lambda v: read_archive(v.archive), r"is of a byte stream, which has no events: memory.*import"),
    "handoff": (lambda v: write_table(v.archive, table="t", **INLINE), r"is of a byte stream"),
    "ddl": (lambda v: table_ddl(v.archive, "athena", table="t"), r"is of a byte stream"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_events_is_refused(vault: Vault, name: str) -> None:
    export(vault, content="bytes")
    before = contents(vault.root)
    verb, message = REFUSED[name]
    with pytest.raises(Usage, match=message):
        verb(vault)
    assert contents(vault.root) == before


def test_spark_reads_no_bytes(vault: Vault) -> None:
    export(vault, content="bytes")
    source = ArchiveDataSource({"path": vault.archive})
    with pytest.raises(Usage, match="is of a byte stream"):
        source.reader(source.schema()).partitions()


def test_archive_of_events_stays_one(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=20)
    vault.export()
    vault.add(b"more")
    with pytest.raises(Usage, match=r"the archive holds events, not bytes.*content='bytes'"):
        export(vault, content="bytes")
    assert "content" not in show_archive(vault.archive).document()


def test_copy_of_a_byte_stream(tmp_path: Path) -> None:
    vault = single(tmp_path, 10_000)
    vault.truncate(3)
    copy_stream(vault.uri(), vault.uri(RESTORED), read_back=True, **INLINE)
    cut = {"from_cut": {f"{NAME}/0.#epoch.0": 11}, "to_cut": {f"{NAME}/0.#epoch.0": 9001}}
    part: dict[str, Any] = {**cut, **INLINE}
    other = replace(NAME, stream="part")
    copy_stream(vault.uri(), vault.uri(other), **part)
    ((start, data),) = vault.bytes_of().values()
    assert list(vault.bytes_of(RESTORED).values()) == [(start, data)]
    assert list(vault.bytes_of(other).values()) == [(11, data[8:8998])]
    beyond = {f"{NAME}/0.#epoch.0": 10_001}
    with pytest.raises(InvalidCut, match="beyond the stream's tail"):
        copy_stream(vault.uri(), vault.uri(other), to_cut=beyond, **INLINE)
