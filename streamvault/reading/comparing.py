"""Compares what a source still holds of its archive with the archive's bytes.

Epochs and a witness can agree by chance: segments that a scale has just opened are empty in any stream. So before a
source loses bytes, and before an archive without a usable witness is continued, the last bytes of segments are compared
with the archived ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from streamvault.common.errors import Conflict
from streamvault.layouts.layout import open_reader
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.format.archived_range import ArchivedRange, digest_of
from streamvault.manifests.format.manifest import Manifest
from streamvault.reading.identity import WITNESS_BYTES, check_gone, check_same_stream, last_at_each_key, other_stream
from streamvault.streamstore.arithmetic.cuts import later_of, sealed_ends, segments_between
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.store import StreamStore

SAMPLE_BYTES = 4 * 1024
"""Bytes that are read from the archive and from the source if the range is too large to compare its digest."""


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


def compare(archive: Archive, store: StreamStore, held: Mapping[SegmentId, Held]) -> Compared:
    """Compare the last bytes that a source has of each segment with the archive's.

    A short range is read from the source alone and compared by its digest; of a longer one, the last 4 KiB are read
    from both. Generations are read from the newest back, until every segment is found.

    Args:
        archive: the archive.
        store: the source's store.
        held: what the source has.

    Raises:
        Conflict: bytes differ, or a segment ends elsewhere in the archive.
        InArchiveClass: the archive's bytes cannot be read before S3 has restored them.
    """
    return archive.stable(partial(_compare, archive, store, held))


def _compare(archive: Archive, store: StreamStore, held: Mapping[SegmentId, Held], listing: Listing) -> Compared:
    done = Compared()
    left, seen = dict(held), set[SegmentId]()
    for span in reversed(listing.spans):
        if not left:
            break
        manifest = archive.read_manifest(span)
        here: list[SegmentId] = []
        for entry in manifest.segments:
            segment = entry.id
            live = left.get(segment)
            if live is None:
                continue
            if live.is_whole and segment not in seen and entry.end != live.end:
                what = f"its segment {segment} ends at {live.end}, the archived one at {entry.end}"
                raise other_stream(store, manifest, what)
            seen.add(segment)
            if entry.start < live.end <= entry.end:
                here.append(segment)
        if not here:
            continue
        generation = archive.load_span(span)
        for segment in here:
            row = _last_row(generation.rows.get(segment, ()), left[segment].end)
            if row is not None and _is_equal(archive, store, generation, row, left.pop(segment)):
                done.equal.add(segment)
    done.unknown.update(left)
    return done


def _last_row(rows: Sequence[ArchivedRange], end: int) -> ArchivedRange | None:
    """Return the range that holds the byte before ``end``; None if it is in a gap."""
    return next((row for row in reversed(rows) if row.start < end <= row.end), None)


def _is_equal(archive: Archive, store: StreamStore, generation: Generation, row: ArchivedRange, held: Held) -> bool:
    """Compare a segment's last bytes; return False if the source was truncated beyond them meanwhile.

    Raises:
        Conflict: they differ.
    """
    stream, segment, end = archive.stream, row.segment, held.end
    start = max(held.start, row.start)
    while start < end:
        whole = (row.start, row.end) == (start, end) and end - start <= WITNESS_BYTES
        low = start if whole else max(start, end - SAMPLE_BYTES)
        try:
            digest = digest_of(store.read(stream, segment, low, end))
        except SegmentTruncated as truncated:
            start = max(truncated.start_offset, low + 1)
            continue
        except NoSuchSegment:
            check_gone(store, stream, segment)
            return False
        if digest != (row.digest if whole else _archived_digest(archive, generation, row, low, end)):
            raise other_stream(store, generation.manifest, f"its bytes {low} to {end} of {segment} differ")
        return True
    return False


def _archived_digest(archive: Archive, generation: Generation, row: ArchivedRange, low: int, end: int) -> str:
    return digest_of(open_reader(generation.layout).read_range(archive.place, row.stored, low, end))


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
    compared = compare(archive, store, {segment: held[segment] for segment in last}).equal if last else set()
    if seen or compared or same_stream or _begins_at_end(described.head, newest.to) or _is_empty(archive):
        return
    raise Conflict(
        "nothing of the stream can be compared with the archive, so it may be another stream than the archived one",
        where=f"{store.uri}/{described.name}, {archive.uri}",
        todo="If it is the same, confirm it with --same-stream; otherwise archive it below another root.",
    )


def _begins_at_end(head: StreamCut, end: StreamCut) -> bool:
    """Check whether a stream begins where an archive ends, as a rotation leaves it, in a segment that has had bytes."""
    return head == end or any(offset and head.offsets.get(segment) == offset for segment, offset in end.offsets.items())


def _is_empty(archive: Archive) -> bool:
    """Check whether the archive has never had an event."""

    def look(listing: Listing) -> bool:
        return not listing.dropped and not any(archive.read_manifest(span).bytes for span in listing.spans)

    return archive.stable(look)
