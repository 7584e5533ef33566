"""Rows: notes of finished ranges, which no later run needs to move again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import model_validator

from streamvault.common.errors import Damaged
from streamvault.layouts.keys import GenerationSpan, parse_row, row_key, work_folder
from streamvault.manifests.format.entries import Count, Digest, File, Model, Offset, decode
from streamvault.objectstore.bulk import get_all
from streamvault.objectstore.deciding import decide
from streamvault.objectstore.errors import NoSuchObject
from streamvault.objectstore.store import SMALL, ObjectStore
from streamvault.streamstore.model import HEADER_BYTES, SegmentId

__all__ = ["FinishedRange", "Gap", "Piece", "find_rows", "leave_row"]


class Piece(Model):
    """Contiguous archived events.

    `digest` is the SHA-256 of the segment's bytes from `start` to `end`; `frames` are the sizes of a compressed
    object's frames.
    """

    start: Offset
    end: Offset
    events: Count
    digest: Digest
    frames: tuple[Count, ...] = ()


class Gap(Model):
    """Bytes that were truncated during the run."""

    start: Offset
    end: Offset
    reason: str


class FinishedRange(File):
    """A finished range: usually one piece; pieces and gaps if the source was truncated meanwhile.

    Attributes:
        start: offset of its first event, which is also in the row's key.
        end: start of the next range.
        pieces: the archived events, in order.
        gaps: the truncated bytes, in order. A gap that ends at `start` means that the range begins at the source's new
            head.
    """

    start: Offset
    end: Offset
    pieces: tuple[Piece, ...]
    gaps: tuple[Gap, ...] = ()

    @property
    def events(self) -> int:
        """Number of archived events."""
        return sum(piece.events for piece in self.pieces)

    @property
    def bytes(self) -> int:
        """Number of archived segment bytes."""
        return sum(piece.end - piece.start for piece in self.pieces)

    @property
    def follows_truncation(self) -> bool:
        """Whether everything before `start` has been truncated at the source."""
        return any(gap.end == self.start for gap in self.gaps)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        inside = [(gap.start, gap.end) for gap in self.gaps if gap.end != self.start]
        at = self.start
        for start, end in sorted([*inside, *((piece.start, piece.end) for piece in self.pieces)]):
            if start != at or end < start:
                raise ValueError(f"pieces and gaps are not contiguous at {at}")
            at = end
        if at != self.end:
            raise ValueError(f"pieces and gaps end at {at}, the range at {self.end}")
        if any(piece.events * HEADER_BYTES > piece.end - piece.start for piece in self.pieces):
            raise ValueError("a piece has more events than fit its size")
        return self


def leave_row(
    store: ObjectStore,
    prefix: str,
    span: GenerationSpan,
    segment: SegmentId,
    row: FinishedRange,
    *,
    attempt: int = 1,
) -> FinishedRange:
    """Write a row, create-only; return the row in the store, which is another run's if that was first.

    Args:
        store: the store.
        prefix: the archive's folder in the store.
        span: the range's generation.
        segment: the range's segment.
        row: the finished range.
        attempt: the plan's attempt, see `layouts.keys.work_folder`.

    Raises:
        Damaged: the existing row cannot be read.
    """
    key = prefix + row_key(span, segment, row.start, attempt)
    data, created = decide(store, key, row.encode())
    return row if created else _decode(data, row.start, f"{store.uri}/{key}")


def find_rows(
    store: ObjectStore, prefix: str, span: GenerationSpan, *, attempt: int = 1
) -> Iterator[tuple[SegmentId, FinishedRange]]:
    """Yield the rows of a generation, in the stream's order; many are read concurrently.

    They end early if another run publishes the generation and deletes its rows meanwhile.

    Raises:
        Damaged: a row cannot be read.
    """
    listed = (
        (found.key, min(found.size, SMALL))
        for found in store.list(prefix + work_folder(span, attempt))
        if (key := parse_row(found.key.removeprefix(prefix))) is not None and key.attempt == attempt
    )
    try:
        for name, data in get_all(store, listed):
            key = parse_row(name.removeprefix(prefix))
            if key is not None:
                yield key.segment, _decode(data, key.offset, f"{store.uri}/{name}")
    except NoSuchObject:
        return


def _decode(data: bytes, start: int, where: str) -> FinishedRange:
    row = decode(FinishedRange, data, where)
    if row.start != start:
        raise Damaged(f"the row belongs to a range that starts at {row.start}", where=where)
    return row
