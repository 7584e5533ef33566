"""An index of which a part is read at a time: the same rows as of all of it, and what is not the manifest's."""

from __future__ import annotations

from typing import Any

import pytest

from streamvault.common.errors import Damaged
from streamvault.layouts.archived_range import ArchivedRange, block_checksums_length
from streamvault.layouts.keys import Place
from streamvault.manifests import index, index_pages
from streamvault.manifests.index import decode_ranges, encode_ranges
from streamvault.manifests.index_pages import IndexPages
from streamvault.manifests.manifest import IndexEntry
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import SegmentId
from testkit.small_archives import NAME, a_root, replace_object

MIB = 1024 * 1024
KEY = "index"


class SomeManifest:
    """What is read of a manifest."""

    name, max_ranges = NAME, None

    def __init__(self, data: bytes) -> None:
        self.index = IndexEntry.of(data)


def rows_of(count: int, *, frames: bool) -> list[ArchivedRange]:
    """Ranges of three segments, with a gap behind every seventh, and checksums of most."""
    found, at = [], 0
    for number in range(count):
        if number % (count // 3 + 1) == 0:
            at = 0
        size = (number % 5 + 1) * MIB
        noted = "A" * (block_checksums_length(size) - 1) + "=" if number % 5 % 3 == 0 else ""
        noted = noted if number % 11 else ""
        sizes = (1000,) * (size // MIB) if frames else ()
        segment = SegmentId(0, number // (count // 3 + 1))
        found.append(ArchivedRange(segment, at, at + size, 1, f"{number:064x}", sizes, block_checksums=noted))
        at += size + (MIB if number % 7 == 0 else 0)
    return found


def opened(data: bytes) -> tuple[IndexPages, str]:
    root = a_root()
    store = RootAddress.parse(root).open()
    store.put(KEY, data)
    return IndexPages(Place(store, ""), KEY, SomeManifest(data), "fingerprint"), root  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BATCH_ROWS", 150)
    monkeypatch.setattr(index, "BLOCKS_ROWS", 50)
    monkeypatch.setattr(index_pages, "BLOCKS_ROWS", 50)
    monkeypatch.setattr(index_pages, "PAGE_ROWS", 10)
    monkeypatch.setattr(index_pages, "BLOCK_BYTES", 999)
    monkeypatch.setattr(index_pages, "READ_BYTES", 9990)


@pytest.mark.parametrize("frames", [False, True])
@pytest.mark.parametrize("count", [1, 10, 150, 405])
def test_every_row_is_found_as_in_the_whole_index(count: int, frames: bool) -> None:
    rows = rows_of(count, frames=frames)
    data = encode_ranges(NAME, rows)
    pages, _ = opened(data)
    assert list(decode_ranges(NAME, data, "index")) == rows
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        then = after.start if after is not None and after.segment == row.segment else None
        for offset in {row.start, row.end - 1}:
            number = pages.page_of(row.segment, offset)
            assert number is not None
            found, later = pages.page(number).find(row.segment, offset)
            assert found == row
            assert found is not None
            assert found.block_checksums == row.block_checksums
            assert later == then
        if then != row.end:
            number = pages.page_of(row.segment, row.end)
            assert number is not None
            assert pages.page(number).find(row.segment, row.end) == (None, then)


def test_no_rows_have_no_page() -> None:
    assert opened(encode_ranges(NAME, []))[0].page_of(SegmentId(0, 0), 0) is None


def test_an_index_that_is_not_the_manifests_is_not_opened() -> None:
    data = encode_ranges(NAME, rows_of(20, frames=False))
    root = RootAddress.parse(a_root())
    store: Any = root.open()
    manifest: Any = SomeManifest(data)
    for other in (data[:-1], data[:99] + b"x" + data[100:], None):
        if other is not None:
            replace_object(root.uri, KEY, other)
        else:
            store.delete([KEY])
        with pytest.raises(Damaged, match=r"is not that of the manifest|is missing"):
            IndexPages(Place(store, ""), KEY, manifest, "")


@pytest.mark.parametrize("name", [b"blake3", b""])
def test_digests_of_another_algorithm_are_refused(name: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(index, "SHA256", name)
        data = encode_ranges(NAME, rows_of(20, frames=False))
    for read in (opened, lambda data: list(decode_ranges(NAME, data, "index"))):
        with pytest.raises(Damaged, match="unsupported algorithm"):
            read(data)


def test_what_changed_after_it_was_opened_is_not_believed() -> None:
    data = encode_ranges(NAME, rows_of(300, frames=False))
    pages, root = opened(data)
    at = data.index(b"%064x" % 17) + 63
    replace_object(root, KEY, data[:at] + b"0" + data[at + 1 :])
    with pytest.raises(Damaged, match="was changed"):
        pages.page(1)
    replace_object(root, KEY, None)
    with pytest.raises(Damaged, match="is missing"):
        pages.page(0)
