"""Fills and verifies the segments of a target: one task, one appender, blocks at known offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from streamvault.common.errors import Conflict, Failed
from streamvault.common.progress import task_progress
from streamvault.manifests.damage import DigestMismatch
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.sources.source import SourcePart
from streamvault.streamstore.byte_source import StoredBytes
from streamvault.streamstore.errors import OffsetConflict, SegmentSealed
from streamvault.streamstore.events import EventSplitter, whole_event_blocks
from streamvault.streamstore.framing import filler, pieces, zeros
from streamvault.streamstore.model import HEADER_BYTES, ContentKind, SegmentId, StreamName
from streamvault.streamstore.store import SegmentAppender, StreamStore
from streamvault.streamstore.uri import StoreAddress

TRUNCATE_EVERY = 64 * 1024 * 1024
"""Filler bytes below a start offset after which they are truncated, so that they never pile up."""

FOREIGN_APPENDS = 5
"""How often an append may find the segment longer than expected before the import gives up.

A block of a killed run can still arrive while the next run starts; it holds the same bytes, so the task continues
after it.
"""


@dataclass(frozen=True, slots=True)
class TargetSpan:
    """A span of a target segment, and what is to be there.

    Attributes:
        start: first offset in the target (bytes); of events, a boundary.
        end: offset after the last byte, likewise.
        part: its bytes; None for filler, either truncated later or in place of a gap: zeros, in a stream of events
            framed as events. Filler to be truncated follows a torn event of a killed run, and may be too short for an
            event.
    """

    start: int
    end: int
    part: SourcePart | None = None

    @property
    def shift(self) -> int:
        """How much lower offsets are in the target than in the source (bytes)."""
        return self.part.start - self.start if self.part is not None else 0


@dataclass(frozen=True, slots=True)
class TargetSegment:
    """A segment of a target, for tasks."""

    address: StoreAddress
    stream: StreamName
    segment: SegmentId

    def __str__(self) -> str:
        return f"{self.address.uri}/{self.segment.in_stream(self.stream)}"


@dataclass(frozen=True, slots=True)
class FillTask:
    """Specification of a task that fills one segment.

    Attributes:
        target: the segment.
        window: maximum data buffered in memory (bytes).
        head: the segment's start offset in the target; everything below is filler and is truncated at once.
        spans: from offset 0 to the segment's end, without holes.
        compare: how many of the last bytes that the segment holds already are compared with their sources first.
        whole_events: append whole events, so that after a kill the segment ends with one. Larger events than 8 MiB are
            appended in pieces nevertheless, and so is what is no event.
        content: what the segment holds.
    """

    target: TargetSegment
    window: int
    head: int
    spans: Sequence[TargetSpan]
    compare: int = 0
    whole_events: bool = False
    content: ContentKind = "events"

    @property
    def end(self) -> int:
        """The segment's final write offset (bytes)."""
        return self.spans[-1].end if self.spans else 0

    @property
    def size(self) -> int:
        """Bytes that the segment gets."""
        return self.end - self.head


@dataclass(frozen=True, slots=True)
class Filled:
    """Result of filling a segment.

    Attributes:
        segment: the segment, now complete.
        appended: bytes that this run appended, filler included.
        moved: bytes that this run appended, filler not included.
        proved_from: target offset. This run appended every byte of the spans that begin there or later, and the
            appended bytes had the digests that were known.
    """

    segment: SegmentId
    appended: int
    moved: int
    proved_from: int


def fill_segment(task: FillTask) -> Filled:
    """Append the bytes that the segment does not have yet. Existing bytes are checked later, by `importer.fill`.

    Raises:
        Conflict: the segment is longer than planned, holds other bytes, or another process appends to it.
        Damaged: an object of the archive is missing or has the wrong size or digest.
    """
    with advising_new_import(task.target.stream), task.target.address.lend() as store:
        for _ in range(FOREIGN_APPENDS):
            try:
                return _append_rest(store, task)
            except (OffsetConflict, SegmentSealed):
                continue
    raise Conflict("another process is appending to the segment", where=str(task.target))


@contextmanager
def advising_new_import(target: StreamName) -> Iterator[None]:
    """Let a digest's mismatch say what to do with the target."""
    try:
        yield
    except DigestMismatch as mismatch:
        todo = (
            "Restore the archive from a copy, and import into another name; --skip-damaged leaves out what is damaged. "
            f"Until then, keep what {target} has."
        )
        raise DigestMismatch(mismatch.what, where=mismatch.where, todo=todo) from None


def _append_rest(store: StreamStore, task: FillTask) -> Filled:
    with store.appender(task.target.stream, task.target.segment) as appender:
        begun = counted = appender.offset
        if begun > task.end:
            raise _too_long(task, begun)
        if task.compare:
            compare_last(store, task, begun)
        dropped = begun
        for span in task.spans:
            start = max(span.start, appender.offset)
            for block in _blocks(task, span, start):
                appender.append(block)
                task_progress().acknowledge(appender.acknowledged - counted)
                counted = appender.acknowledged
                if appender.offset <= task.head and appender.offset - dropped >= TRUNCATE_EVERY:
                    dropped = _drop(store, task, appender)
            if span.end == task.head > dropped:
                dropped = _drop(store, task, appender)
        moved = (s.end - max(s.start, begun) for s in task.spans if s.part is not None and s.end > begun)
        return Filled(task.target.segment, appender.flush() - begun, sum(moved), begun)


def _too_long(task: FillTask, end: int) -> Conflict:
    return Conflict(f"the segment has {end} bytes, but the source only {task.end}", where=str(task.target))


def compare_segment(spec: tuple[FillTask, int]) -> None:
    """Run `compare_last` as a task of its own; ``spec`` are its arguments."""
    task, end = spec
    with task.target.address.lend() as store:
        compare_last(store, task, end)


def compare_last(store: StreamStore, task: FillTask, end: int) -> None:
    """Compare the last bytes before ``end`` with their sources; filler is not compared.

    Raises:
        Conflict: they differ.
    """
    for span in task.spans:
        if span.part is not None:
            _compare_span(store, task, span, max(span.start, end - task.compare), min(span.end, end))


def compare_all(store: StreamStore, task: FillTask, start: int, end: int) -> None:
    """Compare all bytes from ``start`` to ``end`` with their sources, and filler with filler.

    Raises:
        Conflict: they differ, or the segment is longer than planned.
        Damaged: an object of the archive is missing or has the wrong size or digest.
    """
    if end > task.end:
        raise _too_long(task, end)
    for span in task.spans:
        _compare_span(store, task, span, max(span.start, start), min(span.end, end))


def _compare_span(store: StreamStore, task: FillTask, span: TargetSpan, low: int, high: int) -> None:
    if low >= high:
        return
    stored = StoredBytes(store.read(task.target.stream, task.target.segment, low, high))
    for block in _blocks(task, span, low, high):  # all, so that a range that ends here is compared with its digest
        if (at := stored.difference(block)) is not None:
            raise Conflict(
                f"the target differs from the source, from offset {low + at} on",
                where=str(task.target),
                todo="Something else wrote to it, or the source is another stream now. Choose another name.",
            )
        low += len(block)


def _drop(store: StreamStore, task: FillTask, appender: SegmentAppender) -> int:
    offset = appender.flush()
    store.truncate_segment(task.target.stream, task.target.segment, offset)
    return offset


def _blocks(task: FillTask, span: TargetSpan, start: int, end: int | None = None) -> Iterator[bytes | memoryview]:
    """Yield the span's bytes from ``start`` on, in blocks small enough to append; ``end`` bounds those of a source."""
    if start >= span.end:
        return
    if span.part is None:
        length = span.end - start
        is_framed = task.content == "events" and not (span.end <= task.head and length < HEADER_BYTES)
        yield from filler(length) if is_framed else zeros(length)
        return
    blocks = span.part.blocks(start + span.shift, (end or span.end) + span.shift, task.window)
    if task.whole_events:
        yield from whole_event_blocks(blocks)
        return
    for block in blocks:
        yield from pieces(memoryview(block))


class Differs(Failed):
    """The archive is intact, but the target has other bytes."""


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Specification of a task that verifies a restored part.

    Attributes:
        target: the segment that it was restored to.
        start: where it begins there (bytes).
        part: what was restored.
    """

    target: TargetSegment
    start: int
    part: SourcePart

    @property
    def end(self) -> int:
        """Where it ends in the target (bytes)."""
        return self.start + self.size

    @property
    def size(self) -> int:
        """Bytes of the part."""
        return self.part.end - self.part.start

    @property
    def where(self) -> str:
        """The part in the target, for a message."""
        return f"{self.target} bytes {self.start} to {self.end}"


def verify_range(task: VerifyTask) -> tuple[int, int]:
    """Read back the restored part and compare it.

    Returns:
        Its events, and its size (bytes).

    Raises:
        Damaged: the archive's bytes do not match the manifest.
        Differs: the source is intact, but the target's bytes differ.
    """
    restored, part = _digest_of_target(task), task.part
    if part.events is not None and restored == part.digest:
        return part.events, task.size
    with advising_new_import(task.target.stream):
        expected, events = _read_source(part, task.where)
    if expected != restored:
        raise Differs(
            "the restored bytes differ from the source's",
            where=task.where,
            todo="Run the command again with another name. Delete this stream only if nobody has written to it.",
        )
    return events, task.size


def _digest_of_target(task: VerifyTask) -> str:
    digest, target = hashlib.sha256(), task.target
    with target.address.lend() as store:
        for block in store.read(target.stream, target.segment, task.start, task.end):
            digest.update(block)
            task_progress().acknowledge(len(block))
    return digest.hexdigest()


def _read_source(part: SourcePart, where: str) -> tuple[str, int]:
    """Read a part, which verifies it; return its digest, and its number of events."""
    digest, events = hashlib.sha256(), 0
    # A large event is a range by itself and never restored in part.
    splitter = EventSplitter(part.start, where) if part.events is None else None
    for block in part.blocks(part.start, part.end, WINDOW_BYTES):
        digest.update(block)
        if splitter is not None:
            events += sum(1 for _ in splitter.events(block))
    return digest.hexdigest(), events if part.events is None else part.events
