"""Child processes, environment variables, the memory that a process gives back, and the modes of what it makes.

A child Python imports nothing from the folder it is started in. Without ``PYTHONSAFEPATH`` Python puts that folder
first on the path for modules: a file ``zstandard.py`` in a shared folder would run with the secrets of whoever works
there.

Only their owner may open folders and files, unless ``STREAMVAULT_MODE`` lets others. What exists keeps its mode. The
umask takes nothing from a mode that is given: with the usual one, a group could not write to a folder that is to be
shared.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from streamvault.common.errors import Usage

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

LARGE_BYTES = 4 * 1024 * 1024
"""A buffer of at least this size returns to the system when it is freed."""

KEPT_BYTES = 64 * 1024 * 1024
"""Smaller buffers are reused: each heap keeps so much of what is freed at its end. With glibc's own choice, 128 KiB as
soon as one of its settings is made, the system would clear new pages for every block of an object."""

HEAPS = 2
"""Memory freed in one heap cannot be reused by threads assigned to another."""


@cache
def give_back_large_buffers() -> None:
    """Tune glibc's malloc so that freed large buffers return to the system at once, also in future forks.

    Those are the parts of large objects and blocks of segments. By default glibc keeps freed buffers of up to 32 MiB
    for reuse, in up to eight heaps per core: a task process that had moved 4 GB held 284 MiB, a third of it in use.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_ARENA_MAX, HEAPS)


def changed_variables(before: Mapping[str, str], variables: Mapping[str, str | None]) -> dict[str, str]:
    """Return environment variables with some of them set; None unsets one."""
    after: dict[str, str | None] = {**before, **variables}
    return {name: value for name, value in after.items() if value is not None}


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables of this process within a ``with`` block; None unsets one. Not thread-safe."""
    before = dict(os.environ)
    try:
        _set_all(changed_variables(before, variables))
        yield
    finally:
        _set_all(before)


def _set_all(variables: Mapping[str, str]) -> None:
    # never an empty environment: threads read it, too
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


SAFE = "PYTHONSAFEPATH"
"""Environment variable: Python, and each Python that it starts, leaves the folder it is started in off the path."""

_FOLDER = "/"
"""Where children work: only the system's administrator may put files there, and nothing has to be removed."""


def safe_environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return environment variables for a child that is Python or starts some.

    An empty part of ``PYTHONPATH`` means the working folder, and is left out; a relative one is resolved.
    """
    path = [os.path.abspath(part) for part in variables.get("PYTHONPATH", "").split(os.pathsep) if part]  # noqa: PTH100
    return {**variables, SAFE: "1", "PYTHONPATH": os.pathsep.join(path)}


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this program's Python."""
    return [sys.executable, "-P", *arguments]


def start_python(command: Sequence[str], *, path: Sequence[str] = (), **options: Any) -> subprocess.Popen[Any]:
    """Start a Python in the root folder, where only the administrator may put files.

    Args:
        command: what to run, as by `python_command`.
        path: folders to import from; empty for those of ``PYTHONPATH``.
        **options: as for `subprocess.Popen`.

    Raises:
        OSError: it cannot be started.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path)} if path else os.environ
    return subprocess.Popen(command, cwd=_FOLDER, env=safe_environment(variables), **options)


VARIABLE = "STREAMVAULT_MODE"
"""Environment variable: the mode of folders that are made, such as ``0750``. Files get it without the execute bits."""

_MODE = re.compile(r"0?[0-7]?7[0-7]{2}")


def make_folder(path: Path) -> None:
    """Make a folder.

    Raises:
        OSError: it exists, or cannot be made.
        Usage: ``STREAMVAULT_MODE`` is not a mode.
    """
    path.mkdir(0o700)
    if os.environ.get(VARIABLE):
        # in a shared folder, somebody may have put a link in its place
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _share(descriptor, 0o7777)
        finally:
            os.close(descriptor)


def make_folders(path: Path) -> None:
    """Make a folder and those above it, as far as they do not exist.

    Raises:
        OSError: one cannot be made.
        Usage: see `make_folder`.
    """
    if not path.parent.is_dir():
        make_folders(path.parent)
    try:
        make_folder(path)
    except FileExistsError:
        if not path.is_dir():
            raise


def make_file(path: str | Path, flags: int = os.O_CREAT | os.O_EXCL) -> int:
    """Make a file and open it; returns the descriptor.

    Args:
        path: the file; with the flag ``O_TMPFILE`` the folder of one without a name.
        flags: how, see open(2).

    Raises:
        OSError: it exists, or cannot be made.
        Usage: see `make_folder`.
    """
    descriptor = os.open(path, os.O_RDWR | flags, 0o600)
    _share(descriptor, 0o666)
    return descriptor


def open_file(path: str | Path) -> int:
    """Open a file for reading and writing, and make it if there is none; errors as `make_file`."""
    try:
        return make_file(path)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def sync_folder(path: str | Path) -> None:
    """Make names that were added to or removed from a folder outlast a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write bytes at an offset of a file, all of them or an error."""
    rest = memoryview(data).cast("B")
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _share(made: int, bits: int) -> None:
    given = os.environ.get(VARIABLE, "")
    if not given:
        return
    if not _MODE.fullmatch(given):
        todo = "Give it in octal, with all rights for the owner, such as 0750."
        raise Usage(f"{VARIABLE} is not a valid mode of a folder", where=repr(given), todo=todo)
    os.fchmod(made, int(given, 8) & bits)
