"""Errors of Spark and of tasks, reduced to one line."""

from __future__ import annotations

import logging
import re
import traceback
from itertools import dropwhile, takewhile

from streamvault.common.errors import Failed, Usage, shortage

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
