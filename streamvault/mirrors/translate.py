"""The *translate* command: positions of a stream in another one with the same history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache

from streamvault.common.errors import Failed, Usage
from streamvault.manifests.archive.archive import Archive
from streamvault.mirrors.reports import TranslateReport, Translation
from streamvault.streamstore.arithmetic.counterparts import common_counterparts
from streamvault.streamstore.arithmetic.cut_option import Cut
from streamvault.streamstore.arithmetic.cuts import EndOf, live_ends, with_ends
from streamvault.streamstore.errors import NoSuchSegment
from streamvault.streamstore.model import (
    Epoch,
    EventPointer,
    SegmentId,
    SegmentInfo,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import is_stream, parse_stream


class NoCounterpart(Failed):
    """The stream has no position that corresponds to the given one."""

    retriable = False


def translate(source: str, stream: str, positions: Sequence[Cut]) -> TranslateReport:
    """Translate event pointers and stream cuts into those of a stream that was restored or copied.

    A restored stream may have other segment numbers (see `import_stream`, ``numbers``); which segments correspond
    follows from the histories of both, up to where they differ. Offsets are not changed; if the stream was restored
    with ``offsets="shift"``, subtract the shifts of the report first.

    Args:
        source: the archive or the stream that the positions belong to.
        stream: the restored stream; the login of its cluster is as for `copy_stream`.
        positions: event pointers as text, and cuts as JSON text or mappings. The offset -1, which Java's reader groups
            write for a segment that was read to its end, becomes that end.

    Returns:
        The positions in the stream, in the same order.

    Raises:
        InvalidCut, InvalidName: a position is neither a cut nor a pointer.
        Usage: a position belongs to another stream.
        NoCounterpart: the histories of source and stream differ from the beginning, or before the segment was created;
            or the stream does not have the position: its segment is shorter or was truncated.
    """
    address, name = parse_stream(stream, target=True)
    with ExitStack() as stack:
        old, old_epochs, end_of = _history(source, stack)
        store = stack.enter_context(address.open())
        described = store.describe(name)
        segments = common_counterparts(old_epochs, described.epochs)
        if not segments:
            raise NoCounterpart(
                "the streams have different histories, so no segments correspond",
                where=f"{source} and {stream}",
                todo="Give the archive or the stream that was restored or copied, and the result.",
            )
        target = _Target(store, described, segments)
        translated = [_translated(position, old, end_of, target) for position in positions]
    return TranslateReport(source=source, stream=stream, positions=tuple(translated))


def _history(uri: str, stack: ExitStack) -> tuple[StreamName, Sequence[Epoch], EndOf]:
    """Return the source's name, its epochs, and what finds the ends of its segments until ``stack`` is closed."""
    if not is_stream(uri):
        archive = Archive.open(uri)
        history = cache(archive.history)  # read only if an end is asked for
        epochs = [epoch.value() for epoch in archive.manifest().epochs]
        return archive.stream, epochs, lambda segment: history().sealed_end(segment)
    address, name = parse_stream(uri)
    store = stack.enter_context(address.open())
    return name, store.describe(name).epochs, live_ends(store, name)


@dataclass(frozen=True, slots=True)
class _Target:
    """The restored stream.

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

    @property
    def name(self) -> StreamName:
        """Its name."""
        return self.described.name

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
        info = self._info(found)
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

    def _info(self, segment: SegmentId) -> SegmentInfo | None:
        if segment not in self.infos:
            self.infos[segment] = None
            with suppress(NoSuchSegment):
                self.infos[segment] = self.store.segment_info(self.name, [segment])[0]
        return self.infos[segment]


def _translated(position: Cut, source: StreamName, end_of: EndOf, target: _Target) -> Translation:
    if not isinstance(position, str) or position.lstrip().startswith("{"):
        cut = StreamCut.from_json(position, ends=True)
        _check_stream(cut.stream, source)
        ends = with_ends(cut, end_of)
        offsets = {target.counterpart(source, segment, at, at): at for segment, at in ends.offsets.items()}
        return Translation(old=cut.to_json(), new=StreamCut(target.name, offsets).to_json())
    pointer = EventPointer.parse(position)
    _check_stream(pointer.stream, source)
    segment = target.counterpart(source, pointer.segment, pointer.offset, pointer.offset + pointer.length)
    new = EventPointer(target.name, segment, pointer.offset, pointer.length)
    return Translation(old=str(pointer), new=str(new))


def _check_stream(found: StreamName, expected: StreamName) -> None:
    if found != expected:
        raise Usage(
            "the position belongs to another stream",
            where=f"{found}, not {expected}",
            todo="Give the archive or the stream that it belongs to first, then the restored one.",
        )
