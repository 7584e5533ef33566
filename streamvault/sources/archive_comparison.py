"""Compares what a source still holds of its archive with the archive's bytes.

Epochs and a witness can agree by chance: segments that a scale has just opened are empty in any stream. So before a
source loses bytes, and before an archive without a usable witness is continued, the last bytes of segments are compared
with the archived ones.

Whoever may create objects can forge a generation. So before a source loses bytes, all of them are compared that the run
has not archived itself, and a gap counts only if the source no longer has its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streamvault.common.errors import Conflict, Damaged
from streamvault.common.neighbours import holes
from streamvault.common.units import bytes_text
from streamvault.layouts.archived_range import digest_of
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart, read_part, read_verified
from streamvault.manifests.history import Generation
from streamvault.manifests.listing import Listing
from streamvault.manifests.manifest import GapEntry, Manifest
from streamvault.sources.identity import (
    WITNESS_BYTES,
    bytes_differ,
    check_gone,
    check_same_stream,
    last_at_each_key,
    other_stream,
)
from streamvault.streamstore.cuts import is_before, later_of, sealed_ends, segments_between
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.own import describe_source, filled_places
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress

SAMPLE_BYTES = 4 * 1024
"""Bytes that are read from the archive and from the source if the range is too large to compare its digest."""

FORGED = (
    "The archive is damaged or was forged: archive the stream below another root, and truncate nothing until then."
    " If the stream was truncated inside an event, truncate the rest of that event, too."
)


class Held(NamedTuple):
    """What a source has of a segment below a cut.

    Attributes:
        start: the first readable offset (bytes).
        end: the end (bytes): the cut's offset, or the segment's sealed end.
        is_whole: whether the cut lies beyond the segment, so that `end` is its sealed end.
    """

    start: int
    end: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison; a segment that was truncated meanwhile is in neither set.

    Attributes:
        equal: segments whose last bytes are those of the archive.
        unknown: segments of which the archive has no bytes at that place: they have expired, or are a gap.
    """

    equal: set[SegmentId] = field(default_factory=set)
    unknown: set[SegmentId] = field(default_factory=set)


def held_below(described: StreamDescription, store: StreamStore, cut: StreamCut) -> dict[SegmentId, Held]:
    """Return what the source has below a cut: the segments with bytes between its head and the cut.

    Raises:
        Problem: the store cannot be read.
    """
    between = segments_between(described, described.head, later_of(described, cut, described.head))
    ends = sealed_ends(store, described.name, [segment for segment, (_, end) in between.items() if end is None])
    held: dict[SegmentId, Held] = {}
    for segment, (start, end) in between.items():
        until = ends.get(segment, start) if end is None else end
        if start < until:
            held[segment] = Held(start, until, end is None)
        elif end is None and segment not in ends:
            check_gone(store, described.name, segment)
    return held


def compare(
    archive: Archive, store: StreamStore, held: Mapping[SegmentId, Held], generations: Iterable[Generation]
) -> Compared:
    """Compare the last bytes that a source has of each segment with the archive's.

    A short range is read from the source alone and compared by its digest; of a longer one, the last 4 KiB are read
    from both.

    Args:
        archive: the archive.
        store: the source's store.
        held: what the source has.
        generations: the archive's, from the newest back; taken until every segment is found.

    Raises:
        Conflict: bytes differ, or a segment ends elsewhere in the archive.
        InArchiveClass: the archive's bytes cannot be read before S3 has restored them.
    """
    done = Compared()
    left, seen = dict(held), set[SegmentId]()
    for generation in generations if left else ():
        for segment in _ending_in(generation.manifest, store, left, seen):
            live, rows = left[segment], generation.rows.get(segment, ())
            row = next((row for row in reversed(rows) if row.start < live.end <= row.end), None)
            if row is None:
                continue  # the last byte is in a gap
            del left[segment]
            part = ArchivedPart(archive.address, generation.layout, row, max(live.start, row.start), live.end)
            is_equal = _is_equal(store, archive.stream, part, sample=True)
            if is_equal:
                done.equal.add(segment)
            elif is_equal is not None:
                raise other_stream(store, generation.manifest, bytes_differ(segment, part.start, live.end))
        if not left:
            break
    done.unknown.update(left)
    return done


def _ending_in(
    manifest: Manifest, store: StreamStore, held: Mapping[SegmentId, Held], seen: set[SegmentId]
) -> list[SegmentId]:
    """Return the segments whose last bytes a generation should have; ``seen`` are those that a later one has.

    Raises:
        Conflict: a segment ends elsewhere.
    """
    here: list[SegmentId] = []
    for entry in manifest.segments:
        live = held.get(entry.id)
        if live is None:
            continue
        if live.is_whole and entry.id not in seen and entry.end != live.end:
            what = f"its segment {entry.id} ends at {live.end}, the archived one at {entry.end}"
            raise other_stream(store, manifest, what)
        seen.add(entry.id)
        if entry.start < live.end <= entry.end:
            here.append(entry.id)
    return here


def _is_equal(store: StreamStore, stream: StreamName, part: ArchivedPart, *, sample: bool = False) -> bool | None:
    """Compare what a source has of an archived range with the archive.

    Of a whole range only the source is read, and compared with the digest; of a part, all of the range is read, too.

    Args:
        store: the source's store.
        stream: the source.
        part: what to compare; what the source has truncated meanwhile is left out.
        sample: whether the last 4 KiB suffice if there are more than 64 KiB, or a part; they are not verified.

    Returns:
        None if the source was truncated beyond the end meanwhile.

    Raises:
        Damaged: the archive's bytes do not match their digest.
    """
    segment, start, end = part.segment, part.start, part.end
    while start < end:
        whole = (start, end) == (part.row.start, part.row.end) and not (sample and end - start > WITNESS_BYTES)
        low = max(start, end - SAMPLE_BYTES) if sample and not whole else start
        try:
            digest = digest_of(store.read(stream, segment, low, end))
        except SegmentTruncated as truncated:
            start = max(truncated.start_offset, low + 1)
            continue
        except NoSuchSegment:
            check_gone(store, stream, segment)
            return None
        if whole:
            return digest == part.row.digest
        return digest == digest_of(read_part(replace(part, start=low, end=end), verify=not sample))
    return None


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Specification of a task that compares what a source has of an archived range with the range.

    Attributes:
        source: address of the source's store.
        stream: the source.
        generation: the number of the range's generation.
        part: what the source has of it.
        is_read_back: whether this run has compared the archive's bytes with their digest before.
    """

    source: StoreAddress
    stream: StreamName
    generation: int
    part: ArchivedPart
    is_read_back: bool

    @property
    def size(self) -> int:
        """Bytes that the source has of it."""
        return self.part.end - self.part.start


def compare_range(task: CompareTask) -> int:
    """Compare a range, all of it, in the archive with its digest, and in the source; return the source's bytes.

    Raises:
        Damaged: bytes differ.
    """
    part = task.part
    if not task.is_read_back and part.whole:
        for _ in read_verified(part):
            pass
    with task.source.lend() as store:
        if _is_equal(store, task.stream, part) is not False:
            return task.size
        raise Damaged(
            f"generation {task.generation} differs from the stream; nothing was truncated",
            where=f"{part.place.uri}, {part.segment} bytes {part.start} to {part.end}",
            todo=FORGED,
        )


def bytes_before(
    described: StreamDescription, store: StreamStore, head: StreamCut, begin: StreamCut | None
) -> int | None:
    """Return how many bytes a source has from before its archive's beginning: no generation has ever had them.

    Args:
        described: the source.
        store: its store.
        head: where the generations in force begin.
        begin: where the archive began, see `Listing.begin`.

    Returns:
        None if ``begin`` is not known, and the source begins before ``head``.

    Raises:
        Problem: the store cannot be read.
    """
    if is_before(described, head, described.head):
        return 0  # all that the source has is within the generations in force
    return None if begin is None else sum(end - start for start, end, _ in held_below(described, store, begin).values())


def never_archived(count: int, where: str = "") -> Conflict:
    """Return the error for bytes counted by `bytes_before`; its text also serves as a warning."""
    return Conflict(
        f"the stream has events before the archive's beginning, which were never archived ({bytes_text(count)})",
        where=where,
        todo="No rotation truncates them. Archive them below another root, or truncate the stream there yourself if"
        " nobody needs them.",
    )


class StillHeld(Damaged):
    """A source still has bytes that a generation calls a gap, or that no generation has."""


def check_gaps(
    described: StreamDescription,
    store: StreamStore,
    held: Mapping[SegmentId, Held],
    gaps: Mapping[int, Iterable[GapEntry]],
    archive: str,
    *,
    loses: bool = False,
) -> None:
    """Check that a source no longer has what generations call gaps: only what it has truncated is one.

    What an import has filled with zeros in place of a gap, as the stream's tags say, does not count; nor does the rest
    of a gap whose beginning is truncated, as it may be that of an event that was truncated in its middle.

    Args:
        described: the source.
        store: its store.
        held: what it has, from `held_below`.
        gaps: a generation's number → its gaps.
        archive: the archive's URI.
        loses: whether the source is to lose it: then the rest of such a gap counts, too.

    Raises:
        StillHeld: it has some of them.
    """
    filled = filled_places(described.configuration)[0]
    for generation, some in gaps.items():
        for gap in some:
            live = held.get(gap.id)
            if live is None or (gap.start < live.start and not loses):
                continue
            places = ((place.start, place.end) for place in filled if place.segment == gap.id)
            for start, end in holes(max(gap.start, live.start), min(gap.end, live.end), places):
                if _is_there(store, described.name, gap.id, end - 1 if loses else start):
                    what = f"generation {generation} calls bytes {start} to {end} of {gap.id} a gap"
                    raise StillHeld(f"{what}, but the stream still has them", where=archive, todo=FORGED)


def check_expiring(archive: str, gone: Sequence[Manifest], source: StoreAddress, stream: StreamName) -> None:
    """Check that a source has nothing that generations call a gap, before they expire, as nobody can tell afterwards.

    Args:
        archive: the archive's URI.
        gone: the manifests of those that would expire, oldest first.
        source: the address of the source's store.
        stream: the source.

    Raises:
        StillHeld: it has.
    """
    if any(one.gaps for one in gone):
        with source.open() as store:
            described = describe_source(store, stream)
            held = held_below(described, store, gone[-1].to)
            check_gaps(described, store, held, {one.generation: one.gaps for one in gone}, archive)


def _is_there(store: StreamStore, stream: StreamName, segment: SegmentId, at: int) -> bool:
    """Check whether a source still has the byte at an offset: its description may lag behind a truncation."""
    try:
        store.read_bytes(stream, segment, at, at + 1)
    except (SegmentTruncated, NoSuchSegment):
        return False
    return True


def check_held(held: Mapping[SegmentId, tuple[int, int]], generations: Iterable[Generation], archive: str) -> None:
    """Check that generations have, but for gaps, all that a source has; arguments as for `check_gaps`.

    Raises:
        StillHeld: none of them has some of it.
    """
    parts: dict[SegmentId, list[tuple[int, int]]] = {}
    for generation in generations:
        for entry in generation.manifest.segments:
            parts.setdefault(entry.id, []).append((entry.start, entry.end))
    for segment, (start, end) in held.items():
        for low, high in holes(start, end, parts.get(segment, ())):
            what = f"no generation has bytes {low} to {high} of {segment}, which the stream still has"
            raise StillHeld(what, where=archive, todo=FORGED)


def check_continues(
    described: StreamDescription, store: StreamStore, archive: Archive, newest: Manifest, *, same_stream: bool
) -> None:
    """Reject a stream that is not known to be the archived one.

    Where the witness has nothing to compare, because a scale has opened segments that were empty at the newest
    generation's end, the last bytes of their predecessors are compared with the archive.

    Args:
        described: the stream's current state.
        store: the stream's store.
        archive: the archive.
        newest: its newest generation.
        same_stream: whether the user confirms that it is the stream if nothing can be compared.

    Raises:
        Conflict: the stream is another one, or nothing can be compared.
    """
    seen = check_same_stream(described, store, newest)
    if len(seen) == len(newest.to.offsets):
        return
    held = held_below(described, store, newest.to)
    last = (last_at_each_key(described, newest.to, held) & held.keys()) - seen
    compared = set[SegmentId]()
    if last:
        asked = {segment: held[segment] for segment in last}
        compared = archive.stable(
            lambda listing: compare(archive, store, asked, map(archive.load_span, reversed(listing.spans))).equal
        )
    if seen or compared or same_stream or _begins_at_end(described.head, newest.to) or _is_empty(archive):
        return
    raise Conflict(
        "nothing in the stream can be compared with the archive, so it may not be the archived stream",
        where=f"{store.uri}/{described.name}, {archive.uri}",
        todo="If it is, confirm it with --same-stream; otherwise archive it below another root.",
    )


def _begins_at_end(head: StreamCut, end: StreamCut) -> bool:
    """Check whether a stream begins where an archive ends, as a rotation leaves it, in a segment that has had bytes."""
    return head == end or any(offset and head.offsets.get(segment) == offset for segment, offset in end.offsets.items())


def _is_empty(archive: Archive) -> bool:
    """Check whether the archive has never had an event."""

    def look(listing: Listing) -> bool:
        return not listing.dropped and not any(archive.read_manifest(span).bytes for span in listing.spans)

    return archive.stable(look)
