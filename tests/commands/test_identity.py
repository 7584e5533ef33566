"""A plan and an archive belong to one stream: another stream with the same name is rejected, whatever its shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamvault import check_archive
from streamvault.common.errors import Conflict
from streamvault.exporter.options import ExportOptions
from streamvault.exporter.plan import settle_plan
from streamvault.exporter.run import ExportRun
from streamvault.reading import identity
from streamvault.streamstore.errors import NoSuchSegment, NoSuchStream
from streamvault.streamstore.model import Epoch, KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut
from tests.unit.small_archives import NAME, RANGE_SIZE, Vault, archive_of, contents

FIRST = SegmentId(0, 0)


def made(folder: Path, *payloads: bytes, root: str | None = None) -> Vault:
    """A stream of two segments, with the given events in each."""
    vault = Vault(folder) if root is None else Vault(folder, root)
    with vault.store as store:
        store.create_stream_and_scope(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
    vault.add(*payloads)
    return vault


def plan(vault: Vault) -> None:
    """The state left by a run that was killed right after planning."""
    with vault.store as store:
        settle_plan(archive_of(vault.root), store, ExportOptions(range_size=RANGE_SIZE))


def refused(vault: Vault, first: Vault) -> None:
    before = contents(vault.root)
    with pytest.raises(Conflict) as caught:
        vault.export()
    text = str(caught.value)
    assert f"local://{first.folder}/streams/{NAME}" in text
    assert f"local://{vault.folder}/streams/{NAME}" in text
    assert "below another root" in text
    assert contents(vault.root) == before


@pytest.mark.parametrize(
    "others",
    [(b"other", b"bytes"), (b"other", b"bytes", b"and", b"more"), (b"o",)],
    ids=["as long", "longer", "shorter"],
)
def test_stream_of_another_cluster_is_refused(tmp_path: Path, others: tuple[bytes, ...]) -> None:
    mine = made(tmp_path / "mine", b"these", b"bytes")
    other = made(tmp_path / "other", *others, root=mine.root)
    plan(mine)
    refused(other, mine)
    mine.export()
    refused(other, mine)
    mine.add(b"later")
    assert mine.export().events == 2
    assert check_archive(mine.archive, read_data=True, master="inline").ok


def test_stream_with_another_history_is_refused_although_its_bytes_are_equal(tmp_path: Path) -> None:
    vault = made(tmp_path, b"these", b"bytes")
    vault.export()
    manifest = archive_of(vault.root).manifest()
    with vault.store as store:
        described = store.describe(NAME)
        left, right = described.epochs[0].segments
        other = Epoch(0, {left: KeyRange(0.0, 0.25), right: KeyRange(0.25, 1.0)})
        assert len(identity.check_same_stream(described, store, manifest)) == 2
        with pytest.raises(Conflict, match="its epochs differ"):
            identity.check_same_stream(replace(described, epochs=(other,)), store, manifest)


def test_recreated_stream_is_refused(tmp_path: Path) -> None:
    vault = made(tmp_path, b"these", b"bytes")
    plan(vault)
    with vault.store as store:
        store.delete(NAME)
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
    vault.add(b"other", b"bytes")
    refused(vault, vault)


def test_cluster_under_a_new_name_is_accepted(tmp_path: Path) -> None:
    old = made(tmp_path / "old", b"these", b"bytes")
    old.export()
    (tmp_path / "old").rename(tmp_path / "new")
    new = replace(old, folder=tmp_path / "new")
    new.add(b"later")
    assert new.export().generation == 2


def test_witness_is_what_lies_before_the_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "WITNESS_BYTES", 20)
    vault = made(tmp_path, b"0123456789", b"0123456789")
    with vault.store as store:
        cut = store.describe(NAME).tail
        seen = list(identity.take_witness(store, cut))
        assert [(one.offset, one.length) for one in seen] == [(16, 20), (16, 20)]
        store.truncate(StreamCut(NAME, dict.fromkeys(cut.offsets, 18)))
        assert [(one.offset, one.length) for one in identity.take_witness(store, cut)] == [(18, 18), (18, 18)]
        store.truncate(cut)
        assert list(identity.take_witness(store, cut)) == []


def test_truncated_witness_is_not_compared_and_not_refused(tmp_path: Path) -> None:
    vault = made(tmp_path, b"these", b"bytes")
    vault.export()
    with vault.store as store:
        manifest = archive_of(vault.root).manifest()
        assert identity.check_witness(store, manifest)
        store.truncate(store.describe(NAME).tail)
        assert not identity.check_witness(store, manifest)
    vault.add(b"later")
    assert vault.export().generation == 2


def test_segment_is_gone_only_if_the_head_has_passed_it(tmp_path: Path) -> None:
    vault = made(tmp_path, b"these")
    with vault.store as store:
        with pytest.raises(NoSuchSegment):
            identity.check_gone(store, NAME, FIRST)
        with pytest.raises(Conflict, match="deleted and recreated"):
            identity.check_gone(store, NAME, SegmentId(7, 9))
        store.scale(NAME, [FIRST], [KeyRange(0.0, 0.5)])
        described = store.describe(NAME)
        store.truncate(described.tail)
        identity.check_gone(store, NAME, FIRST)
        store.delete(NAME)
        with pytest.raises(NoSuchStream):
            identity.check_gone(store, NAME, FIRST)


def test_export_of_a_stream_recreated_meanwhile_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is recreated during its export: data of the old and the new stream is not mixed."""
    vault = made(tmp_path, b"these", b"bytes")

    real = ExportRun._move

    def move(self: ExportRun, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        other = made(tmp_path / "other", b"other", b"bytes")
        (tmp_path / "streams").rename(tmp_path / "gone")
        (other.folder / "streams").rename(tmp_path / "streams")

    monkeypatch.setattr(ExportRun, "_move", move)
    with pytest.raises(Conflict, match=r"its bytes 0 to 26 of 0\.#epoch\.0 differ"):
        vault.export()
    assert archive_of(vault.root).generations() == []
