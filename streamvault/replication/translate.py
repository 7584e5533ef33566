"""The *translate* command: positions of a stream in another one with the same history."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache

from streamvault.common.errors import Usage
from streamvault.importer.plan import TargetPositions
from streamvault.manifests.archive import Archive
from streamvault.replication.reports import TranslateReport, Translation
from streamvault.sources.reader_groups import look_at_group
from streamvault.streamstore.cuts import Cut, EndOf, live_ends, with_ends
from streamvault.streamstore.model import Epochs, EventPointer, StreamCut, StreamName
from streamvault.streamstore.uri import is_stream, open_stream


def translate(
    source: str, stream: str, positions: Sequence[Cut] = (), reader_groups: Sequence[str] = ()
) -> TranslateReport:
    """Translate event pointers and stream cuts into those of a stream that was restored or copied.

    A restored stream may have other segment numbers (see `import_stream`, ``numbers``); which segments correspond
    follows from the histories of both, up to where they differ. Offsets are not changed; if the stream was restored
    with ``offsets="shift"``, subtract the shifts of the report first.

    Args:
        source: the archive or the stream that the positions belong to.
        stream: the restored stream; the login of its cluster is as for `copy_stream`.
        positions: event pointers as text, and cuts as JSON text or mappings. The offset -1, which Java's reader groups
            write for a segment that was read to its end, becomes that end.
        reader_groups: names of reader groups of the source, a Pravega stream, or those that an archive's newest
            generation has noted; their positions are translated, too.

    Returns:
        The positions in the stream, in the same order; those of reader groups follow.

    Raises:
        InvalidCut, InvalidName: a position is neither a cut nor a pointer.
        Usage: a position belongs to another stream; or a reader group is named, and there is none of that name that
            reads the source, or that the archive has noted.
        UnreadableReaderGroup: a reader group's state is of a client that is not known here.
        NoCounterpart: the histories of source and stream differ from the beginning, or before the segment was created;
            or the stream does not have the position: its segment is shorter or was truncated.
    """
    with ExitStack() as stack:
        origin = stack.enter_context(open_stream(source)) if is_stream(source) else None
        restored = stack.enter_context(open_stream(stream, target=True))
        if origin is None:
            groups = {name: _noted_position(source, name) for name in reader_groups}
            old, epochs, end_of = _history(source)
        else:
            groups = {name: look_at_group(origin.store, origin.name, name) for name in reader_groups}
            old, epochs, end_of = origin.name, origin.describe().epochs, live_ends(origin.store, origin.name)
        target = TargetPositions.of(epochs, source, restored)
        translated = [_translated(position, old, end_of, target) for position in positions]
        for name, cut in groups.items():
            new = target.cut(cut)
            translated.append(Translation(old=cut.to_json(), new=new.to_json(), reader_group=name))
    return TranslateReport(source=source, stream=stream, positions=tuple(translated))


def _noted_position(archive_uri: str, name: str) -> StreamCut:
    """Return the position of a reader group in an archive's newest generation.

    Raises:
        Usage: it has noted none of this name, or no position.
    """
    manifest = Archive.open(archive_uri).manifest()
    found = next((one for one in manifest.reader_groups or () if one.name == name), None)
    if found is not None and found.position is not None:
        return found.position
    what = f"generation {manifest.generation} has recorded no position of a reader group {name}"
    todo = "'streamvault show' prints those that it has; 'streamvault export --reader-groups' records them."
    raise Usage(what, where=archive_uri, todo=todo)


def _history(archive_uri: str) -> tuple[StreamName, Epochs, EndOf]:
    """Return an archived stream's name, its epochs, and what finds the ends of its segments."""
    archive = Archive.open(archive_uri)
    history = cache(archive.history)  # read only if an end is asked for
    return archive.stream, archive.manifest().epochs, lambda segment: history().sealed_end(segment)


def _translated(position: Cut, source: StreamName, end_of: EndOf, target: TargetPositions) -> Translation:
    if not isinstance(position, str) or position.lstrip().startswith("{"):
        cut = StreamCut.from_json(position, ends=True)
        _check_stream(cut.stream, source)
        ends = with_ends(cut, end_of)
        return Translation(old=cut.to_json(), new=target.cut(ends).to_json())
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
