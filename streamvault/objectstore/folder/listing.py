"""Lists a folder tree in byte order of its paths, in bounded memory.

The system returns names unordered, and a segment's folder may hold millions. So a folder is read in several passes:
each keeps, sorts and yields the lowest names above the last one, up to `MAX_NAMES`. These 400,000 names take about
40 MB; one million events take three passes, ten million twenty-five.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import AnyStr

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
