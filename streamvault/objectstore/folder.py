"""Object store in a local folder, ``file:///FOLDER``: a key is a path below it.

obstore's local store is not used because it lists unordered, does not fsync, and leaves staging files behind when it is
killed. Here an object is written to an unnamed file, synced, and then hard-linked to its name, which fails if the name
is taken: a kill leaves nothing behind, and once `put` returns, the object survives a power loss.

Keys are listed in byte order, in bounded memory. The system returns names unordered, and a segment's folder may hold
millions. So a folder is read in several passes: each keeps, sorts and yields the lowest names above the last one, up to
`MAX_NAMES`. These 400,000 names take about 40 MB; one million events take three passes, ten million twenty-five.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import TYPE_CHECKING, Any, AnyStr
from urllib.parse import quote, unquote_to_bytes

from streamvault.common.errors import Problem
from streamvault.common.processes import make_file, make_folder, sync_folder, write_all
from streamvault.objectstore.store import (
    SMALL,
    STREAM_BYTES,
    AccessDenied,
    AlreadyExists,
    ByteStream,
    InvalidKey,
    InvalidRoot,
    NoSuchBucket,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
    ObjectStoreError,
    OutOfSpace,
    TooLarge,
    WrongSize,
    check_key,
    check_prefix,
)
from streamvault.objectstore.uri import Scheme

if TYPE_CHECKING:
    from streamvault.objectstore.uri import RootAddress


MAX_NAMES = 400_000
"""Names kept in memory; briefly up to twice as many."""


def walk(root: str, prefix: str, after: str) -> Iterator[tuple[str, int]]:
    """Yield (path below the root, size) of every file below ``prefix`` that sorts after ``after``, in byte order.

    Staging files, links and files deleted during the walk are skipped. A missing folder yields nothing.
    """
    yield from _walk(f"{root}/{prefix}".rstrip("/"), prefix, after)


def has_files(folder: str) -> bool:
    """Return whether a folder tree holds any file other than staging files."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if has_files(entry.path) if entry.is_dir(follow_symlinks=False) else _is_object(entry, "#"):
                return True
    return False


def _walk(folder: str, prefix: str, after: str) -> Iterator[tuple[str, int]]:
    if after.startswith(prefix):
        low = after[len(prefix) :]
    elif after < prefix:
        low = ""
    else:
        return
    for name in _names(folder, os.fsencode(low)):
        path = prefix + name.decode(errors="backslashreplace")
        here = os.path.join(folder, os.fsdecode(name))  # noqa: PTH118 (a Path for each of millions is slow)
        if path.endswith("/"):
            yield from _walk(here.rstrip("/"), path, after)
        else:
            try:
                size = os.stat(here).st_size  # noqa: PTH116 (as above)
            except FileNotFoundError:
                continue
            yield path, size


def _names(folder: str, low: bytes) -> Iterator[bytes]:
    """Yield a folder's names above ``low`` in byte order; folders get a trailing slash, to sort as their files do."""
    # The folder that contains the start path is needed too, although it sorts before that path.
    first = low[: low.find(b"/") + 1]
    while True:
        names, more = _lowest(folder, low, first)
        yield from names
        if not more:
            return
        low, first = names[-1], b""


def _lowest(folder: str, low: bytes, first: bytes) -> tuple[list[bytes], bool]:
    """Return the lowest names above ``low`` (and ``first``), sorted, and whether there are more."""
    names: list[bytes] = []
    cut: bytes | None = None
    try:
        entries = os.scandir(os.fsencode(folder))
    except (FileNotFoundError, NotADirectoryError):
        return [], False
    with entries:
        for entry in entries:
            name = entry.name + b"/" if entry.is_dir(follow_symlinks=False) else entry.name
            if not _is_object(entry, b"#") or (name <= low and name != first) or (cut is not None and name > cut):
                continue
            names.append(name)
            if len(names) >= 2 * MAX_NAMES:
                cut = _shorten(names)
    more = cut is not None or len(names) > MAX_NAMES
    if more:
        _shorten(names)
    else:
        names.sort()
    return names, more


def _is_object(entry: os.DirEntry[AnyStr], staging: AnyStr) -> bool:
    """Return whether it may be an object: it is no staging file, and no link, which may lead out of the root."""
    return staging not in entry.name and not entry.is_symlink()


def _shorten(names: list[bytes]) -> bytes:
    names.sort()
    del names[MAX_NAMES:]
    return names[-1]


STAGING = "#"
"""Marks staging files, used where the file system has no unnamed files. No key contains this character."""

_ATTEMPTS = 20  # an empty folder may be removed just before a file is put into it
_NO_UNNAMED_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
_A_LINK = "a symbolic link is in the way"
_NO_LINKS = "Links below a root are not followed, as they may lead out of it. Replace the link with what it points to."
_PROBLEMS: dict[int, tuple[type[Problem], str, str]] = {
    errno.ENOSPC: (OutOfSpace, "the disk is full", "Free space and run this again."),
    errno.EDQUOT: (OutOfSpace, "the disk quota is exceeded", "Free space and run this again."),
    errno.EFBIG: (OutOfSpace, "the file is larger than the system allows", ""),
    errno.EACCES: (AccessDenied, "permission denied", "Check the folder's owner and mode."),
    errno.EPERM: (
        AccessDenied,
        "not permitted",
        "Check the folder's owner, and that its file system supports hard links.",
    ),
    errno.EROFS: (AccessDenied, "the file system is read-only", ""),
    errno.ENOTDIR: (ObjectStoreError, "an unrelated file is in the way", "Move it elsewhere."),
    errno.EISDIR: (ObjectStoreError, "a folder is in the way", "Move it elsewhere."),
    errno.ELOOP: (ObjectStoreError, _A_LINK, _NO_LINKS),
    errno.ENAMETOOLONG: (InvalidKey, "the path is too long", ""),
}


class FolderStore(ObjectStore):
    """Objects as files below a folder.

    The first `put` creates the root if its parent exists; until then the store is empty.

    Args:
        root: an absolute path.
        unnamed_files: whether to try unnamed files first (Linux, most local file systems).
    """

    def __init__(self, root: Path, *, unnamed_files: bool = True) -> None:
        self.uri = root.as_uri()
        self._root = str(root)
        self._real = self._root
        self._flushed: dict[str, _Flush] = {}
        self._unnamed = unnamed_files and hasattr(os, "O_TMPFILE")

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.put`."""
        check_key(key)
        path = f"{self._root}/{key}"
        folder = path.rpartition("/")[0]
        for attempt in itertools.count(1):
            try:
                self._refuse_taken(path, key)
                with self._folder_of(key) as (descriptor, name):
                    self._publish(f"/proc/self/fd/{descriptor}", name, data)
                self._flush(folder)
            except FileNotFoundError as error:
                if attempt == _ATTEMPTS:
                    raise self._problem(error, key) from None
                self._make_folders(folder, key)
            except FileExistsError as error:  # taken just now: check again
                if attempt == _ATTEMPTS:
                    raise self._problem(error, key) from None
            except OSError as error:
                raise self._problem(error, key) from None
            else:
                return

    def put_blocks(self, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """See `ObjectStore.put_blocks`. Blocks are spooled to an unnamed file, which a kill does not leave behind."""
        check_key(key)
        self._make_folders(f"{self._root}/{key}".rpartition("/")[0], key)
        try:
            with TemporaryFile(dir=self._root, prefix=STAGING) as spool:
                for block in blocks:
                    spool.write(block)
                spool.flush()
                size = spool.tell()
                with memoryview(mmap(spool.fileno(), size, access=ACCESS_READ) if size else b"") as data:
                    self.put(key, data)
        except OSError as error:
            raise self._problem(error, key) from None

    def get(self, key: str, at_most: int = SMALL) -> bytes:
        """See `ObjectStore.get`."""
        with self._opened(key) as (descriptor, size):
            if size > at_most:
                raise TooLarge.of(size, at_most, self._where(key))
            data = _read(descriptor, 0, size)
        if len(data) != size:
            raise WrongSize.short(0, size, self._where(key))
        return data

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """See `ObjectStore.get_range`."""
        with self._opened(key) as (descriptor, size):
            stop = max(start, end)
            data = _read(descriptor, start, stop)
        if start > size or len(data) != stop - start:
            raise WrongSize.short(start, stop, self._where(key))
        return memoryview(data)

    def stream(self, key: str, start: int, end: int) -> ByteStream:
        """See `ObjectStore.stream`."""
        blocks = self._blocks(key, start, end)
        return ByteStream(lambda: next(blocks, None), blocks.close)

    def _blocks(self, key: str, start: int, end: int) -> Generator[memoryview, None, None]:
        with self._opened(key) as (descriptor, _):
            for low in range(start, end, STREAM_BYTES):
                high = min(low + STREAM_BYTES, end)
                data = _read(descriptor, low, high)
                if len(data) != high - low:
                    raise WrongSize.short(start, end, self._where(key))
                yield memoryview(data)

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        """Open an object's file; the descriptor and the size."""
        check_key(key)
        try:
            with self._folder_of(key) as (folder, name):
                # a pipe would have to be waited for
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise self._missing(key)
                yield descriptor, found.st_size
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            raise self._missing(key) from None
        except OSError as error:
            raise self._problem(error, key) from None

    @contextmanager
    def _folder_of(self, key: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a key's file, to which no link leads below the root; the descriptor, and the file's name.

        Raises:
            OSError: ELOOP if a link does.
        """
        folder, _, name = key.rpartition("/")
        path = f"{self._root}/{folder}".rstrip("/") or "/"
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
        try:
            # where it really is: what was checked before could have been replaced when it is opened
            real = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
            if real.endswith(" (deleted)"):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            below = f"/{folder}".rstrip("/")
            if real != (self._real + below or "/"):  # or the root is a link that was changed
                self._real = os.path.realpath(self._root).rstrip("/")
            if real != (self._real + below or "/"):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            yield descriptor, name
        finally:
            os.close(descriptor)

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        with self._opened(key) as (_, size):
            return size

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        check_prefix(prefix)
        self._check_root()
        try:
            self._check_links(prefix)
            for name, size in walk(self._root, prefix, after):
                yield ObjectInfo(name, size)
        except OSError as error:
            raise self._problem(error, prefix) from None

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ObjectStore.folders`."""
        check_prefix(prefix)
        self._check_root()
        try:
            self._check_links(prefix)
            with os.scandir(f"{self._root}/{prefix}") as entries:
                folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
                return sorted(entry.name for entry in folders if has_files(entry.path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._problem(error, prefix) from None

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore.delete`. Folders that become empty are removed."""
        for key in keys:
            check_key(key)
        folders = set()
        for key in keys:
            try:
                with self._folder_of(key) as (folder_of_file, name):
                    os.unlink(name, dir_fd=folder_of_file)
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
            except OSError as error:
                raise self._problem(error, key) from None
            else:
                folders.add(key.rpartition("/")[0])
        for folder in folders:
            self._prune(folder)

    def _check_links(self, prefix: str) -> None:
        """Raise OSError if a link leads to the folder of a prefix."""
        with suppress(FileNotFoundError, NotADirectoryError), self._folder_of(prefix):
            pass

    def _refuse_taken(self, path: str, key: str) -> None:
        """Check before writing the data: a resumed run finds many objects already stored."""
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode):
            raise ObjectStoreError("a folder is in the way", where=self._where(key), todo="Move it elsewhere.")
        self._flush(path.rpartition("/")[0])  # its writer may not have synced it yet
        raise AlreadyExists("the object exists", where=self._where(key))

    def _publish(self, folder: str, name: str, data: bytes | memoryview) -> None:
        """Write, sync, link; the caller syncs the folder."""
        path = f"{folder}/{name}"
        if self._unnamed:
            try:
                descriptor = make_file(folder, os.O_TMPFILE)
            except OSError as error:
                if error.errno not in _NO_UNNAMED_FILES:
                    raise
                self._unnamed = False
            else:
                try:
                    _write(descriptor, data)
                    # The directory descriptor is unused, but selects linkat(2), which follows the link in /proc.
                    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
                finally:
                    os.close(descriptor)
                return
        self._publish_named(path, data)

    def _publish_named(self, path: str, data: bytes | memoryview) -> None:
        """Publish via a staging file, which is hidden from listings but left behind by a kill."""
        staging = f"{path}{STAGING}{secrets.token_hex(8)}"  # process ids recur in containers that share a folder
        descriptor = make_file(staging)
        try:
            try:
                _write(descriptor, data)
            finally:
                os.close(descriptor)
            os.link(staging, path)
        finally:
            Path(staging).unlink()

    def _flush(self, folder: str) -> None:
        if folder not in self._flushed and folder.startswith(f"{self._root}/"):
            self._flush(folder.rpartition("/")[0])  # a killed process may have created the folder without syncing it
        self._flushed.setdefault(folder, _Flush()).flush(folder)

    def _make_folders(self, folder: str, key: str) -> None:
        """Create the missing parts of a folder, from the root on; the root's parent must exist."""
        self._check_root()
        missing = []
        at = Path(folder)
        while not at.is_dir():
            missing.append(at)
            at = at.parent
        try:
            self._check_links(f"{at}/"[len(self._root) + 1 :])
            for each in reversed(missing):
                with self._made_in(each) as made, suppress(FileExistsError):
                    make_folder(made)
                self._flush(str(each.parent))
        except OSError as error:
            raise self._problem(error, key) from None

    @contextmanager
    def _made_in(self, folder: Path) -> Iterator[Path]:
        """Yield a path to a folder that is to be made, which leads nowhere else if one above it becomes a link."""
        if str(folder) == self._root:
            yield folder
        else:
            with self._folder_of(str(folder)[len(self._root) :].lstrip("/")) as (above, name):
                yield Path(f"/proc/self/fd/{above}/{name}")

    def _prune(self, folder: str) -> None:
        """Sync a folder that lost files; remove it and its parents below the root where empty."""
        at = folder
        with suppress(OSError):  # gone, or not empty: both are fine
            while at:
                with self._folder_of(at) as (above, name):
                    os.rmdir(name, dir_fd=above)
                self._flushed.pop(f"{self._root}/{at}", None)  # else a program that goes on for months would keep all
                at = at.rpartition("/")[0]
        with suppress(FileNotFoundError):
            self._flush(str(Path(self._root, at)))

    def _check_root(self) -> None:
        root = Path(self._root)
        try:
            if stat.S_ISDIR(root.stat().st_mode):
                return
        except FileNotFoundError:
            if root.parent.is_dir():
                return
        except OSError as error:
            if error.errno != errno.ENOTDIR:
                raise self._problem(error, "") from None
        first = next(each for each in (root, *root.parents) if each.exists())
        if not first.is_dir():
            raise NoSuchBucket(
                f"a file is in the place of a folder ({first.name})", where=self._where(""), todo="Check the path."
            )
        raise NoSuchBucket("no such folder", where=self._where(""), todo="Create it, or check the path.")

    def _problem(self, error: OSError, key: str) -> Problem:
        if error.errno == errno.ENOTDIR:
            self._check_root()
        kind, what, todo = _PROBLEMS.get(error.errno or 0, (ObjectStoreError, error.strerror or str(error), ""))
        return kind(what, where=self._where(key), todo=todo)

    def _missing(self, key: str) -> NoSuchObject:
        self._check_root()
        return NoSuchObject("no such object", where=self._where(key))

    def _where(self, key: str) -> str:
        return f"{self.uri}/{key}".rstrip("/")


class _Flush:
    """Syncs a folder's entries to disk, once for all waiting threads."""

    def __init__(self) -> None:
        self._tickets = itertools.count(1)
        self._lock = Lock()
        self._done = 0

    def flush(self, folder: str) -> None:
        mine = next(self._tickets)
        with self._lock:
            if self._done > mine:
                return
            upto = next(self._tickets)  # holders of lower tickets have already created their entries
            sync_folder(folder)
            self._done = upto


def _read(descriptor: int, start: int, end: int) -> bytes:
    """Read the bytes between two offsets; fewer at the end of the file."""
    data = os.pread(descriptor, max(end - start, 0), start)
    while len(data) < end - start:
        more = os.pread(descriptor, end - start - len(data), start + len(data))
        if not more:
            break
        data += more
    return data


def _write(descriptor: int, data: bytes | memoryview) -> None:
    write_all(descriptor, data, 0)
    os.fsync(descriptor)


class _FolderScheme(Scheme):
    form = "file:///FOLDER"

    def parse(self, rest: str, uri: str) -> tuple[str, str]:
        """No place, and the folder's path without its first slash."""
        folder = os.fsdecode(unquote_to_bytes(os.fsencode(rest.removeprefix("localhost"))))
        if not folder.startswith("/"):
            raise InvalidRoot("not an absolute folder", where=repr(uri), todo=f"Use {self.form}, with three slashes.")
        if "\0" in folder or ".." in folder.split("/"):
            raise InvalidRoot("invalid folder", where=repr(uri), todo="Remove '..' and control characters.")
        return "", os.path.normpath("/" + folder).lstrip("/")

    def format(self, place: str, path: str) -> str:
        """See the base class."""
        return f"{place}/{quote(os.fsencode(path))}"

    def open(self, address: RootAddress, **_: Any) -> ObjectStore:
        """See the base class."""
        return FolderStore(Path("/", address.prefix))


SCHEME = _FolderScheme()
