"""Make folders and files that only their owner may open, unless ``STREAMVAULT_MODE`` lets others.

What exists keeps its mode. The umask takes nothing from a mode that is given: with the usual one, a group could not
write to a folder that is to be shared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from streamvault.common.errors import Usage

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


def _share(made: int, bits: int) -> None:
    given = os.environ.get(VARIABLE, "")
    if not given:
        return
    if not _MODE.fullmatch(given):
        todo = "Give it in octal, with all rights for the owner, such as 0750."
        raise Usage(f"{VARIABLE} is not a mode of a folder", where=repr(given), todo=todo)
    os.fchmod(made, int(given, 8) & bits)
