"""Run of one import: own the target, fill its segments and replay its scales, verify, finish.

A segment is filled as soon as it exists, and a scale is replayed as soon as the segments it seals are full: there is no
barrier between epochs. Bytes that the target has already are not appended again.
"""

from __future__ import annotations

import queue
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial

from streamvault.common.lazy import LazyChain, LazyMap
from streamvault.common.progress import Progress
from streamvault.importer.fill import (
    Differs,
    Filled,
    FillTask,
    TargetSegment,
    TargetSpan,
    VerifyTask,
    compare_segment,
    fill_segment,
    verify_range,
)
from streamvault.importer.plan import RestorePlan
from streamvault.importer.target import (
    Target,
    Unfinished,
    finishing_under_lease,
    lease_stream,
    reporting_lost_lease,
    target_exists_error,
)
from streamvault.layouts.archived_range import digest_of
from streamvault.runner.inline import InlineRunner
from streamvault.runner.runner import Runner
from streamvault.sources.identity import last_at_each_key
from streamvault.sources.source import SourcePart
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.lease import Lease, last_heartbeat
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.uri import OpenStream

STOP_SECONDS = 5.0
"""How long a failed import waits for running appends to end."""

JOBS_AT_ONCE = 4
"""Maximum batches of segments that are filled at the same time; each is one job of the runner."""


class FillJobs:
    """Fill jobs, which run while scales create more segments: a few at a time; further tasks wait for the next job."""

    def __init__(self, runner: Runner, progress: Progress) -> None:
        self._runner = runner
        self._progress = progress
        self._waiting: list[FillTask] = []
        self._running = 0
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._results: queue.SimpleQueue[Filled | BaseException | None] = queue.SimpleQueue()

    @property
    def idle(self) -> bool:
        """Whether no task waits or runs, and no result is left to take."""
        return not self._waiting and not self._running and self._results.empty()

    def add(self, tasks: Iterable[FillTask]) -> None:
        """Start or enqueue tasks."""
        self._waiting += tasks
        if self._waiting and self._running < JOBS_AT_ONCE:
            batch, self._waiting = self._waiting, []
            self._running += 1
            thread = threading.Thread(target=self._run, args=(batch,), name="fill job", daemon=True)
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
            thread.start()

    def close(self) -> None:
        """Start nothing more, and wait some seconds for running jobs, which would disturb a run right after."""
        self._stopped.set()
        self._waiting = []
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def next_result(self, seconds: float) -> Filled | None:
        """Return the next full segment, or None after ``seconds``; raise the error of a failed task."""
        try:
            result = self._results.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(result, BaseException):
            raise result
        if result is None:
            self._running -= 1
            self.add(())
        return result

    def _run(self, batch: list[FillTask]) -> None:
        try:
            for _, filled in self._runner.run(fill_segment, batch, self._progress):
                self._results.put(filled)
                if self._stopped.is_set():
                    break
        except BaseException as error:  # noqa: BLE001  (it is raised again where results are taken)
            self._results.put(error)
        self._results.put(None)


RESTORE_TASKS = (fill_segment, verify_range)
"""The tasks of a restore, for opening a runner."""

Then = Callable[[Mapping[SegmentId, SegmentId]], None]

POLL_SECONDS = 1.0

COMPARED_BYTES = 1024 * 1024
"""How many of the last bytes of an earlier run are compared where they are not read back."""

COMPARED_AT_ONCE = 4
"""Of how many segments at the same time."""

SEGMENTS_TO_COMPARE = 8
"""How many segments' last bytes are compared to recognize a finished stream."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of an import.

    Attributes:
        resumed: whether it resumed an unfinished import.
        events: restored events.
        bytes: restored bytes, without filler.
        moved_bytes: the bytes that this run appended, without filler.
        segments: the archived segment → the restored one.
        finished: when the stream was complete, on the monotonic clock (seconds); only cleanup follows.
    """

    resumed: bool
    events: int
    bytes: int
    moved_bytes: int
    segments: Mapping[SegmentId, SegmentId]
    finished: float


class ImportRun:
    """Restores one plan into one target.

    Args:
        target: the stream to create.
        plan: its final content.
        window: maximum data a task buffers in memory (bytes).
        read_back: also read back and compare the bytes that this run itself appended.
        mirrors: the target mirrors a source that may be truncated at any time. What an earlier run appended is not read
            back: each block was acknowledged at its offset, so it cannot differ unless something else wrote; the last
            of it is compared before more is appended. Whole events are appended, see `FillTask`.

    Attributes:
        moved_bytes: bytes that this run has appended so far, without filler.
    """

    def __init__(
        self, target: OpenStream, plan: RestorePlan, *, window: int, read_back: bool = False, mirrors: bool = False
    ) -> None:
        self._target = target
        self._plan = plan
        self._window = window
        self._read_back = read_back
        self._mirrors = mirrors
        self.moved_bytes = 0
        # archived segment → `Filled.proved_from`
        self._proved: dict[SegmentId, int] = {}
        # archived segment → target's segment
        self._segments: Mapping[SegmentId, SegmentId] = {}

    def check_free(self, begun: str | None) -> None:
        """Check that the target is free or this import's own; changes nothing.

        Args:
            begun: what `unfinished_import` returned for the target.

        Raises:
            TargetTaken: it is neither.
        """
        if begun is not None and begun != self._plan.import_id:
            with suppress(NoSuchScope, NoSuchStream):  # it was deleted meanwhile
                raise target_exists_error(self._target.store, self._target.describe(), self._plan, begun)

    def check_unfinished(self, unfinished: Unfinished, compare: int = COMPARED_BYTES) -> None:
        """Check that nothing else has changed this import's unfinished target; changes nothing.

        The last bytes at each key are compared with the source: those of an open segment or, while it is empty, as
        right after a scale, of its predecessors.

        Args:
            unfinished: the target.
            compare: how many of the last bytes of a segment.

        Raises:
            Conflict: something else has.
            SourceTruncated, SegmentTruncated, NoSuchSegment: the source or the target was truncated meanwhile.
        """
        self._segments = unfinished.check(self._plan)
        described, tasks = unfinished.described, {new: self._fill_task(old) for old, new in self._segments.items()}
        held = {new: end for new, end in unfinished.ends.items() if new in tasks and end > tasks[new].head}
        last = last_at_each_key(described, described.tail, held) & held.keys()
        specs = [(replace(tasks[new], compare=compare), held[new]) for new in sorted(last)]
        for _ in InlineRunner(COMPARED_AT_ONCE).run(compare_segment, specs):
            pass

    def find_finished(self) -> Restored | None:
        """Return the result of an earlier import if the target looks restored already; None otherwise.

        Only the last ranges of a few segments are read, to tell the stream from one of the same shape; `verify` reads
        everything.

        Raises:
            TargetTaken: the stream has the same shape and other events.
        """
        target = self._target
        segments = Target.find_finished(target, self._plan)
        if segments is None or last_heartbeat(target.store, lease_stream(target.name)) is not None:
            return None
        self._segments = segments
        for segment, span, part in self._last_restored():
            try:
                verify_range(VerifyTask(self._segment(segment), span.start, part))
            except Differs:
                raise target_exists_error(target.store, target.describe(), self._plan) from None
        events = sum(part.events or 0 for _, _, part in self._plan.restored)
        return Restored(False, events, self._plan.bytes, 0, segments, time.monotonic())

    def _last_restored(self) -> list[tuple[SegmentId, TargetSpan, SourcePart]]:
        """Return the last parts of some open segments, or of the newest ones if no open one has any.

        The last part that is restored as a whole is preferred, as its digest is known.
        """
        found: dict[SegmentId, tuple[TargetSpan, SourcePart]] = {}
        for segment, span, part in self._plan.restored:
            if part.whole or segment not in found or not found[segment][1].whole:
                found[segment] = span, part
        last = [segment for segment in self._plan.tail if segment in found]
        return [(segment, *found[segment]) for segment in (last or sorted(found, reverse=True))[:SEGMENTS_TO_COMPARE]]

    def verify(self, runner: Runner, progress: Progress) -> Restored:
        """Read back the target that `find_finished` found and compare it with the archive; changes nothing.

        Raises:
            Damaged, Failed: as `run`.
        """
        events, size = self._verify(runner, progress)
        progress.end()
        return Restored(False, events, size, 0, self._segments, time.monotonic())

    def compare(
        self,
        segments: Mapping[SegmentId, SegmentId],
        runner: Runner,
        progress: Progress,
        lease: Lease | None = None,
    ) -> None:
        """Read back all of the plan's bytes and compare them with the source; changes nothing.

        Args:
            segments: the source's segment → the target's.
            runner: runs the tasks.
            progress: receives the progress.
            lease: is looked at after each part.

        Raises:
            Differs: the bytes differ.
        """
        self._segments = segments
        self._verify(runner, progress, lease)

    def run(self, runner: Runner, progress: Progress, then: Then | None = None) -> Restored:
        """Take the lease, restore, verify, finish.

        What is to be done ``then``, given the archived segment → the restored one, is done before the lease ends, so
        that a run that is repeated after a kill does it, even if the finished stream was written to since.

        Raises:
            TargetTaken: the target is not this import's; nothing was written to it.
            TargetBusy: another import is restoring into the target; nothing was written to it.
            Conflict: the archive is another one than that with which the target was begun; nothing was written to it.
            Damaged: the archive is damaged.
            Failed: the restored stream differs from the archive, or was scaled by another process.
        """
        if (unfinished := Unfinished.find(self._target)) is not None:
            self.check_unfinished(unfinished)
        with finishing_under_lease(self._target, self._plan.import_id) as lease, reporting_lost_lease(lease):
            target = self.take(lease)
            self.fill(target, lease, runner, progress)
            return self.finish(target, lease, runner, progress, then)

    def finish(
        self, target: Target, lease: Lease, runner: Runner, progress: Progress, then: Then | None = None
    ) -> Restored:
        """Verify a target that was filled, and make it a stream like any other; see `run`."""
        events, size = self._verify(runner, progress, lease)
        lease.finishing(target.first_segment_id)
        target.finish()
        if then is not None:
            lease.confirm()
            then(self._segments)
        finished = time.monotonic()
        progress.end()
        return Restored(target.resumed, events, size, self.moved_bytes, self._segments, finished)

    def digest(self, segment: SegmentId, start: int, end: int) -> str:
        """Return the SHA-256 of what the target has of some bytes of a segment of the source, hexadecimal.

        Raises:
            NoSuchSegment, SegmentTruncated: the target does not have all of them.
            SegmentTooShort: its segment is shorter.
        """
        plan, new = self._plan.segments.get(segment), self._segments.get(segment)
        if plan is None or new is None or start - plan.shift < plan.head:
            raise NoSuchSegment("the target does not have these bytes", where=f"{self._target.uri}/{segment}")
        target = self._target
        return digest_of(target.store.read(target.name, new, start - plan.shift, end - plan.shift))

    def take(self, lease: Lease) -> Target:
        """Create the target, or resume it, with the lease on it; nothing is appended yet.

        Raises:
            TargetTaken: the target is not this import's.
        """
        return Target.take(self._target, self._plan, lease)

    def fill(self, target: Target, lease: Lease, runner: Runner, progress: Progress) -> None:
        """Fill every segment of a target that was taken, and replay the scales; it stays unfinished."""
        self._segments = target.segments
        if not target.marked:
            return
        planned, epochs = self._plan.segments, self._plan.replay.epochs
        steps = list(self._plan.replay.steps[target.epoch :])
        opened = list(epochs[target.epoch].segments)
        full = planned.keys() - {segment for step in steps for segment in step.opens} - set(opened)
        progress.begin("importing", sum(plan.end for plan in planned.values()), self._held_bytes(full, opened))
        filling: dict[SegmentId, SegmentId] = {}  # target's segment → archived segment
        with closing(FillJobs(runner, progress)) as jobs:
            while True:
                full |= {segment for segment in opened if not planned[segment].end}
                opened = [segment for segment in opened if planned[segment].end]
                filling.update((self._segments[segment], segment) for segment in opened)
                jobs.add(self._fill_task(segment) for segment in opened)
                opened = []
                if steps and full.issuperset(steps[0].seal):
                    step = steps.pop(0)
                    target.scale(step)
                    self._segments = target.segments
                    opened = list(step.opens)
                    continue
                if not steps and jobs.idle:
                    return
                filled = jobs.next_result(POLL_SECONDS)
                lease.check()
                if filled is not None:
                    segment = filling.pop(filled.segment)
                    full.add(segment)
                    self.moved_bytes += filled.moved
                    self._proved[segment] = filled.proved_from
                    progress.advance(0, filled.appended)

    def _held_bytes(self, full: set[SegmentId], opened: list[SegmentId]) -> int:
        """Return how many bytes the target has already."""
        infos = self._target.store.segment_info(self._target.name, [self._segments[segment] for segment in opened])
        return sum(self._plan.segments[s].end for s in full) + sum(info.write_offset for info in infos)

    def _fill_task(self, segment: SegmentId) -> FillTask:
        plan = self._plan.segments[segment]
        return FillTask(
            target=self._segment(segment),
            window=self._window,
            head=plan.head,
            spans=plan.spans,
            compare=COMPARED_BYTES if self._mirrors else 0,
            whole_events=self._mirrors,
            content=self._plan.content,
        )

    def _verify(self, runner: Runner, progress: Progress, lease: Lease | None = None) -> tuple[int, int]:
        """Compare restored ranges with their digests; return events and bytes.

        A range of which this run appended every byte needs no reading: its digest was computed from the appended
        blocks, each of which was acknowledged at its offset.
        """
        events, size, left = 0, 0, list[Sequence[VerifyTask]]()
        for segment, plan in self._plan.segments.items():
            numbers = array("Q")
            for number, span in enumerate(plan.spans):
                part = span.part
                if part is None:
                    continue
                if self._is_proved(segment, span, part):
                    events += part.events or 0
                    size += part.end - part.start
                else:
                    numbers.append(number)
            if numbers:
                left.append(LazyMap(partial(_verify_task, self._segment(segment), plan.spans), numbers))
        progress.begin("verifying", self._plan.bytes, size)
        for _, (found, read) in runner.run(verify_range, LazyChain(left), progress=progress):
            if lease is not None:
                lease.check()
            events += found
            size += read
            progress.advance(found, read)
        return events, size

    def _is_proved(self, segment: SegmentId, span: TargetSpan, part: SourcePart) -> bool:
        if self._read_back:
            return False
        proved_from = self._proved.get(segment)
        return self._mirrors or (part.whole and proved_from is not None and span.start >= proved_from)

    def _segment(self, segment: SegmentId) -> TargetSegment:
        return TargetSegment(self._target.address, self._target.name, self._segments[segment])


def _verify_task(target: TargetSegment, spans: Sequence[TargetSpan], number: int) -> VerifyTask:
    """Return the task that compares a span, which is no filler."""
    span = spans[number]
    if span.part is None:
        raise ValueError("filler is not compared")
    return VerifyTask(target, span.start, span.part)
