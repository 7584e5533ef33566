"""The runner interface: runs a function over many small specifications, on the master that ``--master`` names.

A task is one call of the function with one specification. It moves its data itself; the specification it receives and
the one-row result it returns are small and picklable.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from typing import Literal, Self, TypeVar

from streamvault.common.errors import Failed, Usage, shortage
from streamvault.common.progress import Progress

S = TypeVar("S")
R = TypeVar("R")


UNSEEN = Progress()
"""The progress of tasks that nobody watches."""


class Runner(ABC):
    """Runs tasks; opened by `runner.opening.open_runner`.

    Attributes:
        start_seconds: start time of Spark; 0 if it was already running.
    """

    start_seconds: float = 0.0

    @abstractmethod
    def run(
        self, function: Callable[[S], R], specs: Sequence[S], progress: Progress = UNSEEN
    ) -> Iterator[tuple[int, R]]:
        """Run the specifications concurrently; yield each result.

        Nothing runs before the first result is requested. May be called from several threads, and while an earlier run
        is in progress. A task may run twice (Spark retries and speculates), but its result is yielded once. Closing the
        iterator early cancels the remaining tasks.

        Args:
            function: a module-level function (or a partial of one), so that it is importable by name.
            specs: small picklable values, which may be made when they are asked for, by several threads. Those of tasks
                that move data have an attribute ``size``: how much (bytes).
            progress: watches the tasks that run on this machine.

        Yields:
            (index of the specification, its result), in the order in which tasks finish; each index once.

        Raises:
            Problem: the first one raised by a task; the other tasks are cancelled.
            TaskFailed: a task failed with any other error, after Spark's retries.
            SparkFailed: Spark ended unexpectedly.
        """


_log = logging.getLogger(__name__)

_TODO = "Run with --log-level debug for the full traceback."
_TRACEBACK = "Traceback (most recent call last):"
_JAVA = re.compile(r"^\s*at [\w.$/]+\(|^Caused by:|^Driver stacktrace:|^\s*\.\.\. \d+ more")
_RECENT = re.compile(r"most recent failure: (?:Lost task \S+ in stage \S+ \(TID \d+\) \(.*?\): )?(.*)")
_JOB = re.compile(r"^(?:[\w.$]+(?:Exception|Error): )?(?:Job aborted due to stage failure: )?")
_SQLSTATE = re.compile(r" SQLSTATE: [0-9A-Z]{5}$")
MAX_CHARACTERS = 500


class InvalidMaster(Usage):
    """``--master`` is not a valid master URL."""


class NoJava(Failed):
    """There is no Java runtime that Spark can use."""

    retriable = False


class SparkFailed(Failed):
    """Spark did not start, or ended unexpectedly."""


class TaskFailed(Failed):
    """A task failed with an error other than a `Problem`, after Spark's retries."""


def task_failed(error: BaseException | str) -> Failed:
    """Build the error for a task that failed with an exception that is no `Problem`, or with Spark's report of one.

    It is a `TaskFailed`, or a `ShortOf` if the machine is short of something.
    """
    whole = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    _log.debug("a task failed: %s", whole)
    line = last_line(whole)
    return shortage(line) or TaskFailed("a task failed", where=line, todo=_TODO)


def last_line(account: str) -> str:
    """Return the relevant line of a report: the end of the Python traceback, or else Spark's reason."""
    account, _, _ = account.partition("\nDriver stacktrace:")
    _, traced, after = account.rpartition(_TRACEBACK)
    if traced:
        lines = list(takewhile(lambda line: not _JAVA.match(line), after.splitlines()))
        frame = max((number for number, line in enumerate(lines) if line.startswith("  File ")), default=-1)
        found = " ".join(dropwhile(lambda line: line.startswith("    "), lines[frame + 1 :]))
    else:
        recent = _RECENT.search(account)
        first = recent[1] if recent else next((line for line in account.splitlines() if line.strip()), "")
        found = _JOB.sub("", first)
    found = _SQLSTATE.sub("", " ".join(found.split()))
    return found[:MAX_CHARACTERS] or "no reason given"


VARIABLE = "STREAMVAULT_MASTER"
"""Environment variable: the master where ``auto`` is given, as it is by default."""

CONNECT_SECONDS = 5.0
"""Timeout for connecting to a standalone master; Spark itself would try for a minute."""

_INLINE = re.compile(r"inline(?:\[([1-9][0-9]{0,3}|\*)\])?")
_LOCAL = re.compile(r"local(?:\[([1-9][0-9]{0,3}|\*)(?:, ?[1-9][0-9]{0,3})?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ ?[0-9]+ ?, ?[0-9]+ ?, ?[0-9]+ ?\]")
_STANDALONE = re.compile(r"spark://([^/,\s]+(?:,[^/,\s]+)*)")
_ELSEWHERE = re.compile(r"yarn|k8s://\S+")


@dataclass(frozen=True, slots=True)
class Master:
    """A valid ``--master``.

    Attributes:
        url: the URL, as Spark takes it.
        kind: ``inline`` (threads of this process), ``local`` (Spark on this machine), or ``cluster``.
        is_auto: whether ``auto`` was given: a Spark that runs already is used, else threads of this process or Spark on
            this machine, whichever suits the bytes to move.
        threads: maximum concurrent tasks on this machine; 0 for a cluster.
        addresses: host and port of each standalone master.
    """

    url: str
    kind: Literal["inline", "local", "cluster"]
    threads: int = 0
    addresses: tuple[tuple[str, int], ...] = ()
    is_auto: bool = False

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``auto``, ``inline[N]``, or a master URL of Spark: ``local[N]``, ``spark://HOST:PORT``, ``yarn``, ``k8s://…``.

        Raises:
            InvalidMaster: it is none of them, or ``STREAMVAULT_MASTER`` is not.
        """
        if url == "auto":
            given = os.environ.get(VARIABLE, "").strip()
            if given not in {"", "auto"}:
                return cls.parse(given)
            return replace(cls.parse("local[*]"), is_auto=True)
        if inline := _INLINE.fullmatch(url):
            return cls(url, "inline", threads=_threads(inline[1], os.cpu_count() or 1))
        if local := _LOCAL.fullmatch(url):
            return cls(url, "local", threads=_threads(local[1], (os.cpu_count() or 1) if "*" in url else 1))
        if standalone := _STANDALONE.fullmatch(url):
            return cls(url, "cluster", addresses=tuple(_address(text, url) for text in standalone[1].split(",")))
        if _ELSEWHERE.fullmatch(url) or _LOCAL_CLUSTER.fullmatch(url):
            return cls(url, "cluster")
        raise _invalid(url)

    @property
    def on_loopback(self) -> bool:
        """Whether all of Spark runs on this machine, so that nothing has to listen on other addresses."""
        if self.addresses:
            return all(_is_loopback(host) for host, _ in self.addresses)
        return self.kind == "local" or self.url.startswith("local-cluster")

    def check_reachable(self) -> None:
        """Raise `SparkFailed` if no standalone master accepts a connection."""
        reasons = []
        for address in self.addresses:
            try:
                socket.create_connection(address, timeout=CONNECT_SECONDS).close()
            except OSError as error:
                reasons.append(error.strerror or str(error))
            else:
                return
        if reasons:
            raise SparkFailed(
                f"the Spark master does not answer ({reasons[0]})",
                where=self.url,
                todo="Start it or use another --master.",
            )


def _threads(text: str | None, every: int) -> int:
    return every if text in {None, "*"} else int(text or 0)


def _address(text: str, url: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise _invalid(url)
    return host.strip("[]"), int(port)


def _invalid(url: str) -> InvalidMaster:
    return InvalidMaster(
        "not a Spark master",
        where=repr(url),
        todo="Use auto, local[N], local[*], spark://HOST:PORT, yarn, k8s://… or inline.",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
