"""Checks that a stream is the one that a plan or a generation was made from.

The name is not enough: a stream may have been deleted and recreated, and other clusters may have a stream of the
same name. A stream is identified by its history (its epochs, and that it only grows) and by a *witness*: a digest of
the last bytes before each segment's cut, which is compared as far as the source still has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamvault.common.errors import Conflict
from streamvault.manifests.format.archived_range import digest_of
from streamvault.manifests.format.entries import EpochEntry, Witness
from streamvault.manifests.format.field_types import segment_key
from streamvault.manifests.format.manifest import GenerationModel
from streamvault.streamstore.arithmetic.cuts import segments_between
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore

WITNESS_BYTES = 64 * 1024
"""Bytes before a cut that are read from one segment, so that a witness costs one request per segment."""

ALL_WITNESSES_BYTES = 64 * 1024 * 1024
"""Maximum bytes read from all segments together; with many segments, less is read from each."""


ANOTHER_LINE = "Archive it in a line of its own, as after a restore, with --line NAME, or below another root."


def take_witness(store: StreamStore, cut: StreamCut) -> Iterator[Witness]:
    """Yield a witness of each segment of a cut, if the source still has bytes before the cut.

    Raises:
        Problem: the store cannot be read.
    """
    size = max(1, min(WITNESS_BYTES, ALL_WITNESSES_BYTES // len(cut.offsets)))
    for segment, end in cut.offsets.items():
        start = max(0, end - size)
        while start < end:
            try:
                digest = digest_of(store.read(cut.stream, segment, start, end))
            except SegmentTruncated as truncated:
                start = max(truncated.start_offset, start + 1)
            except NoSuchSegment:
                check_gone(store, cut.stream, segment)
                break
            else:
                name = segment.in_stream(cut.stream)
                yield Witness(segment=name, offset=start, length=end - start, digest=digest)
                break


def check_same_stream(described: StreamDescription, store: StreamStore, known: GenerationModel) -> set[SegmentId]:
    """Reject a stream that is not the one of a plan or a generation.

    Args:
        described: the stream's current state.
        store: the stream's store.
        known: the plan or manifest.

    Returns:
        As for `check_witness`.

    Raises:
        Conflict: the stream has different epochs, is shorter, or has different bytes.
    """
    epochs = tuple(EpochEntry.of(epoch) for epoch in described.epochs)
    shorter = any(described.tail.offsets.get(segment, offset) < offset for segment, offset in known.to.offsets.items())
    if epochs[: len(known.epochs)] != known.epochs or shorter:
        raise other_stream(store, known, "its epochs differ" if not shorter else "it is shorter")
    return check_witness(store, known)


def check_witness(store: StreamStore, known: GenerationModel) -> set[SegmentId]:
    """Compare the stream's bytes with the witness of a plan or a generation.

    Returns:
        The segments whose bytes are equal; truncated ones cannot be compared.

    Raises:
        Conflict: the bytes differ.
    """
    equal = set[SegmentId]()
    for seen in known.witness:
        segment, end = segment_key(seen.segment), seen.offset + seen.length
        try:
            digest = digest_of(store.read(known.name, segment, seen.offset, end))
        except (SegmentTruncated, NoSuchSegment):
            continue
        except ValueError:  # the segment is shorter
            digest = ""
        if digest != seen.digest:
            what = f"its bytes {seen.offset} to {end} of {segment} differ"
            raise other_stream(store, known, what)
        equal.add(segment)
    return equal


def check_gone(store: StreamStore, stream: StreamName, segment: SegmentId) -> None:
    """Raise unless a segment that the store does not find was truncated, that is, the stream's head has passed it.

    Raises:
        NoSuchStream: the stream was deleted.
        Conflict: the stream never had the segment, so it is a different one.
        NoSuchSegment: the stream should still have the segment.
    """
    described = store.describe(stream)
    if segment not in described.ranges():
        raise Conflict(
            "the stream is not the one that is being archived: it was deleted and recreated in the meantime",
            where=f"{store.uri}/{segment.in_stream(stream)}",
            todo=ANOTHER_LINE,
        )
    if segment in segments_between(described, described.head, described.tail):
        raise NoSuchSegment(
            "the store does not find a segment that the stream should still have",
            where=f"{store.uri}/{segment.in_stream(stream)}",
            todo="Run the same command again.",
        )


def other_stream(store: StreamStore, known: GenerationModel, what: str) -> Conflict:
    """Return the error for a stream that is not the one of a plan or a generation, for a reason."""
    archived = f"{known.source}/{known.name}" if known.source else str(known.name)
    return Conflict(
        f"the stream is not the one that was archived here from {archived}: {what} (deleted and recreated, or a"
        " different cluster?)",
        where=f"{store.uri}/{known.name}",
        todo=ANOTHER_LINE,
    )
