"""The stream that is appended to: whether it still is that one, how it must be scaled, and where the bytes are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict, Overtaken
from streamvault.importer.ownership import first_segment_id
from streamvault.joining.placing import Places, TargetScale
from streamvault.joining.record import StitchLog
from streamvault.joining.room import former_ranges, make_room
from streamvault.joining.sources import Stretch
from streamvault.streamstore.arithmetic.cuts import sealed_ends
from streamvault.streamstore.errors import ScaleRefused
from streamvault.streamstore.model import Epoch, SegmentId, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import check_users
from streamvault.streamstore.scale_note import ScaleNote
from streamvault.streamstore.services.lease import Lease
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
        described = store.describe(name)
        if not self._mark:
            check_users(store, described)
        elif self._mark not in described.configuration.tags:
            raise Overtaken("another process has finished the stream, or replaced it", where=self.stream.uri)
        if described.sealed and not may_be_sealed:
            raise Conflict("the stream is sealed, so nothing can be appended", where=self.stream.uri)
        return described

    def scale_for(self, stretches: Iterable[Stretch]) -> TargetScale | None:
        """Return the scale that makes room for the stretches, so that each key keeps its order; None if none is needed.

        Errors as `describe`.
        """
        return Places(self.describe().epochs[-1].segments).scale_for(stretch.keys for stretch in stretches)

    def make_room(self, stretches: Iterable[Stretch], lease: Lease, ledger: StitchLog) -> tuple[SegmentId, ...]:
        """Scale the stream so that there is room for the stretches; return the segments that were merged.

        If somebody scales or configures the stream meanwhile, nothing is merged, or not enough. Errors as `describe`
        and `joining.room.make_room`.
        """
        described = self.describe()
        scale = Places(described.epochs[-1].segments).scale_for(stretch.keys for stretch in stretches)
        if scale is None or not make_room(self.stream, described, scale, lease, ledger):
            return ()
        return scale.seal

    def ends_of_parents(self, transaction: Transaction) -> dict[SegmentId, int]:
        """Return where the segments end that a transaction would be appended to, or was if they are sealed (bytes).

        Segments that are truncated are absent.

        Raises:
            Conflict: as `describe`; so a transaction that is open is known to be of this very stream.
        """
        _, parents = _epochs_like(self.describe(), transaction)
        return sealed_ends(self.stream.store, self.stream.name, list(parents[-1].segments))

    def make_roll(
        self, transaction: Transaction, lengths: Mapping[SegmentId, int], known: ScaleNote | None = None
    ) -> None:
        """Make the commit of an open transaction roll, so that it becomes segments of its own.

        It rolls if the stream was scaled since it began. So a segment is replaced to which bytes would be appended:
        as it does not grow any more, it is seen afterwards that the commit has rolled. If the stream was scaled to make
        room, it gets its key ranges back by the same scale.

        Args:
            transaction: the transaction.
            lengths: how many bytes its segments have, of those that have some.
            known: see `joining.room.give_back`.
        """
        described = self.describe()
        current = described.epochs[-1]
        if _numbers(current.segments) == _numbers(transaction.segments):
            full, scale = _numbers(lengths), former_ranges(described, known) or TargetScale((), ())
            if not full & _numbers(scale.seal):
                segment, held = next(item for item in current.segments.items() if item[0].number in full)
                scale = TargetScale((*scale.seal, segment), (*scale.ranges, held))
            with suppress(ScaleRefused):
                self.stream.store.scale(self.stream.name, scale.seal, scale.ranges)

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
        rolled, parents = _epochs_like(self.describe(may_be_sealed=True), transaction)
        last = next((index for index, epoch in enumerate(parents) if ends.keys() & epoch.segments.keys()), 0)
        full = {segment.number: segment for segment in transaction.segments if lengths.get(segment)}
        places = []
        for epoch in parents[last:] + rolled:
            own = {segment: full[segment.number] for segment in epoch.segments if segment.number in full}
            now = sealed_ends(self.stream.store, self.stream.name, list(own))
            left = {
                segment: now[segment] - ends.get(segment, 0) - lengths[own[segment]]
                for segment in own
                if segment in now
            }
            landed = {own[s]: Landed(s, ends.get(s, 0), exact=left.get(s) == 0) for s in own}
            places.append((all(more >= 0 for more in left.values()), landed))
        possible = [landed for is_possible, landed in places if is_possible]
        if len(possible) == 1:
            return possible[0]
        return {segment: replace(one, exact=False) for segment, one in (possible or [places[0][1]])[0].items()}


def _numbers(segments: Iterable[SegmentId]) -> frozenset[int]:
    return frozenset(segment.number for segment in segments)


def _epochs_like(described: StreamDescription, transaction: Transaction) -> tuple[list[Epoch], list[Epoch]]:
    """Return the epochs that a transaction may have become when it was committed, and those it may be appended to.

    All of them have segments with the numbers of the transaction's. Only a commit that rolls uses numbers again: it
    makes an epoch with those of its transaction, and another one that repeats the epoch before.
    """
    rolled: list[Epoch] = []
    parents: list[Epoch] = []
    known, rolls = set[frozenset[int]](), False
    for epoch in described.epochs:
        numbers = _numbers(epoch.segments)
        rolls = not rolls and numbers in known
        known.add(numbers)
        if numbers == _numbers(transaction.segments):
            (rolled if rolls else parents).append(epoch)
    return rolled, parents
