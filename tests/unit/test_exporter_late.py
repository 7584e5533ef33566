"""Exports that others overtake, or that meet what others have left: what is published stays, and work goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cutting.planning import Wanted
from exporter.planning import settle_plan
from manifests.archive import Archive
from objectstore.uri import RootAddress
from streamstore.errors import NoSuchSegment
from streamstore.local import LocalStore
from streamstore.model import SegmentId, StreamName
from streamvault import export_stream
from tests.unit.test_exporter_guesses import NAME, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def archive_of(place: Place) -> Archive:
    return Archive(RootAddress.parse(place.root).open(), NAME)


@pytest.mark.parametrize("blocks", [0, 1], ids=["at once", "after a block"])
@pytest.mark.parametrize("size", [300_000, 9 * 1024 * 1024], ids=["small", "large"])
def test_a_segment_that_is_not_found_and_should_be_there_ends_the_run(
    place: Place, blocks: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment store may say so while it recovers. It is neither a gap nor a reason to ask for ever."""
    place.fill([bytes([number + 1]) * size for number in range(6)])
    with place.store as store:
        settle_plan(archive_of(place), store, Wanted(), "")
    read, asked = LocalStore.read, 0

    def losing(self: LocalStore, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        nonlocal asked
        asked += 1
        assert asked < 20, "the run asks for ever"
        for number, block in enumerate(read(self, stream, segment, start, end)):
            if number == blocks:
                break
            yield block
        raise NoSuchSegment("no such segment", where="0.#epoch.0")

    with monkeypatch.context() as patch, pytest.raises(NoSuchSegment, match="should still have"):
        patch.setattr(LocalStore, "read", losing)
        export_stream(place.uri(), place.root, master="inline")
    report = export_stream(place.uri(), place.root, master="inline")
    assert (report.events, report.gaps) == (6, ())
