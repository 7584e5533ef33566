"""Listing a folder tree in the byte order of its paths, in bounded memory.

A folder gives its names in no order, and a segment's folder may have millions. So a folder is read as often as its
names fill a window: each time the lowest names above the last one are kept, sorted and yielded. A window of 400,000
names takes about 40 MB; one million events are three passes, ten million twenty-five.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["has_files", "walk"]

WINDOW = 400_000
"""Names kept at once, and up to twice as many for a moment."""


def walk(root: str, prefix: str, after: str) -> Iterator[tuple[str, int]]:
    """(path below the root, size) of every file below ``prefix`` that sorts after ``after``, in byte order.

    Staging files are left out. Files that vanish meanwhile are too. A folder that does not exist has no files.
    """
    yield from _walk(f"{root}/{prefix}".rstrip("/"), prefix, after)


def has_files(folder: str) -> bool:
    """Whether there is a file that is not a staging file somewhere below."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if has_files(entry.path) if entry.is_dir() else "#" not in entry.name:
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
    """A folder's names above ``low`` in byte order. A folder's name ends in a slash: so its files are sorted."""
    # The folder that holds the path to start after is needed as well; it sorts before that path.
    first = low[: low.find(b"/") + 1]
    while True:
        names, more = _lowest(folder, low, first)
        yield from names
        if not more:
            return
        low, first = names[-1], b""


def _lowest(folder: str, low: bytes, first: bytes) -> tuple[list[bytes], bool]:
    """The lowest names above ``low`` (and ``first``), sorted, and whether there are more."""
    names: list[bytes] = []
    cut: bytes | None = None
    try:
        entries = os.scandir(os.fsencode(folder))
    except (FileNotFoundError, NotADirectoryError):
        return [], False
    with entries:
        for entry in entries:
            name = entry.name + b"/" if entry.is_dir() else entry.name
            if b"#" in name or (name <= low and name != first) or (cut is not None and name > cut):
                continue
            names.append(name)
            if len(names) >= 2 * WINDOW:
                cut = _shorten(names)
    more = cut is not None or len(names) > WINDOW
    if more:
        _shorten(names)
    else:
        names.sort()
    return names, more


def _shorten(names: list[bytes]) -> bytes:
    names.sort()
    del names[WINDOW:]
    return names[-1]
