"""The contract of sources, tested on a stream, on an archive of it, and on the stream as clients of a server see it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamvault import rotate_stream
from streamvault.common.errors import Damaged, Overtaken
from streamvault.manifests.archive import NoSuchArchive
from streamvault.serving.embedded import embedded_pravega
from streamvault.sources.source import Source, SourcePart, SourceState, bytes_after
from streamvault.sources.sources import ArchiveSource, open_source
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.errors import InvalidCut, NoSuchScope
from streamvault.streamstore.model import SegmentId, StreamCut
from testkit.small_archives import NAME, Vault
from testkit.streams import boundary, bytes_of

KINDS = ["stream", "archive"]
WINDOW = 1 << 20


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=100, largest=20_000)
    return vault


@pytest.fixture(params=[*KINDS, "served"])
def source(request: pytest.FixtureRequest, vault: Vault) -> Iterator[Source]:
    vault.export()
    with ExitStack() as stack:
        uri = vault.uri() if request.param == "stream" else vault.archive
        if request.param == "served":
            uri = f"{stack.enter_context(embedded_pravega(vault.folder / 'streams')).uri}/{NAME}"
        yield open_source(uri, stack)


def grow(vault: Vault) -> None:
    """Let the stream, and its archive, have more."""
    vault.add(b"more")
    vault.export()


def read(parts: Sequence[SourcePart]) -> bytes:
    """Read parts as a task would, from their pickled form."""
    parts = pickle.loads(pickle.dumps(parts))
    return b"".join(bytes(block) for part in parts for block in part.blocks(part.start, part.end, WINDOW))


def inside(look: SourceState, vault: Vault) -> tuple[StreamCut, SegmentId]:
    """Return a cut in the middle of what a source has, and one of its segments that has bytes on both sides."""
    segment = max(look.described.tail.offsets, key=lambda one: look.described.tail.offsets[one])
    with vault.store as store:
        at = boundary(store, NAME, segment, 0.5)
    return StreamCut(NAME, {**look.described.tail.offsets, segment: at}), segment


def test_state_is_the_stream_of_that_moment(source: Source, vault: Vault) -> None:
    look, described = source.look(), vault.described
    assert source.name == look.described.name == NAME
    assert (look.described.head, look.described.tail, look.described.epochs) == (
        described.head,
        described.tail,
        described.epochs,
    )
    grow(vault)
    assert look.described.tail == described.tail
    later = source.look()
    assert later.described.tail == vault.described.tail != described.tail
    assert later.taken > look.taken


def test_parts_hold_the_bytes_between_two_cuts(source: Source, vault: Vault) -> None:
    look = source.look()
    head, tail = look.described.head, look.described.tail
    with vault.store as store:
        whole = {segment: data for segment, (_, data) in bytes_of(store, NAME).items()}
    grow(vault)
    parts = look.parts(head, tail)
    assert set(parts) == set(segments_between(look.described, head, tail))
    with look.reading("tested"):
        assert {str(segment): read(some) for segment, some in parts.items()} == whole
    cut, segment = inside(look, vault)
    before, after = look.parts(head, cut), look.parts(cut, tail)
    assert read(before[segment]) + read(after[segment]) == whole[str(segment)]
    assert (before[segment][-1].end, after[segment][0].start) == (cut.offsets[segment],) * 2
    assert {one for one, some in after.items() if some} == {segment}


def test_cuts_that_are_not_of_the_source_are_rejected(source: Source, vault: Vault) -> None:
    look = source.look()
    head, tail = look.described.head, look.described.tail
    cut, segment = inside(look, vault)
    with pytest.raises(InvalidCut, match="inside an event"):
        look.parts(head, StreamCut(NAME, {**cut.offsets, segment: cut.offsets[segment] - 1}))
    with pytest.raises(InvalidCut, match="inside an event"):
        look.parts(StreamCut(NAME, {**cut.offsets, segment: cut.offsets[segment] - 1}), tail)
    with pytest.raises(InvalidCut):
        look.parts(tail, cut)
    with pytest.raises(InvalidCut):
        look.parts(head, StreamCut(NAME, {**tail.offsets, segment: tail.offsets[segment] + 1}))
    with pytest.raises(InvalidCut, match="before the"):
        look.parts(StreamCut(NAME, dict.fromkeys(head.offsets, 0)), tail)
    with pytest.raises(InvalidCut):
        look.parts(head, StreamCut(NAME, {SegmentId(99, 0): 0}))


def test_ends_of_segments(source: Source, vault: Vault) -> None:
    described = vault.described
    last = max(described.tail.offsets)
    sealed = max(described.head.offsets.keys() - described.tail.offsets)
    with vault.store as store:
        (info,) = store.segment_info(NAME, [sealed])
    start, tail = described.head, described.tail
    assert source.look().between(start, tail)[sealed] == (start.offsets[sealed], info.write_offset)
    assert source.end_of(sealed) == info.write_offset
    with pytest.raises(InvalidCut, match="open"):
        source.end_of(last)
    with pytest.raises(InvalidCut):
        source.end_of(SegmentId(99, 0))


def test_bytes_after_a_cut(source: Source, vault: Vault) -> None:
    look = source.look()
    head, tail = look.described.head, look.described.tail
    cut, segment = inside(look, vault)
    size = sum(part.end - part.start for some in look.parts(head, tail).values() for part in some)
    assert bytes_after(look, head) == size
    assert bytes_after(look, cut) == tail.offsets[segment] - cut.offsets[segment]
    assert bytes_after(look, tail) == 0


def test_undeclared_gap_is_damage(source: Source) -> None:
    look = source.look()
    segment = max(look.described.tail.offsets)
    with pytest.raises(Damaged):
        look.check_gap(segment, 0, 1)


def test_source_that_has_lost_what_is_read(source: Source, vault: Vault) -> None:
    look = source.look()
    parts = look.parts(look.described.head, look.described.tail)
    vault.add(b"more")
    rotate_stream(vault.uri(), vault.root, keep=1, master="inline")
    vault.truncate(vault.described.tail)
    lost = Overtaken if isinstance(source, ArchiveSource) else SourceTruncated
    with pytest.raises(lost), look.reading("tested"):
        read([part for some in parts.values() for part in some])


@pytest.mark.parametrize("kind", KINDS)
def test_source_that_does_not_exist(tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        source = open_source(f"{'local' if kind == 'stream' else 'file'}://{tmp_path}/{NAME}", stack)
        assert source.name == NAME
        with pytest.raises((NoSuchScope, NoSuchArchive)):
            source.look()
