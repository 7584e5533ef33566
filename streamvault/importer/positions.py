"""Positions of a stream in another one with the same history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamvault.common.errors import Failed
from streamvault.streamstore.cuts import common_counterparts, info_of
from streamvault.streamstore.model import (
    Epoch,
    SegmentId,
    SegmentInfo,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import OpenStream


class NoCounterpart(Failed):
    """The stream has no position that corresponds to the given one."""

    retriable = False


@dataclass(frozen=True, slots=True)
class TargetPositions:
    """Finds positions in a stream that was restored or copied.

    Attributes:
        store: its store.
        described: the stream.
        segments: the source's segment → its segment.
        infos: its segment → the segment's state, of those that were asked for; None for one that is gone.
    """

    store: StreamStore
    described: StreamDescription
    segments: Mapping[SegmentId, SegmentId]
    infos: dict[SegmentId, SegmentInfo | None] = field(default_factory=dict)

    @classmethod
    def of(cls, epochs: Sequence[Epoch], source: str, target: OpenStream) -> TargetPositions:
        """Find the segments that correspond to those of a source.

        Args:
            epochs: the source's epochs.
            source: its URI, for messages.
            target: the stream.

        Raises:
            NoCounterpart: none correspond.
        """
        described = target.describe()
        segments = common_counterparts(epochs, described.epochs)
        if not segments:
            raise NoCounterpart(
                "the streams have different histories, so no segments correspond",
                where=f"{source} and {target.uri}",
                todo="Give the archive or the stream that was restored or copied, and the result.",
            )
        return cls(target.store, described, segments)

    @property
    def name(self) -> StreamName:
        """The stream's name."""
        return self.described.name

    def cut(self, cut: StreamCut) -> StreamCut:
        """Return the cut that corresponds to one of the source's.

        Raises:
            NoCounterpart: as `counterpart`.
        """
        return StreamCut(self.name, {self.counterpart(cut.stream, s, at, at): at for s, at in cut.offsets.items()})

    def counterpart(self, source: StreamName, segment: SegmentId, start: int, end: int) -> SegmentId:
        """Return the segment that corresponds to one of the source's, which has the bytes from start to end.

        Raises:
            NoCounterpart: there is none, or it does not have these bytes.
        """
        where = f"{segment.in_stream(source)}: {start}"
        if segment not in self.segments:
            raise NoCounterpart(
                "no segment of the stream corresponds to this one",
                where=where,
                todo=f"Check that it is one of the source's, and that {self.store.uri}/{self.name} was restored "
                "or copied from it after the segment was created.",
            )
        found = self.segments[segment]
        info = self.info(found)
        place = f"{self.store.uri}/{found.in_stream(self.name)}"
        if info is None or start < info.start_offset:
            begin = "" if info is None else f", which begins at {info.start_offset}"
            raise NoCounterpart(
                f"the position was truncated in {place}{begin}", where=where, todo="Begin at the stream's head instead."
            )
        if end > info.write_offset:
            raise NoCounterpart(
                f"the position lies beyond the end of {place} at {info.write_offset}",
                where=where,
                todo="Replicate again first if the stream is a replica; subtract the shifts if it was restored with "
                "--offsets shift.",
            )
        return found

    def info(self, segment: SegmentId) -> SegmentInfo | None:
        """Return the state of one of the stream's segments; None if it is gone."""
        if segment not in self.infos:
            self.infos[segment] = info_of(self.store, self.name, segment)
        return self.infos[segment]
