"""Who restores into a target right now: a lease that a killed import loses and a running one keeps.

A stream tag says whose unfinished import a target is, but not whether that import still runs. So a small stream
beside the target holds records of a fixed size, one every few seconds. Creating the stream decides between two imports
that start together. Who finds it there watches it: if a record arrives, the other import is alive; if none does, it is
dead, and its place is taken by an append at exactly the offset that was watched, which succeeds for one only.
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
from streamstore.errors import NoSuchSegment, NoSuchStream, OffsetConflict, StoreBusy, StreamExists, StreamStoreError
from streamstore.model import SegmentId, StreamConfiguration, StreamName
from streamstore.store import SegmentAppender, StreamStore

__all__ = ["BEAT_SECONDS", "PATIENCE_SECONDS", "Lease", "Record", "TargetBusy", "lease_stream"]

BEAT_SECONDS = 2.0
"""How often a running import says that it is alive."""

PATIENCE_SECONDS = 12.0
"""How long a silent import is watched before it counts as dead: six beats."""

RECORD_BYTES = 512
_HEADER = struct.Struct(">ii")
_NAME_PREFIX = "streamvault-import-"


class TargetBusy(Conflict):
    """Another import restores into this target."""


@dataclass(frozen=True, slots=True)
class Record:
    """One beat.

    Attributes:
        work: which import (see `importer.plan`): the same for the same command.
        run: this process's run of it.
        finishing: whether all data is verified and only policies and the seal are left.
        host: the machine and its boot. pid: of the driver. started: the process's start time in clock ticks.
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


def lease_stream(target: StreamName) -> StreamName:
    """The stream that holds the target's lease: in its scope, with a name of its own."""
    return StreamName(target.scope, _NAME_PREFIX + hashlib.sha256(str(target).encode()).hexdigest()[:20])


class Lease:
    """The right to restore into a target, held until `release` or this process's end.

    Use `Lease.take`. A thread keeps it up; `check` says whether it still holds.

    Attributes:
        former: the last record of an import that held it before and died, or None.
    """

    def __init__(
        self, store: StreamStore, name: StreamName, appender: SegmentAppender, mine: Record, former: Record | None
    ) -> None:
        self.former = former
        self._store = store
        self._name = name
        self._appender = appender
        self._mine = mine
        self._stop = threading.Event()
        self._lost: StreamStoreError | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep_up, name="import lease", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, store: StreamStore, target: StreamName, work: str) -> Lease:
        """Take the lease on a target.

        Raises:
            TargetBusy: a living import holds it.
        """
        name = lease_stream(target)
        pid = os.getpid()
        mine = Record(work, uuid.uuid4().hex, finishing=False, host=_this_host(), pid=pid, started=_start_time(pid))
        while True:
            with contextlib.suppress(StreamExists):
                store.create_stream(name, StreamConfiguration())
            try:
                segment = next(iter(store.describe(name).tail.offsets))
                former, offset = _watch(store, name, segment, target)
                appender = store.appender(name, segment, in_flight=1)
                if appender.offset != offset:
                    appender.close()
                    raise _busy(target)
                appender.append(mine.encode())
                appender.flush()
            except (NoSuchStream, NoSuchSegment):
                continue  # its holder finished and removed it while we looked
            except (OffsetConflict, StoreBusy):
                raise _busy(target) from None
            return cls(store, name, appender, mine=mine, former=former)

    def check(self) -> None:
        """Raise if the lease was lost (somebody thought this process dead)."""
        if self._lost is not None:
            raise TargetBusy("this import lost its lease on the target", where=str(self._lost), todo="Run it again.")

    @property
    def is_finishing(self) -> bool:
        """Whether `finishing` was called: only policies and the seal are left."""
        return self._mine.finishing

    @property
    def verified_before(self) -> bool:
        """Whether an earlier run of this same import had verified everything and died while finishing."""
        return self.former is not None and self.former.finishing and self.former.work == self._mine.work

    def finishing(self) -> None:
        """Note that all data is verified; a run that takes over need only set policies and the seal."""
        self._mine = replace(self._mine, finishing=True)
        self._beat()
        self.check()

    def release(self, *, remove: bool) -> None:
        """Give the lease back; with ``remove`` its stream goes too (the import is done, or nothing was begun).

        A lease that was lost meanwhile is left to whoever holds it.
        """
        self._stop.set()
        self._thread.join()
        if remove and self._lost is None:
            self._beat()
        self._appender.close()
        if remove and self._lost is None:
            with contextlib.suppress(NoSuchStream):
                self._store.delete(self._name)

    def _keep_up(self) -> None:
        while not self._stop.wait(BEAT_SECONDS) and self._lost is None:
            self._beat()

    def _beat(self) -> None:
        with self._lock:
            try:
                self._appender.append(self._mine.encode())
                self._appender.flush()
            except StreamStoreError as error:
                self._lost = error


def _busy(target: StreamName) -> TargetBusy:
    return TargetBusy(
        "another import is restoring into this stream", where=str(target), todo="Wait for it, or choose another name."
    )


def _watch(store: StreamStore, name: StreamName, segment: SegmentId, target: StreamName) -> tuple[Record | None, int]:
    """Wait until the holder is known to be dead; its last record and the offset to go on from."""
    offset = store.segment_info(name, [segment])[0].write_offset
    if offset == 0:
        # just created, by us or by somebody who has not written yet; the append decides between the two
        return None, 0
    record = _last_record(store, name, segment, offset)
    deadline = time.monotonic() + (0.0 if record and _dead(record) else PATIENCE_SECONDS)
    while time.monotonic() < deadline:
        time.sleep(0.25)
        if store.segment_info(name, [segment])[0].write_offset != offset:
            raise _busy(target)
    return record, offset


def _last_record(store: StreamStore, name: StreamName, segment: SegmentId, end: int) -> Record | None:
    return Record.decode(b"".join(bytes(block) for block in store.read(name, segment, max(0, end - RECORD_BYTES), end)))


def _dead(record: Record) -> bool:
    """Whether the record's process ran on this machine and is gone; False if that cannot be known."""
    return record.host == _this_host() and _start_time(record.pid) != record.started


def _this_host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def _start_time(pid: int) -> str:
    """A process's start time in clock ticks since boot; empty if there is no such process (or no /proc)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
