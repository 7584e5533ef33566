"""TOML files, and the line at which each of their values is."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from streamvault.common.errors import Usage
from streamvault.common.options import load_file

_MAY_END = re.compile(r"""(]|}|\"{3}|'{3})\s*(#.*)?$""")
"""What the last line of a value of several lines ends with."""


def load_declared(file: str) -> tuple[Mapping[str, Any], str]:
    """Read a file that declares streams; return what it says, and its text.

    Raises:
        Usage: it cannot be read, or is not TOML; the message has the line.
    """
    text = load_file(file, "--config")
    try:
        return tomllib.loads(text), text
    except (ValueError, RecursionError) as error:  # also of a number that is too long, or too many brackets
        raise Usage("the file is not TOML", where=f"{file}: {error}") from None


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line (from 1) at which a value is given in a TOML file; its table's or the first if it is not.

    Args:
        text: the file, which is valid.
        path: the keys and indices that lead to the value.
    """
    lines = [f"{line}\n" for line in text.split("\n")]
    ends = _statement_ends(lines)
    for length in range(len(path), 0, -1):

        def has(end: int, wanted: Sequence[str | int] = path[:length]) -> bool:
            return _has(tomllib.loads("".join(lines[:end])), wanted)

        if (at := bisect_left(ends, True, key=has)) < len(ends):  # once it is given, it is in all that follows
            begin = ends[at - 1] if at else 0
            return next(number for number in range(begin + 1, ends[at] + 1) if _has_content(lines[number - 1]))
    return 1


def _statement_ends(lines: Sequence[str]) -> list[int]:
    """Return the numbers of the lines at which statements end; of one of many lines, few are tried."""
    ends, begin = [], 0
    for number, line in enumerate(lines, 1):
        if number == begin + 1 or _MAY_END.search(line):
            with suppress(tomllib.TOMLDecodeError):  # within a value of several lines
                tomllib.loads("".join(lines[begin:number]))
                ends.append(number)
                begin = number
    return ends


def _has_content(line: str) -> bool:
    return bool(line.partition("#")[0].strip())


def _has(found: Any, path: Sequence[str | int]) -> bool:
    for key in path:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
