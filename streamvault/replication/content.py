"""What a copy or a replica takes from its source: its bytes, and its reader groups."""

from __future__ import annotations

from time import monotonic

from streamvault.common.report import CarriedGroup
from streamvault.importer.plan import Content, TargetPositions
from streamvault.importer.reader_groups import (
    NotedGroup,
    check_keeps_offsets,
    create_groups,
    noted_groups,
    planned_groups,
)
from streamvault.sources.reader_groups import SourceGroup, source_groups
from streamvault.sources.source import SourceState
from streamvault.streamstore.cuts import later_of
from streamvault.streamstore.model import StreamCut, StreamDescription
from streamvault.streamstore.uri import OpenStream


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
