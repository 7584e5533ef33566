"""Events above 8 MiB, as a Java client with large events enabled writes them: one header, then the whole payload."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    export_stream,
    get_event,
    import_stream,
    read_archive,
    write_table,
)
from streamvault.common.errors import Failed, Usage
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.sources.reader import TRUNCATED, NotEvents, find_range
from streamvault.sources.spans import SegmentSpan, Span
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.appender import LocalAppender
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.small_archives import KINDS, NAME
from testkit.streams import append_events, digest_of, events_of
from tests.commands.places import SEGMENT, Place

MIB = 1024 * 1024
KIND_IDS = ["events", "chunks", "zstd"]


def random_bytes(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


LARGE = [
    b"first",
    random_bytes(9 * MIB, 1),
    b"between",
    *[bytes([number]) * 700_000 for number in range(5)],
    bytes(20 * MIB),  # zeros, which a guess mistakes for events
    random_bytes(8 * MIB + 1, 3),
    b"",
    b"last",
]


@pytest.mark.parametrize(("layout", "compress"), KINDS, ids=KIND_IDS)
@pytest.mark.parametrize("range_size", [3 * MIB, 64 * MIB])
def test_large_events_are_exported_and_restored(
    place: Place, layout: LayoutName, compress: Compression, range_size: int
) -> None:
    place.fill(LARGE, [b"x", LARGE[1]])
    report = export_stream(
        place.uri(), place.root, layout=layout, compress=compress, range_size=range_size, master="inline[2]"
    )
    assert report.events == len(LARGE) + 2
    check = check_archive(place.archive, read_data=True, master="inline[2]")
    assert check.ok, check.findings
    import_stream(place.archive, place.uri("restored"), master="inline[2]")
    with place.store as store:
        assert digest_of(store, StreamName("scope", "restored")) == digest_of(store, NAME)
        assert sum(1 for _ in events_of(store, NAME)) == report.events


def test_event_above_the_limit_is_refused_with_the_option_to_raise(place: Place) -> None:
    place.fill([b"first", bytes(9 * MIB)])
    for size in (8 * MIB, 9 * MIB - 1):
        accepted = rf"at offset 13, unless it has {9 * MIB} bytes \(at most {size} are accepted\)"
        with pytest.raises(NotEvents, match=rf"{accepted}.*increase largest_event"):
            export_stream(place.uri(), place.root, largest_event=size, master="inline")
    assert export_stream(place.uri(), place.root, largest_event=9 * MIB, master="inline").events == 2
    with pytest.raises(Usage, match=r"^largest_event must be at least 8MiB"):
        export_stream(place.uri(), place.root, largest_event=8 * MIB - 1, master="inline")


def test_guess_refuses_a_large_event_and_the_chain_goes_on_from_the_proved_boundary(place: Place) -> None:
    place.fill([b"x" * 1000, bytes(9 * MIB), b"y"])
    address, _ = parse_stream(place.uri())
    task = SegmentSpan(address, NAME, SEGMENT, 1008 + 9 * MIB + 8 + 9, Span(1008, 1009, known=False))
    assert find_range(task) is None
    known = find_range(replace(task, span=Span(1008, 1009, known=True)))
    assert known is not None
    assert [(piece.start, piece.end, piece.events) for piece in known.ranges] == [(1008, 1016 + 9 * MIB, 1)]


def test_cut_inside_a_large_event_is_refused(place: Place) -> None:
    place.fill([b"x", bytes(9 * MIB), b"y"])
    cut = {f"{NAME}/0.#epoch.0": 5 * MIB}
    with pytest.raises(InvalidCut, match="lies inside an event"):
        export_stream(place.uri(), place.root, to_cut=cut, master="inline")


@pytest.mark.parametrize("cut", [5 * MIB, 9 * MIB + 17], ids=["in its middle", "behind it"])
def test_large_event_truncated_while_it_is_read_is_a_gap(
    place: Place, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.fill([b"x", random_bytes(9 * MIB, 1), b"y" * 20, random_bytes(9 * MIB, 2)])
    read = LocalStore.read

    def truncating(
        self: LocalStore, stream: StreamName, segment: SegmentId, start: int, end: int
    ) -> Iterator[memoryview]:
        for number, block in enumerate(read(self, stream, segment, start, end)):
            if number == 3 and start == 9:
                self.truncate_segment(stream, segment, cut)
            yield block

    monkeypatch.setattr(LocalStore, "read", truncating)
    report = export_stream(place.uri(), place.root, layout="chunks", master="inline")
    assert report.events == 3
    assert [(gap.start, gap.end, gap.reason) for gap in report.gaps] == [(9, 9 * MIB + 17, TRUNCATED)]
    check = check_archive(place.archive, read_data=True, master="inline")
    assert check.ok, check.findings


@pytest.mark.parametrize("layout", ["events", "chunks"])
def test_every_reading_verb_reads_large_events(place: Place, layout: LayoutName) -> None:
    payloads = [b"first", random_bytes(9 * MIB, 1), b"last"]
    place.fill(payloads)
    export_stream(place.uri(), place.root, layout=layout, master="inline")
    with place.store as store:
        pointers = [str(pointer) for pointer, _ in events_of(store, NAME)]
    assert [get_event(place.archive, pointer) for pointer in pointers] == payloads
    assert [row["payload"] for row in read_archive(place.archive).read_all().to_pylist()] == payloads
    estimate = export_stream(place.uri(), f"{place.root}-other", dry_run=True, master="inline")
    assert 1 <= estimate.events <= len(payloads)


@pytest.mark.parametrize(("layout", "compress"), KINDS, ids=KIND_IDS)
def test_import_cut_off_inside_a_large_event_is_resumed(
    place: Place, layout: LayoutName, compress: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.fill([b"first", random_bytes(12 * MIB, 1), b"last"])
    export_stream(place.uri(), place.root, layout=layout, compress=compress, master="inline")
    append = LocalAppender.append

    def cut_off(self: LocalAppender, block: bytes | bytearray | memoryview) -> None:
        if self.offset > 7 * MIB:
            self.flush()
            raise Failed("cut off")
        append(self, block)

    with monkeypatch.context() as patch:
        patch.setattr(LocalAppender, "append", cut_off)
        with pytest.raises(Failed, match="cut off"):
            import_stream(place.archive, place.uri("restored"), master="inline")
    restored = StreamName("scope", "restored")
    with place.store as store:
        assert 7 * MIB < store.segment_info(restored, [SEGMENT])[0].write_offset < 12 * MIB
    import_stream(place.archive, place.uri("restored"), master="inline")
    with place.store as store:
        assert digest_of(store, restored) == digest_of(store, NAME)


def test_tables_hold_and_restore_large_events(place: Place) -> None:
    place.fill([b"first", random_bytes(9 * MIB, 1), b"between", random_bytes(10 * MIB, 2), b"last"])
    export_stream(place.uri(), place.root, layout="chunks", master="inline")
    write_table(place.archive, table="of_archive", format="parquet", master="inline")
    other = f"{place.root}-stream"
    write_table(place.uri(), root=other, table="of_stream", format="parquet", target_size=4 * MIB, master="inline")
    for number, (root, table) in enumerate(((place.root, "of_archive"), (other, "of_stream"))):
        target = f"restored-{number}"
        import_stream(f"{root}/{NAME}", place.uri(target), layout="table", table=table, master="inline")
        with place.store as store:
            assert digest_of(store, StreamName("scope", target)) == digest_of(store, NAME)


def test_compact_does_not_rewrite_large_events(place: Place) -> None:
    """No chunk is larger than the window, and none is written twice."""
    place.fill([b"first"])
    for payload in (b"a", random_bytes(9 * MIB, 1), b"b", b"c"):
        export_stream(place.uri(), place.root, layout="chunks", master="inline")
        with place.store as store:
            append_events(store, NAME, SEGMENT, [payload])
    export_stream(place.uri(), place.root, layout="chunks", master="inline")
    before = set(place.keys("chunks"))
    compact_archive(place.archive, at_least=2, master="inline")
    made = sorted(key.rpartition("/")[2] for key in set(place.keys("chunks")) - before)
    assert made == [f"{0:019d}-{22:019d}", f"{9 * MIB + 30:019d}-{18:019d}"]
    assert check_archive(place.archive, read_data=True, master="inline").ok


@pytest.mark.parametrize(("layout", "compress"), [("events", ""), ("chunks", "zstd")], ids=["events", "zstd"])
def test_convert_copies_events_larger_than_its_window(place: Place, layout: LayoutName, compress: Compression) -> None:
    place.fill([b"first", random_bytes(9 * MIB, 1), b"between", random_bytes(18 * MIB, 2), b"last"])
    export_stream(place.uri(), place.root, layout="chunks", range_size=8 * MIB, window=16 * MIB, master="inline")
    root = f"{place.root}-converted"
    convert_archive(place.archive, root, layout=layout, compress=compress, window=16 * MIB, master="inline")
    import_stream(f"{root}/{NAME}", place.uri("restored"), window=16 * MIB, master="inline")
    with place.store as store:
        assert digest_of(store, StreamName("scope", "restored")) == digest_of(store, NAME)
