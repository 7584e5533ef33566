"""Stores in memory that the product's own addresses open, commands that stop before store calls, and a clock."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any, Self, TypeVar

import greenlet
from tenacity import wait_fixed

import streamvault.objectstore.store as object_errors
import streamvault.streamstore.errors as stream_errors
from streamvault.common.errors import Problem
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import MANIFESTS
from streamvault.objectstore import bulk
from streamvault.objectstore.bulk import Transfers
from streamvault.objectstore.retrying import RetryingStore
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.inline import InlineRunner
from streamvault.runner.runner import task_failed
from streamvault.streamstore.model import StreamCut, StreamDescription, StreamName
from streamvault.streamstore.uri import StoreAddress
from testkit.explorer.memory import Bucket, Cluster, Late, MemoryObjects, MemoryStreams, PagedObjects
from testkit.explorer.schedule import Schedule
from testkit.killed import Killed

T = TypeVar("T")
R = TypeVar("R")

OBJECT_CALLS = frozenset({"put", "get", "head", "list", "delete"})
CHANGES = frozenset(
    "put delete append scale seal truncate update".split()  # noqa: SIM905
) | {"create scope", "create stream", "truncate segment", "delete stream", "delete scope"}
"""Calls that change a store; only these can be late."""
_TICK = 0.001
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class Actor(greenlet.greenlet):
    """A command that runs.

    Attributes:
        place: which of the schedule's commands. calls: of stores that it has begun. until: the one to stop before.
        fault: what becomes of that. killed: whether it was. result, error: what it ended with.
        trace: its calls, if anybody wants to know. touched: where each of them was, in the same order. slept: the
            numbers of those after which it waited.
    """

    def __init__(self, place: int, work: Callable[[], object]) -> None:
        super().__init__()
        self.place = place
        self.work = work
        self.calls = 0
        self.until: int | None = None
        self.fault = ""
        self.killed = False
        self.ended = False
        self.result: object = None
        self.error: BaseException | None = None
        self.trace: list[tuple[str, str]] = []
        self.touched: list[str] = []
        self.slept: set[int] = set()

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:  # noqa: BLE001  (the judge looks at it)
            self.error = error
        self.ended = True

    def go_on(self, until: int | None = None, fault: str = "") -> None:
        """Run until before a call, or to the end."""
        if not self.ended and (until is None or until > self.calls):
            self.until, self.fault = until, fault
            self.switch()

    def __repr__(self) -> str:
        return f"actor {self.place + 1}"


def perform(schedule: Schedule, actors: Sequence[Actor]) -> None:
    """Run the schedule's commands step by step, then each to its end."""
    for step in schedule.steps:
        actors[step.actor].go_on(step.until, step.fault)
    for actor in actors:
        while not actor.ended:
            actor.go_on()


@dataclass
class World:
    """All stores, by the location in their addresses, and the clock.

    Attributes:
        now: the time of day. skew: how far the clock of the commands' machine is ahead of it (seconds).
        tokens: how many tokens the command of each place has drawn; -1 for what is no command.
        late: pending requests, each with the place of the command that has sent it.
        harsh: whether objects are listed in pages, and the product's own retries stand before the store.
    """

    buckets: dict[str, Bucket] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    now: float = _BEGAN
    ticks: int = 0
    names: int = 0
    limit: int = 20_000
    skew: float = 0.0
    tokens: Counter[int] = field(default_factory=Counter)
    late: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    harsh: bool = False

    def copy(self) -> World:
        return World(
            {place: bucket.copy() for place, bucket in self.buckets.items()},
            {place: cluster.copy() for place, cluster in self.clusters.items()},
            self.now,
            self.ticks,
            self.names,
            tokens=self.tokens.copy(),
            harsh=self.harsh,
        )

    def bucket(self, place: str) -> Bucket:
        return self.buckets.setdefault(place, Bucket())

    def cluster(self, place: str) -> Cluster:
        return self.clusters.setdefault(place, Cluster())

    def open_root(self, address: RootAddress) -> ObjectStore:
        base = f"{address.place}/{address.prefix}/" if address.prefix else f"{address.place}/"
        made = PagedObjects if self.harsh else MemoryObjects
        store = made(self.bucket(address.place), address.uri, address.prefix, partial(_gate, base))
        return RetryingStore(store) if self.harsh else store

    def open_streams(self, address: StoreAddress) -> MemoryStreams:
        gate = partial(_gate, f"{address.location}/")
        return MemoryStreams(self.cluster(address.location), address.uri, gate, lambda: self.now)

    def arrive(self) -> None:
        """The oldest pending request takes effect, as a call of the command that has sent it."""
        if self.late:
            place, effect = self.late.pop(0)
            request = Actor(place, effect)
            request.go_on()
            if request.error is not None and not isinstance(request.error, Problem):
                raise request.error

    def settle(self) -> None:
        """All pending requests take effect."""
        while self.late:
            self.arrive()

    def state(self) -> int:
        """Equal for worlds with equal contents."""
        objects = frozenset((place, frozenset(held.objects.items())) for place, held in self.buckets.items())
        streams = frozenset(
            (
                place,
                name,
                state.number,
                state.record.head,
                state.record.sealed,
                len(state.record.epochs),
                described,
                begun,
            )
            for place, cluster in self.clusters.items()
            for held in cluster.scopes.values()
            for name, state in held.items()
            for described in [(frozenset(state.data.items()), repr(state.starts), state.record.configuration.tags)]
            for begun in [(repr(state.record.transactions), frozenset(state.parts.items()))]
        )
        return hash((objects, streams, self.now, self.skew))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if isinstance(actor := greenlet.getcurrent(), Actor):
            actor.slept.add(len(actor.touched))

    def monotonic(self) -> float:
        self.ticks += 1
        return self.now + self.ticks * _TICK


_worlds: list[World] = []


def current() -> World:
    return _worlds[-1]


def _gate(where: str, call: str, what: str) -> BaseException | None:
    actor = greenlet.getcurrent()
    if not isinstance(actor, Actor):
        return None
    if actor.killed:
        raise Killed
    actor.calls += 1
    actor.trace.append((call, what))
    actor.touched.append("\n".join(where + name for name in what.split("\n")))
    if actor.calls > current().limit:
        raise RuntimeError("a command makes no end of calls")
    if actor.calls != actor.until:
        return None
    hub = actor.parent
    assert hub is not None
    hub.switch()
    return _fault(actor, call, what)


def _fault(actor: Actor, call: str, what: str) -> BaseException | None:
    fault, actor.fault = actor.fault, ""
    if not fault:
        return None
    error: BaseException
    if fault.endswith("!"):
        actor.killed = True
        error = Killed()
    elif fault == ":late":
        world, error = current(), _error("unavailable", call, what)
        if call in CHANGES:
            raise Late(error, lambda effect: world.late.append((actor.place, effect)))
    else:
        error = _error(fault[1:], call, what)
    if fault.startswith("+"):
        return error
    raise error


def _error(kind: str, call: str, what: str) -> Problem:
    if call in OBJECT_CALLS:
        kinds: dict[str, type[Problem]] = {
            "unavailable": object_errors.ObjectStoreUnavailable,
            "denied": object_errors.AccessDenied,
            "full": object_errors.OutOfSpace,
            "exists": object_errors.AlreadyExists,
        }
    else:
        kinds = {
            "unavailable": stream_errors.StreamStoreUnavailable,
            "denied": stream_errors.AccessDenied,
            "full": stream_errors.StoreFull,
            "exists": stream_errors.RequestFailed,
        }
    return kinds[kind]("by the schedule", where=f"{call} {what}")


class Datetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime.fromtimestamp(current().now + current().skew, tz)


def _start_transfers(transfers: Any, work: Callable[[], None]) -> None:
    """Replaces `start` of `objectstore.bulk.Transfers`: the only thread does the work."""
    transfers._work = work
    transfers._run()


def in_order(items: Iterable[T], get: Callable[[T], R], *_: object) -> Iterator[R]:
    """Replaces `objectstore.bulk.in_order`."""
    return (get(item) for item in items)


def _run_inline(
    _: InlineRunner, function: Callable[[T], R], specs: Sequence[T], *_size: object, **_progress: object
) -> Iterator[tuple[int, R]]:
    """Replaces `InlineRunner.run`: one task after the other, each when its result is requested."""
    for index, spec in enumerate(specs):
        try:
            result = function(spec)
        except (Problem, Killed, greenlet.GreenletExit):
            raise
        except BaseException as error:
            raise task_failed(error) from error
        yield index, result


class Thread:
    """Replaces `threading.Thread`: does its work when it is started."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), **_: object) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        self._target(*self._args)

    def join(self, timeout: float | None = None) -> None:
        pass

    def is_alive(self) -> bool:
        return False


class NoThread(Thread):
    """Never does its work: a paused process does not renew its leases."""

    def start(self) -> None:
        pass


class Event:
    """Replaces `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float | None = None) -> bool:
        if not self._is_set and seconds is not None:
            current().sleep(seconds)
        return self._is_set


class Lock:
    """Replaces `threading.Lock`: there is one thread."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Pool:
    """Replaces `ThreadPoolExecutor`."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        return map(function, list(items))


@contextlib.contextmanager
def in_memory(world: World) -> Iterator[World]:
    """Within it, the product's addresses open the world's stores, it has no threads, and its clock is the world's."""
    _worlds.append(world)
    try:
        if len(_worlds) > 1:
            yield world
            return
        with contextlib.ExitStack() as stack:
            for place, name, value in _all_patches():
                # its own, or an inherited one would be given back as the patch of its base
                stack.callback(setattr, place, name, vars(place)[name])
                setattr(place, name, value)
            yield world
    finally:
        _worlds.pop()


@cache
def _all_patches() -> list[tuple[Any, str, Any]]:
    """Computed once: the results outlive a schedule."""
    return list(_patches())


def _token(nbytes: int | None = None) -> str:
    """A token that depends on who draws it, not on what others have done meanwhile."""
    world, actor = current(), greenlet.getcurrent()
    place = actor.place if isinstance(actor, Actor) else -1
    world.tokens[place] += 1
    return f"{((place + 1) << 16) + world.tokens[place]:0{2 * (nbytes or 8)}x}"


class _Remembered:
    """A function whose result depends only on its arguments, and is cached.

    Args:
        function: returns what cannot be changed; or yields such things, if `rows`.
        key: how many of the arguments the result depends on; None: on all.
    """

    def __init__(self, function: Callable[..., Any], *, rows: bool = False, key: int | None = None) -> None:
        self._function = function
        self._key = key
        self._rows = rows
        self._known: dict[Any, Any] = {}

    def __call__(self, *args: Any, **options: Any) -> Any:
        given = tuple(tuple(arg) if isinstance(arg, list) else arg for arg in args)
        key = (given[: self._key], tuple(options.items()))
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 20_000:
                self._known.clear()
            found = self._function(*given, **options)
            found = self._known[key] = list(found) if self._rows else found
        return iter(found) if self._rows else found


def _manifest_keys(list_keys: Callable[[Any, str], list[str]]) -> Callable[[Any, str], list[str]]:
    """Replaces `manifests.listing._keys`: one call of the store, too, but no `ObjectInfo` for each object."""

    def keys(store: Any, prefix: str) -> list[str]:
        if isinstance(store, MemoryObjects):
            return store.names(prefix + MANIFESTS, len(prefix))
        return list_keys(store, prefix)

    return keys


def _decided(read: Callable[[Any, str, int], Any]) -> Callable[[Any, str, int], Any]:
    """Replaces `manifests.listing._decision`: before the first decision the answer is always the same."""
    first = lru_cache(maxsize=None)(lambda prefix: read(None, prefix, 0))
    return lambda store, prefix, number: read(store, prefix, number) if number else first(prefix)


def _everywhere(original: Any, replacement: Any) -> Iterator[tuple[Any, str, Any]]:
    """In every module that has imported a function."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "streamvault":
            for attribute, value in list(vars(module).items()):
                if value is original:
                    yield module, attribute, replacement


def _remembering() -> Iterator[tuple[Any, str, Any]]:
    """Half of a schedule's time is spent on reading the same small files repeatedly."""
    from streamvault.layouts import keys  # noqa: PLC0415
    from streamvault.manifests import (  # noqa: PLC0415
        files,
        listing,
    )
    from streamvault.manifests import index as ranges  # noqa: PLC0415
    from streamvault.streamstore import cuts  # noqa: PLC0415

    encode, between = files.Model.encode, cuts.segments_between
    encoded = _Remembered(lambda _, __, model: encode(model), key=2)
    stretches = _Remembered(lambda _, *args: between(*args), key=1)
    # with the decision, or another one could get its id
    resolve = listing._resolve
    resolved = _Remembered(lambda _, keys, decision, numbers: (decision, resolve(decision, keys, list(numbers))), key=2)

    encode_rows = ranges.encode_ranges
    indexes = _Remembered(lambda stream, _, rows: encode_rows(stream, rows), key=2)

    def encode_once(stream: StreamName, rows: list[ArchivedRange]) -> Any:
        # ranges that differ only in checksums are equal
        return indexes(stream, [(row, row.crc64nvme, row.block_checksums) for row in rows], rows)

    def find_stretches(described: StreamDescription, start: StreamCut, end: StreamCut) -> Any:
        shape = tuple((epoch.number, tuple(epoch.segments.items())) for epoch in described.epochs)
        return dict(stretches((described.name, shape, start, end), described, start, end))

    yield files.Model, "encode", lambda model: encoded(type(model), model.model_dump_json(by_alias=True), model)
    yield from _everywhere(between, find_stretches)
    yield os, "cpu_count", lambda: 2

    yield from _everywhere(files.decode, _Remembered(files.decode))
    yield listing, "_keys", _manifest_keys(listing._keys)
    yield listing, "KEPT", 1  # so that few decisions suffice to free the number of one that is late
    yield listing, "_decision", _decided(listing._decision)
    yield listing, "_resolve", lambda decision, keys, numbers: resolved(id(decision), keys, decision, numbers)[1]
    yield from _everywhere(ranges.decode_ranges, _Remembered(ranges.decode_ranges, rows=True))
    yield from _everywhere(encode_rows, lambda stream, rows: encode_once(stream, list(rows)))
    for name, function in list(vars(keys).items()):
        if name.startswith("parse_"):
            yield from _everywhere(function, lru_cache(100_000)(function))


def _patches() -> Iterator[tuple[Any, str, Any]]:
    import secrets  # noqa: PLC0415  (what is patched stands in one place)

    import streamvault.common.units  # noqa: PLC0415
    import streamvault.common.waiting  # noqa: PLC0415
    import streamvault.importer.run  # noqa: PLC0415
    import streamvault.manager.sweep  # noqa: PLC0415
    import streamvault.manifests.verbs.warm  # noqa: PLC0415
    import streamvault.streamstore.filling  # noqa: PLC0415
    import streamvault.streamstore.lease  # noqa: PLC0415

    yield from _remembering()
    yield RootAddress, "open", lambda self, **_: current().open_root(self)
    yield StoreAddress, "open", lambda self: current().open_streams(self)
    yield time, "sleep", lambda seconds: current().sleep(seconds)
    yield time, "monotonic", lambda: current().monotonic()
    yield streamvault.common.units, "datetime", Datetime
    yield streamvault.common.waiting, "wait_random_exponential", lambda **_: wait_fixed(1)
    yield secrets, "token_hex", _token
    yield Transfers, "start", _start_transfers
    yield Transfers, "_be_enough_for", lambda *_: None
    yield bulk, "in_order", in_order
    yield InlineRunner, "run", _run_inline
    yield streamvault.manifests.verbs.warm, "ThreadPoolExecutor", Pool
    yield streamvault.manager.sweep, "each_of", lambda function, specs: map(function, list(specs))
    yield streamvault.importer.run, "threading", SimpleNamespace(Thread=Thread, Event=Event, Lock=Lock)
    yield streamvault.streamstore.lease, "threading", SimpleNamespace(Thread=NoThread, Event=Event, Lock=Lock)
    yield streamvault.streamstore.filling, "threading", SimpleNamespace(Thread=NoThread, Event=Event)
    yield streamvault.streamstore.lease, "_this_host", lambda: "host"
    yield streamvault.streamstore.lease, "_start_time", lambda _: "0"
