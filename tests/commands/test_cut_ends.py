"""Stream cuts with the offset -1, which Java's reader groups write for a segment that was read to its end."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import copy_stream, export_stream, import_stream, read_archive, request_restore, translate
from streamvault.cli import main
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.local import folder
from streamvault.streamstore.model import SEGMENT_END, Scaling, SegmentId, StreamConfiguration, StreamCut
from testkit.small_archives import NAME, Vault, a_root, archive_of
from testkit.streams import digest_of

PART = replace(NAME, stream="part")
INLINE: dict[str, Any] = {"master": "inline"}


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """A stream with a split, a merge and a truncated head, and its archive."""
    vault = Vault(tmp_path)
    vault.make(events=60)
    vault.export("chunks")
    return vault


def cuts(vault: Vault, *, with_open: bool = False) -> tuple[dict[str, int], dict[str, int]]:
    """A cut at the ends of the head's sealed segments, as Java writes it, and with these ends.

    An open segment has its head's offset in both, or -1 in the first.
    """
    with vault.store as store:
        infos = store.segment_info(NAME, list(store.describe(NAME).head.offsets))
    ends = {info.segment: info.write_offset if info.sealed else info.start_offset for info in infos}
    written = {info.segment: SEGMENT_END if info.sealed or with_open else info.start_offset for info in infos}
    assert len([info for info in infos if info.sealed]) == len(infos) - 1
    return StreamCut(NAME, written).to_json(), StreamCut(NAME, ends).to_json()


def copied(vault: Vault, **cut: dict[str, int]) -> object:
    return made_in(vault, lambda target: copy_stream(vault.uri(), target, **cut, **INLINE))


def imported(vault: Vault, **cut: dict[str, int]) -> object:
    return made_in(vault, lambda target: import_stream(vault.archive, target, **cut, **INLINE))


def made_in(vault: Vault, make: Callable[[str], object]) -> object:
    """The content of a new stream; its name was never used, so that segments are numbered from 0."""
    target = replace(NAME, stream=uuid.uuid4().hex)
    make(vault.uri(target))
    with vault.store as store:
        return digest_of(store, target)


def exported(vault: Vault, **cut: dict[str, int]) -> object:
    root = a_root()
    dry = export_stream(vault.uri(), root, **cut, dry_run=True, **INLINE)
    report = export_stream(vault.uri(), root, **cut, **INLINE)
    assert dry.bytes == report.bytes
    return read_archive(f"{root}/{NAME}").read_all()


def read(vault: Vault, **cut: dict[str, int]) -> object:
    return read_archive(vault.archive, **cut).read_all()


@pytest.mark.parametrize("verb", [copied, exported, imported, read])
@pytest.mark.parametrize("option", ["from_cut", "to_cut"])
def test_end_of_a_segment_may_be_written_as_minus_one(vault: Vault, verb: Callable[..., object], option: str) -> None:
    written, ends = cuts(vault)
    assert verb(vault, **{option: written}) == verb(vault, **{option: ends})


@pytest.mark.parametrize("verb", [copied, exported, imported, read])
def test_open_segment_has_no_end(vault: Vault, verb: Callable[..., object]) -> None:
    written, _ = cuts(vault, with_open=True)
    with pytest.raises(
        InvalidCut, match=r"^offset -1 .* end of a sealed segment, but this one .* open.*: scope/stream/"
    ):
        verb(vault, to_cut=written)


@pytest.mark.parametrize("live", [True, False])
def test_translated_end_is_that_of_the_restored_segment(vault: Vault, *, live: bool) -> None:
    import_stream(vault.archive, vault.uri(PART), **INLINE)
    written, ends = cuts(vault)
    source = vault.uri() if live else vault.archive
    of_written, of_ends = (one.new for one in translate(source, vault.uri(PART), [json.dumps(written), ends]).positions)
    assert of_written == of_ends
    assert SEGMENT_END not in of_written.values()  # type: ignore[union-attr]
    with pytest.raises(InvalidCut, match="open"):
        translate(source, vault.uri(PART), [cuts(vault, with_open=True)[0]])


def test_end_of_a_truncated_segment_is_not_known(vault: Vault) -> None:
    """To the archive, which has it, and to a stream, which does not."""
    written, ends = cuts(vault)
    with vault.store as store:
        described = store.describe(NAME)
        store.truncate(described.tail)
    import_stream(vault.archive, vault.uri(PART), **INLINE)
    assert (
        translate(vault.archive, vault.uri(PART), [written]).positions[0].new
        == StreamCut(PART, StreamCut.from_json(ends).offsets).to_json()
    )
    with pytest.raises(InvalidCut, match="does not exist, or was truncated"):
        copied(vault, from_cut=written)
    gone = StreamCut(NAME, {SegmentId(0, 0): SEGMENT_END}).to_json()
    with pytest.raises(InvalidCut, match="is not in the archive"):
        translate(vault.archive, vault.uri(PART), [gone])


def test_sealed_stream_was_read_to_its_end(vault: Vault) -> None:
    with vault.store as store:
        store.seal(NAME)
        tail = store.describe(NAME).tail
    written = StreamCut(NAME, dict.fromkeys(tail.offsets, SEGMENT_END)).to_json()
    vault.export("chunks")
    import_stream(vault.archive, vault.uri(PART), **INLINE)
    for source in (vault.uri(), vault.archive):
        new = translate(source, vault.uri(PART), [written]).positions[0].new
        assert new == StreamCut(PART, tail.offsets).to_json()


def test_command_line_takes_it(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    written, _ = cuts(vault)
    assert main(["copy", vault.uri(), vault.uri(PART), "--to", json.dumps(written), "--master", "inline"]) == 0
    written, _ = cuts(vault, with_open=True)
    assert main(["copy", vault.uri(), vault.uri(PART), "--to", json.dumps(written), "--master", "inline"]) == 2
    assert "is still open" in capfd.readouterr().err


def test_request_keeps_it_until_it_is_processed(vault: Vault) -> None:
    written, _ = cuts(vault)
    report = request_restore(
        vault.archive, vault.uri(PART), queue=vault.uri(replace(NAME, stream="queue")), to_cut=written, dry_run=True
    )
    assert report.request["to_cut"] == written


def test_generation_before_the_tail_of_a_sealed_stream_is_not_sealed(vault: Vault) -> None:
    root = a_root()
    vault.add(b"first")
    with vault.store as store:
        cut = store.describe(NAME).tail.to_json()
    vault.add(b"last")
    with vault.store as store:
        store.seal(NAME)
    archive = replace(vault, root=root).archive
    for to_cut, sealed in ((cut, False), (None, True)):
        export_stream(vault.uri(), root, to_cut=to_cut, **INLINE)
        assert archive_of(root).manifest().sealed is sealed
        target = replace(NAME, stream=f"sealed-{sealed}")
        import_stream(archive, vault.uri(target), **INLINE)
        with vault.store as store:
            assert store.describe(target).sealed is sealed


@pytest.mark.parametrize("segments", [5, 40])
def test_record_is_not_read_once_for_each_segment(
    tmp_path: Path, segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names all segments, so the time of an export would grow with their square."""
    vault, loads, load = Vault(tmp_path / "many"), 0, folder.load_record

    def counted(*arguments: Any) -> Any:
        nonlocal loads
        loads += 1
        return load(*arguments)

    with vault.store as store:
        store.create_stream_and_scope(NAME, StreamConfiguration(scaling=Scaling(min_segments=segments)))
    vault.add(b"event")
    monkeypatch.setattr(folder, "load_record", counted)
    vault.export("chunks")
    assert loads <= 2
