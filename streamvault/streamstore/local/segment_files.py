"""Files of the embedded store that survive kills and power losses: those of a segment, locks on folders, and errors.

A segment has two files, its bytes and its state: how far they go, from where to where. The state is overwritten in
place. It has two slots, each a page with one line of JSON and a checksum; a change overwrites the older one. So one
slot is always intact on disk, and changes succeed even on a full disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import secrets
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from uuid import UUID

from streamvault.common import processes
from streamvault.common.processes import open_file, sync_folder, write_all
from streamvault.streamstore.errors import AccessDenied, StoreFull, StreamStoreError, StreamStoreUnavailable
from streamvault.streamstore.model import SegmentId

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextlib.contextmanager
def system_errors(where: Path) -> Iterator[None]:
    """Translate system errors into the store's errors, except `FileNotFoundError`.

    Raises:
        StoreFull: the disk or quota is full.
        AccessDenied: access is denied, or the file system is read-only.
        StreamStoreUnavailable: any other system error.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            raise StoreFull(
                f"the disk is full ({why})",
                where=str(where),
                todo="Acknowledged data is kept; free space and run this again.",
            ) from None
        if error.errno in _DENIED:
            raise AccessDenied(f"access to the store denied ({why})", where=str(where)) from None
        if error.errno == errno.ENOTDIR:
            what = "a file is in the place of the store's folder"
            raise StreamStoreError(what, where=str(where), todo="Check the address.") from None
        raise StreamStoreUnavailable(f"the store's folder cannot be used ({why})", where=str(where)) from None


@contextlib.contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a folder against other processes and threads; waits for it. A kill frees it.

    Raises:
        FileNotFoundError: the folder does not exist, or was removed while waiting.
    """
    while True:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(handle), folder.stat()):  # else it was replaced in the meantime
                yield
                return
        finally:
            os.close(handle)


def make_folder(folder: Path) -> bool:
    """Make a folder that outlasts a power loss, and those above it; False if it was there."""
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    try:
        processes.make_folder(folder)
    except FileExistsError:
        return False
    sync_folder(folder.parent)
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that it is at any time the old one or the new one, whole."""
    draft = path.with_name(f".draft-{secrets.token_hex(8)}")
    try:
        handle = processes.make_file(draft)
        try:
            write_all(handle, content, 0)
            os.fsync(handle)
        finally:
            os.close(handle)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def punch_hole(handle: int, length: int) -> None:
    """Give the room of a file's first bytes back to the disk; offsets stay. Does nothing where that cannot be done."""
    if sys.platform != "linux" or length <= 0:
        return
    keep_size_and_punch_hole = 0x01 | 0x02
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(handle, keep_size_and_punch_hole, 0, length) != 0:
        code = ctypes.get_errno()
        if code not in {errno.EOPNOTSUPP, errno.ENOSYS}:
            raise OSError(code, os.strerror(code))


_SLOT = 4096


@dataclass(frozen=True, slots=True)
class SegmentState:
    """The acknowledged stretch of a segment.

    Attributes:
        start: first offset that was not dropped (bytes); the stream's head may lie further on.
        write: where the next event goes (bytes).
        sequence: rises with each change.
    """

    start: int = 0
    write: int = 0
    sequence: int = 0


def read_beginning(path: str | Path, size: int) -> bytes:
    """Return the first bytes of a file, at the least cost: this is done with every block that is read.

    Raises:
        FileNotFoundError: there is none.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, size)
    finally:
        os.close(handle)


def read_state(path: Path) -> SegmentState:
    """The newest state; that of an empty segment if there is no file.

    Raises:
        StreamStoreError: neither slot is whole: the file was damaged from outside.
    """
    try:
        content = read_beginning(path, 2 * _SLOT)
    except FileNotFoundError:
        return SegmentState()
    slots = [_decode(content[at : at + _SLOT]) for at in (0, _SLOT)]
    found = max((slot for slot in slots if slot is not None), key=lambda slot: slot.sequence, default=None)
    if found is None:
        raise StreamStoreError("a segment's state file is damaged", where=str(path))
    return found


def write_state(path: Path, *, start: int, write: int) -> None:
    """Change the state; it is on disk when this returns. The stream's lock keeps others from changing it."""
    sequence = read_state(path).sequence + 1
    handle = os.open(path, os.O_WRONLY)
    try:
        write_all(handle, _encode(SegmentState(start, write, sequence)), sequence % 2 * _SLOT)
        os.fdatasync(handle)
    finally:
        os.close(handle)


def _encode(state: SegmentState) -> bytes:
    values = [state.start, state.write, state.sequence]
    line = json.dumps({"start": state.start, "write": state.write, "sequence": state.sequence, "check": _check(values)})
    return line.encode().ljust(_SLOT - 1) + b"\n"


@lru_cache(maxsize=256)  # an appender reads it with each block
def _decode(slot: bytes) -> SegmentState | None:
    try:
        line = json.loads(slot)
        values = [line["start"], line["write"], line["sequence"]]
        return SegmentState(*values) if line["check"] == _check(values) else None
    except (ValueError, KeyError, TypeError):
        return None


def _check(values: list[int]) -> int:
    return zlib.crc32(json.dumps(values).encode())


_BLOCK_BYTES = 1024 * 1024
_NOT_OFFERED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The data file and the state file, which appear with the first append.

    Attributes:
        data: the bytes, at their offsets.
        state: how far they are acknowledged; its lock is held to write bytes at the end.
    """

    data: Path
    state: Path

    @classmethod
    @lru_cache(maxsize=1024)  # making paths takes longer than reading a short file
    def of_segment(cls, folder: Path, segment: SegmentId) -> SegmentFiles:
        """Those of a segment, in its stream's folder."""
        return cls(folder / f"{segment}.data", folder / f"{segment}.state")

    @classmethod
    def of_part(cls, folder: Path, transaction: UUID, number: int) -> SegmentFiles:
        """Those of a transaction's part, which goes into the segment of a number."""
        name = f"{transaction.hex}-{number}"
        return cls(folder / f"{name}.part", folder / f"{name}.part-state")

    def end(self) -> int:
        """How far the bytes are acknowledged."""
        return read_state(self.state).write

    def read(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield the acknowledged bytes ``[start, end)``, in blocks that are valid until the next one is asked for.

        Raises:
            FileNotFoundError: there is no data file (any more).
        """
        handle = os.open(self.data, os.O_RDONLY)
        try:
            buffer = memoryview(bytearray(min(_BLOCK_BYTES, end - start)))
            while start < end:
                got = os.preadv(handle, [buffer[: end - start]], start)
                if got == 0:
                    raise StreamStoreError(f"the segment's file ends at {start} instead of {end}", where=str(self.data))
                yield buffer[:got]
                start += got
        finally:
            os.close(handle)

    def prepare(self) -> None:
        """Make the state file if there is none."""
        if not self.state.exists():
            replace_file(self.state, _encode(SegmentState()) + b" " * (_SLOT - 1) + b"\n")
        sync_folder(self.state.parent)

    @contextlib.contextmanager
    def writing(self) -> Iterator[SegmentState]:
        """Keep others from writing bytes at the end; yields the state.

        Raises:
            FileNotFoundError: there is no state file (any more).
        """
        with self.state.open("rb", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield read_state(self.state)

    def reserve(self, offset: int, length: int) -> None:
        """Take the room on the disk for bytes at an offset, and make the files; what is there stays.

        Raises:
            OSError: the disk is full.
        """
        self.prepare()
        handle = open_file(self.data)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, offset, length)
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise
        finally:
            os.close(handle)
        sync_folder(self.data.parent)

    def take(self, source: SegmentFiles, base: int, length: int) -> None:
        """Append another's first bytes at an offset, unless that was done before; the stream's lock is held alone.

        Readers and writers see all of it or nothing. Bytes that an appender wrote there without an acknowledgement are
        lost, and it finds so with its next append.

        Raises:
            StreamStoreError: the end is another one than given, or the source is too short.
        """
        with self.writing() as state:
            if state.write == base + length:
                return
            if state.write != base:
                raise StreamStoreError(f"the segment ends at {state.write} instead of {base}", where=str(self.data))
            with source.data.open("rb", buffering=0) as read, self.data.open("r+b", buffering=0) as write:
                for at in range(0, length, _BLOCK_BYTES):
                    block = os.pread(read.fileno(), min(_BLOCK_BYTES, length - at), at)
                    if len(block) < min(_BLOCK_BYTES, length - at):
                        raise StreamStoreError(f"the file ends before {length}", where=str(source.data))
                    write_all(write.fileno(), block, base + at)
                os.fdatasync(write.fileno())
            write_state(self.state, start=state.start, write=base + length)

    def remove(self) -> None:
        """Delete both, as far as they are there."""
        self.data.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)
