"""TOML files, and the line at which each of their values is."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from streamvault.common.errors import Usage
from streamvault.common.options import load_file


def load_declared(file: str) -> tuple[Mapping[str, Any], str]:
    """Read a file that declares streams; return what it says, and its text.

    Raises:
        Usage: it cannot be read, or is not TOML; the message has the line.
    """
    text = load_file(file, "--config")
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise Usage("the file is not TOML", where=f"{file}: {error}") from None


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line (from 1) at which a value is given in a TOML file; its table's or the first if it is not.

    Args:
        text: the file, which is valid.
        path: the keys and indices that lead to the value.
    """
    lines = text.splitlines(keepends=True)
    for length in range(len(path), 0, -1):
        absent = 0
        for number in range(1, len(lines) + 1):
            try:
                found = tomllib.loads("".join(lines[:number]))
            except tomllib.TOMLDecodeError:
                continue  # within a value of several lines
            if _has(found, path[:length]):
                return next(at for at in range(absent + 1, number + 1) if lines[at - 1].partition("#")[0].strip())
            absent = number
    return 1


def _has(found: Any, path: Sequence[str | int]) -> bool:
    for key in path:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
