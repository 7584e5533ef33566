"""The *translate* command: positions of a stream in another one with the same history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.errors import Failed, Usage
from importer.reports import TranslateReport, Translation
from manifests.archive import Archive
from streamstore.counterparts import counterparts
from streamstore.cut_option import Cut
from streamstore.model import Epoch, EventPointer, SegmentId, StreamCut, StreamName
from streamstore.uri import is_stream, parse_stream

__all__ = ["NoCounterpart", "translate"]


class NoCounterpart(Failed):
    """The stream has no position that corresponds to the given one."""

    retriable = False


def translate(source: str, stream: str, positions: Sequence[Cut]) -> TranslateReport:
    """Translate event pointers and stream cuts into those of a stream that was restored or copied.

    A restored stream may have other segment numbers (see `import_stream`, ``numbers``); which segments correspond
    follows from the histories of both. Offsets are those of the source, so the stream must not have been restored with
    ``offsets="shift"``.

    Args:
        source: the archive or the stream that the positions belong to.
        stream: the restored stream.
        positions: event pointers as text, and cuts as JSON text or mappings.

    Returns:
        The positions in the stream, in the same order.

    Raises:
        InvalidCut, InvalidName: a position is neither a cut nor a pointer.
        Usage: a position belongs to another stream.
        NoCounterpart: the histories of source and stream differ, or the stream does not have a segment.
    """
    old, old_epochs = _history(source)
    new, new_epochs = _history(stream)
    segments = counterparts(old_epochs, new_epochs)
    if segments is None:
        raise NoCounterpart(
            "the streams have different histories, so no segments correspond",
            where=f"{source} and {stream}",
            todo="Give the archive or the stream that was restored or copied, and the result.",
        )
    translated = [_translated(position, old, new, segments) for position in positions]
    return TranslateReport(source=source, stream=stream, positions=tuple(translated))


def _history(uri: str) -> tuple[StreamName, Sequence[Epoch]]:
    if not is_stream(uri):
        archive = Archive.open(uri)
        return archive.stream, [epoch.value() for epoch in archive.manifest().epochs]
    address, name = parse_stream(uri)
    with address.open() as store:
        return name, store.describe(name).epochs


def _translated(
    position: Cut, source: StreamName, target: StreamName, segments: Mapping[SegmentId, SegmentId]
) -> Translation:
    def counterpart(segment: SegmentId) -> SegmentId:
        if segment not in segments:
            raise NoCounterpart("no segment of the stream corresponds to this one", where=segment.in_stream(source))
        return segments[segment]

    if not isinstance(position, str) or position.lstrip().startswith("{"):
        cut = StreamCut.from_json(position)
        _check_stream(cut.stream, source)
        offsets = {counterpart(segment): offset for segment, offset in cut.offsets.items()}
        return Translation(old=cut.to_json(), new=StreamCut(target, offsets).to_json())
    pointer = EventPointer.parse(position)
    _check_stream(pointer.stream, source)
    new = EventPointer(target, counterpart(pointer.segment), pointer.offset, pointer.length)
    return Translation(old=str(pointer), new=str(new))


def _check_stream(found: StreamName, expected: StreamName) -> None:
    if found != expected:
        raise Usage("the position belongs to another stream", where=f"{found}, not {expected}")
