"""What readers write, shared by several servers: reader groups, each a log of create-only objects.

Each group has a log of its own, which is parted into epochs. Keys, below the root:

    SCOPE/GROUP/snapshots/EPOCH         the group as it is where the epoch begins; epoch 0 has none and begins empty
    SCOPE/GROUP/entries/EPOCH/NUMBER    the epoch's changes, from 0 on

An epoch ends with the entry that fills it, or that deletes the group, which each server tells from the entries alone.
Who has applied that entry creates the next epoch's snapshot, and only then are the entries and snapshots of earlier
epochs deleted. The newest snapshot is never deleted. Hence the rule that `_Log._is_current` keeps:

    What was put or read in an epoch counts only if afterwards there is still no snapshot of a later epoch.

If there is none, nothing of the epoch was deleted before, so an entry that was created is the first one of its number,
and one that was read is part of the log. If there is one, a server may be so late that its entry has the number of a
deleted one: it discards what it knows, reads the newest snapshot, and begins again. An entry that is left behind so
is in an epoch that nobody counts, and the next snapshot's writer deletes it.

A server that cannot reach the store raises the store's error and knows no more than before; nothing is acknowledged.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from streamvault.common.errors import Damaged, Failed, Problem
from streamvault.objectstore.bulk import get_all
from streamvault.objectstore.store import AlreadyExists, NoSuchObject, ObjectStore
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamName

NULL = -(2**63)
"""The value of an attribute, and the number of a writer's last event, that were never set."""

EPOCH_ENTRIES = 256
EPOCH_BYTES = 8 * 1024 * 1024
"""Entries, or bytes of them, that fill an epoch: what recovery reads besides a snapshot. As the next limit, part of
the format (docs/reference/format-state.md): servers that differ in them would not agree where an epoch ends and what
the state is."""

MOST_WRITERS = 1000
"""Writers whose event numbers are kept for a group: those that have appended last."""

MOST_STATE_BYTES = 8 * 1024 * 1024
"""The longest state of a group. Clients compact theirs to a few KiB."""

MOST_ATTRIBUTES = 100

MOST_OPEN_BYTES = 64 * 1024 * 1024

TRIES = 100

Decide = Callable[["_State"], tuple[dict[str, Any], bytes] | None]


class StateMoved(Failed):
    """Other servers have changed the state so much meanwhile that it is not known whether this change was made."""

    transient = True


class StateLost(Failed):
    """The store of reader groups' states has failed, and it may not be known what it holds.

    Who has asked is hung up on: clients connect again, and ask what was stored.
    """

    transient = True


@dataclass(frozen=True, slots=True)
class Appended:
    """An append that is stored.

    Attributes:
        before: the number of the writer's last event before.
        end: the segment's end (bytes).
    """

    before: int
    end: int


@dataclass
class _State:
    """A group after some entries of its log. Equal entries give an equal state on each server."""

    epoch: int = 0
    segment: int = 0
    exists: bool = False
    revision: int = 0
    configuration: str = ""
    start: int = 0
    writers: dict[str, int] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    held: bytearray = field(default_factory=bytearray)
    entries: int = 0
    entry_bytes: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.held)

    @property
    def is_full(self) -> bool:
        is_deleted = self.entries > 0 and not self.exists  # so that little is left of it
        return is_deleted or self.entries >= EPOCH_ENTRIES or self.entry_bytes >= EPOCH_BYTES

    def snapshot(self) -> bytes:
        """Return the next epoch's snapshot."""
        head = asdict(replace(self, epoch=self.epoch + 1, held=bytearray(), entries=0, entry_bytes=0))
        del head["held"]
        return _encode(head, self.held)

    def apply(self, head: dict[str, Any], data: bytes, size: int) -> None:
        """Apply an entry. It was decided on exactly this state, so there is nothing to check."""
        kind = head["kind"]
        self.entries += 1
        self.entry_bytes += size
        if kind == "append":
            self.held += data
            self.writers.pop(head["writer"], None)
            self.writers[head["writer"]] = head["number"]
            if len(self.writers) > MOST_WRITERS:
                del self.writers[next(iter(self.writers))]
        elif kind == "truncate":
            del self.held[: head["offset"] - self.start]
            self.start = head["offset"]
        elif kind == "swap":
            self.attributes[head["name"]] = head["value"]
        elif kind == "configure":
            self.revision += 1
            self.configuration = data.hex()
        else:
            self.exists, self.revision, self.start = kind == "create", 0, 0
            self.segment += kind == "create"
            self.configuration = data.hex()
            self.held, self.writers, self.attributes = bytearray(), {}, {}


def _encode(head: dict[str, Any], data: bytes | bytearray) -> bytes:
    return json.dumps({"version": 1, **head}).encode() + b"\n" + data


def _decode(body: bytes, where: str) -> tuple[dict[str, Any], bytes]:
    line, _, data = body.partition(b"\n")
    try:
        head = json.loads(line)
        if head.pop("version") == 1:
            return head, data
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise _not_readable(where)


def _not_readable(where: str) -> Damaged:
    return Damaged("this is not a state of a reader group that this version can read", where=where)


class _Log:
    """A group's log, and its state as far as this server knows. Thread-safe: one thread at a time uses it."""

    def __init__(self, store: ObjectStore, name: StreamName) -> None:
        self._store, self.where = store, f"{store.uri}/{name}"
        self._folder = f"{name.scope}/{name.stream}/"
        self._state: _State | None = None
        self.lock = threading.RLock()

    @property
    def size(self) -> int:
        """About how much memory the state takes (bytes)."""
        state = self._state
        return 0 if state is None else 16384 + len(state.held) + len(state.configuration) + 200 * len(state.writers)

    def look(self) -> _State:
        """Return the state with all that was acknowledged before this call, by whatever server."""
        with self.lock:
            self._look(set())
            return self.known()

    def known(self) -> _State:
        """Return the state as known, if any of it is known, else look."""
        with self.lock:
            return self.look() if self._state is None else self._state

    def write(self, decide: Decide) -> bool:
        """Add an entry that is decided on the state before it.

        Args:
            decide: returns the entry; None, or an error raised, if there is nothing to add. Called again if another
                entry came first; its last call holds.

        Returns:
            Whether it was added; False if there was nothing to add.

        Raises:
            StateMoved: it is not known whether it was added.
        """
        with self.lock:
            fresh = False
            for _ in range(TRIES):
                if fresh or self._state is None or self._state.is_full:
                    self._look(set())
                    fresh = True
                state = self.known()
                try:
                    entry = decide(state)
                except Problem:
                    if fresh:
                        raise
                    entry = None
                if entry is None and fresh:
                    return False
                if entry is None:
                    fresh = True
                    continue
                fresh = False
                if self._put(state, *entry):
                    return True
            raise StateMoved("other servers keep changing a reader group", where=self.where)

    def _put(self, state: _State, head: dict[str, Any], data: bytes) -> bool:
        """Put the next entry; False if it was not, or if an append's number will tell."""
        token = uuid4().hex  # equal changes of two servers are two entries
        body = _encode({"token": token, **head}, data)
        try:
            self._store.put(self._entry(state.epoch, state.entries), body)
        except AlreadyExists:  # another server's, or this one by an attempt whose answer was lost
            tokens: set[str] = set()
            same = self._look(tokens)
            if token in tokens:
                return True
        else:
            if self._is_current(state):
                state.apply(*_decode(body, self.where), len(body))
                return True
            same, self._state = False, None
        if not same and head["kind"] != "append":
            raise StateMoved("a reader group was changed by other servers", where=self.where, todo="Try again.")
        return False

    def _look(self, tokens: set[str]) -> bool:
        """Apply what other servers have added; return whether all of it could be followed, entry by entry."""
        followed = True
        for _ in range(TRIES):
            if self._state is None:
                followed = False
                self._load()
            state = self._state
            if state is None:
                continue
            if state.is_full:
                self._begin_epoch(state)
            bodies = self._next_entries(state)
            if not self._is_current(state):
                self._state = None
                continue
            for body in bodies:
                head, data = _decode(body, self.where)
                try:
                    tokens.add(head["token"])
                    state.apply(head, data, len(body))
                except (KeyError, TypeError, ValueError):
                    self._state = None
                    raise _not_readable(self.where) from None
                if state.is_full:
                    break
            if not state.is_full:
                return followed
        raise StateMoved("other servers keep changing a reader group", where=self.where)

    def _next_entries(self, state: _State) -> list[bytes]:
        """Return the entries behind those that are known, without a gap; at most those of an epoch."""
        after = self._entry(state.epoch, state.entries - 1) if state.entries else ""
        items = []
        for number, one in enumerate(self._store.list(f"{self._folder}entries/{state.epoch:010d}/", after)):
            if one.key != self._entry(state.epoch, state.entries + number):
                break
            items.append((one.key, one.size))
        try:
            return [body for _, body in get_all(self._store, items)] if items else []
        except NoSuchObject:
            if self._is_current(state):
                raise
            return []

    def _is_current(self, state: _State) -> bool:
        """Whether there is no snapshot of a later epoch: what was put or read before then counts."""
        return not any(self._store.list(f"{self._folder}snapshots/", self._snapshot(state.epoch)))

    def _load(self) -> None:
        """Read the newest snapshot; the state stays unknown if that was replaced meanwhile."""
        key = max((one.key for one in self._store.list(f"{self._folder}snapshots/")), default="")
        if not key:
            self._state = _State()
            return
        try:
            head, held = _decode(self._store.get(key), f"{self._store.uri}/{key}")
        except NoSuchObject:
            return
        try:
            found = _State(**head, held=bytearray(held))
        except TypeError:
            found = _State()
        if self._snapshot(found.epoch) != key:
            raise _not_readable(f"{self._store.uri}/{key}")
        self._state = found

    def _begin_epoch(self, state: _State) -> None:
        """Write the snapshot of a full epoch, then delete what is before it. The state goes on in the next one."""
        with suppress(AlreadyExists):  # an equal one: the same entries give it
            self._store.put(self._snapshot(state.epoch + 1), state.snapshot())
        state.epoch, state.entries, state.entry_bytes = state.epoch + 1, 0, 0
        for folder, first in (("entries", self._entry(state.epoch, 0)), ("snapshots", self._snapshot(state.epoch))):
            self._store.delete(
                [one.key for one in self._store.list(f"{self._folder}{folder}/") if one.key < first],
            )

    def _entry(self, epoch: int, number: int) -> str:
        return f"{self._folder}entries/{epoch:010d}/{number:010d}"

    def _snapshot(self, epoch: int) -> str:
        return f"{self._folder}snapshots/{epoch:010d}"


@dataclass(frozen=True, slots=True)
class StateSegment:
    """The segment of a group's state. Thread-safe.

    Each method raises `NoSuchSegment` if the group is deleted or was created again, and the store's errors: then
    nothing may be acknowledged. `append`, `truncate` and `swap` make two requests if no other server has written.

    Attributes:
        groups: all groups. name: the group's scope and name. id: the segment.
    """

    groups: Groups
    name: StreamName
    id: SegmentId

    def info(self) -> SegmentInfo:
        """Return its offsets, with what other servers have appended. Two requests; who waits at the tail repeats it."""
        log = self._log()
        with log.lock:
            state = self._check(log.look())
            return SegmentInfo(self.id, state.start, state.end, sealed=False)

    def read(self, start: int, length: int) -> bytes:
        """Return bytes from an offset on, as far as `info` has seen them.

        Raises:
            SegmentTruncated: it begins later.
        """
        log = self._log()
        with log.lock:
            state = self._check(log.known())
            if start < state.start:
                raise SegmentTruncated("truncated", where=str(self.name), start_offset=state.start)
            return bytes(state.held[start - state.start : start - state.start + length])

    def last_event(self, writer: UUID) -> int:
        """Return the number of the last event that a writer has stored."""
        return self._check(self._log().look()).writers.get(writer.hex, NULL)

    def append(self, writer: UUID, number: int, data: bytes, expected: int | None) -> Appended | None:
        """Append an event, unless it is stored already: the writer repeats it if an answer was lost.

        Args:
            writer: who appends.
            number: the event's, above those of the writer's earlier ones.
            data: at most 1 MiB.
            expected: the offset where it must begin, if that matters.

        Returns:
            None if the end is not the expected one.

        Raises:
            Failed: the state would be too long.
        """
        before = end = 0

        def decide(found: _State) -> tuple[dict[str, Any], bytes] | None:
            nonlocal before, end
            state = self._check(found)
            before, end = state.writers.get(writer.hex, NULL), state.end
            if number <= before or (expected is not None and expected != end):
                return None
            if len(state.held) + len(data) > MOST_STATE_BYTES:
                raise Failed(f"the state of a reader group exceeds {MOST_STATE_BYTES} bytes", where=str(self.name))
            return {"kind": "append", "writer": writer.hex, "number": number}, data

        if self._log().write(decide):
            return Appended(before, end + len(data))
        return Appended(before, end) if number <= before else None

    def truncate(self, offset: int) -> bool:
        """Forget the bytes before an offset; False if it is beyond the end."""
        end = 0

        def decide(found: _State) -> tuple[dict[str, Any], bytes] | None:
            nonlocal end
            end = self._check(found).end
            return ({"kind": "truncate", "offset": offset}, b"") if found.start < offset <= end else None

        return self._log().write(decide) or offset <= end

    def attribute(self, name: UUID) -> int:
        """Return an attribute's value."""
        return self._check(self._log().look()).attributes.get(name.hex, NULL)

    def swap(self, name: UUID, expected: int, value: int) -> bool:
        """Set an attribute if it has the expected value."""

        def decide(found: _State) -> tuple[dict[str, Any], bytes] | None:
            held = self._check(found).attributes
            if held.get(name.hex, NULL) != expected:
                return None
            if name.hex not in held and len(held) >= MOST_ATTRIBUTES:
                raise Failed(f"a segment has at most {MOST_ATTRIBUTES} attributes", where=str(self.name))
            return {"kind": "swap", "name": name.hex, "value": value}, b""

        return self._log().write(decide)

    def _log(self) -> _Log:
        return self.groups.log(self.name)

    def is_of(self, state: _State) -> bool:
        """Whether it is the segment of a group in that state."""
        return state.exists and state.segment == self.id.number

    def _check(self, state: _State) -> _State:
        if not self.is_of(state):
            raise NoSuchSegment("no such reader group", where=str(self.name))
        return state


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    Attributes:
        configuration: what the client has created or updated it with.
        state: its state; one of its own if a group is created again.
        revision: how often the configuration was updated.
    """

    configuration: bytes
    state: StateSegment
    revision: int


class Groups:
    """All groups whose readers use the servers of a root. Thread-safe.

    Args:
        store: the root.
        limit: most bytes of states in memory, of groups that are not in use at the moment; others are read again.
    """

    def __init__(self, store: ObjectStore, limit: int = MOST_OPEN_BYTES) -> None:
        self._store, self._limit = store, limit
        self._logs: dict[StreamName, _Log] = {}
        self._lock = threading.Lock()

    def find(self, name: StreamName) -> Group | None:
        """Return a group by its scope and name; None if there is none. Two requests."""
        return self._group(name, self.log(name).look())

    def create(self, name: StreamName, configuration: bytes) -> Group:
        """Create a group; if there is one of its name, return that one."""
        log = self.log(name)
        log.write(lambda state: None if state.exists else ({"kind": "create"}, configuration))
        found = self._group(name, log.known())
        return self.create(name, configuration) if found is None else found

    def update(self, name: StreamName, configuration: bytes, before: Group) -> bool:
        """Replace the configuration that a caller has seen; False if it is another one now."""

        def decide(state: _State) -> tuple[dict[str, Any], bytes] | None:
            is_same = state.exists and (state.segment, state.revision) == (before.state.id.number, before.revision)
            return ({"kind": "configure"}, configuration) if is_same else None

        return self.log(name).write(decide)

    def delete(self, name: StreamName, before: Group) -> bool:
        """Delete the group that a caller has seen; False if it is gone, even if there is another one of its name."""
        log = self.log(name)
        done = log.write(lambda state: ({"kind": "delete"}, b"") if before.state.is_of(state) else None)
        with suppress(Problem):  # it is done; what is left of it goes with the next request
            log.look()
        return done

    def segment(self, name: StreamName, segment: SegmentId) -> StateSegment:
        """Return the segment of a group's state.

        Raises:
            NoSuchSegment: the group is deleted, or was created again.
        """
        found, log = StateSegment(self, name, segment), self.log(name)
        if not found.is_of(log.known()) and not found.is_of(log.look()):
            raise NoSuchSegment("no such reader group", where=str(name))
        return found

    def log(self, name: StreamName) -> _Log:
        """Return a group's log, of those in memory if it is there; drop those that were used longest ago."""
        with self._lock:
            log = self._logs.pop(name) if name in self._logs else _Log(self._store, name)
            self._logs[name] = log
            held = sum(one.size for one in self._logs.values())
            for oldest in list(self._logs)[:-1]:
                if held <= self._limit:
                    break
                held -= self._logs.pop(oldest).size
            return log

    def _group(self, name: StreamName, state: _State) -> Group | None:
        if not state.exists:
            return None
        segment = StateSegment(self, name, SegmentId(0, state.segment))
        return Group(bytes.fromhex(state.configuration), segment, state.revision)
