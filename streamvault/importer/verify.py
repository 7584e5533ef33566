"""Compare restored bytes with their digest, or with their source where only a part of it was restored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from streamvault.common.errors import Failed
from streamvault.common.underway import task_progress
from streamvault.importer.fill import TargetSegment, advising_new_import
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.reading.source import SourcePart
from streamvault.streamstore.arithmetic.splitting import EventSplitter


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
    restored, part = _digest_of_target(task), task.part
    if part.whole and part.events is not None and restored == part.origin.digest:
        return Verified(part.events, part.end - part.start)
    with advising_new_import(task.target.stream):
        expected, events = _read_source(part, task.where)
    if expected != restored:
        raise Differs(
            "the restored bytes differ from the source's",
            where=task.where,
            todo="Run the command again with another name. Delete this stream only if nobody has written to it.",
        )
    return Verified(events, part.end - part.start)


def _digest_of_target(task: VerifyTask) -> str:
    digest, target = hashlib.sha256(), task.target
    with target.address.lend() as store:
        for block in store.read(target.stream, target.segment, task.start, task.end):
            digest.update(block)
            task_progress().acknowledge(len(block))
    return digest.hexdigest()


def _read_source(part: SourcePart, where: str) -> tuple[str, int]:
    """Read all of the origin, which verifies it; return the digest of the part, and its number of events."""
    digest, events, at = hashlib.sha256(), 0, part.origin.start
    # A large event is a range by itself and never restored in part.
    splitter = EventSplitter(at, where) if part.events is None else None
    for block in part.origin.blocks(part.origin.start, part.origin.end, WINDOW_BYTES):
        low, high = max(part.start - at, 0), min(part.end - at, len(block))
        if low < high:
            digest.update(memoryview(block)[low:high])
        if splitter is not None:
            events += sum(part.start <= offset < part.end for offset, _ in splitter.events(block))
        at += len(block)
    return digest.hexdigest(), events if part.events is None else part.events
