"""What readers say about an archive whose objects have changed bytes but the right sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from streamvault import get_event, read_archive
from streamvault.cli import main
from streamvault.common.errors import Damaged
from streamvault.lake.read import read_part
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests import damage
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import DigestMismatch
from streamvault.manifests.history import RangePart, select_parts
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.streamstore.model import StreamCut
from testkit.small_archives import KINDS, NAME, Vault, archive_of, contents, replace_object
from tests.spark_reads import read

PLAIN = [kind for kind in KINDS if not kind[1]]
"""Compressed frames have checksums of their own."""


def damaged(folder: Path, kind: tuple[LayoutName, Compression], *, header: bool = False) -> tuple[Vault, RangePart]:
    """An archive on disk with one changed byte in a range of several events; returns that range, too."""
    vault = Vault(folder, root=f"file://{folder}/vault")
    vault.make(events=200, largest=500)
    vault.export(*kind)
    archive = archive_of(vault.root)
    tail = archive.manifest().to.offsets
    part = next(one for one in select_parts(archive.history()) if one.row.events > 5 and one.segment in tail)
    within = {
        key: data
        for key, data in contents(vault.root).items()
        if f"/{part.segment.epoch:010d}.{part.segment.number:010d}/" in key and f"/{part.start:019d}-" in key
    }
    ((key, data),) = within.items()
    assert data
    at = 0 if header else len(data) - 1
    replace_object(vault.root, key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    return vault, part


def inside(vault: Vault, part: RangePart) -> StreamCut:
    """A cut after the first event of a range."""
    tail = archive_of(vault.root).manifest().to
    first = next(p for p, _ in vault.events() if p.segment == part.segment and p.offset == part.start)
    return StreamCut(NAME, {**tail.offsets, part.segment: first.offset + first.length})


def _inside(batches: list[pa.RecordBatch], part: RangePart) -> list[int]:
    """The offsets of the events that are in a range."""
    rows = [row for batch in batches for row in batch.select(["epoch", "segment", "offset"]).to_pylist()]
    place = (part.segment.epoch, part.segment.number)
    return [r["offset"] for r in rows if (r["epoch"], r["segment"]) == place and part.start <= r["offset"] < part.end]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_nothing_of_a_range_with_a_changed_byte_is_returned(
    kind: tuple[LayoutName, Compression], tmp_path: Path
) -> None:
    vault, part = damaged(tmp_path, kind)
    returned: list[pa.RecordBatch] = []
    with pytest.raises(Damaged) as caught:
        returned.extend(read_archive(vault.archive))
    assert caught.value.exit_code == 3
    if kind in PLAIN:
        assert isinstance(caught.value, DigestMismatch)
        assert not _inside(returned, part)
        assert "came before this error" not in str(caught.value)
    with pytest.raises(Damaged):
        read(ArchiveDataSource({"path": vault.archive}))
    returned = []
    with pytest.raises(Damaged) as caught:
        returned.extend(read_archive(vault.archive, unverified=True))
    if kind in PLAIN:
        assert len(_inside(returned, part)) == part.row.events
        assert f"{part.row.events:,} events of this range came before this error" in str(caught.value)


def test_changed_header_is_damage_and_no_invalid_event(tmp_path: Path) -> None:
    vault, _ = damaged(tmp_path, ("chunks", ""), header=True)
    with pytest.raises(Damaged) as caught:
        read_archive(vault.archive).read_all()
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind[0])
@pytest.mark.parametrize("besides", [damage.BESIDES, -(1 << 40)], ids=["buffered", "read-twice"])
def test_part_of_a_damaged_range_is_not_returned(
    besides: int, monkeypatch: pytest.MonkeyPatch, kind: tuple[LayoutName, Compression], tmp_path: Path
) -> None:
    vault, part = damaged(tmp_path, kind)
    archive: Archive = archive_of(vault.root)
    yielded = []
    monkeypatch.setattr(damage, "BESIDES", besides)
    with pytest.raises(DigestMismatch):
        yielded += list(read_part(archive.place, archive.stream, part))
    assert yielded == []
    cut = json.dumps(inside(vault, part).to_json())
    with pytest.raises(DigestMismatch):
        read_archive(vault.archive, to_cut=cut).read_all()
    with pytest.raises(DigestMismatch):
        read(ArchiveDataSource({"path": vault.archive, "to": cut}))
    assert read_archive(vault.archive, to_cut=cut, unverified=True).read_all().num_rows  # the part has no digest
    assert read(ArchiveDataSource({"path": vault.archive, "to": cut, "unverified": "true"}))


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind[0])
def test_cat_and_get_exit_with_3(
    kind: tuple[LayoutName, Compression], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    vault, part = damaged(tmp_path, kind)
    assert main(["cat", vault.archive]) == 3
    out, err = capfdbinary.readouterr()
    assert b"came before" not in err
    assert err.count(b"\n") == 1
    assert main(["cat", vault.archive, "--unverified"]) == 3
    out, err = capfdbinary.readouterr()
    assert out
    assert err.count(b"\n") == 1
    assert b"came before this error and may be wrong" in err
    limited = ["cat", vault.archive, "--limit", "1", "--format", "hex", "--unverified"]
    assert main([*limited, "--to", json.dumps(inside(vault, part).to_json())]) == 0
    pointers = [str(p) for p, _ in vault.events() if p.segment == part.segment and part.start <= p.offset < part.end]
    assert get_event(vault.archive, pointers[1], unverified=True)
    with pytest.raises(DigestMismatch):
        get_event(vault.archive, pointers[1])
    capfdbinary.readouterr()
    for pointer in pointers[:2]:
        assert main(["get", vault.archive, pointer]) == 3
    out, err = capfdbinary.readouterr()
    assert (out, err.count(b"\n")) == (b"", 2)
