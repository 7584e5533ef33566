"""Runs a verb for the streams of a scope, several at once."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamvault.common.errors import Damaged, Failed, Problem
from streamvault.common.options import Options, PublicVerb
from streamvault.common.processes import give_back_large_buffers
from streamvault.common.progress import ForwardedProgress, Progress
from streamvault.common.waiting import JointRun
from streamvault.importer.schemas import NoSchemas
from streamvault.runner.opening import sharing_runner
from streamvault.scopes.calls import ScopeCalls, ScopeListing, StreamCall
from streamvault.scopes.declared import DeclaredCalls
from streamvault.scopes.reports import ScopeReport, StreamFailure, StreamOutcome
from streamvault.streamstore.errors import GoneBefore
from streamvault.streamstore.uri import sharing_stores

AT_ONCE = 4
"""How many streams a verb works on at the same time."""

LOOK_SECONDS = 10.0
"""How often a verb that follows a scope looks for new streams."""

WIND_UP_SECONDS = 30.0
"""How long an interrupted verb waits for the streams that it works on; what it leaves is as after a kill."""

LACKING: Mapping[type[Problem], tuple[str, Mapping[str, Any]]] = {
    NoSchemas: (
        "the archive has recorded no schemas, so none are registered",
        {"schemas": None, "schema_group": None},
    )
}
"""Problems of one stream of a scope that are no failure → a warning, and what to change in the options."""

StreamCalls = ScopeCalls | DeclaredCalls

_log = logging.getLogger("streamvault")


def run_calls(verb: PublicVerb, calls: StreamCalls, options: Options, progress: Progress) -> ScopeReport[Any]:
    """Run a verb for each stream of a scope, of a pattern or of a list.

    The failure of a stream does not affect the others. A verb that follows streams also takes those that are created
    meanwhile.

    Args:
        verb: the verb.
        calls: the streams, with the verb's arguments and options for each.
        options: the options that hold for all of them.
        progress: receives the progress of each stream, beginning with its name.

    Raises:
        Usage: nothing matches.
        Problem: the streams cannot be listed.
    """
    began = time.monotonic()
    is_dry = getattr(options, "dry_run", False)
    with ExitStack() as stack:
        stack.enter_context(sharing_stores())
        listing = calls.look(first=True)
        give_back_large_buffers()  # before there are threads, which get heaps of their own
        if not (options.follows or is_dry):
            stack.enter_context(sharing_runner(getattr(options, "master", "inline"), [verb]))
        outcomes = _ScopeRun(verb, calls, options, progress).run(listing)
    progress.end()
    seconds = round(time.monotonic() - began, 3)
    return ScopeReport(
        scope=str(calls),
        outcomes=tuple(outcome for _, outcome in sorted(outcomes.items())),
        omitted=tuple(listing.omitted),
        key_value_tables=listing.key_value_tables,
        dry_run=is_dry,
        seconds=seconds,
        total_seconds=seconds,
    )


@dataclass
class _ScopeRun:
    """A verb while it runs for the streams of a scope."""

    verb: PublicVerb
    calls: StreamCalls
    options: Options
    progress: Progress
    joint: JointRun = field(default_factory=lambda: JointRun(AT_ONCE, rests=_give_back))
    ended: queue.SimpleQueue[tuple[str, StreamOutcome[Any] | None]] = field(default_factory=queue.SimpleQueue)
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def run(self, listing: ScopeListing) -> dict[str, StreamOutcome[Any]]:
        """Run the verb for all streams; return how it ended for each."""
        outcomes: dict[str, StreamOutcome[Any]] = {}
        todo, known = deque(listing.names), set(listing.names)
        looked = time.monotonic()
        try:
            while todo or self.threads or self._waits_for_streams():
                while todo and (self.options.follows or len(self.threads) < AT_ONCE):
                    self._start(todo.popleft())
                if (ended := self._next_ended()) is not None:
                    name, outcome = ended
                    outcomes[name] = outcome
                    self._tell(name, outcome, f"{len(outcomes)} of {len(known)}")
                if self.options.follows and time.monotonic() - looked >= LOOK_SECONDS:
                    new = self._look(known, outcomes)
                    known.update(new)
                    todo.extend(new)
                    looked = time.monotonic()
        except BaseException:
            self._stop()
            raise
        return outcomes

    def _waits_for_streams(self) -> bool:
        """Whether a verb that follows goes on, although no stream is left: one may be created."""
        return self.options.follows and not any(getattr(self.options, name, None) for name in ("idle", "lasting"))

    def _next_ended(self) -> tuple[str, StreamOutcome[Any]] | None:
        """Wait until the verb has ended for a stream; while it follows, only for a while."""
        try:
            name, outcome = self.ended.get(timeout=LOOK_SECONDS if self.options.follows else None)
        except queue.Empty:
            return None
        self.threads.pop(name).join()
        if outcome is None:
            raise KeyboardInterrupt
        return name, outcome

    def _look(self, known: set[str], outcomes: Mapping[str, StreamOutcome[Any]]) -> list[str]:
        """Return the names of streams that are new, or new again after the old one was deleted."""
        try:
            names = self.calls.look().names
        except Problem as problem:
            self.progress.say(f"the scope cannot be listed now: {problem}")
            return []
        gone = {name for name, outcome in outcomes.items() if outcome.status == "gone"} - set(self.threads)
        new = [name for name in names if name not in known or name in gone]
        for name in new:
            self.progress.note(f"{name}: new in {self.calls}")
        return new

    def _start(self, name: str) -> None:
        call = self.calls.call(name)
        lasting = getattr(self.options, "lasting", None)
        if lasting is not None and self.options.follows:
            left = max(0.001, self.began + lasting - time.monotonic())
            call = replace(call, options=call.options.model_copy(update={"lasting": left}))
        thread = threading.Thread(target=self._work, args=(name, call), name=f"stream {name}", daemon=True)
        self.threads[name] = thread
        thread.start()

    def _stop(self) -> None:
        """End all streams in order: each as an interrupted command of its own."""
        self.joint.stop()
        deadline = time.monotonic() + WIND_UP_SECONDS
        for thread in self.threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self, name: str, call: StreamCall) -> None:
        try:
            with self.joint.turn():
                self.ended.put((name, self._run_for(name, call)))
        except BaseException:  # noqa: BLE001  (only the end of the run gets here)
            self.ended.put((name, None))

    def _run_for(self, name: str, call: StreamCall) -> StreamOutcome[Any]:
        stream, began = call.uri, time.monotonic()
        part = self.progress.part(name)
        try:
            report = self._call(call, _Interruptible(part, self.joint))
        except Exception as error:  # noqa: BLE001  (it is the failure of this stream alone)
            seconds = round(time.monotonic() - began, 3)
            if self._is_gone(call, error):
                return StreamOutcome(stream=stream, status="gone", seconds=seconds)
            if not isinstance(error, Problem):
                _log.debug("%s: internal error", name, exc_info=True)
                error = Failed(f"internal error: {type(error).__name__}: {' '.join(str(error).split())}")
            failure = StreamFailure(what=error.what, where=error.where, todo=error.todo, retriable=error.retriable)
            return StreamOutcome(
                stream=stream, status="failed", exit_code=error.exit_code, failure=failure, seconds=seconds
            )
        finally:
            part.end()
        part.warn_all(getattr(report, "warnings", ()))
        code, seconds = report.exit_code, round(time.monotonic() - began, 3)
        status: Literal["done", "failed"] = "failed" if code else "done"
        return StreamOutcome(stream=stream, status=status, exit_code=code, result=report, seconds=seconds)

    def _call(self, call: StreamCall, progress: Progress) -> Any:
        """Call the verb for a stream; if that lacks what the options ask for of all streams, see `LACKING`."""
        try:
            return self.verb.with_options(*call.arguments, call.options, progress)
        except tuple(LACKING) as problem:
            if call.is_named:
                raise
            warning, without = LACKING[type(problem)]
        progress.warn(warning)
        report = self.verb.with_options(*call.arguments, call.options.model_copy(update=without), progress)
        return replace(report, warnings=(*report.warnings, warning))

    def _is_gone(self, call: StreamCall, error: Exception) -> bool:
        """Whether the verb failed because the stream was deleted meanwhile; by others, not by the verb itself.

        That a stream is gone which was named is a failure.
        """
        if self.verb.options_class.deletes:
            return isinstance(error, GoneBefore)
        if isinstance(error, Damaged) or not isinstance(error, Problem):
            return False
        try:
            return not (call.is_named or call.has())
        except Problem:
            return False

    def _tell(self, name: str, outcome: StreamOutcome[Any], how_many: str) -> None:
        text: str = "deleted meanwhile" if outcome.status == "gone" else outcome.status
        if outcome.failure is not None:
            text = f"failed: {outcome.failure}"
        self.progress.note(f"{name}: {text} ({how_many})")


class _Interruptible(ForwardedProgress):
    """Progress that ends a stream's thread if the whole run is to end; see `JointRun.check`."""

    def __init__(self, progress: Progress, joint: JointRun) -> None:
        super().__init__(progress)
        self._joint = joint

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """See `Progress.begin`."""
        self._joint.check()
        self._progress.begin(what, total_bytes, done_bytes)

    def advance(self, events: int, size: int) -> None:
        """See `Progress.advance`."""
        self._joint.check()
        self._progress.advance(events, size)


def _give_back() -> None:
    """Give back what pyarrow keeps for this thread: more than a mebibyte, and each stream has a thread."""
    # a verb that uses it has imported it, or another stream's thread is just importing it
    if (pool := getattr(sys.modules.get("pyarrow"), "default_memory_pool", None)) is not None:
        pool().release_unused()
