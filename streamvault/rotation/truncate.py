"""Truncates a source up to what is archived: only what was compared with the archive by this very call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from streamvault.common.errors import Conflict
from streamvault.common.version import TOOL
from streamvault.layouts.object_keys import truncation_key
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.archive.marks import Truncation
from streamvault.manifests.format.manifest import Manifest
from streamvault.objectstore.errors import AccessDenied, AlreadyExists
from streamvault.reading.comparing import compare, held_below
from streamvault.reading.identity import check_same_stream
from streamvault.streamstore.arithmetic.cuts import is_before, later_of
from streamvault.streamstore.errors import StreamSealed
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.store import StreamStore


def truncate_source(
    archive: Archive,
    store: StreamStore,
    archived: Manifest,
    *,
    same_stream: bool,
    check: Callable[[Callable[[Manifest], bool]], None] | None,
) -> bool:
    """Move the source's head to a generation's end, unless it is already further.

    What lies below the new head must be within the archive, or have been and expired. The last bytes that each segment
    loses must be those of the archive.

    Args:
        archive: the archive.
        store: the source's store.
        archived: the last generation up to which all generations were read back.
        same_stream: whether the user confirms that it is the archived stream where the archive has no bytes any more.
        check: checks that the archive has what the source would lose; is told by a function whether the source has
            nothing any more of a generation, nor of those before it. None for a rehearsal, which only compares, as a
            run would that archives up to the tail before.

    Returns:
        False if the stream is sealed, so that it cannot be truncated.

    Raises:
        Damaged: from `check`. Nothing was truncated.
        Conflict: the stream is not the archived one, is not known to be, or has more below the new head than was
            archived. Nothing was truncated.
        InArchiveClass: the archive's bytes cannot be read before S3 has restored them. Nothing was truncated.
    """
    described = describe_source(store, archive.stream)
    check_same_stream(described, store, archived)
    cut = later_of(described, archived.to, described.head)
    if cut == described.head:
        return True
    if described.sealed:
        return False
    _check_beginning(archive, described, f"{store.uri}/{archive.stream}", same_stream=same_stream)
    held = held_below(described, store, archived.to)
    if check is None:  # of segments that have grown, a run compares what it has archived itself
        until = held_below(described, store, described.tail)
        held = {segment: there for segment, there in held.items() if until[segment].end == there.end}
    unknown = compare(archive, store, held).unknown
    if unknown and not same_stream:
        raise _nothing_to_compare(sorted(unknown), f"{store.uri}/{archive.stream}")
    if check is None:
        return True
    check(lambda manifest: is_before(described, manifest.to, described.head))
    _announce(archive, archived.generation)
    try:
        store.truncate(cut)
    except StreamSealed:
        return False
    return True


def _announce(archive: Archive, generation: int) -> None:
    """Note that the source is about to be truncated to a generation's end, unless the archive is being deleted.

    Of a note and the beginning of a deletion, the later one sees the other. So however late the truncation is, the
    archive is still there, unless its user has said otherwise (`delete --unfinished`).

    Raises:
        Conflict: the archive is being deleted, or was.
    """
    note = Truncation(scope=archive.stream.scope, stream=archive.stream.stream, generation=generation, tool=TOOL)
    with suppress(AlreadyExists):  # an earlier run may have noted it, or another one
        archive.store.put(archive.prefix + truncation_key(generation), note.encode())
    archive.check_open(archive.listing())


def forget_truncations(archive: Archive, listing: Listing, upto: int) -> None:
    """Delete the notes of truncations up to a generation's end, to which the source is truncated, or which is sealed.

    A run that is late truncates nothing more, so its note is not needed, whoever made it.
    """
    done = [archive.prefix + truncation_key(number) for number in listing.truncations if number <= upto]
    with suppress(AccessDenied):  # then a deletion of the archive has to be confirmed
        archive.store.delete(done)


def _check_beginning(archive: Archive, described: StreamDescription, where: str, *, same_stream: bool) -> None:
    """Reject a stream that has something that was never archived before the archive's beginning.

    Raises:
        Conflict: it has, or it has something of which this is not known.
    """

    def beginnings(listing: Listing) -> tuple[StreamCut, StreamCut | None]:
        archive.check_open(listing)
        head = archive.read_manifest(archive.in_force(listing)[0]).from_
        return head, listing.decision.begin if listing.dropped else head

    head, begin = archive.stable(beginnings)
    if is_before(described, head, described.head):
        return  # all that the stream has is within the generations in force
    if begin is None and not same_stream:
        raise Conflict(
            "the stream begins before the archive, whose older generations have expired; whether they had all of it is"
            " not recorded, so nothing was truncated",
            where=where,
            todo="If they had, confirm it with --same-stream.",
        )
    if begin is not None and not is_before(described, begin, described.head):
        raise Conflict(
            "the stream has events before the archive's beginning, which were never archived, so nothing was truncated",
            where=where,
            todo="Archive them below another root; or truncate the stream there yourself if nobody needs them.",
        )


def _nothing_to_compare(unknown: list[SegmentId], where: str) -> Conflict:
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return Conflict(
        f"the archive no longer has the bytes that the stream would lose of segment {unknown[0]}{more}, so they cannot"
        " be compared; nothing was truncated",
        where=where,
        todo="If it is the archived stream, confirm it with --same-stream.",
    )
