"""Files that survive kills and power losses, locks between processes, and translation of system errors."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from streamvault.common import modes
from streamvault.streamstore.errors import AccessDenied, StoreFull, StreamStoreError, StreamStoreUnavailable

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
        modes.make_folder(folder)
    except FileExistsError:
        return False
    sync_folder(folder.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Make names that were added to or removed from a folder outlast a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that it is at any time the old one or the new one, whole."""
    draft = path.with_name(f".draft-{secrets.token_hex(8)}")
    try:
        handle = modes.make_file(draft)
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


def write_all(handle: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write bytes at an offset of a file, all of them or an error."""
    rest = memoryview(data).cast("B")
    while rest:
        written = os.pwrite(handle, rest, offset)
        rest, offset = rest[written:], offset + written


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
