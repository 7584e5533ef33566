"""What a copy or a replica takes from its source: its bytes, how far they go, and its reader groups."""

from __future__ import annotations

import json
from time import monotonic

from streamvault.common.errors import Failed, Overtaken
from streamvault.common.report import CarriedGroup
from streamvault.importer.plan import Content, TargetPositions
from streamvault.importer.reader_groups import (
    NotedGroup,
    check_keeps_offsets,
    create_groups,
    noted_groups,
    planned_groups,
)
from streamvault.importer.reports import Offsets
from streamvault.importer.target import (
    Unfinished,
)
from streamvault.replication.replica import Replica
from streamvault.sources.reader_groups import SourceGroup, source_groups
from streamvault.sources.source import Source, SourceState, bytes_after
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.cuts import counterparts, later_of
from streamvault.streamstore.model import (
    StreamCut,
    StreamDescription,
)
from streamvault.streamstore.uri import OpenStream


class Reach:
    """How far a replica has come.

    Args:
        source: the source.
        replica: the replica; its record, if it has one, says where it began.
        offsets: whether its offsets are the source's, or count from where it began.
    """

    def __init__(self, source: Source, replica: Replica, offsets: Offsets) -> None:
        self._source = source
        self._replica = replica
        self._offsets = offsets

    def beginning(self, described: StreamDescription) -> StreamCut:
        """Return the cut of the source at which the replica began, or begins: a source's head.

        Args:
            described: the source.
        """
        record = self._replica.record
        return described.head if record is None else StreamCut.from_json(record.head, self._source.name)

    def cut(self, described: StreamDescription, unfinished: Unfinished | None) -> StreamCut:
        """Return the cut of the source up to which the replica has its bytes.

        Args:
            described: the source.
            unfinished: the replica; None if there is none.
        """
        beginning = self.beginning(described)
        if unfinished is None:
            return beginning
        copied = unfinished.described
        reached = self.cut_of(copied, copied.tail, described)
        return beginning if reached is None else later_of(described, reached, beginning)

    def cut_of(self, copied: StreamDescription, cut: StreamCut, described: StreamDescription) -> StreamCut | None:
        """Return the source's cut that corresponds to a replica's; None if a segment has no counterpart.

        Args:
            copied: the replica.
            cut: a cut of it.
            described: the source.
        """
        segments = counterparts(described.epochs, copied.epochs)
        names = {} if segments is None else {new: old for old, new in segments.items()}
        if not names.keys() >= cut.offsets.keys():
            return None
        record = self._replica.record
        bases = StreamCut.from_json(record.head, self._source.name).offsets if record is not None else {}
        shifted = bases if self._offsets == "shift" else {}
        reached = {names[s]: offset + shifted.get(names[s], 0) for s, offset in cut.offsets.items()}
        return StreamCut(self._source.name, reached)

    def behind(self) -> int:
        """Return how many bytes the source has that the replica does not have."""
        while True:
            unfinished = Unfinished.find(self._replica.stream)
            look = self._source.look()
            try:
                return bytes_after(look, self.cut(look.described, unfinished))
            except (SourceTruncated, Overtaken):
                continue

    def check_complete(self) -> None:
        """Check that the replica ends where its source ends.

        Raises:
            Failed: it does not.
        """
        described = self._source.look().described
        copied = self._replica.stream.describe()
        if len(described.epochs) != len(copied.epochs) or self.cut_of(copied, copied.tail, described) != described.tail:
            raise Failed(
                "the replica does not end where its source ends",
                where=f"{self._replica.uri}: {json.dumps(copied.tail.to_json())}",
                todo="Run the same command again.",
            )


def mirrored_content(
    look: SourceState,
    *,
    import_id: str,
    first_head: StreamCut,
    from_cut: StreamCut | None = None,
    to_cut: StreamCut | None = None,
) -> Content:
    """Return what a mirror gets.

    Args:
        look: the source.
        import_id: see `importer.plan.RestorePlan`.
        first_head: where the mirror began, maybe in an earlier run; see `Content.bases`.
        from_cut: begin at this cut, or where the head has moved beyond it; None for the head.
        to_cut: end at this cut; None for the tail.

    Raises:
        InvalidCut, SourceTruncated, Overtaken: as `SourceState.parts` and `SourceState.reading`.
    """
    described = look.described
    head, tail = begin_of(described, from_cut), to_cut or described.tail
    with look.reading("replicated"):
        parts = look.parts(head, tail)
    return Content(
        described=described,
        generation=0,
        head=head,
        tail=tail,
        parts=parts,
        bases={segment: first_head.offsets.get(segment, 0) for segment in parts},
        sealed=described.sealed and to_cut is None,
        import_id=import_id,
        check_gap=look.check_gap,
        kind=look.content,
    )


def begin_of(described: StreamDescription, from_cut: StreamCut | None) -> StreamCut:
    """Return where a mirror begins: at a cut, but not before the head, for every key.

    Raises:
        InvalidCut: the cut is not of the stream.
    """
    return described.head if from_cut is None else later_of(described, from_cut, described.head)


class CarryingGroups:
    """The reader groups of a source that are to be created on a target.

    Their positions are read when this is created, before the source's end is looked at, and again by `refresh`.

    Args:
        source: the source.
        target: the stream that is made of it.
        offsets: whether the source's offsets are kept, ``"keep"`` or ``"shift"``.
        strict: see `source_groups`.

    Raises:
        ReaderGroupsNotOffered: a store does not support reader groups.
        Usage: offsets are shifted.
        UnreadableReaderGroup: as `source_groups`.
        AccessDenied: the login may not read a group.
    """

    def __init__(self, source: OpenStream, target: OpenStream, offsets: str, *, strict: bool = False) -> None:
        source.store.reader_groups()
        target.store.reader_groups()
        check_keeps_offsets(offsets)
        self._source = source
        self._target = target
        self._strict = strict
        self._groups: tuple[SourceGroup, ...] = ()
        self._read = 0.0
        self.refresh()

    def refresh(self, seconds: float = 0.0) -> None:
        """Read the positions again if that was not done for so many seconds.

        Raises:
            UnreadableReaderGroup, AccessDenied: as when this is created.
        """
        if seconds and monotonic() - self._read < seconds:
            return
        self._groups = source_groups(self._source.store, self._source.name, strict=self._strict)
        self._read = monotonic()

    def planned(self) -> tuple[CarriedGroup, ...]:
        """Return the report of a dry run, when there need not be a target yet."""
        return planned_groups(self._groups, self._target)

    def noted(self, source: StreamDescription) -> tuple[NotedGroup, ...]:
        """Translate the groups into those of the target, given the source as it is now."""
        if not self._groups:
            return ()
        return noted_groups(self._groups, source, TargetPositions.of(source.epochs, self._source.uri, self._target))

    def carry(self, source: StreamDescription, *, dry_run: bool = False) -> tuple[CarriedGroup, ...]:
        """Create the groups on the target, given the source as it is now; see `create_groups`."""
        return self.planned() if dry_run else create_groups(self.noted(source), self._target)
