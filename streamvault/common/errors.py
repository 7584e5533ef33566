"""Errors a user can act on, each with an exit code.

Every error raised on purpose is a `Problem`: one line saying what happened, where, and what to do about it. Packages
derive their own errors from the kinds here. Any other exception is a bug.
"""

from __future__ import annotations

import errno
import os
import re
from typing import ClassVar

_LOGIN = re.compile(r"(?<=://)[^\s/@]+@")


def without_logins(text: str) -> str:
    """Mask the login in every URI of a text: ``http://user:password@host`` becomes ``http://…@host``."""
    return _LOGIN.sub("…@", text)


class Problem(Exception):
    """An error in three short texts, shown as one line: what went wrong, where, and what to do.

    Logins in URIs are masked. Problems are pickled between Spark's processes, so only ``what`` may be required of a
    subclass's arguments, and its attributes must be picklable.

    Args:
        what: the fact, e.g. ``"no such stream"``.
        where: the URI, key, segment or file concerned; empty if ``what`` names it.
        todo: the next step for the user; empty if there is none.

    Attributes:
        exit_code: the command's exit code.
        retriable: whether the same command may succeed later without any change by the user.
        transient: whether it may succeed within minutes: a server does not answer, throttles or fails, or another
            process holds a lease. Short retries have been made.
    """

    exit_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False
    transient: ClassVar[bool] = False

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        self.what, self.where, self.todo = map(without_logins, (what, where, todo))
        super().__init__(self.what)

    def __str__(self) -> str:
        text = self.what if not self.where else f"{self.what}: {self.where}"
        return " ".join((text if not self.todo else f"{text}. {self.todo}").split())


class Failed(Problem):
    """The operation failed (a server is down, a disk is full, access is denied). Exit code 1."""

    exit_code = 1
    retriable = True


class Usage(Problem):
    """The request is invalid (a malformed URI, a cut from another stream). Exit code 2."""

    exit_code = 2


class Damaged(Problem):
    """The archive is incomplete, or its bytes do not match the manifest. Exit code 3."""

    exit_code = 3


class Conflict(Problem):
    """The target is already in use or has changed. Exit code 4."""

    exit_code = 4


class Absent(Failed):
    """The stream, archive, generation, bucket or folder that the request names does not exist. Exit code 5."""

    exit_code = 5
    retriable = False


class Overtaken(Conflict):
    """A concurrent run changed the data this run worked on; a rerun starts from the current state."""

    retriable = True

    def __init__(self, what: str, *, where: str = "", todo: str = "Run the same command again.") -> None:
        super().__init__(what, where=where, todo=todo)


class ShortOf(Failed):
    """This machine is short of memory, threads, open files or disk space; nothing is known about what was read."""


_SHORT = {
    errno.ENOMEM: "memory",
    errno.EAGAIN: "threads or processes",
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}
_SAID = {
    **{os.strerror(number).lower(): what for number, what in _SHORT.items()},
    "out of memory": "memory",
    "not enough memory": "memory",
    "allocation error": "memory",
    "malloc of size": "memory",
    "realloc of size": "memory",
    "bad_alloc": "memory",
    "memoryerror": "memory",
    "start new thread": "threads or processes",
    "launch worker thread": "threads or processes",
}
"""How libraries say it, in lower case."""


def shortage(error: BaseException | str) -> ShortOf | None:
    """Return the error to raise if one says that this machine is short of something; None for any other.

    Args:
        error: an error of the system or a library, or what it has written.
    """
    if isinstance(error, (ValueError, KeyError)):
        return None  # of a value; its text may quote one
    text = " ".join(str(error).split())
    number = error.errno if isinstance(error, OSError) else None
    what = "memory" if isinstance(error, MemoryError) else _SHORT.get(number or 0, "")
    what = what or next((what for said, what in _SAID.items() if said in text.lower()), "")
    if not what:
        return None
    todo = (
        "Nothing is wrong with the data. Raise the limit of this process or container, and run the same command again."
    )
    return ShortOf(f"this machine is short of {what}", where=without_logins(text)[:300], todo=todo)


def content_error(error: Exception, what: str, *, where: str = "") -> Problem:
    """Return what to raise for a library's error over an archive's content: `Damaged`, or `ShortOf` (see `shortage`).

    Whatever turns such an error into `Damaged` calls this, since only content is damage.
    """
    return shortage(error) or Damaged(what, where=where)
