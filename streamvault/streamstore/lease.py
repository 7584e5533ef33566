"""Named leases for mutual exclusion: a killed process loses its lease, a running one keeps it.

The holder appends a heartbeat, a record of fixed size, to a small stream every few seconds. Creating the stream decides
between processes that start together. A process that finds the stream watches it: if a record arrives, the holder is
alive; otherwise the holder is dead, and the watcher takes over by an append at exactly the watched offset, which
succeeds for only one. A sealed stream is a released lease that its holder was about to delete.

A lease avoids duplicate work and allows clear messages; it is not a safety mechanism. A paused holder notices the loss
of its lease only when it checks, so late actions under a lease must be harmless.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterable
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from streamvault.common.errors import Conflict
from streamvault.common.waiting import pauses
from streamvault.streamstore.errors import (
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    OffsetConflict,
    RequestFailed,
    SegmentSealed,
    SegmentTruncated,
    StoreBusy,
    StreamExists,
    StreamStoreError,
)
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import HEADER_BYTES, StreamConfiguration, StreamName
from streamvault.streamstore.own import OWN, OwnSegment, is_own
from streamvault.streamstore.store import SegmentAppender, StreamStore

ATTEMPTS = 100
"""How often a lease's stream may be gone, or truncated, between two requests: others take, give back and look."""

BEAT_SECONDS = 2.0
"""Interval between a holder's heartbeats."""

PATIENCE_SECONDS = 6 * BEAT_SECONDS
"""How long a silent holder is watched before it is considered dead."""

RECORD_BYTES = 512

KEPT_BEATS = 256
"""Heartbeats after which a holder truncates all records before its last."""

LOOK_SECONDS = 0.25


class LeaseHeld(Conflict):
    """Another live process holds the lease, or took it over because this process seemed dead."""

    retriable = transient = True


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a holder appends every few seconds.

    Attributes:
        work: identifies the holder's work; a run that resumes it uses the same value.
        run: identifies this process's run.
        finishing: whether `Lease.finishing` was called by this run or an earlier one of the same work.
        host: the machine, its boot and its PID namespace.
        pid: the holder's process id.
        started: the process's start time in clock ticks.
        about: the argument of `Lease.finishing`; empty before.
    """

    work: str
    run: str
    finishing: bool
    host: str
    pid: int
    started: str
    about: str = ""

    def encode(self) -> bytes:
        """Encode as one event of `RECORD_BYTES`."""
        return frame(json.dumps(asdict(self)).encode().ljust(RECORD_BYTES - HEADER_BYTES))

    @classmethod
    def decode(cls, event: bytes) -> Heartbeat | None:
        """Decode an event; None if it is not a heartbeat."""
        try:
            return cls(**json.loads(event[HEADER_BYTES:]))
        except (ValueError, TypeError):
            return None


def last_heartbeat(store: StreamStore, name: StreamName) -> Heartbeat | None:
    """Return the last heartbeat of the holder of a lease, alive or dead; None if the lease is not held."""
    for _ in range(ATTEMPTS):
        try:
            described = store.describe(name)
            if described.sealed or not is_own(described.configuration):
                return None
            segment = OwnSegment(store, described)
            end = segment.info().write_offset
            return _heartbeat_before(segment, end) if end else None
        except SegmentTruncated:
            continue  # its holder truncated it in the meantime
        except (NoSuchScope, NoSuchStream, NoSuchSegment):
            return None
    raise _changes_always(store, name)


def _changes_always(store: StreamStore, name: StreamName) -> RequestFailed:
    todo = "Check that the address is a Pravega cluster's."
    return RequestFailed(
        "the stream of a lease is a different one at each request", where=f"{store.uri}/{name}", todo=todo
    )


def watch_silence(store: StreamStore, name: StreamName, seconds: float, *, held: LeaseHeld) -> None:
    """Watch a lease for some seconds.

    Raises:
        LeaseHeld: as given, if its holder sends a record meanwhile.
        NoSuchStream, NoSuchScope, NoSuchSegment: it is deleted.
    """
    segment = OwnSegment(store, store.describe(name))
    offset = segment.info().write_offset
    for _ in pauses(seconds, first=LOOK_SECONDS, at_once=False):
        if segment.info().write_offset != offset:
            raise copy(held)


def find_beating(store: StreamStore, names: Iterable[StreamName], seconds: float) -> dict[StreamName, bool]:
    """Watch leases until the holder of each has sent a record, for some seconds at most.

    Returns:
        Lease → whether its holder has sent one; without those that were released meanwhile.
    """
    gone = (NoSuchScope, NoSuchStream, NoSuchSegment)
    found: dict[StreamName, bool] = {}
    ends: dict[StreamName, tuple[OwnSegment, int]] = {}
    for name in names:
        with contextlib.suppress(*gone):
            segment = OwnSegment(store, store.describe(name))
            ends[name], found[name] = (segment, segment.info().write_offset), False
    for _ in pauses(seconds if ends else 0, first=LOOK_SECONDS, at_once=False):
        for name, (segment, end) in list(ends.items()):
            try:
                info = segment.info()
                if info.sealed:  # released
                    raise NoSuchStream("the lease was released", where=segment.where)
                found[name] = info.write_offset != end
            except gone:
                del found[name], ends[name]
            else:
                if found[name]:
                    del ends[name]
        if not ends:
            break
    return found


class Lease:
    """An exclusive lease, held until `release` or the end of this process.

    Acquire it with `Lease.take`. A thread sends the heartbeats; `check` raises if the lease was lost.

    Attributes:
        name: the lease's stream.
        former: the last heartbeat of a dead previous holder, or None.
    """

    def __init__(
        self,
        segment: OwnSegment,
        appender: SegmentAppender,
        *,
        mine: Heartbeat,
        former: Heartbeat | None,
        held: LeaseHeld,
    ) -> None:
        self.name = segment.name
        self.former = former
        self._held = held
        self._segment = segment
        self._appender = appender
        self._mine = mine
        self._beats = 0
        self._stop = threading.Event()
        self._lost: StreamStoreError | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep_up, name=f"lease {segment.name}", daemon=True)
        self._thread.start()

    @classmethod
    def take(
        cls, store: StreamStore, name: StreamName, work: str | None, *, held: LeaseHeld, wait_seconds: float = 0.0
    ) -> Lease:
        """Acquire a lease.

        Args:
            store: the store of the lease's stream.
            name: the lease's stream; created if missing, with its scope.
            work: identifies the work done under the lease; None keeps what a dead holder has recorded, for a caller
                who only looks after what it has left.
            held: the error to raise if the lease is held; `check` raises the same type.
            wait_seconds: how long to wait for a live holder.

        Raises:
            LeaseHeld: a live process holds the lease.
            RequestFailed: the store says again and again that the lease's stream is gone.
            Conflict: a user's stream has the name.
        """
        for _ in pauses(wait_seconds, first=LOOK_SECONDS):
            with contextlib.suppress(LeaseHeld):
                return cls._take(store, name, work, held)
        raise copy(held)  # the traceback of one error would grow with every lease

    @classmethod
    def _take(cls, store: StreamStore, name: StreamName, work: str | None, held: LeaseHeld) -> Lease:
        pid, run = os.getpid(), uuid.uuid4().hex
        mine = Heartbeat(work or "", run, finishing=False, host=_this_host(), pid=pid, started=_start_time(pid))
        for _ in range(ATTEMPTS):
            with contextlib.suppress(StreamExists):
                store.create_stream_and_scope(name, StreamConfiguration(tags=(OWN,)))
            try:
                described = store.describe(name)
                segment = OwnSegment(store, described) if is_own(described.configuration) else None
                if segment is None or (described.sealed and not _was_released(segment)):
                    raise Conflict(
                        "the name Streamvault needs for a lease is taken by another stream",
                        where=f"{store.uri}/{name}",
                        todo="Rename or delete it, or use another scope.",
                    )
                if described.sealed:  # its holder ended before it could delete it
                    segment.delete()
                    continue
                former, offset = _watch(segment, held)
                if former is not None and work in {None, former.work}:
                    # keep this for the next run, should this one die as well
                    mine = replace(mine, work=former.work, finishing=former.finishing, about=former.about)
                appender = segment.appender()
                if appender.offset != offset:
                    appender.close()
                    raise copy(held)
                appender.append(mine.encode())
                appender.flush()
            except (NoSuchStream, NoSuchSegment, SegmentSealed):
                continue  # released in the meantime
            except (OffsetConflict, StoreBusy):
                raise copy(held) from None
            return cls(segment, appender, mine=mine, former=former, held=held)
        raise _changes_always(store, name)

    def check(self) -> None:
        """Raise if the lease was lost.

        Raises:
            LeaseHeld: another process took over, or a heartbeat failed.
        """
        if self._lost is not None:
            cause = ": ".join(filter(None, (self._held.where, self._lost.what, self._lost.where)))
            raise type(self._held)(
                "this process lost its lease", where=cause, todo=f"{self._lost.todo} Run the same command again."
            )

    def confirm(self) -> None:
        """Send a heartbeat, and raise if the lease was lost.

        `check` reports only the result of the last heartbeat, which may be old after a pause.

        Raises:
            LeaseHeld: as `check`.
        """
        if self._lost is None:
            self._beat()
        self.check()

    @property
    def is_finishing(self) -> bool:
        """Whether `finishing` was called by this run or the one it resumes."""
        return self._mine.finishing

    @property
    def died_before(self) -> bool:
        """Whether an earlier run of this same work died."""
        return self.former is not None and self.former.work == self._mine.work

    @property
    def finished_before(self) -> bool:
        """Whether an earlier run of this same work died after calling `finishing`."""
        return self.died_before and self.former is not None and self.former.finishing

    def finishing(self, about: str = "") -> None:
        """Record, for a run that takes over, that only the last step remains.

        Args:
            about: what is being finished, so that nothing else is taken for it (at most 40 characters).
        """
        self._mine = replace(self._mine, finishing=True, about=about)
        self.confirm()

    def release(self, *, remove: bool) -> None:
        """Release the lease; with ``remove`` also delete its stream (the work is done, or was never started).

        A lost lease is left to its new holder.
        """
        self._stop.set()
        self._thread.join()
        if remove and self._lost is None:
            self._beat()
        self._appender.close()
        if remove and self._lost is None:
            self._segment.delete()

    def _keep_up(self) -> None:
        while not self._stop.wait(BEAT_SECONDS) and self._lost is None:
            self._beat()

    def _beat(self) -> None:
        with self._lock:
            try:
                self._appender.append(self._mine.encode())
                end = self._appender.flush()
            except StreamStoreError as error:
                self._lost = error
                return
            self._beats += 1
            if self._beats % KEPT_BEATS == 0:
                with contextlib.suppress(StreamStoreError):  # retried later
                    self._segment.truncate(end - RECORD_BYTES)


def _watch(segment: OwnSegment, held: LeaseHeld) -> tuple[Heartbeat | None, int]:
    """Wait until the holder is known to be dead; return its last heartbeat and the offset for the takeover."""
    offset = segment.info().write_offset
    if offset == 0:
        # just created, by this process or one that has not written yet; the append decides between them
        return None, 0
    try:
        last = _heartbeat_before(segment, offset)
    except SegmentTruncated:
        raise copy(held) from None
    for _ in pauses(0.0 if last and is_dead(last) else PATIENCE_SECONDS, first=LOOK_SECONDS, at_once=False):
        info = segment.info()
        if info.sealed:
            raise SegmentSealed("the lease was released", where=str(segment.name))
        if info.write_offset != offset:
            raise copy(held)
    return last, offset


def _was_released(segment: OwnSegment) -> bool:
    """Return whether a sealed stream was a lease: it is empty, or its last record is one."""
    end = segment.info().write_offset
    return not end or _heartbeat_before(segment, end) is not None


def _heartbeat_before(segment: OwnSegment, end: int) -> Heartbeat | None:
    return Heartbeat.decode(segment.read(max(0, end - RECORD_BYTES), end))


def is_dead(last: Heartbeat) -> bool:
    """Return whether the holder ran on this machine and has ended; False if unknown."""
    return last.host == _this_host() and _start_time(last.pid) != last.started


def _this_host() -> str:
    """Identify the PID space: containers on one machine may share host name and boot id, but not process ids."""
    boot, ids = Path("/proc/sys/kernel/random/boot_id"), ""
    with contextlib.suppress(OSError):
        ids = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''} {ids}"


def _start_time(pid: int) -> str:
    """Return a process's start time in clock ticks since boot; empty if the process (or /proc) does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
