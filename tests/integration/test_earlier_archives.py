"""Archives that earlier releases wrote: each is checked, restored and continued by the current code."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, export_stream, import_stream, rotate_stream, write_table
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.streams import append_events, digest_of

DATA = Path(__file__).parent.parent / "data" / "archives.tar.gz"
KINDS = ("events", "chunks", "compacted", "converted", "rotated", "tabled")
INLINE: dict[str, Any] = {"master": "inline[2]"}


@dataclass(frozen=True)
class Earlier:
    """An archive of `DATA`, and the stream from which it was exported."""

    folder: Path
    name: StreamName
    expected: dict[str, Any]

    @property
    def root(self) -> str:
        return f"file://{self.folder}/vault"

    @property
    def archive(self) -> str:
        return f"{self.root}/{self.name}"

    @property
    def stream(self) -> str:
        return f"local://{self.folder}/streams/{self.name}"

    def restore(self, **options: Any) -> tuple[int, str]:
        """The digest of the stream that an import creates."""
        uri = f"local://{self.folder}/restored/{self.name}"
        import_stream(self.archive, uri, **options, **INLINE)
        with parse_stream(uri)[0].open() as store:
            return digest_of(store, self.name)

    def append(self) -> int:
        """Append an event to each open segment; returns how many there are."""
        with parse_stream(self.stream)[0].open() as store:
            segments = store.describe(self.name).tail.offsets
            for segment in segments:
                append_events(store, self.name, segment, [b"later"])
            return len(segments)


@pytest.fixture
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Earlier:
    with tarfile.open(DATA) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # there is none before Python 3.11.4
        archive.extractall(tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    return Earlier(tmp_path, StreamName("demo", request.param), expected[request.param])


@pytest.mark.parametrize("earlier", KINDS, indirect=True)
def test_check_finds_an_earlier_archive_whole(earlier: Earlier) -> None:
    report = check_archive(earlier.archive, read_data=True, **INLINE)
    assert report.ok
    assert not report.findings


@pytest.mark.parametrize("earlier", KINDS, indirect=True)
def test_an_earlier_archive_is_restored_equal(earlier: Earlier) -> None:
    assert earlier.restore() == (earlier.expected["events"], earlier.expected["digest"])


@pytest.mark.parametrize("earlier", KINDS, indirect=True)
def test_an_earlier_archive_is_continued(earlier: Earlier) -> None:
    assert export_stream(earlier.stream, earlier.root, **INLINE).unchanged
    new = earlier.append()
    report = export_stream(earlier.stream, earlier.root, **INLINE)
    assert (report.generation, report.events) == (earlier.expected["generation"] + 1, new)
    assert check_archive(earlier.archive, read_data=True, **INLINE).ok
    assert earlier.restore()[0] == earlier.expected["events"] + new


@pytest.mark.parametrize("earlier", ["rotated"], indirect=True)
def test_an_earlier_hold_stops_a_rotation(earlier: Earlier) -> None:
    earlier.append()
    report = rotate_stream(earlier.stream, earlier.root, keep=1, **INLINE)
    assert report.stopped is not None
    assert report.stopped.generation == earlier.expected["generation"]


@pytest.mark.parametrize("earlier", ["tabled"], indirect=True)
def test_an_earlier_table_is_continued_and_restored(earlier: Earlier) -> None:
    new = earlier.append()
    export_stream(earlier.stream, earlier.root, **INLINE)
    report = write_table(earlier.archive, **INLINE)
    assert report.events == new
    assert earlier.restore(layout="table")[0] == earlier.expected["events"] + new
