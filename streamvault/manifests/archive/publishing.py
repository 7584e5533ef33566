"""How a generation is published: its index first, then its manifest, create-only; a merged one also by a decision."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamvault.common.errors import Conflict, Overtaken
from streamvault.layouts.object_keys import GenerationSpan, manifest_key, ranges_key
from streamvault.manifests.archive.agreement import by_segment, check_follows, cross_check
from streamvault.manifests.archive.listing import Listing, manifest_lost
from streamvault.manifests.archive.marks import Decision
from streamvault.manifests.format.archived_range import MAX_INDEX_BYTES, ArchivedRange
from streamvault.manifests.format.jsonfile import decode
from streamvault.manifests.format.manifest import IndexEntry, Manifest
from streamvault.objectstore.errors import AlreadyExists

if TYPE_CHECKING:
    from streamvault.manifests.archive.archive import Archive


def publish(
    archive: Archive, manifest: Manifest, rows: Sequence[ArchivedRange], grace: float
) -> tuple[Manifest, str] | None:
    """See `Archive.commit`; return the manifest and the SHA-256 of its file."""
    from streamvault.manifests.format.ranges import decode_ranges, encode_ranges  # noqa: PLC0415  (see `load_index_code`)

    where = f"{archive.store.uri}/{archive.prefix}{manifest_key(manifest.span)}"
    cross_check(manifest, by_segment(rows), where)
    if archive.stable(lambda listing: _is_there(archive, listing, manifest, where)):
        return None

    def is_same_index(data: bytes, found_where: str) -> bool:
        return list(decode_ranges(archive.stream, data, found_where)) == list(rows)

    def is_same_manifest(data: bytes, found_where: str) -> bool:
        found = decode(Manifest, data, found_where)
        written = (found.layout, found.compression)
        return found.is_same(manifest) and written == (manifest.layout, manifest.compression)

    try:
        index, _ = create_or_compare(
            archive, ranges_key(manifest.span), encode_ranges(archive.stream, rows), is_same_index
        )
    except Conflict:
        # A late run of the same plan may have found more of the stream truncated; the first to publish wins.
        if manifest.replaces or archive.published(manifest) is None:
            raise
        return None
    manifest = manifest.model_copy(update={"index": IndexEntry.of(index)})
    data, created = create_or_compare(archive, manifest_key(manifest.span), manifest.encode(), is_same_manifest)
    if manifest.replaces:
        created = _decide_merge(archive, manifest, where, grace)
    listing = archive.listing()
    archive.check_open(listing)  # what a deletion did not see before it was decided must not be reported as archived
    if not created:
        return None
    if manifest.generation <= listing.dropped:
        raise expired(where)  # this run was so late that its generation is out of force
    return manifest, hashlib.sha256(data).hexdigest()


def create_or_compare(
    archive: Archive, key: str, data: bytes, is_same: Callable[[bytes, str], bool]
) -> tuple[bytes, bool]:
    """Create an object or accept one with the same content; return its bytes and whether it was created."""
    where = f"{archive.store.uri}/{archive.prefix}{key}"
    try:
        archive.store.put(archive.prefix + key, data)
    except AlreadyExists:
        found = archive.store.get(archive.prefix + key, MAX_INDEX_BYTES)
        if found != data and not is_same(found, where):
            raise Overtaken(
                "another run has written this generation with different content",
                where=where,
                todo="Run the same command again. If it fails again, the generation's manifest was lost: restore it"
                " from a version or a copy of the bucket, and delete nothing.",
            ) from None
        return found, False
    return data, True


def expired(where: str) -> Conflict:
    """Return the error of a generation that was published and has expired."""
    return Conflict("another run published this generation, and it has since expired", where=where)


def _decide_merge(archive: Archive, manifest: Manifest, where: str, grace: float) -> bool:
    def change(listing: Listing) -> Decision | None:
        if manifest.span in listing.spans or _is_there(archive, listing, manifest, where):
            return None
        return listing.decision.merge(manifest.span, grace)

    return archive.decide(change)[1]


def _is_there(archive: Archive, listing: Listing, manifest: Manifest, where: str) -> bool:
    """Check whether a generation is already in force within a merged one; if not, that it may be published.

    Raises:
        Conflict, Damaged: it must not be published, see `Archive.commit`.
    """
    archive.check_open(listing)
    if manifest.generation <= listing.dropped:
        raise expired(where)
    if listing.orphans:
        raise manifest_lost(listing, archive.uri)
    holder = listing.holder(manifest.generation)
    if holder is not None and holder.first <= manifest.first and holder != manifest.span:
        return True
    before = manifest.first - 1
    if manifest.replaces and listing.newest != before:  # otherwise it is the next one, of a conversion
        if not listing.within(manifest.span):
            raise Overtaken(
                "generations to be merged have expired or were merged with others in the meantime", where=where
            )
        return False
    if before > listing.dropped:
        holder = listing.holder(before) or GenerationSpan.of(before)
        check_follows(archive.read_manifest(holder), manifest, where)
    return False
