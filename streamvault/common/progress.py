"""What a run has done so far: the callbacks of a run, the counts of its tasks, and the servers that do not answer.

The callbacks of `Progress` do nothing; the command line draws progress bars, DAGs write log lines.

Tasks write numbers into words of memory, and displays look at them whenever they like: nothing is sent, and nobody
waits. The words of task processes on this machine are in a file in memory that both sides map.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType

from streamvault.common.units import bytes_text, seconds_text

_ACKNOWLEDGED, _READ = 0, 1
_SERVERS = 2
_WORD = 8

SILENT_SECONDS = 5.0
"""How long a server may take to answer before it is worth a word."""


class Server:
    """How long the requests of this process to a server have had no answer.

    A context manager, for threads: a request and its retries. A server that answers one of several requests is not
    silent.

    Args:
        name: its name, for display.
        place: the first of its two words: when it last answered (0 if nobody asks), and how many attempts failed since.
    """

    def __init__(self, name: str, place: int) -> None:
        self.name = name
        self.place = place
        self._lock = threading.Lock()
        self._asked = 0

    def __enter__(self) -> None:
        with self._lock:
            self._asked += 1
            if self._asked == 1:
                self._heard(time.monotonic_ns())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._lock:
            self._asked -= 1
            if not self._asked:
                self._heard(0)
            elif kind is None:
                self._heard(time.monotonic_ns())

    def answered(self) -> None:
        """Note an answer within the block."""
        self._heard(time.monotonic_ns())

    def failed(self) -> None:
        """Note that an attempt failed, and that there will be another one."""
        _here.words[self.place + 1] += 1

    def _heard(self, at: int) -> None:
        words = _here.words
        words[self.place], words[self.place + 1] = at, 0


S3 = Server("S3", _SERVERS)
PRAVEGA = Server("Pravega", _SERVERS + 2)
SERVERS = (S3, PRAVEGA)
WORDS = _SERVERS + 2 * len(SERVERS)
"""Words of a task: bytes acknowledged, bytes read, and two for each server."""


def _no_words() -> memoryview:
    return memoryview(bytearray(WORDS * _WORD)).cast("q")


class TaskProgress:
    """What one task has done so far (bytes). Written by the task's threads.

    Args:
        words: where it is written.
    """

    __slots__ = ("_reads_into", "words")

    def __init__(self, words: memoryview | None = None) -> None:
        self.words = _no_words() if words is None else words
        self._reads_into = _READ

    def acknowledge(self, size: int) -> None:
        """Count bytes that have reached their destination."""
        self.words[_ACKNOWLEDGED] += size

    def read(self, size: int) -> None:
        """Count bytes that were received from where they come."""
        self.words[self._reads_into] += size

    def only_reads(self) -> None:
        """Count what is read as acknowledged: the task writes nothing."""
        self._reads_into = _ACKNOWLEDGED


_here = TaskProgress()
"""The words of this process, of which those of servers count."""

_current: ContextVar[TaskProgress] = ContextVar("_current", default=TaskProgress())  # noqa: B039  (of what is no task; nobody looks)


def task_progress() -> TaskProgress:
    """Return how far the task of this thread is."""
    return _current.get()


class RunningTasks:
    """The tasks of one run that have begun, and whose results were not taken yet."""

    def __init__(self) -> None:
        self._tasks: dict[int, TaskProgress] = {}

    @contextmanager
    def task(self, index: int) -> Iterator[None]:
        """Run the block as the task of this index."""
        self._tasks[index] = TaskProgress()
        before = _current.set(self._tasks[index])
        try:
            yield
        finally:
            _current.reset(before)

    def taken(self, index: int) -> None:
        """Leave a task out, whose result counts from now on."""
        self._tasks.pop(index, None)

    def close(self) -> None:
        """Free what they are written to; they may go on writing."""

    def words(self, place: int) -> list[int]:
        """Return one word of each task."""
        return [one.words[place] for one in list(self._tasks.values())]

    @property
    def acknowledged(self) -> int:
        """Bytes that have reached their destination."""
        return sum(self.words(_ACKNOWLEDGED))

    @property
    def read(self) -> int:
        """Bytes that were read and are not acknowledged yet."""
        both = zip(self.words(_READ), self.words(_ACKNOWLEDGED), strict=False)
        return sum(max(read - acknowledged, 0) for read, acknowledged in both)


class MappedTasks(RunningTasks):
    """Tasks in other processes of this machine, whose words are in a file in memory.

    Args:
        count: number of tasks.

    Attributes:
        place: the file's path and name, for `mapped_task`.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        name = f"streamvault-{uuid.uuid4().hex}"
        self._file = os.memfd_create(name)  # which is gone with this process
        os.ftruncate(self._file, max(count, 1) * WORDS * _WORD)
        self._words = memoryview(mmap.mmap(self._file, 0)).cast("q")
        self.place = f"/proc/{os.getpid()}/fd/{self._file}", f"/memfd:{name} (deleted)"
        self._taken: set[int] = set()

    def taken(self, index: int) -> None:
        """See the base class. What a second attempt of the task writes does not count either."""
        self._taken.add(index)

    def words(self, place: int) -> list[int]:
        """See the base class."""
        return [word for index, word in enumerate(self._words[place::WORDS].tolist()) if index not in self._taken]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@contextmanager
def mapped_task(place: tuple[str, str], index: int) -> Iterator[None]:
    """Run the block as a task of a `MappedTasks`, the only one of this process; as any other without such a file."""
    try:
        with Path(place[0]).open("r+b") as file:
            if str(Path(f"/proc/self/fd/{file.fileno()}").readlink()) != place[1]:
                raise ValueError("a late task's path, which is another file's now")  # noqa: TRY301
            words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")[index * WORDS : (index + 1) * WORDS]
    except (OSError, ValueError):
        yield
        return
    words[:] = _no_words()
    before, was = _current.set(TaskProgress(words)), _here.words
    _here.words = words
    try:
        yield
    finally:
        _current.reset(before)
        _here.words = was


def unanswered_seconds(since: float) -> float:
    """Return for how long none of the requests of this process has had an answer; 0 if there are none.

    Args:
        since: where to begin, on the monotonic clock (seconds).
    """
    heard = [_here.words[server.place] for server in SERVERS]
    return time.monotonic_ns() / 1e9 - max(since, max(heard) / 1e9) if any(heard) else 0.0


def silent_seconds(server: Server, runs: Iterable[RunningTasks] = ()) -> float:
    """Return for how long a server has answered neither this process nor tasks of these runs; 0 if nobody asks it."""
    heard = max([_here.words[server.place], *(word for run in runs for word in run.words(server.place))])
    return (time.monotonic_ns() - heard) / 1e9 if heard else 0.0


def silences(runs: Iterable[RunningTasks] = ()) -> list[str]:
    """Say which servers have not answered this process, or tasks of these runs, for `SILENT_SECONDS`."""
    runs, texts = list(runs), []
    for server in SERVERS:
        silent = silent_seconds(server, runs)
        if silent < SILENT_SECONDS:
            continue
        failed = [_here.words[server.place + 1], *(word for run in runs for word in run.words(server.place + 1))]
        took = f"{silent:.0f} s" if silent < 60 else seconds_text(silent)
        waiting = f"waiting for {server.name} for {took}"
        texts.append(f"{server.name} has not answered for {took}, retrying" if any(failed) else waiting)
    return texts


class Progress:
    """Receives a run's progress, on the driver, from one thread. All methods default to no-ops."""

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """Begin a phase, ending the previous one.

        Args:
            what: the phase, for display, e.g. ``"exporting"`` or ``"verifying"``.
            total_bytes: segment bytes the phase processes.
            done_bytes: how many of them an earlier run already processed.
        """

    def advance(self, events: int, size: int) -> None:
        """Add processed events and segment bytes."""

    def watch(self, tasks: RunningTasks) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context manager in whose block tasks of the phase run, which say themselves how far they are.

        What they have acknowledged is not in `advance` yet: each task is reported there when it has ended.
        """
        return nullcontext()

    def say(self, text: str) -> None:
        """Report a detail worth a line, e.g. what was resumed or is being waited for."""

    def note(self, text: str) -> None:
        """Report a result, such as a finished generation of a long run."""

    def warn(self, text: str) -> None:
        """Warn the user; the run continues."""

    def warn_all(self, texts: Iterable[str]) -> None:
        """Warn the user of each; see `warn`."""
        for text in texts:
            self.warn(text)

    def end(self) -> None:
        """End the last phase."""

    def part(self, name: str) -> Progress:
        """Return the progress of one of several streams at once, which may be reported from a thread of its own.

        Args:
            name: the stream's name, for display.
        """
        return PartProgress(self, name)


class ForwardedProgress(Progress):
    """Passes on whatever its class has no method of its own for; parts are parts of this one."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        for name in ("begin", "advance", "watch", "say", "note", "warn", "end"):
            if getattr(type(self), name) is getattr(Progress, name):
                setattr(self, name, getattr(progress, name))


class PartProgress(Progress):
    """Progress of one of several streams: each text begins with its name, and a phase is a text."""

    def __init__(self, whole: Progress, name: str) -> None:
        self.name = name
        self._whole = whole

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:  # noqa: ARG002
        """See `Progress.begin`."""
        self.say(f"{what} {bytes_text(total_bytes)}")

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        self._whole.say(f"{self.name}: {text}")

    def note(self, text: str) -> None:
        """See `Progress.note`."""
        self._whole.note(f"{self.name}: {text}")

    def warn(self, text: str) -> None:
        """See `Progress.warn`."""
        self._whole.warn(f"{self.name}: {text}")
