"""Truncates a source up to what is archived: only what this very run has seen in the source and in the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from streamvault.common.errors import Conflict
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import truncation_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.decisions import Truncation
from streamvault.manifests.history import Generation
from streamvault.manifests.listing import Listing, check_decisions
from streamvault.manifests.manifest import Manifest
from streamvault.objectstore.store import AccessDenied, AlreadyExists
from streamvault.sources.archive_comparison import (
    CompareTask,
    Held,
    bytes_before,
    check_gaps,
    check_held,
    compare,
    held_below,
    never_archived,
)
from streamvault.sources.identity import check_same_stream
from streamvault.streamstore.cuts import later_of, segments_between
from streamvault.streamstore.errors import StreamSealed
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress


@dataclass(slots=True)
class SeenRanges:
    """The ranges that one run has seen itself: only these may a source lose.

    A mark says that another run has seen them, but whoever may create objects may have written it.

    Attributes:
        exported: read from the source and archived, with the digests of what was read.
        read_back: read from the archive, and equal to their digests; with their layout, as another generation may name
            the same range in another one, which has other objects.
    """

    exported: set[ArchivedRange] = field(default_factory=set)
    read_back: set[tuple[str, ArchivedRange]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Truncated:
    """The result of a truncation.

    Attributes:
        done: False if the stream is sealed, so that it cannot be truncated.
        compared: number of ranges that were read from the source once more, to compare them with the archive.
        read: number of these that were also read from the archive.
    """

    done: bool
    compared: int = 0
    read: int = 0


def truncate_source(
    archive: Archive,
    source: StoreAddress,
    archived: Manifest,
    seen: SeenRanges,
    *,
    same_stream: bool,
    run: Callable[[Sequence[CompareTask]], None] | None,
) -> Truncated:
    """Move the source's head to a generation's end, unless it is already further.

    The source loses only bytes that this run has seen in both places: what it has not archived and read back itself is
    read again, from the archive and from the source, and compared. What the source itself truncates meanwhile is left
    out.

    Args:
        archive: the archive.
        source: the address of the source's store.
        archived: the last generation up to which all generations were read back.
        seen: what this run has seen before.
        same_stream: whether the user confirms that it is the archived stream where the archive has no bytes any more.
        run: runs `compare_range` for some tasks. None for a rehearsal, which counts what a run would compare, but
            compares only the last bytes of each segment. As a run archives up to the tail before, those of segments
            that have grown are left out.

    Raises:
        Damaged: the archive's bytes differ from their digests or from the source's, it lacks bytes in a generation in
            force that the source still has, or its newest decision does not follow from those before it. Nothing was
            truncated.
        Conflict: the stream is not the archived one, is not known to be, or has more below the new head than was
            archived. Nothing was truncated.
        InArchiveClass: the archive's bytes cannot be read before S3 has restored them. Nothing was truncated.
    """
    with source.open() as store:
        described = describe_source(store, archive.stream)
        check_same_stream(described, store, archived)
        cut = later_of(described, archived.to, described.head)
        if cut == described.head:
            return Truncated(done=True)
        if described.sealed:
            return Truncated(done=False)
        held = held_below(described, store, archived.to)
        grown = set[SegmentId]()
        if run is None:
            until = held_below(described, store, described.tail)
            grown = {segment for segment, there in held.items() if until[segment].end != there.end}

        def compared(listing: Listing) -> Truncated:
            check_decisions(archive.place, listing)
            archive.check_beginning(listing)
            archive.check_open(listing)
            head = _check_beginning(archive, listing, described, store, same_stream=same_stream)
            generations = _generations_of(archive, listing, archived, held)
            last = {segment: there for segment, there in held.items() if segment not in grown}
            unknown = compare(archive, store, last, generations).unknown
            gaps = {one.manifest.generation: one.manifest.gaps for one in generations}
            check_gaps(described, store, held, gaps, archive.uri, loses=True)
            in_force, expired = _split(described, held, head, archived.to)
            check_held(in_force, generations, archive.uri)
            if (unknown or expired) and not same_stream:
                raise _nothing_to_compare(sorted(unknown | expired), f"{store.uri}/{archive.stream}")
            tasks = list(_tasks(archive, source, held, generations, seen))
            if run is not None and tasks:
                run(tasks)
            return Truncated(True, len(tasks), sum(not task.is_read_back for task in tasks))

        done = archive.stable(compared)
        if run is None:
            return done
        _announce(archive, archived.generation)
        try:
            store.truncate(cut)
        except StreamSealed:
            return replace(done, done=False)
        return done


def _generations_of(
    archive: Archive, listing: Listing, archived: Manifest, held: Mapping[SegmentId, Held]
) -> list[Generation]:
    """Return the generations that have what a source has, from the newest back to where it begins."""
    left, found = {segment: there.start for segment, there in held.items()}, list[Generation]()
    for span in reversed(listing.spans):
        if not left:
            break
        if span.first > archived.generation:
            continue
        found.append(archive.load_span(span))
        for entry in found[-1].manifest.segments:
            if entry.start <= left.get(entry.id, -1):
                del left[entry.id]
    return found


def _split(
    described: StreamDescription, held: Mapping[SegmentId, Held], head: StreamCut, end: StreamCut
) -> tuple[dict[SegmentId, tuple[int, int]], set[SegmentId]]:
    """Return what of a source is in force in the archive between two cuts, and the segments of which some has expired.

    Returns:
        Segment → first offset and end (bytes) of the part in force; and the segments.
    """
    between = segments_between(described, head, end)
    begins = {segment: between[segment][0] if segment in between else there.end for segment, there in held.items()}
    in_force = {segment: (max(there.start, begins[segment]), there.end) for segment, there in held.items()}
    return in_force, {segment for segment, there in held.items() if there.start < begins[segment]}


def _tasks(
    archive: Archive,
    source: StoreAddress,
    held: Mapping[SegmentId, Held],
    generations: Iterable[Generation],
    seen: SeenRanges,
) -> Iterator[CompareTask]:
    """Yield the comparison of each range of which the source has something, and that was not seen in both places."""
    for generation in generations:
        for segment, rows in generation.rows.items():
            there = held.get(segment, Held(0, 0, False))
            for row in rows:
                low, high = max(row.start, there.start), min(row.end, there.end)
                is_read_back = (generation.layout, row) in seen.read_back
                if low < high and not (is_read_back and row in seen.exported):
                    part = ArchivedPart(archive.address, generation.layout, row, low, high)
                    number = generation.manifest.generation
                    yield CompareTask(source, archive.stream, number, part, is_read_back)


def _announce(archive: Archive, generation: int) -> None:
    """Note that the source is about to be truncated to a generation's end, unless the archive is being deleted.

    Of a note and the beginning of a deletion, the later one sees the other. So however late the truncation is, the
    archive is still there, unless its user has said otherwise (`delete --unfinished`).

    Raises:
        Conflict: the archive is being deleted, or was.
    """
    note = Truncation.of(archive.stream, generation)
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


def _check_beginning(
    archive: Archive, listing: Listing, described: StreamDescription, store: StreamStore, *, same_stream: bool
) -> StreamCut:
    """Return where the archive begins; reject a stream that has something before it that was never archived.

    Raises:
        Conflict: it has, or it has something of which this is not known.
    """
    head, where = archive.read_manifest(archive.in_force(listing)[0]).from_, f"{store.uri}/{archive.stream}"
    before = bytes_before(described, store, head, listing.begin(head))
    if before:
        raise never_archived(before, where)
    if before is None and not same_stream:
        raise Conflict(
            "the stream begins before the archive, whose older generations have expired; whether they had all of it is"
            " not recorded, so nothing was truncated",
            where=where,
            todo="If they did, confirm it with --same-stream.",
        )
    return head


def _nothing_to_compare(unknown: list[SegmentId], where: str) -> Conflict:
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return Conflict(
        f"the archive no longer has the bytes that the stream would lose of segment {unknown[0]}{more}, so they cannot"
        " be compared; nothing was truncated",
        where=where,
        todo="If it is the archived stream, confirm it with --same-stream.",
    )
