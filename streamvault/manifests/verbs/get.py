"""The *get* command: one event of an archive."""

from __future__ import annotations

from streamvault.common.errors import Failed, Usage
from streamvault.common.options import verb
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart, read_verified
from streamvault.manifests.history import Generation
from streamvault.manifests.listing import Listing
from streamvault.manifests.options import GetOptions
from streamvault.objectstore.store import NoSuchObject, WrongSize
from streamvault.streamstore.model import HEADER_BYTES, EventPointer


class NoSuchEvent(Failed):
    """The archive has no event at the pointer."""


@verb(GetOptions)
def get_event(archive: str, pointer: str, options: GetOptions) -> bytes:
    """Return the payload of one event, once the range that holds it has been read and compared with its digest.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        pointer: as printed by the Java client: ``scope/stream/N.#epoch.E:OFFSET-LENGTH``.
        unverified: read the event alone, by one request (besides the manifests that locate it). A range has one digest,
            so nothing is compared with one then; in compressed chunks, the checksum of a mebibyte is.

    Raises:
        NoSuchEvent: the archive does not have the event.
        InvalidName: the pointer is not valid.
        Usage: the pointer is of another stream, or the archive is of a byte stream.
        NoSuchArchive: there is no archive.
        Damaged: the object that should hold the event is missing or has the wrong size, or the range is damaged.
    """
    event = EventPointer.parse(pointer)
    source = Archive.open(archive)
    if event.stream != source.stream:
        raise Usage("the pointer is of another stream", where=f"{event.stream}, not {source.stream}")
    generation = _holding(source, event)
    rows = generation.rows.get(event.segment, ())
    row = next((row for row in rows if row.start <= event.offset and event.offset + event.length <= row.end), None)
    if row is None:
        gap = next((g for g in generation.manifest.gaps if g.id == event.segment), None)
        raise NoSuchEvent("no archived range holds this event", where=f"{event}{f' ({gap.reason})' if gap else ''}")
    layout = open_layout(generation.manifest.layout)
    if not options.unverified:
        for _ in read_verified(ArchivedPart.all_of(source.address, layout.name, row)):
            pass
    try:
        framed = layout.read_event(source.place, row, event.offset, event.length)
    except (NoSuchObject, WrongSize):
        todo = "A pointer is an event's offset and length. 'streamvault check' shows if the archive is damaged."
        raise NoSuchEvent("the archive has no event at this pointer", where=str(event), todo=todo) from None
    return framed[HEADER_BYTES:]


def _holding(archive: Archive, event: EventPointer) -> Generation:
    """Return the generation whose cuts enclose the event; only its index is read."""
    archive.manifest().require_events(archive.uri)

    def find(listing: Listing) -> Generation:
        for span in reversed(listing.spans):
            for entry in archive.read_manifest(span).segments:
                if entry.id == event.segment and entry.start <= event.offset < entry.end:
                    return archive.load_span(span)
        todo = "'streamvault timeline --wide' lists the archived cuts."
        raise NoSuchEvent("the event is outside the archive", where=str(event), todo=todo)

    return archive.stable(find)
