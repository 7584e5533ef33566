"""Rows: notes of finished spans, which no later run needs to move again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Damaged
from streamvault.layouts.object_keys import GenerationSpan, parse_row, row_key, work_folder
from streamvault.layouts.place import Place
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.manifests.format.field_types import Checksum, Count, Digest, Offset
from streamvault.manifests.format.jsonfile import File, Model, decide_file, decode
from streamvault.objectstore.bulk import get_all
from streamvault.objectstore.errors import NoSuchObject
from streamvault.objectstore.store import SMALL, ObjectInfo
from streamvault.streamstore.model import HEADER_BYTES, SegmentId


class RangeEntry(Model):
    """An archived range: contiguous events.

    `digest` is the SHA-256 of the segment's bytes from `start` to `end`; `frames` are the sizes of a compressed
    object's frames; `crc64nvme` is the checksum of the object's bytes, empty if there is more than one object.
    """

    start: Offset
    end: Offset
    events: Count
    digest: Digest
    frames: tuple[Count, ...] = ()
    crc64nvme: Checksum = ""

    def of_segment(self, segment: SegmentId) -> ArchivedRange:
        """Return the row for the index."""
        return ArchivedRange(
            segment, self.start, self.end, self.events, self.digest, self.frames, crc64nvme=self.crc64nvme
        )


class Gap(Model):
    """Bytes that were truncated during the run."""

    start: Offset
    end: Offset
    reason: str


class FinishedSpan(File):
    """A finished span: usually one range; ranges and gaps if the source was truncated meanwhile.

    Attributes:
        start: offset of its first event, which is also in the row's key.
        end: start of the next one.
        ranges: the archived events, in order; ``pieces`` in the file.
        gaps: the truncated bytes, in order. A gap that ends at `start` means that it begins at the source's new head.
    """

    start: Offset
    end: Offset
    ranges: Annotated[tuple[RangeEntry, ...], Field(alias="pieces")]
    gaps: tuple[Gap, ...] = ()

    @property
    def events(self) -> int:
        """Number of archived events."""
        return sum(each.events for each in self.ranges)

    @property
    def bytes(self) -> int:
        """Number of archived segment bytes."""
        return sum(each.end - each.start for each in self.ranges)

    @property
    def follows_truncation(self) -> bool:
        """Whether everything before `start` has been truncated at the source."""
        return any(gap.end == self.start for gap in self.gaps)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        inside = [(gap.start, gap.end) for gap in self.gaps if gap.end != self.start]
        at = self.start
        for start, end in sorted([*inside, *((each.start, each.end) for each in self.ranges)]):
            if start != at or end < start:
                raise ValueError(f"ranges and gaps are not contiguous at {at}")
            at = end
        if at != self.end:
            raise ValueError(f"ranges and gaps end at {at}, the span at {self.end}")
        if any(each.events * HEADER_BYTES > each.end - each.start for each in self.ranges):
            raise ValueError("a range has more events than fit its size")
        return self


def leave_row(
    place: Place, span: GenerationSpan, segment: SegmentId, row: FinishedSpan, *, attempt: int = 1
) -> FinishedSpan:
    """Write a row, create-only; return the row in the store, which is another run's if that was first.

    Raises:
        Damaged: the existing row cannot be read.
    """
    store, prefix = place
    key = prefix + row_key(span, segment, row.start, attempt)
    return _checked(decide_file(store, key, row)[0], row.start, f"{store.uri}/{key}")


def find_rows(place: Place, span: GenerationSpan, *, attempt: int = 1) -> Iterator[tuple[SegmentId, FinishedSpan]]:
    """Yield the rows of a generation, in the stream's order; many are read concurrently.

    They end early if another run publishes the generation and deletes its rows meanwhile.

    Raises:
        Damaged: a row cannot be read.
    """
    store, prefix = place
    sized = ((found.key, min(found.size, SMALL)) for found in _listed(place, span, attempt))
    try:
        for name, data in get_all(store, sized):
            key = parse_row(name.removeprefix(prefix))
            if key is not None:
                where = f"{store.uri}/{name}"
                yield key.segment, _checked(decode(FinishedSpan, data, where), key.offset, where)
    except NoSuchObject:
        return


def count_rows(place: Place, span: GenerationSpan, *, attempt: int) -> int:
    """Return the number of a generation's rows: one LIST for a thousand, and none is read."""
    return sum(1 for _ in _listed(place, span, attempt))


def _listed(place: Place, span: GenerationSpan, attempt: int) -> Iterator[ObjectInfo]:
    store, prefix = place
    for found in store.list(prefix + work_folder(span, attempt)):
        if (key := parse_row(found.key.removeprefix(prefix))) is not None and key.attempt == attempt:
            yield found


def _checked(row: FinishedSpan, start: int, where: str) -> FinishedSpan:
    if row.start != start:
        raise Damaged(f"the row belongs to a range that starts at {row.start}", where=where)
    return row
