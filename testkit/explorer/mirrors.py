"""The expected result of schedules with a stream as their target: copies, replicas, promotions, moves.

Each change of a stream is judged when it is made: a command may do with its own unfinished target what it wants, but
what belongs to a user is neither written to nor configured, truncated or deleted; a target becomes the user's with
nothing but the source's events; and a source is deleted only by a move, sealed, when the target has all of it. At the
end the commands are repeated, as after a kill.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import greenlet

from streamvault.common.errors import Conflict, Failed, Problem
from streamvault.importer.target import lease_stream
from streamvault.streamstore.cuts import counterparts
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.own import TARGET_LEDGER, is_own, stream_beside, users_tags
from testkit.explorer.commands import COMMANDS, MIRRORS, TARGET_NAME, USERS
from testkit.explorer.memory import StreamState
from testkit.explorer.scenes import CLUSTER, NAME, Scene
from testkit.explorer.world import Actor, World
from testkit.killed import Killed

MOVES = frozenset({"move", "move-bare", "move-shift"})
SEALING = MOVES | {"promote-seal"}
FOREIGN = frozenset(
    {"remake", "drop", "rebuild", "rebuild-half", "rebuild-scaled", "rebuild-scaled-old"}
    | {"target-delete", "target-drop", "target-make", "target-flip", "target-write", "target-retain"}
)
"""What happens outside after which a command may rightly refuse to go on."""


class Mismatch(Exception):
    """A target has something else than the source."""


def _is_users(state: StreamState | None) -> bool:
    return state is not None and not is_own(state.record.configuration)


def _ends(data: bytes) -> list[int]:
    """The boundaries of events, from 0 on."""
    at, found = 0, [0]
    while at + 8 <= len(data):
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        found.append(at)
    return found


def _common(one: bytes, other: bytes) -> int:
    """The length of what both begin with, up to the end of an event."""
    ends = [end for end in _ends(one) if one[:end] == other[:end]]
    return ends[-1]


def _is_written_by_user(rest: bytes) -> bool:
    ends = _ends(rest)
    events = [rest[low + 8 : high] for low, high in pairwise(ends)]
    return ends[-1] == len(rest) and all(event.startswith(USERS.encode()) or not event for event in events)


class Ledger:
    """The streams of a schedule.

    Args:
        world: where it runs; all changes from now on are judged.
        names: its commands.
    """

    def __init__(self, world: World, names: Sequence[str]) -> None:
        self._world = world
        self._cluster = world.cluster(CLUSTER)
        self._names: Sequence[str] = names
        self._all = frozenset(names)
        self._sources: dict[int, StreamState] = {}
        self._made: set[int] = set()
        self._began: StreamState = self._cluster.find(NAME)
        self._sources[self._began.number] = self._began
        self._sealed_by_user = self._began.record.sealed
        self._deleted: list[StreamState] = []
        self._wrong: list[str] = []
        with suppress(NoSuchStream):
            self._made.add(self._cluster.find(TARGET_NAME).number)
        self._cluster.changed = self._changed

    def judge(self, scene: Scene, actors: Sequence[Actor]) -> tuple[str, ...]:
        """Repeat the commands and return what was wrong."""
        for name, actor in zip(self._names, actors, strict=True):
            if actor.error is not None and not isinstance(actor.error, (Problem, Killed)):
                self._wrong.append(f"BUG {name} ended with {type(actor.error).__name__}: {actor.error}")
            elif actor.error is None and not FOREIGN & self._all:
                self._wrong += self._untrue(name, actor.result)
        if not self._wrong:
            self._wrong += self._repeat(scene)
        return tuple(self._wrong)

    def _repeat(self, scene: Scene) -> Iterator[str]:
        verbs = [name for name in dict.fromkeys(self._names) if name in MIRRORS and not MIRRORS[name].outside]
        verbs += [name for name in dict.fromkeys(self._names) if name not in MIRRORS and not COMMANDS[name].outside]
        good = True
        for name in verbs:
            self._names = (name,)
            actor = Actor(0, lambda name=name: {**COMMANDS, **MIRRORS}[name].run(scene, self._world))
            actor.go_on()
            if actor.error is None:
                if not FOREIGN & self._all:
                    yield from self._untrue(name, actor.result)
                if name.startswith("replicate") and name != "replicate-archive":
                    yield from self._is_behind(name)
            else:
                good = False
                alone = len(verbs) == 1 and not FOREIGN & self._all
                if alone or not isinstance(actor.error, (Conflict, Failed)):
                    yield f"STUCK {name} again: {type(actor.error).__name__}: {actor.error}"
        yield from self._left(finished=good)

    def _untrue(self, name: str, report: object) -> Iterator[str]:
        target = self._find(TARGET_NAME)
        if name.startswith(("copy", "promote")) and not _is_users(target):
            yield f"UNTRUE {name} ended well, and there is no stream of the user's"
        if name in MOVES:
            if not _is_users(target):
                yield f"UNTRUE {name} ended well, and there is no stream of the user's"
            source = self._find(NAME)
            if source is not None and source.number == self._began.number:
                yield f"UNTRUE {name} ended well, and the source is still there"
            if name != "move-bare" and (source is None or not source.record.sealed):
                yield f"UNTRUE {name} left no tombstone"
        unchanged = bool(getattr(report, "unchanged", False))  # promoted before, maybe without its source
        if (
            name == "promote-seal"
            and not unchanged
            and (source := self._find(NAME)) is not None
            and _is_users(source)
            and not source.record.sealed
        ):
            yield "UNTRUE promote-seal ended well, and the source is not sealed"

    def _is_behind(self, name: str) -> Iterator[str]:
        source, target = self._find(NAME), self._find(TARGET_NAME)
        if source is None or target is None or "target-flip" in self._all:
            return
        with _yielding(f"BEHIND after {name}") as wrong:
            self._check_whole(target, source, shift=name.endswith("shift"))
            segments = counterparts(source.record.epochs, target.record.epochs) or {}
            head = {segments[segment]: offset for segment, offset in source.record.head.offsets.items()}
            if not name.endswith("shift") and head != target.record.head.offsets:
                raise Mismatch("another head")
        yield from wrong

    def _left(self, *, finished: bool) -> Iterator[str]:
        target = self._find(TARGET_NAME)
        own = [
            name
            for name, state in self._cluster.scopes[NAME.scope].items()
            if is_own(state.record.configuration) and name not in {NAME.stream, TARGET_NAME.stream}
        ]
        if "target-drop" in self._all:
            return
        ledger = stream_beside(TARGET_NAME, TARGET_LEDGER).stream
        if finished and lease_stream(TARGET_NAME).stream in own and not FOREIGN & self._all:
            yield "LEFT a lease"
        if finished and _is_users(target) and ledger in own and not FOREIGN & self._all:
            yield "LEFT a ledger"
        if (
            target is not None
            and target.record.sealed
            and target.number in self._made
            and not (self._sealed_by_user or self._deleted)
        ):
            yield "SEALED the target, though nobody has sealed the source"
        if _is_users(target) and target is not None and target.number in self._made:
            tags = users_tags(target.record.configuration)
            expected = ("mine",) if "target-configure" in self._all else ()
            if [tag for tag in tags if tag not in expected]:
                yield f"TAGS {tags}"

    def _find(self, name: StreamName) -> StreamState | None:
        try:
            return self._cluster.find(name)
        except (NoSuchStream, NoSuchScope):
            return None

    def _changed(self, name: StreamName, before: StreamState | None, after: StreamState | None) -> None:
        actor = greenlet.getcurrent()
        command = self._names[actor.place] if isinstance(actor, Actor) else ""
        outside = not command or {**COMMANDS, **MIRRORS}[command].outside
        if name == NAME:
            if not outside:
                self._wrong += self._source_changed(command, before, after)
            if after is not None and _is_users(after):
                self._sources[after.number] = after
                self._sealed_by_user |= outside and after.record.sealed
        elif name == TARGET_NAME and outside:
            if before is not None and after is None and _is_users(before):
                self._deleted.append(before)
        elif name == TARGET_NAME:
            if before is None and after is not None:
                self._made.add(after.number)
            self._wrong += self._target_changed(command, before, after)

    def _source_changed(self, command: str, before: StreamState | None, after: StreamState | None) -> Iterator[str]:
        if not _is_users(before) or before is None:
            if after is not None and _is_users(after):
                yield f"HARMED {command} created a source"
            return
        if after is None:
            yield from self._source_deleted(command, before)
        elif before == after:
            return
        elif _is_sealed_only(before, after):
            yield from self._source_sealed(command, before)
        else:
            yield f"HARMED {command} changed the source"

    def _source_deleted(self, command: str, source: StreamState) -> Iterator[str]:
        if command not in MOVES:
            yield f"HARMED {command} deleted the source"
            return
        if not source.record.sealed:
            yield f"LOST {command} deleted a source that was not sealed"
        shift, target = self._is_shifted(command), self._find(TARGET_NAME)
        with suppress(Mismatch):
            for deleted in self._deleted:  # its user has deleted what had everything
                self._check_whole(deleted, source, shift=shift)
                return
        with _yielding(f"LOST {command} deleted the source") as wrong:
            if target is None or not _is_users(target):
                raise Mismatch("without a target")
            self._check_whole(target, source, shift=shift)
        yield from wrong

    def _source_sealed(self, command: str, source: StreamState) -> Iterator[str]:
        target = self._find(TARGET_NAME)
        if command not in SEALING:
            yield f"HARMED {command} sealed the source"
        elif "target-drop" not in self._all and target is None:
            yield f"HARMED {command} sealed the source without a target"
        elif not {"target-drop", "target-flip"} & self._all and not self._is_replica_of(target, source):
            yield f"HARMED {command} sealed another source than was replicated"

    def _target_changed(self, command: str, before: StreamState | None, after: StreamState | None) -> Iterator[str]:
        if before is None or before == after:
            return
        if _is_users(before):
            yield from self._users_changed(command, before, after)
        elif after is None:
            if any(before.data.values()):
                yield from self._target_deleted(command, before)
        elif _is_users(after) and "target-flip" not in self._all:
            yield from self._became_users(command, after)

    def _target_deleted(self, command: str, target: StreamState) -> Iterator[str]:
        """Only a sweep deletes what has data, and only the target of an import that has nothing but the archive's."""
        if command != "sweep" or "import" not in self._all:
            yield f"HARMED {command} deleted a target with data"
            return
        with _yielding(f"LOST {command} deleted a target") as wrong:
            self._match(
                replace(target, record=replace(target.record, head=self._began.record.head)), self._began, shift=False
            )
            if any(self._is_by_user(data) for data in target.data.values()):
                raise Mismatch("with a user's events")
        yield from wrong

    @staticmethod
    def _is_by_user(data: bytes) -> bool:
        return any(data[at + 8 :].startswith(USERS.encode()) for at in _ends(data))

    def _users_changed(self, command: str, before: StreamState, after: StreamState | None) -> Iterator[str]:
        if after is None:
            yield f"HARMED {command} deleted the user's stream"
        elif _is_sealed_only(before, after):
            if not (self._sealed_by_user or self._deleted) or before.number not in self._made:
                yield f"HARMED {command} sealed the user's stream"
        elif not self._is_late(before, after):
            yield f"HARMED {command} changed the user's stream"

    def _is_late(self, before: StreamState, after: StreamState) -> bool:
        """Whether a paused replication has moved the head, at most to where a source had its own.

        Such a promotion replaces the open segments, so nothing is appended or scaled, but a truncation may come late.
        """
        if "promote" not in self._all or after.number not in self._made:
            return False
        same = replace(before, record=replace(before.record, head=after.record.head)) == after
        return same and any(self._is_head_of(source, after) for source in self._sources.values())

    def _is_head_of(self, source: StreamState, target: StreamState) -> bool:
        segments = counterparts(source.record.epochs, _without_replaced(target).record.epochs) or {}
        shifted = self._is_shifted("")
        limits = {ours: source.record.head.offsets.get(theirs, math.inf) for theirs, ours in segments.items()}
        return all(shifted or offset <= limits.get(s, 0) for s, offset in target.record.head.offsets.items())

    def _is_replica_of(self, target: StreamState | None, source: StreamState) -> bool:
        """Whether an unfinished target, which may have filler, has something of a source; an empty one may."""
        if target is None:
            return False
        segments = counterparts(source.record.epochs, _without_replaced(target).record.epochs) or {}
        starts = target.readable()
        held = [
            (source.data.get(theirs, b""), target.data.get(ours, b"")[starts.get(ours, 0) :])
            for theirs, ours in segments.items()
        ]
        return bool(segments) and (
            any(ours[-32:] in truth for truth, ours in held if ours) or not any(ours for _, ours in held)
        )

    def _became_users(self, command: str, target: StreamState) -> Iterator[str]:
        if target.number not in self._made:
            yield f"HARMED {command} configured a stream that is not its own"
            return
        shift = self._is_shifted(command)
        found: list[str] = []
        for source in self._sources.values():
            with _yielding(f"WRONG {command} finished a target") as wrong:
                if command in SEALING:
                    self._check_whole(target, source, shift=shift)
                elif command.startswith("copy") and source.number == self._began.number:
                    self._check_whole(target, source, shift=shift, until=self._began)
                else:
                    self._match(target, source, shift=shift)
            if not wrong:
                return
            found = found or wrong
        yield from found

    def _is_shifted(self, command: str) -> bool:
        return any(name.endswith("shift") for name in (command, *self._all))

    def _match(
        self, target: StreamState, source: StreamState, *, shift: bool
    ) -> Mapping[SegmentId, tuple[SegmentId, int]]:
        """Return source segment → its counterpart and up to where the target has it.

        Raises:
            Mismatch: the target has other bytes, besides events that its user has written behind the others.
        """
        segments = counterparts(source.record.epochs, target.record.epochs)
        if segments is None or len(target.record.epochs) > len(source.record.epochs):
            replaced = _without_replaced(target)
            if replaced is target:
                raise Mismatch("it has another history")
            return self._match(replaced, source, shift=shift)
        readable = target.readable()
        reached = {}
        for theirs, ours in segments.items():
            data, truth = target.data.get(ours, b""), source.data.get(theirs, b"")
            start = readable.get(ours)
            if start is None:
                reached[theirs] = len(truth)
                continue
            bases = [base for base in _ends(truth) if base + start <= len(truth)] if shift else [0]
            best = -1
            for base in bases:
                common = _common(data[start:], truth[base + start :])
                if _is_written_by_user(data[start + common :]) and base + start + common > best:
                    best = base + start + common
            if best < 0:
                raise Mismatch(f"{ours} has other events than the source from {start} on")
            reached[theirs] = best
        return reached

    def _check_whole(
        self, target: StreamState, source: StreamState, *, shift: bool, until: StreamState | None = None
    ) -> None:
        """Check that a target has all that can be read of a source.

        Args:
            target: the target.
            source: the source.
            shift: whether offsets are lower in the target.
            until: only what the source had when it was this.

        Raises:
            Mismatch: it does not.
        """
        reached = self._match(target, source, shift=shift)
        for segment in source.readable():
            end = len((until or source).data.get(segment, b""))
            if segment not in reached and (until is None or end):
                raise Mismatch(f"without {segment}")
            if reached.get(segment, 0) < end:
                raise Mismatch(f"{segment} ends at {reached[segment]} instead of {end}")


def _without_replaced(target: StreamState) -> StreamState:
    """Return a promoted replica without its last epochs, as far as each has the key ranges of the one before.

    A promotion makes such an epoch, and another one if it is run again. They have no events of the source's.
    """
    while True:
        epochs = target.record.epochs
        if len(epochs) < 2 or list(epochs[-1].segments.values()) != list(epochs[-2].segments.values()):
            return target
        new = epochs[-1].segments.keys() - epochs[-2].segments.keys()
        if not all(_is_written_by_user(target.data.get(segment, b"")) for segment in new):
            return target
        target = replace(target, record=replace(target.record, epochs=epochs.upto(len(epochs) - 1)))


def _is_sealed_only(before: StreamState, after: StreamState) -> bool:
    return replace(before, record=replace(before.record, sealed=after.record.sealed)) == after


class _yielding:  # noqa: N801  (a context manager)
    """Turns a `Mismatch` into a line of a list."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._found: list[str] = []

    def __enter__(self) -> list[str]:
        return self._found

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, Mismatch):
            self._found.append(f"{self._what}: {error}")
            return True
        return False
