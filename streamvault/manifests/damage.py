"""Reads archived ranges and compares them with their digests; tells what damage has taken of each, and what is left."""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamvault.common.errors import Damaged
from streamvault.common.neighbours import holes
from streamvault.common.progress import task_progress
from streamvault.common.units import bytes_text, count_text
from streamvault.layouts.archived_range import (
    BLOCK_BYTES,
    CHECKSUM_BYTES,
    ArchivedRange,
    BlockChecksums,
    digest_of,
)
from streamvault.layouts.chain import RangeCheck
from streamvault.layouts.keys import Place, PlaceAddress
from streamvault.layouts.layout import LAYOUTS, open_layout, open_reader
from streamvault.objectstore.bulk import WINDOW_BYTES, as_block
from streamvault.objectstore.store import crc64nvme
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, Range, SegmentId

BESIDES = MAX_EVENT_BYTES
"""How much larger (bytes) than the window a range may be that is buffered: it ends with the event at its edge."""

AHEAD = 16 * 1024 * 1024
"""Data read ahead (bytes) of a range that is buffered whole."""


class DigestMismatch(Damaged):
    """The bytes of a range differ from the manifest, although every object is there with the right size."""


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """An archived range or a part of it, and where its bytes are: a `SourcePart`.

    Attributes:
        address: the archive.
        layout: name of the range's layout or table files.
        row: the range.
        start: offset of the part's first byte; of events, a boundary.
        end: offset after its last byte, likewise.
    """

    address: PlaceAddress
    layout: str
    row: ArchivedRange
    start: int
    end: int

    @classmethod
    def all_of(cls, address: PlaceAddress, layout: str, row: ArchivedRange) -> ArchivedPart:
        """Return all of a range."""
        return cls(address, layout, row, row.start, row.end)

    @property
    def segment(self) -> SegmentId:
        """See `SourcePart`."""
        return self.row.segment

    @property
    def whole(self) -> bool:
        """See `SourcePart`: whether it is all of the range."""
        return (self.start, self.end) == (self.row.start, self.row.end)

    @property
    def events(self) -> int | None:
        """See `SourcePart`: known of all of a range, and of bytes."""
        return self.row.events if self.whole or self.row.content == "bytes" else None

    @property
    def digest(self) -> str:
        """See `SourcePart`: known of all of a range."""
        return self.row.digest if self.whole else ""

    @property
    def is_verified(self) -> bool:
        """See `SourcePart`."""
        return True

    @property
    def place(self) -> Place:
        """The archive."""
        return self.address.open()

    def blocks(self, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:
        """See `SourcePart.blocks`. Nothing is yielded of a range that does not have its digest.

        Raises:
            DigestMismatch, Damaged: as `read_verified`.
        """
        return read_part(replace(self, start=start, end=end), window)


def read_verified(part: ArchivedPart, window: int = WINDOW_BYTES) -> Iterator[bytes | memoryview]:
    """Yield all bytes of a part's range, as blocks that may split events; the digest is verified after the last block.

    Args:
        part: all of the range or a part of it.
        window: maximum data buffered in memory (bytes).

    Raises:
        DigestMismatch: the bytes differ from the manifest.
        Damaged: an object is missing or has the wrong size; names it.
    """
    digest, done, row = hashlib.sha256(), task_progress(), part.row
    for block in open_reader(part.layout).read_range(part.place, row, row.start, row.end, window):
        digest.update(block)
        done.read(len(block))
        yield block
    if digest.hexdigest() != row.digest:
        raise damaged_range(part)


def read_part(part: ArchivedPart, window: int = WINDOW_BYTES, *, verify: bool = True) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a part, once its whole range has been compared with its digest.

    A range that fits into the window is buffered; a larger one is read twice.

    Args:
        part: the part.
        window: maximum data buffered in memory (bytes), besides an event of 8 MiB and what is read ahead.
        verify: False: yield the bytes as they are read. The digest is compared after the last block of a whole range;
            that of a part is not.

    Raises:
        DigestMismatch, Damaged: as `read_verified`.
    """
    if verify and part.start < part.end:
        held = part.row.end - part.row.start <= window + BESIDES
        blocks = deque[bytes | memoryview]()
        for block in read_verified(part, min(window, AHEAD) if held else window):
            if held:
                blocks.append(block)
        if held:
            yield from _within(blocks, part)
            return
    if part.whole:
        yield from read_verified(part, window)
    else:
        yield from open_reader(part.layout).read_range(part.place, part.row, part.start, part.end, window)


def compared_blocks(part: ArchivedPart, window: int = WINDOW_BYTES) -> memoryview:
    """Return the bytes of a part once each block of it has been compared with its checksum.

    A checksum finds rot, not forgery: `read_part` compares with the digest.

    Args:
        part: a few whole blocks (`BLOCK_BYTES`) of a range that has their checksums.
        window: as for `read_verified`.

    Raises:
        DigestMismatch: a block differs, or bytes are missing.
        Damaged: as `read_verified`.
    """
    row, noted = part.row, base64.b64decode(part.row.block_checksums)
    data = as_block(open_reader(part.layout).read_range(part.place, row, part.start, part.end, window))
    if len(data) != part.end - part.start:
        raise damaged_range(part)
    first = (part.start - row.start) // BLOCK_BYTES
    for number, at in enumerate(range(0, len(data), BLOCK_BYTES), first):
        checksum = noted[number * CHECKSUM_BYTES : (number + 1) * CHECKSUM_BYTES]
        if crc64nvme(data[at : at + BLOCK_BYTES]) != base64.b64encode(checksum).decode():
            raise damaged_range(part)
    return data


def _within(blocks: deque[bytes | memoryview], part: ArchivedPart) -> Iterator[bytes | memoryview]:
    """Yield what a part has of the blocks of its range, and let go of each."""
    at = part.row.start
    while blocks:
        block = blocks.popleft()
        low, high = max(part.start - at, 0), min(part.end - at, len(block))
        at += len(block)
        if low < high:
            yield block if high - low == len(block) else memoryview(block)[low:high]


def damaged_range(part: ArchivedPart) -> DigestMismatch:
    """Return the error for a range whose bytes do not match its manifest."""
    place, row = part.place, part.row
    return DigestMismatch(
        "the archive's bytes do not match the manifest",
        where=f"{place.at(place.prefix)}{row.segment} bytes {row.start} to {row.end}",
        todo="Run 'streamvault check --read-data' on the archive.",
    )


@dataclass(frozen=True, slots=True)
class Lost(Range):
    """Bytes of a segment that cannot be read, or are not those that were archived.

    Attributes:
        events: number of lost events; None if a range lacks several parts, and it is not known how many of its lost
            events are in this one.
        what: what is wrong.
    """

    events: int | None
    what: str


@dataclass(frozen=True, slots=True)
class Remains:
    """What a damaged range still holds.

    Attributes:
        rows: the intact parts, in order, each with the digest of the bytes that it has now.
        lost: the others, in order.
    """

    rows: tuple[ArchivedRange, ...]
    lost: tuple[Lost, ...]


def lost_text(events: int | None, size: int) -> str:
    """Format how much is lost: ``3 events (1.2 KiB) lost``."""
    if events is None:
        return f"events of {bytes_text(size)} lost"
    return f"{count_text(events, 'event')} ({bytes_text(size)}) lost" if events else f"{bytes_text(size)} lost"


def whole(row: ArchivedRange, what: str) -> Lost:
    """Return the damage that covers a range."""
    return Lost(row.segment, row.start, row.end, row.events, what)


def uncompared(damage: tuple[Lost, ...], listed: RangeCheck) -> tuple[Lost, ...]:
    """Return the damage that a range's listing shows, with what cannot be known of the range's other objects.

    A range has one digest. So nothing shows whether other objects are changed, if one is missing or has a wrong size.
    """
    if not damage or not listed.events:
        return damage
    rest = f"the {count_text(listed.events, 'other object')} of the range cannot be compared with its digest"
    return (*damage[:-1], replace(damage[-1], what=f"{damage[-1].what}; {rest}"))


def damage_of(part: ArchivedPart, checksums: BlockChecksums | None = None) -> tuple[Lost, ...]:
    """Compare a part's range with its digest and its events; return the damage: none, or one that covers the range.

    If ``checksums`` are given, what was read is appended to them.
    """
    from streamvault.streamstore.events import (  # noqa: PLC0415
        open_splitter,  # imports numpy, which read-only commands do not need
    )

    row, events, what = part.row, 0, ""
    splitter = open_splitter("bytes" if row.is_large else row.content, row.start, str(row.segment))
    head = bytearray()
    try:
        for block in read_verified(part) if checksums is None else checksums.of(read_verified(part)):
            head += memoryview(block)[: HEADER_BYTES - len(head)]
            if what:
                continue  # the digest says more
            try:
                events += sum(some.count for some in splitter.feed(block))
            except NotAnEvent as error:
                what = error.what
        splitter.finish()
    except NotAnEvent as error:
        what = what or error.what
    except DigestMismatch as mismatch:
        return (whole(row, mismatch.what),)
    except Damaged as damaged:
        return (whole(row, str(damaged)),)
    if row.is_large and int.from_bytes(head) != row.end - row.start - HEADER_BYTES:
        what = "it is not the one event that the index says"
    elif not row.is_large and events != row.events:
        what = what or f"it has {count_text(events, 'event')}, and the index says {row.events:,}"
    return (whole(row, f"the range matches its digest, but {what}"),) if what else ()


def listed_damage(listed: RangeCheck, row: ArchivedRange) -> tuple[Lost, ...]:
    """Return the damage that a range's listing shows, as far as `RangeCheck.damage` has it."""
    if not listed.damaged and listed.events not in {None, row.events}:
        return (replace(whole(row, f"{listed.events} events instead of {row.events}"), events=None),)
    if listed.events is None:
        return tuple(whole(row, f"{finding.what} ({finding.key})") for finding in listed.damage)
    missing = sum(finding.kind != "changed" for finding in listed.damage)
    rest = row.events - listed.events - (len(listed.damage) - missing)
    known = rest if missing == 1 and listed.damaged == len(listed.damage) else None
    return tuple(
        Lost(
            row.segment,
            finding.start,
            finding.end,
            1 if finding.kind == "changed" else known,
            f"{finding.what} ({finding.key})",
        )
        for finding in listed.damage
    )


def find_remains(origin: ArchivedPart) -> Remains | None:
    """Read a range; return what is left of it if it is damaged, None if it is intact.

    A range has one digest, so nothing shows which bytes of it are right if any differs. The exception is a range with
    an object for each event, some of which are missing or have the wrong size: the others up to the first missing one
    are on the chain that begins with the range. Behind a missing object the listing proves no event, as an object there
    may be one that never belonged to the chain.
    """
    damage = damage_of(origin)
    if not damage:
        return None
    row, rows, known, what = origin.row, tuple[ArchivedRange, ...](), tuple[Lost, ...](), damage[0].what
    if origin.layout in LAYOUTS:
        layout = open_layout(origin.layout)
        listed = layout.check_range(origin.place, row)
        known = listed_damage(listed, row)
        rows = tuple(_intact_rows(origin, listed)) if layout.one_object_per_event else ()
    left = row.events - sum(each.events for each in rows)
    gone = list(holes(row.start, row.end, ((part.start, part.end) for part in rows)))
    counts = [None] * len(gone) if len(gone) > 1 else [left]
    return Remains(
        rows,
        tuple(
            Lost(row.segment, *hole, count, _all_within(hole, known) or what)
            for hole, count in zip(gone, counts, strict=True)
        ),
    )


def _all_within(hole: tuple[int, int], known: tuple[Lost, ...]) -> str:
    """Return all that is known to be wrong in a hole."""
    return "; ".join(one.what for one in known if hole[0] <= one.start < hole[1])


def _intact_rows(origin: ArchivedPart, listed: RangeCheck) -> Iterator[ArchivedRange]:
    row = origin.row
    if listed.stray or not listed.damaged:
        return  # a stray object may have the place of a missing one; a digest does not show which object is wrong
    at = row.start
    for finding in listed.damage:
        yield from _row_of(origin, at, finding.start)
        at = finding.end
        if finding.kind != "changed":
            return
    if len(listed.damage) == listed.damaged:
        yield from _row_of(origin, at, row.end)


def _row_of(origin: ArchivedPart, start: int, end: int) -> Iterator[ArchivedRange]:
    """Yield the part of a range as a range of its own, if it is not empty and can be read."""
    part = replace(origin.row, start=start, end=end, digest="", frames=(), crc64nvme="", block_checksums="")
    if start >= end:
        return
    try:
        digest = digest_of(open_reader(origin.layout).read_range(origin.place, part, start, end))
    except Damaged:
        return
    events = open_layout(origin.layout).check_range(origin.place, part).events or 0
    yield replace(part, events=events, digest=digest)
