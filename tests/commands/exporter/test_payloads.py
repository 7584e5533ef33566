"""Payloads that look like events, and events above 8 MiB: exactly the true events are archived and restored."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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
from streamvault.exporter.plan import settle_plan
from streamvault.exporter.reports import ExportOptions
from streamvault.exporter.run import Destination, ExportTask, export_range
from streamvault.layouts.layout import WINDOW, Compression, LayoutName
from streamvault.manifests.archive import Archive
from streamvault.manifests.spans import SegmentSpan, Span
from streamvault.objectstore.uri import RootAddress
from streamvault.sources.reader import TRUNCATED, NotEvents, find_range
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.store import LocalAppender
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.scenes import SEGMENT, Place, lure
from testkit.small_archives import KINDS, NAME
from testkit.streams import frame

MOST_RANGES = 40
MIB = 1024 * 1024


def nested(depth: int, core: bytes) -> bytes:
    """Nested events: each level is a chain of headers that ends where the enclosing event ends."""
    for _ in range(depth):
        core = frame(b"") + frame(core)
    return core


smalls = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 300).map(bytes),
    st.builds(nested, st.integers(1, 5), st.binary(max_size=20)),
    st.lists(st.integers(0, 40), max_size=12).map(
        lambda sizes: b"".join(struct.pack(">ii", 0, size) for size in sizes)
    ),
    st.integers(0, 200).map(lure),
    st.binary(min_size=8, max_size=8).map(lambda odd: b"\x01" + bytes(7) + odd + bytes(9)),
    st.integers(300, 5000).map(lambda size: b"\x07" * size),
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    payloads=st.lists(smalls, min_size=1, max_size=30),
    other=st.lists(smalls, max_size=10),
    range_size=st.integers(1, 700),
    kind=st.sampled_from(KINDS),
)
@example(payloads=[bytes(999)] * 5, other=[], range_size=64, kind=KINDS[0])
@example(payloads=[nested(20, b"core")] * 6, other=[b""] * 30, range_size=50, kind=KINDS[0])
@example(payloads=[nested(20, b"core")] * 6, other=[b""] * 30, range_size=50, kind=KINDS[1])
@example(payloads=[lure(23), b"hidden", b"x"] * 20, other=[bytes(8)] * 20, range_size=17, kind=KINDS[0])
@example(payloads=[lure(23), b"hidden", b"x"] * 20, other=[bytes(8)] * 20, range_size=17, kind=KINDS[2])
@example(payloads=[b"\x07" * 4000, b""] * 4, other=[], range_size=100, kind=KINDS[0])
def test_only_the_true_events_are_archived(
    payloads: list[bytes], other: list[bytes], range_size: int, kind: tuple[LayoutName, Compression]
) -> None:
    held = sum(len(payload) + 8 for payload in payloads + other)
    range_size = max(range_size, held // MOST_RANGES)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))  # a new name each time, and so a new archive
        place.fill(payloads, other)
        place.prove(range_size, *kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
@pytest.mark.parametrize(
    "payloads",
    [
        pytest.param([bytes(200)] * 60, id="zeros"),
        pytest.param([nested(60, bytes(100))] * 6, id="nested"),
        pytest.param([frame(bytes(n)) * 9 for n in range(0, 80, 4)], id="whole-events"),
        pytest.param([b"\xff" * 300 + bytes(8) + lure(332)] * 40, id="lures"),
    ],
)
def test_archive_is_right_though_guesses_are_wrong(
    place: Place, payloads: list[bytes], kind: tuple[LayoutName, Compression]
) -> None:
    """The previous test is meaningful only if tasks do guess wrong."""
    place.fill(payloads)
    guesses = list(place.guesses(512))
    assert sum(true != found for true, found in guesses) >= 3
    place.prove(512, *kind)


def test_zeros_of_a_payload_are_not_taken_for_events(place: Place) -> None:
    place.fill([bytes(2003)] * 8)
    assert all(found is not None and 0 <= true - found < 256 for true, found in place.guesses(512))
    place.prove(512)


LONG = [b"\x05" * 300_000, bytes(100_000), b"", b"\x06" * 70_000, nested(3, bytes(200_000))]
LONGEST = 8 * MIB
"""The largest event that a client can write unless it is told to: the guess needs several blocks to recognize it."""


@pytest.mark.parametrize(
    ("segments", "range_size"),
    [
        ([[b""] * 900, [b"x", *[b""] * 100] * 3], 1024),
        ([LONG, LONG[::-1]], 16 * 1024),
        ([[b"\x05" * LONGEST, bytes(LONGEST), b"small", b"\x06" * LONGEST, b""]], 3 * MIB),
    ],
    ids=["rows of empty events", "larger than a range", "as large as can be"],
)
def test_events_of_any_size_are_archived(place: Place, segments: list[list[bytes]], range_size: int) -> None:
    place.fill(*segments)
    place.prove(range_size)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_wrong_ranges_of_a_killed_run_are_removed_by_the_next(
    tmp_path: Path, kind: tuple[LayoutName, Compression]
) -> None:
    """Rows and objects of wrong guesses that an earlier run left: the chain skips them, and the sweep deletes them."""
    place = Place(tmp_path, on_disk=True)
    place.fill([nested(60, bytes(100))] * 6)
    root, (source, _) = RootAddress.parse(place.root), parse_stream(place.uri())
    archive = Archive(root, NAME)
    with place.store as store:
        plan = settle_plan(archive, store, ExportOptions(layout=kind[0], compress=kind[1], range_size=512)).plan
    assert plan is not None
    end = plan.segments[0].end
    for low in range(512, end, 512):
        task = ExportTask(
            source=source,
            stream=NAME,
            segment=SEGMENT,
            segment_end=end,
            to=Destination.of(archive, plan, 1, WINDOW),
            span=Span(low, min(low + 512, end), known=False),
        )
        export_range(task)
    true = place.true_keys() if kind[0] == "events" else place.true_chunks(512)
    assert set(place.keys(kind[0])) - set(true), "there is something to remove"
    place.prove(512, *kind)


KIND_IDS = ["events", "chunks", "zstd"]


def random_bytes(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


LARGE = [
    b"first",
    random_bytes(9 * MIB, 1),
    b"between",
    *[bytes([number]) * 700_000 for number in range(5)],
    bytes(9 * MIB),  # zeros, which a guess mistakes for events
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
    assert place.digest(StreamName("scope", "restored")) == place.digest()
    assert sum(1 for _ in place.events()) == report.events


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
    pointers = [str(pointer) for pointer, _ in place.events()]
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
    assert place.digest(restored) == place.digest()


def test_tables_hold_and_restore_large_events(place: Place) -> None:
    place.fill([b"first", random_bytes(9 * MIB, 1), b"between", random_bytes(10 * MIB, 2), b"last"])
    export_stream(place.uri(), place.root, layout="chunks", master="inline")
    write_table(place.archive, table="of_archive", format="parquet", master="inline")
    other = f"{place.root}-stream"
    write_table(place.uri(), root=other, table="of_stream", format="parquet", target_size=4 * MIB, master="inline")
    for number, (root, table) in enumerate(((place.root, "of_archive"), (other, "of_stream"))):
        target = f"restored-{number}"
        import_stream(f"{root}/{NAME}", place.uri(target), layout="table", table=table, master="inline")
        assert place.digest(StreamName("scope", target)) == place.digest()


def test_compact_does_not_rewrite_large_events(place: Place) -> None:
    """No chunk is larger than the window, and none is written twice."""
    place.fill([b"first"])
    for payload in (b"a", random_bytes(9 * MIB, 1), b"b", b"c"):
        export_stream(place.uri(), place.root, layout="chunks", master="inline")
        place.write(NAME, SEGMENT, [payload])
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
    assert place.digest(StreamName("scope", "restored")) == place.digest()
