"""One at a time, by name: a lease that a killed process loses and a running one keeps.

A small stream holds records of a fixed size, one every few seconds. Creating the stream decides between two that start
together. Who finds it there watches it: if a record arrives, the holder is alive; if none does, it is dead, and its
place is taken by an append at exactly the offset that was watched, which succeeds for one only. A sealed stream is a
lease that was given back: its holder was about to delete it.

A lease spares work and gives clear messages; it does not make anything safe. A holder that was paused finds out that it
lost the lease only when it looks, so what it does under it has to be harmless when it comes late.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
import threading
import time
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from problems import Conflict
from streamstore.errors import (
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    OffsetConflict,
    SegmentSealed,
    SegmentTruncated,
    StoreBusy,
    StreamChanged,
    StreamExists,
    StreamStoreError,
)
from streamstore.model import SegmentId, StreamConfiguration, StreamCut, StreamDescription, StreamName
from streamstore.own import OWN, is_own
from streamstore.store import SegmentAppender, StreamStore

__all__ = ["BEAT_SECONDS", "PATIENCE_SECONDS", "Lease", "LeaseHeld", "Record", "last_record", "stream_beside"]

BEAT_SECONDS = 2.0
"""How often a holder says that it is alive."""

PATIENCE_SECONDS = 12.0
"""How long a silent holder is watched before it counts as dead: six beats."""

RECORD_BYTES = 512
_HEADER = struct.Struct(">ii")

KEPT_BEATS = 256
"""After how many of its beats a holder drops the records before its last."""

LOOK_SECONDS = 0.25


class LeaseHeld(Conflict):
    """Somebody else who is alive holds the lease, or took it because this process seemed dead."""

    retriable = True


@dataclass(frozen=True, slots=True)
class Record:
    """One beat.

    Attributes:
        work: what the holder does under the lease; the same for one that goes on with it.
        run: this process's run of it.
        finishing: whether `Lease.finishing` was called, by this run or one before it of the same work.
        host: the machine, its boot and the namespace of its process ids. pid: of the holder. started: the process's
            start time in clock ticks.
    """

    work: str
    run: str
    finishing: bool
    host: str
    pid: int
    started: str

    def encode(self) -> bytes:
        """As one event of `RECORD_BYTES`."""
        text = json.dumps(asdict(self)).encode()
        return _HEADER.pack(0, RECORD_BYTES - _HEADER.size) + text.ljust(RECORD_BYTES - _HEADER.size)

    @classmethod
    def decode(cls, event: bytes) -> Record | None:
        """The record of an event; None if it is none."""
        try:
            return cls(**json.loads(event[_HEADER.size :]))
        except (ValueError, TypeError):
            return None


def stream_beside(target: StreamName, prefix: str) -> StreamName:
    """A stream for the lease on another one: in its scope, with a name of its own."""
    return StreamName(target.scope, prefix + hashlib.sha256(str(target).encode()).hexdigest()[:20])


def last_record(store: StreamStore, name: StreamName) -> Record | None:
    """The last record of who holds a lease, or held it and died; None if nobody does. Says nothing of who is alive.

    Args:
        store: where its stream is.
        name: of the lease's stream.
    """
    while True:
        try:
            described = store.describe(name)
            if described.sealed or not is_own(described.configuration):
                return None
            segment = next(iter(described.tail.offsets))
            end = store.segment_info(name, [segment])[0].write_offset
            return _record_before(store, name, segment, end) if end else None
        except SegmentTruncated:
            continue  # its holder has gone on meanwhile
        except (NoSuchScope, NoSuchStream, NoSuchSegment):
            return None


class Lease:
    """The right to do something alone, held until `release` or this process's end.

    Use `Lease.take`. A thread keeps it up; `check` says whether it still holds.

    Attributes:
        former: the last record of a holder that died, or None.
    """

    def __init__(
        self,
        store: StreamStore,
        described: StreamDescription,
        appender: SegmentAppender,
        *,
        mine: Record,
        former: Record | None,
        held: LeaseHeld,
    ) -> None:
        self.former = former
        self._held = held
        self._store = store
        self._name = described.name
        self._first = described.epochs[0]
        self._appender = appender
        self._mine = mine
        self._beats = 0
        self._stop = threading.Event()
        self._lost: StreamStoreError | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep_up, name=f"lease {self._name}", daemon=True)
        self._thread.start()

    @classmethod
    def take(
        cls, store: StreamStore, name: StreamName, work: str, *, held: LeaseHeld, wait_seconds: float = 0.0
    ) -> Lease:
        """Take a lease.

        Args:
            store: where its stream is.
            name: of the lease's stream, which is made if need be, also its scope.
            work: what is done under it.
            held: what to raise if somebody holds it; of its kind is also what `check` raises.
            wait_seconds: for how long a living holder is waited for.

        Raises:
            LeaseHeld: a living process holds it.
            Conflict: a user's stream has the name.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                return cls._take(store, name, work, held)
            except LeaseHeld:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(LOOK_SECONDS)

    @classmethod
    def _take(cls, store: StreamStore, name: StreamName, work: str, held: LeaseHeld) -> Lease:
        pid = os.getpid()
        mine = Record(work, uuid.uuid4().hex, finishing=False, host=_this_host(), pid=pid, started=_start_time(pid))
        while True:
            with contextlib.suppress(StreamExists):
                store.create_stream_and_scope(name, StreamConfiguration(tags=(OWN,)))
            try:
                described = store.describe(name)
                if not is_own(described.configuration):
                    raise Conflict(
                        "a stream has the name that Streamvault needs for a lease",
                        where=f"{store.uri}/{name}",
                        todo="Rename or delete it, or use another scope.",
                    )
                if described.sealed:  # given back; who did so was ended before it could delete it
                    with contextlib.suppress(StreamChanged):
                        store.delete(name, first=described.epochs[0])
                    continue
                segment = next(iter(described.tail.offsets))
                former, offset = _watch(store, name, segment, held)
                if former is not None and former.work == work:
                    # a run that dies in its turn must not take this knowledge with it
                    mine = replace(mine, finishing=former.finishing)
                appender = store.appender(name, segment, in_flight=1)
                if appender.offset != offset:
                    appender.close()
                    raise _anew(held)
                appender.append(mine.encode())
                appender.flush()
            except (NoSuchStream, NoSuchSegment, SegmentSealed):
                continue  # its holder gave it back while we looked
            except (OffsetConflict, StoreBusy):
                raise _anew(held) from None
            return cls(store, described, appender, mine=mine, former=former, held=held)

    def check(self) -> None:
        """Raise if the lease was lost.

        Raises:
            LeaseHeld: somebody thought this process dead, or it could not say that it is alive.
        """
        if self._lost is not None:
            raise type(self._held)(
                "this process lost its lease", where=f"{self._held.where}: {self._lost}", todo="Run it again."
            )

    def confirm(self) -> None:
        """Say that this process is alive, and raise if it is not the holder any more.

        `check` tells what the last beat found out, which after a pause may be long ago.

        Raises:
            LeaseHeld: as `check`.
        """
        if self._lost is None:
            self._beat()
        self.check()

    @property
    def is_finishing(self) -> bool:
        """Whether `finishing` was called, by this run or the one that it goes on with."""
        return self._mine.finishing

    @property
    def died_before(self) -> bool:
        """Whether an earlier run of this same work died."""
        return self.former is not None and self.former.work == self._mine.work

    @property
    def finished_before(self) -> bool:
        """Whether an earlier run of this same work had called `finishing` and died after it."""
        return self.died_before and self.former is not None and self.former.finishing

    def finishing(self) -> None:
        """Note that all but the last step is done, for a run that takes over."""
        self._mine = replace(self._mine, finishing=True)
        self.confirm()

    def release(self, *, remove: bool) -> None:
        """Give the lease back; with ``remove`` its stream goes too (the work is done, or nothing was begun).

        A lease that was lost meanwhile is left to whoever holds it.
        """
        self._stop.set()
        self._thread.join()
        if remove and self._lost is None:
            self._beat()
        self._appender.close()
        if remove and self._lost is None:
            with contextlib.suppress(NoSuchStream, StreamChanged):
                self._store.delete(self._name, first=self._first)

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
                with contextlib.suppress(StreamStoreError):  # the next time will do
                    segment = next(iter(self._store.describe(self._name).tail.offsets))
                    self._store.truncate(StreamCut(self._name, {segment: end - RECORD_BYTES}))


def _anew(held: LeaseHeld) -> LeaseHeld:
    """The same refusal as an exception of its own, so that no traceback grows from one try to the next."""
    return type(held).rebuild(held.what, held.where, held.todo)


def _watch(store: StreamStore, name: StreamName, segment: SegmentId, held: LeaseHeld) -> tuple[Record | None, int]:
    """Wait until the holder is known to be dead; its last record and the offset to go on from."""
    offset = store.segment_info(name, [segment])[0].write_offset
    if offset == 0:
        # just created, by us or by somebody who has not written yet; the append decides between the two
        return None, 0
    try:
        record = _record_before(store, name, segment, offset)
    except SegmentTruncated:
        raise _anew(held) from None
    deadline = time.monotonic() + (0.0 if record and _dead(record) else PATIENCE_SECONDS)
    while time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        info = store.segment_info(name, [segment])[0]
        if info.sealed:
            raise SegmentSealed("the lease was given back", where=str(name))
        if info.write_offset != offset:
            raise _anew(held)
    return record, offset


def _record_before(store: StreamStore, name: StreamName, segment: SegmentId, end: int) -> Record | None:
    return Record.decode(b"".join(bytes(block) for block in store.read(name, segment, max(0, end - RECORD_BYTES), end)))


def _dead(record: Record) -> bool:
    """Whether the record's process ran on this machine and is gone; False if that cannot be known."""
    return record.host == _this_host() and _start_time(record.pid) != record.started


def _this_host() -> str:
    """What process ids can be compared within: containers on one machine may share host name and boot, but not ids."""
    boot, ids = Path("/proc/sys/kernel/random/boot_id"), ""
    with contextlib.suppress(OSError):
        ids = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''} {ids}"


def _start_time(pid: int) -> str:
    """A process's start time in clock ticks since boot; empty if there is no such process (or no /proc)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
