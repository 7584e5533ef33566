"""Opens the runner for a ``--master``, and says what its tasks import."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, Field

from streamvault.common.errors import Problem
from streamvault.common.options import CommandLine, Watched
from streamvault.common.progress import Progress
from streamvault.objectstore.uri import SCHEMES
from streamvault.runner.inline import InlineRunner, sharing_threads
from streamvault.runner.runner import UNSEEN, Master, Runner
from streamvault.streamstore.uri import STORES

S = TypeVar("S")
R = TypeVar("R")

STORE_MODULES = (*SCHEMES.values(), *STORES)
"""The modules of the stores that tasks open; none starts a thread when it is imported."""

SPARK_BYTES = 8 << 30
"""A run that moves as much uses Spark: threads would need more than three times as long as its start."""

SPARK_CORES = 4
"""With fewer cores, threads are as fast."""

MAX_THREADS = 4
"""More threads would contend for the GIL; Spark runs each task in a process."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")

_log = logging.getLogger(__name__)


@contextmanager
def open_runner(master: str = "auto", tasks: Sequence[Callable[..., Any]] = ()) -> Iterator[Runner]:
    """Open a runner for a ``--master``; a context manager.

    With ``auto``, `AutoRunner` chooses threads of this process or Spark on this machine; a Spark that runs already is
    used. Any other master is used at once.

    Each process has one Spark, shared by nested blocks and by threads. A Spark context started by the program itself is
    used and left running.

    Args:
        master: ``auto``, a Spark master URL, or ``inline`` or ``inline[N]`` for threads of this process without Spark.
        tasks: the functions that will run; task processes on this machine start with their modules loaded.

    Raises:
        InvalidMaster: ``master`` is not a valid master.
        NoJava: there is no Java runtime for Spark.
        SparkFailed: Spark did not start, or already runs with another master.
    """
    where = Master.parse(master)
    kept = _kept.get()
    if kept is not None and kept.master == master:
        yield kept.lend(tasks)
        return
    if where.kind == "inline":
        yield InlineRunner(where.threads)
        return
    preload = (*STORE_MODULES, *dict.fromkeys(task.__module__ for task in tasks))
    if where.is_auto and not _is_spark_here():
        with AutoRunner(where, preload) as chooser:
            yield chooser
        return
    began = time.monotonic()
    from streamvault.runner.spark import SparkRunner  # noqa: PLC0415  (Spark is imported only where it is used)

    loading = time.monotonic() - began
    with SparkRunner(where, preload) as runner:
        if runner.start_seconds:
            runner.start_seconds += loading
        yield runner


@contextmanager
def sharing_runner(master: str, tasks: Sequence[Callable[..., Any]] = ()) -> Iterator[None]:
    """Keep one runner for the verbs that open one with the same arguments in threads while the block runs.

    Together they run no more tasks at once than one of them would; Spark is started once.
    """
    where = Master.parse(master)
    with ExitStack() as stack:
        if where.kind != "cluster":
            stack.enter_context(sharing_threads(where.threads))
        stack.enter_context(open_runner(master, tasks))
        yield


def _is_spark_here() -> bool:
    """Return whether Spark runs in this process, or started it."""
    loaded = sys.modules.get("pyspark.core.context")
    return "PYSPARK_GATEWAY_PORT" in os.environ or (
        loaded is not None and loaded.SparkContext._active_spark_context is not None  # noqa: SLF001
    )


def allowed_cores() -> float:
    """Return the number of cores that this process may use: those of its affinity, or fewer by a container's quota."""
    allowed = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()  # "max 100000" without a quota, see cgroups(7)
        allowed = min(allowed, int(quota) / int(period))
    return allowed


class AutoRunner(Runner):
    """Uses Spark for a large run and all later ones, and threads otherwise; a context manager.

    Spark takes about eight seconds of two cores to start, and brings processes, not cores. It pays where a run is long
    and the machine has more cores than the threads of one process can use, which share the interpreter's lock.

    If Spark cannot be started, a warning is logged and threads run all tasks.
    """

    def __init__(self, master: Master, preload: Sequence[str]) -> None:
        self._master = master
        self._preload = preload
        self._threads = InlineRunner(min(master.threads, MAX_THREADS))
        self._lock = threading.Lock()
        self._chosen: Runner | None = None if allowed_cores() >= SPARK_CORES else self._threads
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.__exit__(kind, error, tb)

    def run(
        self, function: Callable[[S], R], specs: Sequence[S], progress: Progress = UNSEEN
    ) -> Iterator[tuple[int, R]]:
        """As `Runner.run`."""
        with self._lock:
            sizes = accumulate(getattr(spec, "size", 0) for spec in specs)
            if self._chosen is None and any(size >= SPARK_BYTES for size in sizes):
                self._chosen = self._start_spark()
            runner = self._chosen or self._threads
        yield from runner.run(function, specs, progress)

    def _start_spark(self) -> Runner:
        from streamvault.runner.spark import SparkRunner  # noqa: PLC0415  (Spark is imported only where it is used)

        _log.info("starting Spark: there is much to do")
        try:
            spark = self._open.enter_context(SparkRunner(self._master, self._preload))
        except Problem as problem:
            _log.warning("%s; continuing without Spark", problem)
            return self._threads
        self.start_seconds = spark.start_seconds
        return spark


class KeptRunner:
    """A runner that is opened when it is first needed, and kept for several verbs.

    Args:
        master: as for `open_runner`, of which those with the same one get this runner within `used`.
        stack: closes it.
    """

    def __init__(self, master: str, stack: ExitStack) -> None:
        self.master = master
        self._stack = stack
        self._runner: Runner | None = None
        self._lock = threading.Lock()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have verbs that this thread calls in the block use this runner."""
        before = _kept.set(self)
        try:
            yield
        finally:
            _kept.reset(before)

    def lend(self, tasks: Sequence[Callable[..., Any]]) -> Runner:
        """Return the runner for one verb; arguments and errors as `open_runner`."""
        with self._lock:
            known = self._runner.start_seconds if self._runner is not None else 0.0
            if self._runner is None:
                before = _kept.set(None)
                try:
                    self._runner = self._stack.enter_context(open_runner(self.master, tasks))
                finally:
                    _kept.reset(before)
            return LentRunner(self._runner, known)


class LentRunner(Runner):
    """A kept runner for one verb, to which only what Spark's start took for it counts.

    Args:
        runner: the runner.
        known: its start time that earlier verbs have counted (seconds).
    """

    def __init__(self, runner: Runner, known: float) -> None:
        self._runner = runner
        self._known = known
        self.start_seconds = runner.start_seconds - known

    def run(
        self, function: Callable[[S], R], specs: Sequence[S], progress: Progress = UNSEEN
    ) -> Iterator[tuple[int, R]]:
        """See `Runner.run`."""
        try:
            yield from self._runner.run(function, specs, progress)
        finally:
            self.start_seconds = self._runner.start_seconds - self._known


_kept: ContextVar[KeptRunner | None] = ContextVar("_kept", default=None)


@dataclass
class Tasks:
    """A verb's runner, opened when first needed, shared by all its steps, and closed by ``stack``."""

    master: str
    stack: ExitStack
    tasks: Sequence[Callable[..., Any]]
    _began: float = field(default_factory=time.monotonic, init=False)

    @cached_property
    def runner(self) -> Runner:
        """The runner."""
        return self.stack.enter_context(open_runner(self.master, self.tasks))

    @property
    def start_seconds(self) -> float:
        """Start time of the runner; 0 if it was not needed."""
        return self.runner.start_seconds if "runner" in self.__dict__ else 0.0

    @property
    def seconds(self) -> float:
        """How long the verb has run, without the start of the runner."""
        return round(time.monotonic() - self._began - self.start_seconds, 3)


def _valid(url: str) -> str:
    Master.parse(url)
    return url


class Distributed(Watched):
    """Options of a verb whose tasks run on Spark, or in threads of this process."""

    master: Annotated[
        str,
        AfterValidator(_valid),
        Field(description="Where tasks run: a Spark master, inline (threads), or auto (threads, or Spark if faster)."),
        CommandLine(metavar="URL"),
    ] = "auto"
