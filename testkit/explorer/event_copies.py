"""Copies by events under the explorer: each event once, each key's in order, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial

import greenlet
import pytest

from streamvault import copy_stream
from streamvault.common.errors import Conflict, Usage
from streamvault.concat import copy_events as event_keys
from streamvault.importer.target import TargetTaken
from streamvault.streamstore.errors import NoSuchStream, StreamExists
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import is_own
from testkit.explorer.memory import StreamState
from testkit.explorer.scenes import CLUSTER, open_source
from testkit.explorer.schedule import Schedule
from testkit.explorer.stitches import (
    BEFORE,
    ONE,
    bugs,
    hour,
    is_ours,
    make,
    ordered,
    remake,
    retain,
    scale_to,
    uri,
    users_part,
    write_to,
)
from testkit.explorer.world import Actor, World, in_memory, perform

COPY = StreamName("scope", "copy")
BATCH_BYTES = 60
STRANGE = frozenset({"remake", "copy-take", "copy-drop"})
"""After these, a copy may be refused, or may be of another stream."""


def _copy(_: World) -> object:
    return copy_stream(uri(ONE), uri(COPY), method="events", segments=2, master="inline")


def _drop(_: World) -> None:
    with open_source() as store, suppress(NoSuchStream):
        store.delete(COPY)


def _write_copy(world: World) -> None:
    with open_source() as store:
        users = store.exists(COPY) and not is_own(store.describe(COPY).configuration)
    if users:
        write_to(COPY, world)


def _take(_: World) -> None:
    with suppress(StreamExists):
        make(COPY, "mine")


VERBS: dict[str, Callable[[World], object]] = {"copy": _copy}
ALL: dict[str, Callable[[World], object]] = {
    **VERBS,
    "write": partial(write_to, ONE),
    "scale": lambda _: scale_to(ONE, [0.5, 0.75]),
    "merge": lambda _: scale_to(ONE, []),
    "retain": retain,
    "remake": partial(remake, ONE),
    "copy-drop": _drop,
    "copy-take": _take,
    "copy-write": _write_copy,
    "hour": hour,
}


@cache
def _scene() -> World:
    world = World()
    with in_memory(world), open_source() as store:
        store.create_scope("scope")
        make(ONE, BEFORE)
        scale_to(ONE, [0.25, 0.5])
        write_to(ONE, world)
    return world


class CopyWatch:
    """Looks at each change of the streams, and judges the result."""

    def __init__(self, world: World, names: Sequence[str]) -> None:
        self._cluster = world.cluster(CLUSTER)
        self._names = names
        self._sources = {self._cluster.find(ONE).number: self._cluster.find(ONE)}
        self.wrong: list[str] = []
        self._cluster.changed = self._changed

    def _changed(self, name: StreamName, before: StreamState | None, after: StreamState | None) -> None:
        actor = greenlet.getcurrent()
        command = self._names[actor.place] if isinstance(actor, Actor) else ""
        if name == ONE and after is not None:
            self._sources[after.number] = after
        if command not in VERBS:
            return
        if name == ONE:
            self.wrong.append(f"HARMED {command} changed the source")
        is_users = before is not None and not is_ours(before)
        if name == COPY and (after is None or (is_users and users_part(before) != users_part(after))):
            self.wrong.append(f"HARMED {command} changed a user's stream, or deleted one")

    def judge(self, *, refused: bool) -> Iterator[str]:
        """Judge the copy as it is at the end.

        Args:
            refused: whether the source was merged, and had nothing (any more) that fits into the copy, or the copy was
                written to.
        """
        yield from self.wrong
        try:
            copy = self._cluster.find(COPY)
        except NoSuchStream:
            if not refused:
                yield "LOST the copy"
            return
        if refused and not {*STRANGE, "copy-write"} & set(self._names) and any(copy.data.values()):
            yield "STUCK with a part of the source"
        if is_ours(copy) and not refused and not STRANGE & set(self._names):
            yield "UNFINISHED the copy"
        found = [event for _, event in ordered(copy)]
        if any(event.startswith("mine") for event in found):
            return
        mine = [event for event in found if " copy " not in event]
        yield from (f"DOUBLED {event}" for event in set(mine) if mine.count(event) > 1)
        places = {event: place for place, event in enumerate(mine)}
        for source in self._sources.values():
            ranges, before = source.describe().ranges(), list[tuple[int, object, str]]()
            for segment, event in ordered(source):
                if event in places:
                    held = ranges[segment]
                    yield from (
                        f"ORDER {event} is before {other}"
                        for at, keys, other in before
                        if held.overlaps(keys) and at > places[event]  # type: ignore[arg-type]
                    )
                    before.append((places[event], held, event))
                elif BEFORE in event and not {"retain", "remake"} & set(self._names):
                    yield f"MISSING {event}"


def run(schedule: Schedule) -> tuple[list[str], list[Actor]]:
    """Run a schedule and judge its result, as `stitches.run`."""
    world, names = _scene().copy(), list(schedule.commands)
    with in_memory(world), pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_keys, "BATCH_BYTES", BATCH_BYTES)
        patch.setattr(event_keys, "LEAST_BYTES", BATCH_BYTES)
        watch = CopyWatch(world, names)
        actors = [Actor(place, lambda name=name: ALL[name](world)) for place, name in enumerate(names)]
        perform(schedule, actors)
        world.settle()
        watch.wrong += bugs(names, actors)
        for _ in range(2):
            names.append("copy")
            again = Actor(len(names) - 1, lambda: _copy(world))
            again.go_on()
        taken = "copy-write" in names and isinstance(again.error, TargetTaken)
        refused = taken or ("merge" in names and isinstance(again.error, Usage | Conflict))
        if again.error is not None and not refused and not STRANGE & set(names):
            watch.wrong.append(f"STUCK: {type(again.error).__name__}: {again.error}")
        return list(watch.judge(refused=refused)), actors
