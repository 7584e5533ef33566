"""Compare restored bytes with their digest, or with their source where only a part of it was restored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from streamvault.common.errors import Failed
from streamvault.importer.fill import advising_new_import
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.streamstore.arithmetic.byte_source import ByteSource
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.uri import StoreAddress


class Differs(Failed):
    """The archive is intact, but the target has other bytes."""


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Specification of a task that verifies bytes of one segment.

    Attributes:
        target: address of the target's store.
        stream: the target.
        segment: the target's segment.
        origin: the source of the bytes.
        start: where the restored part of it begins, in the source's offsets (bytes).
        end: where it ends, likewise.
        shift: how much lower the offsets are in the target (bytes).
        events: number of events in the part; None to count them.
    """

    target: StoreAddress
    stream: StreamName
    segment: SegmentId
    origin: ByteSource
    start: int
    end: int
    shift: int
    events: int | None

    @property
    def whole(self) -> bool:
        """Whether all of the source was restored."""
        return (self.origin.start, self.origin.end) == (self.start, self.end)

    @property
    def where(self) -> str:
        """The restored part, for a message."""
        segment = f"{self.target.uri}/{self.segment.in_stream(self.stream)}"
        return f"{segment} bytes {self.start - self.shift} to {self.end - self.shift}"


@dataclass(frozen=True, slots=True)
class Verified:
    """Events and segment bytes of a restored part that is equal in source and target."""

    events: int
    size: int


def verify_range(task: VerifyTask) -> Verified:
    """Read back the restored part and compare it.

    Raises:
        Damaged: the archive's bytes do not match the manifest.
        Differs: the source is intact, but the target's bytes differ.
    """
    restored = _digest_of_target(task)
    if task.whole and task.events is not None and restored == task.origin.digest:
        return Verified(task.events, task.end - task.start)
    with advising_new_import(task.stream):
        expected, events = _read_source(task)
    if expected != restored:
        raise Differs(
            "the restored bytes differ from the source's",
            where=task.where,
            todo="Run the command again with another name. Delete this stream only if nobody has written to it.",
        )
    return Verified(events, task.end - task.start)


def _digest_of_target(task: VerifyTask) -> str:
    digest = hashlib.sha256()
    with task.target.lend() as store:
        for block in store.read(task.stream, task.segment, task.start - task.shift, task.end - task.shift):
            digest.update(block)
    return digest.hexdigest()


def _read_source(task: VerifyTask) -> tuple[str, int]:
    """Read all of the source, which verifies it; return the digest of the restored part, and its number of events."""
    part, events, origin = hashlib.sha256(), 0, task.origin
    # A large event is a range by itself and never restored in part.
    splitter = EventSplitter(origin.start, task.where) if task.events is None else None
    at = origin.start
    for block in origin.blocks(origin.start, origin.end, WINDOW_BYTES):
        low, high = max(task.start - at, 0), min(task.end - at, len(block))
        if low < high:
            part.update(memoryview(block)[low:high])
        if splitter is not None:
            events += sum(task.start <= offset < task.end for offset, _ in splitter.events(block))
        at += len(block)
    return part.hexdigest(), events if task.events is None else task.events
