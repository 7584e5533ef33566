"""Comparing a restored range with its digest, and with the archive where only a part of a range was restored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from common.errors import Failed
from importer.fill import damaged_range
from layouts.layout import open_reader
from layouts.place import Place
from manifests.range_row import RangeRow
from objectstore.uri import RootAddress
from streamstore.model import SegmentId, StreamName
from streamstore.splitting import EventSplitter
from streamstore.uri import StoreAddress

__all__ = ["Verified", "VerifyTask", "verify_range"]


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """One archived range and what of it was restored.

    Attributes:
        target, stream, segment: where it was restored to.
        root, prefix, layout: where it comes from.
        row: the whole archived range, in the archive's offsets (bytes).
        part_start, part_end: what of it was restored, in the archive's offsets.
        shift: how much lower the offsets in the target are.
    """

    target: StoreAddress
    stream: StreamName
    segment: SegmentId
    root: RootAddress
    prefix: str
    layout: str
    row: RangeRow
    part_start: int
    part_end: int
    shift: int

    @property
    def whole(self) -> bool:
        """Whether all of the range was restored."""
        return (self.row.start, self.row.end) == (self.part_start, self.part_end)

    @property
    def where(self) -> str:
        """The restored range, for a message."""
        low, high = self.part_start - self.shift, self.part_end - self.shift
        return f"{self.segment.in_stream(self.stream)} bytes {low} to {high}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What of a range was restored and is equal in archive and target: events, and segment bytes."""

    events: int
    size: int


def verify_range(task: VerifyTask) -> Verified:
    """Read the restored range back and compare.

    Raises:
        Damaged: the archive's own bytes are not what its manifest says.
        Failed: the archive is good, the target's bytes differ.
    """
    restored = _digest_of_target(task)
    if task.whole and restored == task.row.digest:
        return Verified(task.row.events, task.row.end - task.row.start)
    whole, part, events = _read_archive(task)
    if whole != task.row.digest:
        raise damaged_range(task.prefix, task.row, task.stream)
    if part != restored:
        raise Failed(
            "the restored bytes differ from the archive's",
            where=task.where,
            todo=f"Delete {task.stream} and import again.",
        )
    return Verified(events, task.part_end - task.part_start)


def _digest_of_target(task: VerifyTask) -> str:
    digest = hashlib.sha256()
    with task.target.lend() as store:
        for block in store.read(task.stream, task.segment, task.part_start - task.shift, task.part_end - task.shift):
            digest.update(block)
    return digest.hexdigest()


def _read_archive(task: VerifyTask) -> tuple[str, str, int]:
    """Digest of the whole range, digest of the part that was restored, and how many events the part has."""
    whole, part, events = hashlib.sha256(), hashlib.sha256(), 0
    row = task.row
    # A large event is a range of its own, and never restored in part.
    splitter = None if task.whole else EventSplitter(row.start, task.segment.in_stream(task.stream))
    blocks = open_reader(task.layout).read_range(Place(task.root.open(), task.prefix), row.extent, row.start, row.end)
    at = row.start
    for block in blocks:
        whole.update(block)
        low, high = max(task.part_start - at, 0), min(task.part_end - at, len(block))
        if low < high:
            part.update(memoryview(block)[low:high])
        if splitter is not None:
            events += sum(task.part_start <= offset < task.part_end for offset, _ in splitter.events(block))
        at += len(block)
    return whole.hexdigest(), part.hexdigest(), row.events if splitter is None else events
