"""Run of one import: own the target, fill its segments and replay its scales, verify, finish.

A segment is filled as soon as it exists, and a scale is replayed as soon as the segments it seals are full: there is no
barrier between epochs. Bytes that the target has already are not appended again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict
from streamvault.common.progress import Progress
from streamvault.importer.fill import Filled, FillTask, compare_segment, fill_segment
from streamvault.importer.lease import lease_stream, take_lease, unfinished_work
from streamvault.importer.plan import Part, RestorePlan
from streamvault.importer.replay import ScaleStep
from streamvault.importer.target import Target, Unfinished, taken_error
from streamvault.importer.verify import Differs, VerifyTask, verify_range
from streamvault.sparkrun.inline import InlineRunner
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.errors import (
    InvalidCut,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    ScaleRefused,
    StreamSealed,
)
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.services.lease import Lease, last_record
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress

RESTORE_TASKS = (fill_segment, verify_range)
"""The tasks of a restore, for opening a runner."""

POLL_SECONDS = 1.0
STOP_SECONDS = 5.0
"""How long a failed import waits for running appends to end."""

JOBS_AT_ONCE = 4
"""Maximum batches of segments that are filled at the same time; each is one job of the runner."""

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
        store: the target's store.
        address: the same store, for tasks.
        target: the stream to create.
        plan: the target's final content.
        window: maximum data a task buffers in memory (bytes).
        read_back: also read back and compare the bytes that this run itself appended.
        trust_earlier: do not read back what an earlier run appended, but compare the last of it before more is
            appended. Each block was acknowledged at its offset, so it cannot differ unless something else wrote.
        whole_events: see `FillTask`.
    """

    def __init__(
        self,
        store: StreamStore,
        address: StoreAddress,
        target: StreamName,
        *,
        plan: RestorePlan,
        window: int,
        read_back: bool,
        trust_earlier: bool = False,
        whole_events: bool = False,
    ) -> None:
        self._store = store
        self._address = address
        self._name = target
        self._plan = plan
        self._window = window
        self._read_back = read_back
        self._trust_earlier = trust_earlier
        self._whole_events = whole_events
        self._moved = 0
        # archived segment → `Filled.proved_from`
        self._proved: dict[SegmentId, int] = {}
        # archived segment → target's segment, and the reverse of those being filled
        self._segments: Mapping[SegmentId, SegmentId] = {}
        self._archived: dict[SegmentId, SegmentId] = {}

    @property
    def moved_bytes(self) -> int:
        """Bytes that this run has appended so far, without filler."""
        return self._moved

    def check_free(self) -> None:
        """Check that the target is free or this import's own; changes nothing.

        Raises:
            TargetTaken: it is neither.
        """
        begun = unfinished_work(self._store, self._name)
        if begun is not None and begun != self._plan.work:
            with suppress(NoSuchScope, NoSuchStream):  # it was deleted meanwhile
                raise taken_error(self._store, self._store.describe(self._name), self._plan, begun)

    def check_unfinished(self, unfinished: Unfinished, compare: int = COMPARED_BYTES) -> None:
        """Check that nothing else has changed this import's unfinished target; changes nothing.

        The last bytes of each open segment are compared with the source.

        Args:
            unfinished: the target.
            compare: how many of the last bytes.

        Raises:
            Conflict: something else has.
            SourceTruncated, SegmentTruncated, NoSuchSegment: the source or the target was truncated meanwhile.
        """
        self._segments = unfinished.check(self._plan)
        current = unfinished.described.epochs[-1].segments
        held = [(self._fill_task(old), unfinished.ends[new]) for old, new in self._segments.items() if new in current]
        specs = [(replace(task, compare=min(compare, task.compare)), end) for task, end in held if end > task.head]
        for _ in InlineRunner(COMPARED_AT_ONCE).run(compare_segment, specs):
            pass

    def find_finished(self) -> Restored | None:
        """Return the result of an earlier import if the target looks restored already; None otherwise.

        Only the last ranges of a few segments are read, to tell the stream from one of the same shape; `verify` reads
        everything.

        Raises:
            TargetTaken: the stream has the same shape and other events.
        """
        segments = Target.find_finished(self._store, self._name, self._plan)
        if segments is None or last_record(self._store, lease_stream(self._name)) is not None:
            return None
        self._segments = segments
        for segment, part in self._last_parts():
            try:
                verify_range(self._verify_task(segment, part))
            except Differs:
                raise taken_error(self._store, self._store.describe(self._name), self._plan) from None
        events = sum(part.events or 0 for _, part in self._plan.parts)
        return Restored(False, events, self._plan.bytes, 0, segments, time.monotonic())

    def _last_parts(self) -> list[tuple[SegmentId, Part]]:
        """Return the last parts of some open segments, or of the newest ones if no open one has any.

        The last part that is restored as a whole is preferred, as its digest is known.
        """
        found: dict[SegmentId, Part] = {}
        for segment, part in self._plan.parts:
            if part.whole or segment not in found or not found[segment].whole:
                found[segment] = part
        last = [(segment, found[segment]) for segment in self._plan.tail if segment in found]
        return (last or sorted(found.items(), key=lambda item: item[0], reverse=True))[:SEGMENTS_TO_COMPARE]

    def verify(self, runner: Runner, progress: Progress) -> Restored:
        """Read back the target that `find_finished` found and compare it with the archive; changes nothing.

        Raises:
            Damaged, Failed: as `run`.
        """
        events, size = self._verify(runner, progress, lambda: None)
        progress.end()
        return Restored(False, events, size, 0, self._segments, time.monotonic())

    def compare(
        self, segments: Mapping[SegmentId, SegmentId], runner: Runner, progress: Progress, check: Callable[[], None]
    ) -> None:
        """Read back all of the plan's bytes and compare them with the source; changes nothing.

        Args:
            segments: the source's segment → the target's.
            runner: runs the tasks.
            progress: receives the progress.
            check: called after each part.

        Raises:
            Differs: the bytes differ.
        """
        self._segments = segments
        self._verify(runner, progress, check)

    def run(self, runner: Runner, progress: Progress, beside: AbstractContextManager[None] | None = None) -> Restored:
        """Restore, verify, finish.

        Args:
            runner: runs the tasks.
            progress: receives the progress.
            beside: entered when the lease was taken, before the target is created or resumed, and left before the
                lease is released.

        Raises:
            TargetTaken: the target is not this import's; nothing was written to it.
            TargetBusy: another import is restoring into the target; nothing was written to it.
            Damaged: the archive is damaged.
            Failed: the restored stream differs from the archive, or was scaled by another process.
        """
        lease = take_lease(self._store, self._name, self._plan.work)
        try:
            with _reporting_lost_lease(lease), beside or nullcontext():
                target = self._bring_up(lease, runner, progress)
                events, size = self._verify(runner, progress, lease.check)
                lease.finishing(target.incarnation)
                target.finish()
            finished = time.monotonic()
        except BaseException:
            # Once policies are set, the mark is gone and only the lease shows which import the target belongs to.
            lease.release(remove=not lease.is_finishing)
            raise
        lease.release(remove=True)
        progress.end()
        return Restored(target.resumed, events, size, self._moved, self._segments, finished)

    def advance(
        self, lease: Lease, runner: Runner, progress: Progress, *, move_head: bool, taken: Callable[[str], None]
    ) -> Mapping[SegmentId, SegmentId]:
        """Bring the target up to the plan, which more plans follow; it stays unfinished.

        Args:
            lease: the lease on the target.
            runner: runs the tasks.
            progress: receives the progress.
            move_head: also truncate the target as the source was truncated.
            taken: called when the target was created or resumed, before anything is appended to it, with what
                identifies it (`importer.lease.incarnation`).

        Returns:
            The source's segment → the target's.

        Raises:
            Problem: as `run`.
        """
        with _reporting_lost_lease(lease):
            target = self._bring_up(lease, runner, progress, taken)
            if move_head:
                target.move_head()
        return target.segments

    def _bring_up(
        self, lease: Lease, runner: Runner, progress: Progress, taken: Callable[[str], None] = lambda _: None
    ) -> Target:
        """Create or resume the target, fill its segments and replay its scales."""
        target = Target.take(self._store, self._name, self._plan, lease)
        taken(target.incarnation)
        self._segments = target.segments
        if target.marked:
            self._fill(target, runner, progress, lease)
        return target

    def _fill(self, target: Target, runner: Runner, progress: Progress, lease: Lease) -> None:
        """Fill every segment and replay the scales."""
        epochs, steps = self._plan.replay.epochs, list(self._plan.replay.steps[target.epoch :])
        unopened = {segment for step in steps for segment in step.opens}
        full = {s for s in self._plan.segments if s not in unopened and s not in epochs[target.epoch].segments}
        opened = list(epochs[target.epoch].segments)
        progress.begin(
            "importing", sum(plan.end for plan in self._plan.segments.values()), self._held_bytes(full, opened)
        )
        jobs = _Jobs(runner)
        try:
            self._fill_all(jobs, target, lease, progress, steps=steps, full=full, opened=opened)
        finally:
            jobs.stop()

    def _fill_all(
        self,
        jobs: _Jobs,
        target: Target,
        lease: Lease,
        progress: Progress,
        *,
        steps: list[ScaleStep],
        full: set[SegmentId],
        opened: list[SegmentId],
    ) -> None:
        while True:
            full |= {segment for segment in opened if not self._plan.segments[segment].end}
            jobs.add(self._fill_task(segment) for segment in opened if self._plan.segments[segment].end)
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
                segment = self._archived.pop(filled.segment)
                full.add(segment)
                self._moved += filled.moved
                self._proved[segment] = filled.proved_from
                progress.advance(0, filled.appended)

    def _held_bytes(self, full: Iterable[SegmentId], opened: Iterable[SegmentId]) -> int:
        """Return how many bytes the target has already."""
        infos = self._store.segment_info(self._name, [self._segments[segment] for segment in opened])
        return sum(self._plan.segments[s].end for s in full) + sum(info.write_offset for info in infos)

    def _fill_task(self, segment: SegmentId) -> FillTask:
        plan, filled = self._plan.segments[segment], self._segments[segment]
        self._archived[filled] = segment
        return FillTask(
            target=self._address,
            stream=self._name,
            segment=filled,
            window=self._window,
            head=plan.head,
            sections=plan.sections,
            compare=COMPARED_BYTES if self._trust_earlier else 0,
            whole_events=self._whole_events,
            content=self._plan.content,
        )

    def _verify(self, runner: Runner, progress: Progress, check: Callable[[], None]) -> tuple[int, int]:
        """Compare restored ranges with their digests; return events and bytes.

        A range of which this run appended every byte needs no reading: its digest was computed from the appended
        blocks, each of which was acknowledged at its offset.
        """
        known = [part for segment, part in self._plan.parts if self._is_proved(segment, part)]
        events, size = sum(part.events or 0 for part in known), sum(part.end - part.start for part in known)
        progress.begin("verifying", self._plan.bytes, size)
        for _, verified in runner.run(verify_range, list(self._verify_tasks())):
            check()
            events += verified.events
            size += verified.size
            progress.advance(verified.events, verified.size)
        return events, size

    def _is_proved(self, segment: SegmentId, part: Part) -> bool:
        if self._trust_earlier and not self._read_back:
            return True
        proved_from = self._proved.get(segment)
        return not self._read_back and part.whole and proved_from is not None and part.start - part.shift >= proved_from

    def _verify_tasks(self) -> Iterator[VerifyTask]:
        for segment, part in self._plan.parts:
            if self._is_proved(segment, part):
                continue
            yield self._verify_task(segment, part)

    def _verify_task(self, segment: SegmentId, part: Part) -> VerifyTask:
        return VerifyTask(
            target=self._address,
            stream=self._name,
            segment=self._segments[segment],
            origin=part.origin,
            start=part.start,
            end=part.end,
            shift=part.shift,
            events=part.events,
        )


@contextmanager
def _reporting_lost_lease(lease: Lease) -> Iterator[None]:
    """Report a lost lease instead of its consequences: the store rejects a late run's requests in many ways.

    Raises:
        LeaseHeld: the lease was lost.
    """
    try:
        yield
    except (Conflict, InvalidCut, NoSuchSegment, NoSuchStream, ScaleRefused, StreamSealed):
        lease.confirm()
        raise


class _Jobs:
    """Fill jobs, which run while scales create more segments: a few at a time; further tasks wait for the next job."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
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

    def stop(self) -> None:
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
            for _, filled in self._runner.run(fill_segment, batch):
                self._results.put(filled)
                if self._stopped.is_set():
                    break
        except BaseException as error:  # noqa: BLE001  (it is raised again where results are taken)
            self._results.put(error)
        self._results.put(None)
