"""The two files of a segment, or of a transaction's part: its bytes, and how far they go."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from streamvault.common.modes import open_file
from streamvault.streamstore.errors import StreamStoreError
from streamvault.streamstore.local.files import sync_folder, write_all
from streamvault.streamstore.local.state import SegmentState, create_state, read_state, write_state
from streamvault.streamstore.model import SegmentId

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
            create_state(self.state)
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
