"""Checks that a stream is the one that a plan or a generation was made from.

The name is not enough: a stream may have been deleted and recreated, and other clusters may have a stream of the
same name. A stream is identified by its history (its epochs, and that it only grows) and by a *witness*: a digest of
the last bytes before each segment's cut, which is compared as far as the source still has them.

What continues a source, a stream or an archive, records a `SourcePosition`, and gets the cut back from it only with a
source that was compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Self

from pydantic import PlainSerializer, PlainValidator

from streamvault.common.errors import Conflict
from streamvault.layouts.archived_range import digest_of
from streamvault.manifests.epochs import epoch_texts
from streamvault.manifests.files import segment_key
from streamvault.manifests.manifest import GenerationModel, Witness
from streamvault.sources.source import SourceState
from streamvault.streamstore.cuts import is_before, later_of, segments_between, successions
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, SegmentTooShort, SegmentTruncated
from streamvault.streamstore.model import Epochs, SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore

WITNESS_BYTES = 64 * 1024
"""Bytes before a cut that are read from one segment, so that a witness costs one request per segment."""

ALL_WITNESSES_BYTES = 64 * 1024 * 1024
"""Maximum bytes read from all segments together; with many segments, less is read from each."""


COMPARED_SEGMENTS = 16
"""Of how many segments Spark's batches compare the last bytes, as there may be a batch each second."""

ANOTHER_LINE = "Archive it in a line of its own, as after a restore, with --line NAME, or below another root."


def take_witness(store: StreamStore, cut: StreamCut) -> Iterator[Witness]:
    """Yield a witness of each segment of a cut, if the source still has bytes before the cut.

    Raises:
        Problem: the store cannot be read.
    """
    size = max(1, min(WITNESS_BYTES, ALL_WITNESSES_BYTES // len(cut.offsets)))
    for segment, end in cut.offsets.items():
        try:
            data = what_is_left(store, cut.stream, segment, max(0, end - size), end)
        except NoSuchSegment:
            check_gone(store, cut.stream, segment)
            continue
        if data:
            name, length = segment.in_stream(cut.stream), len(data)
            yield Witness(segment=name, offset=end - length, length=length, digest=digest_of([data]))


def what_is_left(store: StreamStore, stream: StreamName, segment: SegmentId, start: int, end: int) -> bytes:
    """Read what a stream still has of the bytes ``[start, end)`` of a segment; empty if it was truncated beyond them.

    Raises:
        NoSuchSegment: as `StreamStore.read`.
    """
    while start < end:
        try:
            return store.read_bytes(stream, segment, start, end)
        except SegmentTruncated as truncated:
            start = max(truncated.start_offset, start + 1)
    return b""


def check_same_stream(
    described: StreamDescription, store: StreamStore, known: GenerationModel, *, most: int | None = None
) -> set[SegmentId]:
    """Reject a stream that is not the one of a plan or a generation.

    Args:
        described: the stream's current state.
        store: the stream's store.
        known: the plan or manifest.
        most: of how many segments to compare bytes at most; None for all.

    Returns:
        As for `check_witness`.

    Raises:
        Conflict: the stream has different epochs, is shorter, or has different bytes.
    """
    shorter = any(described.tail.offsets.get(segment, offset) < offset for segment, offset in known.to.offsets.items())
    if not described.epochs.starts_with(known.epochs) or shorter:
        raise other_stream(store, known, "its epochs differ" if not shorter else "it is shorter")
    return check_witness(store, known, most=most)


def check_witness(store: StreamStore, known: GenerationModel, *, most: int | None = None) -> set[SegmentId]:
    """Compare the stream's bytes with the witness of a plan or a generation.

    Returns:
        The segments whose bytes are equal; truncated ones cannot be compared.

    Raises:
        Conflict: the bytes differ.
    """
    witness = [LastBytes(segment_key(one.segment), one.offset, one.length, one.digest) for one in known.witness[:most]]
    equal, difference = compare_witness(
        lambda segment, start, end: digest_of(store.read(known.name, segment, start, end)), witness
    )
    if difference:
        raise other_stream(store, known, difference)
    return equal


class LastBytes(NamedTuple):
    """A witness: the last bytes of a segment before a cut.

    Attributes:
        segment: the segment.
        offset: offset of the first one (bytes).
        length: how many (bytes).
        digest: their SHA-256, hexadecimal.
    """

    segment: SegmentId
    offset: int
    length: int
    digest: str


def bytes_differ(segment: SegmentId, start: int, end: int) -> str:
    """Return in words that the bytes of a segment between two offsets differ."""
    return f"its bytes {start} to {end} of {segment} differ"


def compare_witness(
    digest: Callable[[SegmentId, int, int], str], witness: Iterable[LastBytes]
) -> tuple[set[SegmentId], str]:
    """Compare a source's bytes with a witness.

    Args:
        digest: returns the SHA-256 of some bytes of a segment, as `SourceState.digest`.
        witness: of each segment, the last bytes; where it has several, the first that the source still has all of is
            compared.

    Returns:
        The segments whose bytes are equal, and the first difference in words; empty if there is none.
    """
    equal = set[SegmentId]()
    for segment, offset, length, expected in witness:
        end = offset + length
        if segment in equal:
            continue
        try:
            found = digest(segment, offset, end)
        except (SegmentTruncated, NoSuchSegment):
            continue
        except SegmentTooShort:
            found = ""
        if found != expected:
            return equal, bytes_differ(segment, offset, end)
        equal.add(segment)
    return equal, ""


class AnotherSource(Conflict):
    """A source is not the one that is to be continued."""


def another_source(difference: str, uri: str, todo: str = "") -> AnotherSource:
    """Return the error for a source that is another one, with the difference in words."""
    return AnotherSource(
        f"the source is not the one that was read before: {difference} (deleted and recreated, replaced by another"
        " archive, or a different cluster?)",
        where=uri,
        todo=todo,
    )


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """How far a source was read, and by what it is recognized when it is continued.

    The cut is private: to continue from it, call `reached`.

    Attributes:
        history: number and digest of the source's epochs.
        witness: the last bytes before the cut.
    """

    _cut: StreamCut
    history: str
    witness: tuple[LastBytes, ...]
    _look: SourceState | None = field(default=None, compare=False, repr=False)

    @classmethod
    def at(
        cls,
        look: SourceState,
        cut: StreamCut,
        before: Self | None,
        *,
        earlier: Self | None,
        uri: str = "",
        most: int | None = None,
    ) -> Self:
        """Take the position of a cut in a source; at most 4 KiB of each segment are read.

        If a segment has no bytes before the cut, its predecessors' last bytes are taken. What cannot be read, as the
        source was truncated, keeps the witness of the position before.

        Args:
            look: the source.
            cut: the cut.
            before: the position that it was continued from, with which the source was compared; None if there is none.
            earlier: a position that was taken before this look; the source is compared with it once more after its
                bytes were read. Without one, a source that is replaced between the look and the reading has the cut of
                one stream and the bytes of another, and every later comparison agrees.
            uri: the source's URI, for the message.
            most: how many segments to read at most; None for all.

        Raises:
            SourceTruncated: the source was truncated since this look.
            AnotherSource: it is not the one of the earlier position.
            Problem: it cannot be read.
        """
        described = look.described
        head = described.head.offsets
        held: Mapping[SegmentId, tuple[int, int]]
        held = {segment: (head.get(segment, 0), end) for segment, end in cut.offsets.items()}
        if any(start >= end for start, end in held.values()):
            held = look.between(described.head, later_of(described, cut, described.head))
        held = {segment: bounds for segment, bounds in held.items() if bounds[0] < bounds[1]}
        witness = [
            LastBytes(segment, offset, end - offset, digest)
            for segment in sorted(last_at_each_key(described, cut, held) & held.keys())[:most]
            for offset, end, digest in look.last(segment, *held[segment])
        ]
        left = last_at_each_key(described, cut, held) - {one.segment for one in witness}
        kept = [one for one in (before.witness if before else ()) if one.segment in left]
        if earlier is not None and (difference := earlier.difference(look)):
            raise another_source(difference, uri)
        return cls(cut, history_digest(described.epochs), (*witness, *kept), look)

    def reached(self, look: SourceState, uri: str, todo: str = "") -> StreamCut:
        """Return the cut, after comparing a source with this position.

        Args:
            look: the source.
            uri: its URI, for the message.
            todo: what to do if it is another one.

        Raises:
            AnotherSource: it is another one: its epochs or its bytes before the cut differ, or it is shorter.
        """
        if look is not self._look and (difference := self.difference(look)):
            raise another_source(difference, uri, todo)
        return self._cut

    def last_in(self, segment: SegmentId, start: int, end: int) -> LastBytes | None:
        """Return the longest witness of a segment that ends at ``end`` and begins at ``start`` or after it, if any."""
        held = (one for one in self.witness if one.segment == segment and one.offset + one.length == end)
        return min((one for one in held if start <= one.offset), default=None)

    def difference(self, look: SourceState) -> str:
        """Return in words by what a source is another one; empty if it is not."""
        described = look.described
        if not has_history(described.epochs, self.history):
            return "its epochs differ"
        try:
            if not is_before(described, self._cut, described.tail):
                return "it is shorter"
        except InvalidCut:
            return "it never had such segments"
        return compare_witness(look.digest, self.witness)[1]

    def is_at(self, cut: StreamCut) -> bool:
        """Return whether this is the position of a cut."""
        return self._cut == cut

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        witness = [[str(segment), *rest] for segment, *rest in self.witness]
        return {"to": self._cut.to_json(), "history": self.history, "witness": witness}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`; what is there besides is left out."""
        witness = tuple(LastBytes(SegmentId.parse(name), *rest) for name, *rest in value["witness"])
        return cls(StreamCut.from_json(value["to"]), value["history"], witness)


Position = Annotated[SourcePosition, PlainValidator(SourcePosition.from_json), PlainSerializer(SourcePosition.to_json)]
"""A position in a record that pydantic writes and reads."""


def history_digest(epochs: Epochs) -> str:
    """Return how many epochs a source has, and a digest of them: a source that goes on keeps its first ones."""
    return f"{len(epochs)}.changes.{hashlib.sha256(json.dumps(epoch_texts(epochs)).encode()).hexdigest()[:32]}"


def has_history(epochs: Epochs, noted: str) -> bool:
    """Return whether epochs begin with those of a digest; earlier releases took it of every epoch's segments."""
    known = epochs.upto(int(noted.partition(".")[0]))
    if ".changes." in noted:
        return history_digest(known) == noted
    content = [[(s.value, keys.low, keys.high) for s, keys in epoch.segments.items()] for epoch in known]
    return f"{len(known)}.{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}" == noted


def last_at_each_key(described: StreamDescription, cut: StreamCut, held: Container[SegmentId]) -> set[SegmentId]:
    """Return a cut's segments and, for those that are not among the held ones, their predecessors, and so on."""
    last = set(cut.offsets)
    for before, after in reversed(list(successions(described))):
        if after in last and after not in held:
            last.add(before)
    return last


def check_gone(store: StreamStore, stream: StreamName, segment: SegmentId) -> None:
    """Raise unless a segment that the store does not find was truncated, that is, the stream's head has passed it.

    Raises:
        NoSuchStream: the stream was deleted.
        Conflict: the stream never had the segment, so it is a different one.
        NoSuchSegment: the stream should still have the segment.
    """
    described = store.describe(stream)
    if segment not in described.ranges():
        raise replaced(store, stream, segment)
    if segment in segments_between(described, described.head, described.tail):
        raise NoSuchSegment(
            "the store does not find a segment that the stream should still have",
            where=f"{store.uri}/{segment.in_stream(stream)}",
            todo="Run the same command again.",
        )


def replaced(store: StreamStore, stream: StreamName, segment: SegmentId) -> Conflict:
    """Return the error for a stream that was replaced while it was archived, as a segment of it shows."""
    return Conflict(
        "the stream is not the one that is being archived: it was deleted and recreated in the meantime",
        where=f"{store.uri}/{segment.in_stream(stream)}",
        todo=ANOTHER_LINE,
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
