"""Runs a verb for the streams of a scope, several at once."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from streamvault.common.errors import Damaged, Failed, Problem, Usage, without_logins
from streamvault.common.joint_run import JointRun
from streamvault.common.options import Options
from streamvault.common.progress import Progress
from streamvault.common.report import Report
from streamvault.common.verb import PublicVerb
from streamvault.scopes.listing import ScopeListing, ScopeMembers, members_of
from streamvault.scopes.reports import ScopeReport, StreamFailure, StreamOutcome
from streamvault.scopes.uri import ScopePattern, is_scope
from streamvault.sparkrun.opening import sharing_runner
from streamvault.streamstore.uri import is_stream, parse_stream, sharing_stores

AT_ONCE = 4
"""How many streams a verb works on at the same time."""

LOOK_SECONDS = 10.0
"""How often a verb that follows a scope looks for new streams."""

WIND_UP_SECONDS = 30.0
"""How long an interrupted verb waits for the streams that it works on; what it leaves is as after a kill."""

_log = logging.getLogger("streamvault")


def run_for_scope(verb: PublicVerb, arguments: Sequence[str], options: Options, progress: Progress) -> ScopeReport:
    """Run a verb for each stream of a scope, or for each that matches a pattern.

    The failure of a stream does not affect the others. A verb that follows streams also takes those that are created
    meanwhile.

    Args:
        verb: the verb, one of whose arguments may be a scope.
        arguments: its arguments; of those that may be scopes, all are.
        options: its options.
        progress: receives the progress of each stream, beginning with its name.

    Raises:
        Usage: nothing matches, or the arguments are not scopes of the right kind.
        Problem: the scope cannot be listed.
    """
    began = time.monotonic()
    patterns = _patterns(verb, arguments)
    scoped = list(verb.options_class.scoped.items())
    name, kind = scoped[0]
    target = next((patterns[other] for other, its in scoped[1:] if its == "target"), None)
    members = members_of(patterns[name], kind, target)
    with ExitStack() as stack:
        stack.enter_context(sharing_stores())
        listing = members.look()
        members.check_any(listing)
        if not (options.follows or getattr(options, "dry_run", False)):
            stack.enter_context(sharing_runner(getattr(options, "master", "inline"), [verb]))
        run = _ScopeRun(verb, _Arguments(verb.argument_names, arguments, patterns), members, options, progress)
        outcomes = run.run(listing)
    progress.end()
    seconds = round(time.monotonic() - began, 3)
    return ScopeReport(
        scope=str(patterns[name]),
        outcomes=tuple(outcome for _, outcome in sorted(outcomes.items())),
        omitted=tuple(listing.omitted),
        key_value_tables=listing.key_value_tables,
        dry_run=getattr(options, "dry_run", False),
        seconds=seconds,
        total_seconds=seconds,
    )


def _patterns(verb: PublicVerb, arguments: Sequence[str]) -> Mapping[str, ScopePattern]:
    """Return the scopes among a verb's arguments, by the argument's name."""
    patterns = {}
    for number, (name, kind) in enumerate(verb.options_class.scoped.items()):
        text = arguments[verb.argument_names.index(name)]
        if not is_scope(text):
            what = "the target of a scope is a scope" if number else "a scope as target needs a scope as source"
            raise Usage(what, where=repr(text), todo="Let both end in '/', or none.")
        patterns[name] = ScopePattern.parse(text)
        if number and patterns[name].pattern:
            raise Usage(
                "a target must not be a pattern", where=repr(text), todo="Write the scope, with '/' at its end."
            )
        if kind == "target" or (kind != "archive" and is_stream(text)):
            parse_stream(patterns[name].member("x"), target=bool(number))
    return patterns


@dataclass(frozen=True, slots=True)
class _Arguments:
    """A verb's arguments for each stream."""

    names: Sequence[str]
    given: Sequence[str]
    patterns: Mapping[str, ScopePattern]

    def of(self, stream: str) -> list[str]:
        return [
            self.patterns[name].member(stream) if name in self.patterns else given
            for name, given in zip(self.names, self.given, strict=True)
        ]


@dataclass
class _ScopeRun:
    """A verb while it runs for the streams of a scope."""

    verb: PublicVerb
    arguments: _Arguments
    members: ScopeMembers
    options: Options
    progress: Progress
    joint: JointRun = field(default_factory=lambda: JointRun(AT_ONCE))
    ended: queue.SimpleQueue[tuple[str, StreamOutcome | None]] = field(default_factory=queue.SimpleQueue)
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def run(self, listing: ScopeListing) -> dict[str, StreamOutcome]:
        """Run the verb for all streams; return how it ended for each."""
        outcomes: dict[str, StreamOutcome] = {}
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
        return self.options.follows and not (_option(self.options, "idle") or _option(self.options, "lasting"))

    def _next_ended(self) -> tuple[str, StreamOutcome] | None:
        """Wait until the verb has ended for a stream; while it follows, only for a while."""
        try:
            name, outcome = self.ended.get(timeout=LOOK_SECONDS if self.options.follows else None)
        except queue.Empty:
            return None
        self.threads.pop(name).join()
        if outcome is None:
            raise KeyboardInterrupt
        return name, outcome

    def _look(self, known: set[str], outcomes: Mapping[str, StreamOutcome]) -> list[str]:
        """Return the names of streams that are new, or new again after the old one was deleted."""
        try:
            names = self.members.look().names
        except Problem as problem:
            self.progress.say(f"the scope cannot be listed now: {problem}")
            return []
        gone = {name for name, outcome in outcomes.items() if outcome.status == "gone"} - set(self.threads)
        new = [name for name in names if name not in known or name in gone]
        for name in new:
            self.progress.note(f"{name}: new in {self.members.pattern}")
        return new

    def _start(self, name: str) -> None:
        options, lasting = self.options, _option(self.options, "lasting")
        if lasting is not None and self.options.follows:
            left = max(0.001, self.began + lasting - time.monotonic())
            options = options.model_copy(update={"lasting": left})
        thread = threading.Thread(target=self._work, args=(name, options), name=f"stream {name}", daemon=True)
        self.threads[name] = thread
        thread.start()

    def _stop(self) -> None:
        """End all streams in order: each as an interrupted command of its own."""
        self.joint.stop()
        deadline = time.monotonic() + WIND_UP_SECONDS
        for thread in self.threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self, name: str, options: Options) -> None:
        try:
            with self.joint.turn():
                self.ended.put((name, self._run_for(name, options)))
        except BaseException:  # noqa: BLE001  (only the end of the run gets here)
            self.ended.put((name, None))

    def _run_for(self, name: str, options: Options) -> StreamOutcome:
        stream, began = self.members.pattern.member(name), time.monotonic()
        part = self.progress.part(name)
        try:
            report = self.verb.with_options(*self.arguments.of(name), options, _Interruptible(part, self.joint))
        except Exception as error:  # noqa: BLE001  (it is the failure of this stream alone)
            seconds = round(time.monotonic() - began, 3)
            if isinstance(error, Problem) and not isinstance(error, Damaged) and self._is_gone(name):
                return StreamOutcome(stream=stream, status="gone", seconds=seconds)
            if not isinstance(error, Problem):
                _log.debug("%s: internal error", name, exc_info=True)
            code = error.exit_code if isinstance(error, Problem) else Failed.exit_code
            return StreamOutcome(
                stream=stream, status="failed", exit_code=code, failure=_failure(error), seconds=seconds
            )
        finally:
            part.end()
        for warning in getattr(report, "warnings", ()):
            part.warn(warning)
        return _outcome(stream, report, round(time.monotonic() - began, 3))

    def _is_gone(self, name: str) -> bool:
        """Whether a stream was deleted meanwhile."""
        try:
            return not self.members.has(name)
        except Problem:
            return False

    def _tell(self, name: str, outcome: StreamOutcome, how_many: str) -> None:
        match outcome.status:
            case "gone":
                text = "deleted meanwhile"
            case "failed" if outcome.failure is not None:
                failure = outcome.failure
                text = f"failed: {Problem(failure.what, where=failure.where, todo=failure.todo)}"
            case ended:
                text = ended
        self.progress.note(f"{name}: {text} ({how_many})")


class _Interruptible(Progress):
    """Progress that ends a stream's thread if the whole run is to end; see `JointRun.check`."""

    def __init__(self, progress: Progress, joint: JointRun) -> None:
        self._progress = progress
        self._joint = joint

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """See `Progress.begin`."""
        self._joint.check()
        self._progress.begin(what, total_bytes, done_bytes)

    def advance(self, events: int, size: int) -> None:
        """See `Progress.advance`."""
        self._joint.check()
        self._progress.advance(events, size)

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        self._progress.say(text)

    def note(self, text: str) -> None:
        """See `Progress.note`."""
        self._progress.note(text)

    def warn(self, text: str) -> None:
        """See `Progress.warn`."""
        self._progress.warn(text)

    def end(self) -> None:
        """See `Progress.end`."""
        self._progress.end()


def _outcome(stream: str, report: Report, seconds: float) -> StreamOutcome:
    code = report.exit_code
    return StreamOutcome(
        stream=stream, status="failed" if code else "done", exit_code=code, result=report, seconds=seconds
    )


def _failure(error: Exception) -> StreamFailure:
    if isinstance(error, Problem):
        return StreamFailure(what=error.what, where=error.where, todo=error.todo, retriable=error.retriable)
    text = without_logins(" ".join(str(error).split()))
    return StreamFailure(what=f"internal error: {type(error).__name__}: {text}", retriable=Failed.retriable)


def _option(options: Options, name: str) -> Any:
    return getattr(options, name, None)
