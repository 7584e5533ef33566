"""Checksums of blocks of a generation whose index has none, as of an earlier release: ``GGGGGGGGGG.blocks.json``.

A check that has read all data notes them, create-only. They are beside the manifest and not covered by it: the file has
its own SHA-256 and names the manifest that it is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from streamvault.common.errors import Damaged, Failed
from streamvault.layouts.archived_range import ArchivedRange, are_block_checksums, block_checksums_length
from streamvault.layouts.keys import Place, blocks_key
from streamvault.layouts.layout import LAYOUTS, open_layout
from streamvault.layouts.packed_ranges import packed
from streamvault.manifests.decisions import Note
from streamvault.manifests.files import Digest, find_file
from streamvault.manifests.history import Generation
from streamvault.manifests.manifest import Manifest
from streamvault.objectstore.store import SMALL, AlreadyExists
from streamvault.streamstore.model import SegmentId


class NotedBlocks(Note):
    """The checksums of blocks (`ArchivedRange.block_checksums`) of each range, in the order of the index.

    `digest` is the SHA-256 of the manifest's file.
    """

    ranges: tuple[str, ...]
    digest: Digest


def lacks_block_checksums(generation: Generation) -> bool:
    """Check whether a range has no checksums of its blocks in the index, although its layout has them noted."""
    if generation.layout not in LAYOUTS or open_layout(generation.layout).one_object_per_event:
        return False
    return any(not row.block_checksums for row in generation.all_rows())


def check_noted_size(generation: Generation) -> None:
    """Check that the checksums of a generation's blocks can be noted.

    Raises:
        Failed: the file would be larger than readers accept.
    """
    if (size := sum(block_checksums_length(row.end - row.start) for row in generation.all_rows())) > SMALL * 9 // 10:
        raise Failed(f"the checksums of blocks would have {size} bytes; readers accept at most {SMALL}")


def note_blocks(place: Place, generation: Generation, found: Mapping[tuple[SegmentId, int], str]) -> None:
    """Note the checksums of blocks of a generation, all of whose data were read and matched; the first note holds.

    Args:
        place: the archive.
        generation: what the data were compared with.
        found: segment and start of a range → its checksums, of those without any in the index.

    Raises:
        Failed: the file would be larger than readers accept.
        ObjectStoreError: it could not be written.
    """
    manifest = generation.manifest
    texts = tuple(row.block_checksums or found[row.segment, row.start] for row in generation.all_rows())
    noted = NotedBlocks.of(manifest.name, manifest.generation, ranges=texts, digest=generation.fingerprint)
    with suppress(AlreadyExists):  # another check has noted them
        place.store.put(place.prefix + blocks_key(manifest.span), noted.encode())


_TODO = "Delete {}: 'streamvault check --read-data' notes them again."


def noted_blocks(place: Place, manifest: Manifest, fingerprint: str) -> NotedBlocks | None:
    """Return what was noted of a generation, by its manifest and the SHA-256 of that; None if nothing was.

    Raises:
        Damaged: it is not valid, or of another generation.
    """
    key = place.prefix + blocks_key(manifest.span)
    todo = _TODO.format(place.at(key))
    try:
        noted = find_file(NotedBlocks, place.store, key)
    except Damaged as damaged:
        raise Damaged(damaged.what, where=damaged.where, todo=todo) from None
    if noted is None:
        return None
    of = (noted.scope, noted.stream, noted.generation, noted.digest)
    if of != (manifest.scope, manifest.stream, manifest.generation, fingerprint):
        raise Damaged("the checksums of blocks are those of another generation", where=place.at(key), todo=todo)
    return noted


def with_noted_blocks(place: Place, generation: Generation) -> Generation:
    """Return a generation with the checksums of blocks that were noted of it, where its index has none.

    Raises:
        Damaged: they are not valid, or those of another generation.
    """
    if not lacks_block_checksums(generation):
        return generation
    noted = noted_blocks(place, generation.manifest, generation.fingerprint)
    if noted is None:
        return generation
    rows, key = list(generation.all_rows()), place.prefix + blocks_key(generation.manifest.span)
    todo = _TODO.format(place.at(key))
    if not _fit(noted.ranges, rows):
        raise Damaged("the checksums of blocks are not those of the ranges", where=place.at(key), todo=todo)
    whole = (
        row if row.block_checksums else replace(row, block_checksums=text)
        for row, text in zip(rows, noted.ranges, strict=True)
    )
    return replace(generation, rows=packed(whole))


def _fit(texts: Sequence[str], rows: Sequence[ArchivedRange]) -> bool:
    return len(texts) == len(rows) and all(
        are_block_checksums(text, row.end - row.start) for text, row in zip(texts, rows, strict=True)
    )
