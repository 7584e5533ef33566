"""The *ls*, *show* and *get* commands."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from streamvault.common.at_once import each_of
from streamvault.common.errors import Absent, Damaged, Failed, Usage
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.units import moment_text
from streamvault.layouts.keys import MANIFESTS, TABLES, WORK, GenerationSpan, parse_segment
from streamvault.layouts.layout import LAYOUTS, open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart, read_verified
from streamvault.manifests.decisions import valid_mark
from streamvault.manifests.history import Generation
from streamvault.manifests.listing import Listing
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.options import GetOptions
from streamvault.manifests.verbs.overview import Gather, Overview, overview_of, summary_of
from streamvault.manifests.verbs.reports import ArchiveSummary, Timeline, TimelineEntry
from streamvault.objectstore.bulk import list_records
from streamvault.objectstore.store import (
    AccessDenied,
    InvalidKey,
    InvalidRoot,
    NoSuchObject,
    ObjectStore,
    WrongSize,
    is_path,
)
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.errors import InvalidName
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import ANY_EVENT_BYTES, HEADER_BYTES, EventPointer, StreamName


def list_archives(place: str | os.PathLike[str], *, progress: Progress | None = None) -> list[ArchiveSummary]:
    """Return all archives and tables in a folder and the folders below it, in the order of their paths.

    Lists each folder once, but never an archive's events or chunks: an archive takes a LIST, a GET for the newest
    manifest, one for its mark if it was read back, two for the newest decision and the oldest manifest if generations
    have expired, and one for each generation that an earlier release has written; the first archive in a folder takes
    another LIST.

    Args:
        place: a root, a folder above roots, or one archive: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
        progress: is told how many archives were read, after each hundred.

    Raises:
        NoSuchPlace: the folder does not exist or is empty.
        Problem: the folder cannot be read. An unreadable archive or folder below it is returned with its `problem`.
    """
    archives: list[ArchiveSummary] = []
    for found in find_archives(place):
        archives.append(found.summary)
        if progress is not None and len(archives) % SAID_AFTER == 0:
            progress.say(f"{len(archives):,} archives read")
    return archives


def find_archives(
    place: str | os.PathLike[str],
    matches: Callable[[str], bool] | None = None,
    gather: Gather | None = None,
) -> Iterator[Overview]:
    """Yield what `list_archives` returns, with what was read of each; errors likewise.

    Args:
        place: as for `list_archives`.
        matches: whether a folder of the place is looked at, given its name; None: all are.
        gather: as for `overview_of`. It is called by several threads.
    """
    address = RootAddress.parse(place).resolve()
    found = None
    for found in _Folders(address, matches, gather).archives([""]):
        yield found
    if found is None:
        _check_there(address)


def show_archive(archive: str | os.PathLike[str], *, generation: int | None = None) -> Manifest:
    """Return a generation's manifest.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        generation: the generation's number; None for the newest.

    Raises:
        NoSuchArchive: there is no archive, or no such generation.
        Damaged: the manifest is not valid.
    """
    return Archive.open(archive).manifest(generation)


def show_timeline(archive: str | os.PathLike[str]) -> Timeline:
    """Return the generations in force, with their times, cuts, holds and marks.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.

    Raises:
        NoSuchArchive: there is no archive.
        Damaged: a manifest is missing or not valid. A mark that is not valid does not count.
    """
    source = Archive.open(archive)
    return source.stable(
        lambda listing: Timeline(
            archive=source.uri,
            stream_name=str(source.stream),
            expired_up_to=listing.dropped,
            being_deleted=bool(listing.decision.deletion),
            decision=listing.decision.title if listing.decision.number else "",
            entries=tuple(_entry(source, listing, span) for span in source.in_force(listing)),
        )
    )


def _entry(source: Archive, listing: Listing, span: GenerationSpan) -> TimelineEntry:
    manifest, fingerprint = source.read_fingerprinted(span)
    noted = manifest.reader_groups
    mark = valid_mark(source.store, manifest, fingerprint) if span.last in listing.checked else None
    return TimelineEntry(
        generation=span.last,
        first=span.first,
        created=moment_text(manifest.created),
        from_cut=manifest.from_.to_json(),
        to_cut=manifest.to.to_json(),
        layout=manifest.layout,
        events=manifest.events,
        bytes=manifest.bytes,
        holds=listing.holds.get(span.last, ()),
        checked_at="" if mark is None else moment_text(mark.created),
        group_names=None if noted is None else tuple(group.name for group in noted),
    )


_RECORDS = frozenset(folder.rstrip("/") for folder in (MANIFESTS, TABLES, WORK))
"""The folders by which an archive, a table or an unfinished archive is recognized."""

_OWN = _RECORDS | {open_layout(name).keys.root.rstrip("/") for name in LAYOUTS} | {"table"}
"""The folders of an archive, which contain no other archives."""

SAID_AFTER = 100
"""Archives; how often `list_archives` says how far it is."""


class NoSuchPlace(Absent):
    """There is no such folder, nor any object whose key has the prefix."""


class _Folders:
    """The folders below an address; archives and tables are recognized by the names of folders.

    Args:
        address: the address.
        matches: whether a folder of the address is looked at, given its name; None: all are.
        gather: as for `overview_of`.
    """

    def __init__(self, address: RootAddress, matches: Callable[[str], bool] | None, gather: Gather | None) -> None:
        self._address, self._matches, self._gather, self._store = address, matches, gather, address.open()
        # the folders that archives were found in: what else is there is probably an archive, too
        self._above: set[str] = set()

    def archives(self, paths: list[str]) -> Iterator[Overview]:
        """Yield the archives and tables in some folders of one folder and below, and each unreadable folder."""
        # the first folder tells what the others probably are
        for found, below in chain(map(self._look, paths[:1]), each_of(self._look, paths[1:])):
            yield from found
            if below:
                yield from self.archives(below)

    def _look(self, path: str) -> tuple[list[Overview], list[str]]:
        """Return what is in a folder, or the folders below it."""
        address = self._address
        try:
            if address.folder is None and path.rpartition("/")[0] in self._above and is_path(path):
                folders, keys = _records(self._store, f"{path}/")
                if found := list(self._archives_in(address.below(path), folders, keys)):
                    return found, []
            names = _folders(address, self._store, path)
        except AccessDenied as problem:
            if not path:
                raise
            summary = ArchiveSummary(archive=address.below(path).uri, stream_name="", problem=str(problem))
            return [Overview(None, summary)], []
        own = _RECORDS.intersection(names)
        if own:
            if found := list(self._archives_in(address.below(path), own)):
                self._above.add(path.rpartition("/")[0])
                return found, []
            own = _OWN
        return [], [each for each in self._below(path, names, own) if not _is_loop(address, each)]

    def _archives_in(
        self, address: RootAddress, folders: Container[str], keys: list[str] | None = None
    ) -> Iterator[Overview]:
        """Yield the archive at an address, and its tables.

        Args:
            address: the archive's.
            folders: which of `_RECORDS` it has.
            keys: all keys of its manifests, relative to it, if they were listed.
        """
        try:
            root, scope, stream = address.split()
            name = StreamName(scope, stream)
        except (InvalidRoot, InvalidName):
            return  # a foreign folder
        archive = Archive(root, name)
        found: list[Archive] = [archive]
        unreadable = []
        for table in archive.tables() if TABLES.rstrip("/") in folders else ():
            try:
                found.append(archive.table_archive(table))
            except InvalidKey:  # a foreign folder
                continue
            except (AccessDenied, Damaged) as problem:
                unreadable.append(Overview(None, summary_of(archive, table, problem)))
        for each in found:
            has_plan = WORK.rstrip("/") in folders and not each.table
            held = None if each.table else keys
            if (one := overview_of(each, held, has_plan=has_plan, gather=self._gather)) is not None:
                yield one
        yield from unreadable

    def _below(self, path: str, names: Iterable[str], own: Container[str]) -> Iterator[str]:
        for name in names:
            # A foreign key may have an empty part. A segment's folder may have an object for each event.
            if name and name not in own and not parse_segment(name):
                if path:
                    yield f"{path}/{name}"
                elif self._matches is None or self._matches(name):
                    yield name


def _records(store: ObjectStore, folder: str) -> tuple[set[str], list[str]]:
    """Return which of `_RECORDS` a folder has, and all keys of its manifests, relative to it: mostly by one LIST."""
    found: set[str] = set()
    keys: list[str] = []
    after: str | None = folder + min(_RECORDS)
    while after is not None:
        start, after = after, None
        for entry in list_records(store, folder, start):
            key = entry.key.removeprefix(folder)
            name = key.partition("/")[0]
            if name > max(_RECORDS):
                break
            found.add(name)
            if f"{name}/" == MANIFESTS:
                keys.append(key)
            else:
                after = f"{folder}{name}0"  # sorts behind all that is in that folder
                break
    return found & _RECORDS, keys


def _folders(address: RootAddress, store: ObjectStore, path: str) -> Sequence[str]:
    if address.folder is not None:  # a local folder may have any name, and contain links
        return _local_folders(address.folder / path, address)
    return store.folders(f"{path}/" if path else "") if not path or is_path(path) else ()


def _local_folders(folder: Path, address: RootAddress) -> Sequence[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise AccessDenied(f"the folder cannot be read ({error.strerror})", where=address.uri) from None


def _is_loop(address: RootAddress, path: str) -> bool:
    """Check whether a folder is a link to one that contains it."""
    if address.folder is None:
        return False
    folder = address.folder / path
    return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())


def _check_there(address: RootAddress) -> None:
    is_there = (
        address.folder.is_dir()
        if address.folder is not None
        else not address.prefix or any(True for _ in address.open().list(""))
    )
    if not is_there:
        is_file = address.folder is not None and address.folder.exists()
        what = "it is a file, not a folder" if is_file else "no such folder"
        raise NoSuchPlace(what, where=address.uri, todo="Check the address.")


class NoSuchEvent(Failed):
    """The archive has no event at the pointer."""


@verb(GetOptions)
def get_event(archive: str, pointer: str, options: GetOptions) -> bytes:
    """Return the payload of one event, once the range that holds it has been read and compared with its digest.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        pointer: as printed by the Java client: ``scope/stream/N.#epoch.E:OFFSET-LENGTH``.
        unverified: read the event alone, by one request (besides the manifests that locate it). A range has one digest,
            so nothing is compared with one then; in compressed chunks, the checksum of a mebibyte is. In layout events,
            the object at the pointer is returned, which is a stray if the pointer is not an event's.

    Raises:
        NoSuchEvent: the archive does not have the event.
        InvalidName: the pointer is not valid.
        Usage: the pointer belongs to another stream, or the archive is of a byte stream.
        NoSuchArchive: there is no archive.
        Damaged: the object that should hold the event is missing or has the wrong size, or the range is damaged.
    """
    event = EventPointer.parse(pointer)
    source = Archive.open(archive)
    if event.stream != source.stream:
        raise Usage("the pointer belongs to another stream", where=f"{event.stream}, not {source.stream}")
    generation = _holding(source, event)
    rows = generation.rows.get(event.segment, ())
    row = next((row for row in rows if row.start <= event.offset and event.offset + event.length <= row.end), None)
    if row is None:
        gap = next((g for g in generation.manifest.gaps if g.id == event.segment), None)
        raise NoSuchEvent("no archived range holds this event", where=f"{event}{f' ({gap.reason})' if gap else ''}")
    layout = open_layout(generation.manifest.layout)
    todo = "A pointer is an event's offset and length. 'streamvault check' shows if the archive is damaged."
    missing = NoSuchEvent("the archive has no event at this pointer", where=str(event), todo=todo)
    if not options.unverified:
        payload = _compared(ArchivedPart.all_of(source.address, layout.name, row), event.offset)
        if payload is None or HEADER_BYTES + len(payload) != event.length:
            raise missing
        return payload
    try:
        return layout.read_event(source.place, row, event.offset, event.length)[HEADER_BYTES:]
    except (NoSuchObject, WrongSize):
        raise missing from None


def _compared(part: ArchivedPart, offset: int) -> bytes | None:
    """Return the payload of the event that begins at an offset, from the very bytes that the digest is compared with.

    Returns:
        None if no event begins there.

    Raises:
        Damaged: as for `read_verified`; or the range holds no events, although it has its digest.
    """
    from streamvault.streamstore.events import EventSplitter  # noqa: PLC0415  (imports numpy, which `ls` does without)

    blocks, found = read_verified(part), None
    splitter = EventSplitter(part.row.start, str(part.segment), largest=ANY_EVENT_BYTES)
    try:
        for block in blocks:
            for whole in splitter.feed(block):
                if whole.offset <= offset < whole.end:
                    found = next((bytes(payload) for at, payload in whole.events() if at == offset), None)
        splitter.finish()
    except NotAnEvent as error:
        for _ in blocks:  # raises if its bytes are others
            pass
        raise Damaged(error.what, where=error.where) from None
    return found


def _holding(archive: Archive, event: EventPointer) -> Generation:
    """Return the generation whose cuts enclose the event; only its index is read."""
    archive.manifest().require_events(archive.uri)

    def find(listing: Listing) -> Generation:
        read = archive.read_manifest
        likely = bisect_left(listing.spans, 0, key=lambda span: _beside(read(span), event))
        # cuts follow each other, but what follows from that is not believed: where nothing is found, all are read
        for span in (*listing.spans[likely : likely + 1], *reversed(listing.spans)):
            for entry in read(span).segments:
                if entry.id == event.segment and entry.start <= event.offset < entry.end:
                    return archive.load_span(span)
        todo = "'streamvault timeline --wide' lists the archived cuts."
        raise NoSuchEvent("the event is outside the archive", where=str(event), todo=todo)

    return archive.stable(find)


def _beside(manifest: Manifest, event: EventPointer) -> int:
    """Return -1 for a generation that is before the one with an event, 1 for one that is behind it, else 0."""
    entry = next((one for one in manifest.segments if one.id == event.segment), None)
    if entry is not None:
        return (event.offset < entry.start) - (event.offset >= entry.end)
    newest = max((segment.epoch for segment in manifest.to.offsets), default=0)
    return -1 if event.segment.epoch > newest else 1
