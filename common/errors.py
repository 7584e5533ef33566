"""Errors that a user can act on, and the exit code each one ends the command with.

Every error that this project raises on purpose is a `Problem`: what happened, where, and what to do about it, in one
line. Each package names its own kinds below one of the four here. Anything else that is raised is a bug.
"""

from __future__ import annotations

import re
from typing import ClassVar, Self

__all__ = ["Conflict", "Damaged", "Failed", "Overtaken", "Problem", "Usage", "without_logins"]

_LOGIN = re.compile(r"(?<=://)[^\s/@]+@")


def without_logins(text: str) -> str:
    """A text whose URIs show no login: ``http://user:password@host`` becomes ``http://…@host``."""
    return _LOGIN.sub("…@", text)


class Problem(Exception):
    """What went wrong, where, and what to do: three short texts, shown as one line.

    Args:
        what: the fact, e.g. ``"no such stream"``.
        where: the URI, key, segment or file it is about; empty if ``what`` says it.
        todo: the next step for the user; empty if there is none.

    Whatever the texts hold, a login in a URI is left out.

    Problems are sent between Spark's processes, so a subclass takes the same arguments or defines ``__reduce__``.

    Attributes:
        exit_code: what the command ends with.
        retriable: whether the same command may succeed later without the user changing anything.
    """

    exit_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        self.what, self.where, self.todo = map(without_logins, (what, where, todo))
        super().__init__(self.what)

    def __str__(self) -> str:
        text = self.what if not self.where else f"{self.what}: {self.where}"
        return " ".join((text if not self.todo else f"{text}. {self.todo}").split())

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.todo)

    @classmethod
    def rebuild(cls, what: str, where: str, todo: str) -> Self:
        """Make the problem again from its three texts (used by pickle)."""
        return cls(what, where=where, todo=todo)


def _rebuild(kind: type[Problem], what: str, where: str, todo: str) -> Problem:
    return kind.rebuild(what, where, todo)


class Failed(Problem):
    """The work could not be done (a server is down, a disk is full, access is denied). Exit code 1."""

    exit_code = 1
    retriable = True


class Usage(Problem):
    """What the user asked for cannot be meant (a bad URI, a cut from another stream). Exit code 2."""

    exit_code = 2


class Damaged(Problem):
    """The archive is incomplete or its bytes are not what the manifest says. Exit code 3."""

    exit_code = 3


class Conflict(Problem):
    """Something else is already where the result should go. Exit code 4."""

    exit_code = 4


class Overtaken(Conflict):
    """Another run changed what this one worked on. The same command, run again, starts from what is there now."""

    retriable = True

    def __init__(self, what: str, *, where: str = "", todo: str = "Run the same command again.") -> None:
        super().__init__(what, where=where, todo=todo)
