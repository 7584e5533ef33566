"""The stream that is appended to: whether it still is that one, how it must be scaled, and where the bytes are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streamvault.common.errors import Conflict, Overtaken
from streamvault.importer.ownership import first_segment_id
from streamvault.joining.placing import Places, TargetScale
from streamvault.joining.sources import Stretch
from streamvault.streamstore.arithmetic.cuts import sealed_ends
from streamvault.streamstore.errors import ScaleRefused
from streamvault.streamstore.model import KeyRange, SegmentId, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Landed:
    """Where a transaction's segment is in the target.

    Attributes:
        segment: the target's segment.
        offset: where its first byte is (bytes); the lowest possible place if it is not exact.
        exact: whether that is exact.
    """

    segment: SegmentId
    offset: int
    exact: bool


class StitchTarget:
    """An open stream that others may write to, scale, seal, delete and create again meanwhile.

    Args:
        stream: the stream, which exists.
        mark: the tag of a stream that is made for a stitch, and is not finished; empty for a user's stream.

    Attributes:
        stream: the stream.
        first_segment_id: which stream of this name it is, see `importer.ownership.first_segment_id`.

    Raises:
        OwnStream: it is an internal stream.
        Conflict: it is sealed.
    """

    def __init__(self, stream: OpenStream, mark: str = "") -> None:
        self.stream = stream
        self._mark = mark
        self.first_segment_id = first_segment_id(self._look(may_be_sealed=False))

    def describe(self, *, may_be_sealed: bool = False) -> StreamDescription:
        """Describe the stream.

        Raises:
            Conflict: it is another stream now, or sealed, or was made for a stitch and is finished.
        """
        described = self._look(may_be_sealed=may_be_sealed)
        if first_segment_id(described) != self.first_segment_id:
            todo = "Nothing was appended to the new one. Run the same command again to append to it."
            raise Conflict("the stream was deleted and created again meanwhile", where=self.stream.uri, todo=todo)
        return described

    def _look(self, *, may_be_sealed: bool) -> StreamDescription:
        store, name = self.stream.store, self.stream.name
        described = store.describe(name) if self._mark else describe_source(store, name)
        if self._mark and self._mark not in described.configuration.tags:
            raise Overtaken("another process has finished the stream, or replaced it", where=self.stream.uri)
        if described.sealed and not may_be_sealed:
            raise Conflict("the stream is sealed, so nothing can be appended", where=self.stream.uri)
        return described

    def scale_for(self, described: StreamDescription, stretches: Iterable[Stretch]) -> TargetScale | None:
        """Return the scale that makes room for the stretches, so that each key keeps its order; None if none is needed.

        Raises:
            Conflict: the stream's policy does not allow it.
        """
        segments = described.epochs[-1].segments
        scale = Places(segments).scale_for(stretch.keys for stretch in stretches)
        least = described.configuration.scaling.min_segments
        if scale is not None and (left := len(segments) - scale.fewer) < least:
            raise Conflict(
                f"the key ranges of the sources fit only into {left} segments of the stream, "
                f"but its scaling policy keeps at least {least}",
                where=self.stream.uri,
                todo=f"Lower the policy's minimum to {left}, or join the sources into a new stream.",
            )
        return scale

    def scale(self, scale: TargetScale) -> None:
        """Scale the stream, unless it was scaled meanwhile."""
        with suppress(ScaleRefused):
            self.stream.store.scale(self.stream.name, scale.seal, scale.ranges)

    def ends_of_parents(self, transaction: Transaction) -> dict[SegmentId, int]:
        """Return where each segment ends that a transaction appends to, by the transaction's segments (bytes).

        Segments that are truncated are absent.
        """
        parents = _parents(self.describe(), transaction)
        ends = sealed_ends(self.stream.store, self.stream.name, list(parents.values()))
        return {segment: ends[parent] for segment, parent in parents.items() if parent in ends}

    def make_roll(self, transaction: Transaction) -> None:
        """Make the commit of an open transaction roll, so that it becomes segments of its own.

        It rolls if the stream was scaled since it began.
        """
        current = self.describe().epochs[-1]
        if current.number == _epoch_of(transaction):
            segment, held = next(iter(current.segments.items()))
            self.scale(TargetScale((segment,), (held,)))

    def find_landed(
        self, transaction: Transaction, lengths: Mapping[SegmentId, int], ends: Mapping[SegmentId, int]
    ) -> dict[SegmentId, Landed]:
        """Return where each segment of a committed transaction is, of those that have bytes.

        Args:
            transaction: the transaction.
            lengths: how many bytes each of its segments has.
            ends: see `ends_of_parents`; as they were before the commit.

        Raises:
            Conflict: the stream was deleted and created again since.
        """
        described = self.describe(may_be_sealed=True)
        store, name = self.stream.store, self.stream.name
        full = [segment for segment in transaction.segments if lengths.get(segment)]
        rolled = []
        for own in _rolled(described, transaction):
            held = sealed_ends(store, name, list(own.values()))
            if all(held.get(own[segment], 0) == lengths.get(segment, 0) for segment in transaction.segments):
                rolled.append(own)
        if rolled:
            return {segment: Landed(rolled[-1][segment], 0, exact=len(rolled) == 1) for segment in full}
        parents = _parents(described, transaction)
        now = sealed_ends(store, name, [parents[segment] for segment in full])
        found = {}
        for segment in full:
            begin, parent = ends.get(segment, 0), parents[segment]
            exact = segment in ends and now.get(parent) == begin + lengths[segment]
            found[segment] = Landed(parent, begin, exact=exact)
        return found


def _epoch_of(transaction: Transaction) -> int:
    return max(segment.epoch for segment in transaction.segments)


def _parents(described: StreamDescription, transaction: Transaction) -> dict[SegmentId, SegmentId]:
    """Return transaction's segment → the segment that was open when it began, which it is appended to."""
    open_then = {segment.number: segment for segment in described.epochs[_epoch_of(transaction)].segments}
    return {segment: open_then[segment.number] for segment in transaction.segments}


def _rolled(described: StreamDescription, transaction: Transaction) -> Sequence[dict[SegmentId, SegmentId]]:
    """Return, for each epoch that a transaction like this one has become, its segment → the one of that epoch."""
    ranges: dict[int, KeyRange] = {segment.number: held for segment, held in transaction.segments.items()}
    found = []
    for epoch in described.epochs[_epoch_of(transaction) + 1 :]:
        own = {segment.number: segment for segment in epoch.segments if segment.epoch == epoch.number}
        if {number: epoch.segments[segment] for number, segment in own.items()} == ranges:
            found.append({segment: own[segment.number] for segment in transaction.segments})
    return found
