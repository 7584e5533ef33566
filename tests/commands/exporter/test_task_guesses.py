"""Payloads that look like events: whatever a task guesses, exactly the true events are archived."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamvault.exporter.plan import settle_plan
from streamvault.exporter.reports import ExportOptions
from streamvault.exporter.run import ExportTask, export_range
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.archive import Archive
from streamvault.objectstore.uri import RootAddress
from streamvault.sources.spans import Span
from streamvault.streamstore.uri import parse_stream
from testkit.small_archives import KINDS, NAME
from testkit.streams import frame
from tests.commands.places import SEGMENT, Place, lure

MOST_RANGES = 40


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


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


def test_rows_of_empty_events_are_archived(place: Place) -> None:
    place.fill([b""] * 900, [b"x", *[b""] * 100] * 3)
    place.prove(1024)


def test_events_larger_than_a_range_are_archived(place: Place) -> None:
    large = [b"\x05" * 300_000, bytes(100_000), b"", b"\x06" * 70_000, nested(3, bytes(200_000))]
    place.fill(large, large[::-1])
    place.prove(16 * 1024)


def test_events_of_eight_mebibytes_are_archived(place: Place) -> None:
    """The largest event that a client can write: the guess needs more than one block to recognize it."""
    largest = 8 * 1024 * 1024
    place.fill([b"\x05" * largest, bytes(largest), b"small", b"\x06" * largest, b""])
    place.prove(3 * 1024 * 1024)


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
            archive=archive.address,
            generation=1,
            attempt=1,
            layout=kind[0],
            compression=kind[1],
            window=WINDOW,
            span=Span(low, min(low + 512, end), known=False),
        )
        export_range(task)
    true = place.true_keys() if kind[0] == "events" else place.true_chunks(512)
    assert set(place.keys(kind[0])) - set(true), "there is something to remove"
    place.prove(512, *kind)
