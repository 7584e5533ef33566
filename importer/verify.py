"""Compare a restored range with its digest, or with the archive where only a part of the range was restored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from common.errors import Failed
from importer.fill import advising_new_import
from layouts.place import Place
from manifests.archived_range import read_verified
from manifests.range_row import RangeRow
from objectstore.uri import RootAddress
from streamstore.model import SegmentId, StreamName
from streamstore.splitting import EventSplitter
from streamstore.uri import StoreAddress

__all__ = ["Differs", "Verified", "VerifyTask", "verify_range"]


class Differs(Failed):
    """The archive is intact, but the target has other bytes."""


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Specification of a task that verifies one archived range, or the restored part of it.

    Attributes:
        target: address of the target's store.
        stream: the target.
        segment: the target's segment.
        root: root of the archive.
        prefix: prefix of the archive's keys.
        layout: the range's layout.
        row: the whole archived range, in the archive's offsets (bytes).
        part_start: where the restored part begins, in the archive's offsets.
        part_end: where the restored part ends, in the archive's offsets.
        shift: how much lower the offsets are in the target (bytes).
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
    """Events and segment bytes of a restored part that is equal in archive and target."""

    events: int
    size: int


def verify_range(task: VerifyTask) -> Verified:
    """Read back the restored range and compare it.

    Raises:
        Damaged: the archive's bytes do not match the manifest.
        Differs: the archive is intact, but the target's bytes differ.
    """
    restored = _digest_of_target(task)
    if task.whole and restored == task.row.digest:
        return Verified(task.row.events, task.row.end - task.row.start)
    with advising_new_import(task.stream):
        part, events = _read_archive(task)
    if part != restored:
        raise Differs(
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


def _read_archive(task: VerifyTask) -> tuple[str, int]:
    """Verify the archived range; return the digest of the restored part, and the part's number of events."""
    part, events, row = hashlib.sha256(), 0, task.row
    # A large event is a range by itself and never restored in part.
    splitter = None if task.whole else EventSplitter(row.start, task.segment.in_stream(task.stream))
    at = row.start
    for block in read_verified(Place(task.root.open(), task.prefix), task.layout, row):
        low, high = max(task.part_start - at, 0), min(task.part_end - at, len(block))
        if low < high:
            part.update(memoryview(block)[low:high])
        if splitter is not None:
            events += sum(task.part_start <= offset < task.part_end for offset, _ in splitter.events(block))
        at += len(block)
    return part.hexdigest(), row.events if splitter is None else events
