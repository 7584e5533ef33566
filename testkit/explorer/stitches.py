"""Appends under the explorer: what is appended is there once, in order, all at once, and nothing else is touched.

The streams are small, and each event's content is unlike any other's. Sources and target have different histories, so
the target is scaled first. A source may be an archive, which may be damaged for a while. At the end the archive is put
right, and the appends are repeated, as after a kill.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

import greenlet

from streamvault import append_streams, check_archive, compact_archive, copy_stream, export_stream, join_streams
from streamvault.common.errors import Problem
from streamvault.sources.identity import AnotherSource
from streamvault.streamstore.errors import NoSuchStream, StreamExists
from streamvault.streamstore.model import KeyRange, ScaleKind, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.own import is_own, users_configuration
from streamvault.streamstore.store import StreamStore
from testkit.explorer.memory import StreamState
from testkit.explorer.scenes import CLUSTER, RANGE_SIZE, ROOT, open_source
from testkit.explorer.schedule import Schedule
from testkit.explorer.world import Actor, World, in_memory, perform
from testkit.killed import Killed
from testkit.streams import append_events

ONE, TWO, CLONE, TARGET, JOINED = (StreamName("scope", name) for name in ("one", "two", "clone", "target", "joined"))
ARCHIVE = f"{ROOT}/{ONE}"
BEFORE = "before"
"""How the events begin that the sources have from the start on."""
TAKEN = frozenset({"joined-take", "append-joined", "remake"})
"""After these, another stream may have the name, or what is joined has more, or is of another source."""


def uri(name: StreamName) -> str:
    return f"local://{CLUSTER}/{name}"


def _uris(sources: Iterable[StreamName | str]) -> list[str]:
    return [source if isinstance(source, str) else uri(source) for source in sources]


def _append(*sources: StreamName | str, into: StreamName = TARGET, **options: bool) -> Callable[[World], object]:
    return lambda _: append_streams(_uris(sources), uri(into), master="inline", **options)


def _join(*sources: StreamName | str, **options: bool) -> Callable[[World], object]:
    return lambda _: join_streams(_uris(sources), uri(JOINED), master="inline", **options)


def _copy_ranges(*ranges: tuple[tuple[int, int], tuple[int, int]]) -> Callable[[World], object]:
    """Copy parts of `ONE` as it was made, between cuts that are (epoch, events that are before the cut)."""

    def cut(epoch: int, events: int) -> dict[str, int]:
        state = _scene().cluster(CLUSTER).find(ONE)
        found = {}
        for segment in state.describe().epochs[epoch].segments:
            data, at = state.data[segment], 0
            for _ in range(events):
                at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
            found[segment.in_stream(ONE)] = at
        return found

    return lambda _: copy_stream(
        uri(ONE), uri(JOINED), ranges=[(cut(*one), cut(*other)) for one, other in ranges], master="inline"
    )


def _joined_drop(_: World) -> None:
    """Delete what is joined, even if it is not finished."""
    with open_source() as store:
        if store.exists(JOINED):
            store.delete(JOINED)


def _joined_write(world: World) -> None:
    with open_source() as store:
        users = store.exists(JOINED) and not is_own(store.describe(JOINED).configuration)
    if users:
        write_to(JOINED, world)


def _joined_configure(_: World) -> None:
    with open_source() as store, suppress(NoSuchStream):
        configuration = store.describe(JOINED).configuration
        if not is_own(configuration):
            store.update_stream(JOINED, replace(configuration, tags=("mine",)))


def _joined_take(_: World) -> None:
    """Somebody else makes a stream of that name."""
    with suppress(StreamExists):
        make(JOINED, "mine")


def write_to(name: StreamName, world: World) -> None:
    world.names += 1
    with open_source() as store:
        _add(store, name, f"w{world.names}", 2)


def _add(store: StreamStore, name: StreamName, word: str, count: int, by: str = "") -> None:
    described = store.describe(name)
    for segment in described.tail.offsets:
        text = f"{word} {by or name.stream} {segment}"
        append_events(store, name, segment, [f"{text} {number}".encode() for number in range(count)])


def scale_to(name: StreamName, bounds: Sequence[float]) -> None:
    with open_source() as store:
        ranges = [KeyRange(low, high) for low, high in pairwise([0.0, *bounds, 1.0])]
        store.scale(name, list(store.describe(name).epochs[-1].segments), ranges)


def retain(_: World) -> None:
    with open_source() as store:
        store.truncate(store.describe(ONE).tail)


def make(name: StreamName, word: str, segments: int = 2, by: str = "") -> None:
    with open_source() as store:
        store.create_stream(name, StreamConfiguration(Scaling(min_segments=segments)))
        if name != TARGET:
            store.update_stream(name, StreamConfiguration(Scaling.never()))
        _add(store, name, word, 2, by)


def remake(name: StreamName, world: World) -> None:
    with open_source() as store:
        store.delete(name)
    world.names += 1
    make(name, f"again{world.names}")


def _seal(_: World) -> None:
    with open_source() as store:
        store.seal(TARGET)


def _target_configure(_: World) -> None:
    """Somebody replaces the whole configuration."""
    with open_source() as store:
        store.update_stream(TARGET, StreamConfiguration(Scaling(ScaleKind.BY_KBYTES, 100, 2, 1), tags=("mine",)))


def _export(_: World) -> None:
    export_stream(uri(ONE), ROOT, layout="chunks", range_size=RANGE_SIZE, master="inline")


def _compact(_: World) -> None:
    compact_archive(ARCHIVE, target=1 << 30, master="inline")


class Damage:
    """What is wrong with the archive's chunks, of which the first that is right is damaged next."""

    def __init__(self, world: World) -> None:
        self._bucket = world.bucket(ROOT.removeprefix("memory://"))
        self._was: dict[str, bytes] = {}

    def change(self) -> None:
        """Change a byte of an event."""
        for key, data in self._next():
            self._bucket.put(key, data[:9] + bytes([data[9] ^ 1]) + data[10:])

    def lose(self) -> None:
        """Delete a chunk."""
        for key, _ in self._next():
            self._bucket.delete(key)

    def put_back(self) -> None:
        """Put everything right."""
        for key, data in self._was.items():
            self._bucket.put(key, data)
        self._was.clear()

    def _next(self) -> list[tuple[str, bytes]]:
        chunks = [key for key in self._bucket.keys(f"{ONE}/chunks/") if key not in self._was]
        found = [(key, self._bucket.objects[key]) for key in chunks[:1]]
        self._was.update(found)
        return found


def hour(world: World) -> None:
    world.sleep(7200)


VERBS: dict[str, Callable[[World], object]] = {
    "append": _append(ONE, TWO),
    "append-own": _append(ONE, TWO, own_segments=True),
    "append-distinct": _append(ONE, TWO, CLONE, distinct=True),
    "append-one": _append(ONE),
    "append-joined": _append(ONE, TWO, into=JOINED),
    "append-archive": _append(ARCHIVE, TWO),
    "join-archive": _join(TWO, ARCHIVE),
    "join": _join(ONE, TWO),
    "join-distinct": _join(ONE, TWO, CLONE, distinct=True),
    "ranges": _copy_ranges(((0, 0), (0, 1)), ((1, 1), (1, 2))),
    "ranges-other": _copy_ranges(((0, 1), (1, 0)), ((1, 1), (1, 2))),
}
WANTED = {
    "join": "",
    "join-archive": "",
    "join-distinct": "",
    "ranges": r"before one .*epoch\.0 0|before2 one .* 1",
    "ranges-other": r"before one .*epoch\.0 1|before2 one .* 1",
}
"""What makes the joined stream, and which of the first events it takes."""
OUTSIDE: dict[str, Callable[[World], object]] = {
    "write": partial(write_to, ONE),
    "scale": lambda _: scale_to(ONE, [0.75]),
    "retain": retain,
    "remake": partial(remake, ONE),
    "clone-write": partial(write_to, CLONE),
    "target-write": partial(write_to, TARGET),
    "target-scale": lambda _: scale_to(TARGET, [0.2, 0.5]),
    "target-configure": _target_configure,
    "target-seal": _seal,
    "target-remake": partial(remake, TARGET),
    "joined-drop": _joined_drop,
    "joined-write": _joined_write,
    "joined-configure": _joined_configure,
    "joined-take": _joined_take,
    "hour": hour,
}
OF_ARCHIVES: dict[str, Callable[[World], object]] = {
    "export": _export,
    "compact": _compact,
    "check": lambda _: check_archive(ARCHIVE, read_data=True, master="inline"),
}
"""The older verbs, which are stopped beside the others, and not repeated at the end."""
DAMAGE: dict[str, Callable[[Damage], None]] = {
    "change": Damage.change,
    "lose": Damage.lose,
    "put-back": Damage.put_back,
}


@cache
def _scene() -> World:
    world = World()
    with in_memory(world), open_source() as store:
        store.create_scope("scope")
        for name in (ONE, CLONE):
            make(name, BEFORE, by=ONE.stream)
            if name == ONE:
                _export(world)
            scale_to(name, [0.25, 0.5])
            with open_source() as again:
                _add(again, name, f"{BEFORE}2", 2, by=ONE.stream)
        _export(world)
        make(TWO, BEFORE, 1)
        make(TARGET, "target", 3)
    return world


class Watch:
    """Looks at each change of the streams, and judges the result.

    Attributes:
        wrong: what was wrong.
    """

    def __init__(self, world: World, names: Sequence[str]) -> None:
        self._cluster = world.cluster(CLUSTER)
        self._names = names
        self._sources: dict[tuple[StreamName, int], StreamState] = {}
        self._targets: dict[int, StreamState] = {}
        self.wrong: list[str] = []
        self._wants_clone = False
        for name in (ONE, TWO, CLONE, TARGET):
            self._keep(name, self._cluster.find(name))
        self._ranges = _ranges(self._cluster.find(TARGET))
        self._cluster.changed = self._changed

    def _joined_changed(self, command: str, before: StreamState | None, after: StreamState | None) -> Iterator[str]:
        """What is joined is the command's own until it is complete, and its user's then."""
        ours, is_users = is_ours(before), after is not None and not is_ours(after)
        if before is not None and not ours and command in WANTED and users_part(before) != users_part(after):
            yield f"HARMED {command} changed the user's stream"
        if after is None and before is not None and any(before.data.values()):
            yield f"HARMED {command} deleted a stream with data"
        if ours and is_users and after is not None and not {"retain", "remake"} & set(self._names):
            held = _events(after)
            sources = [event for name in (ONE, TWO) for event in _events(self._cluster.find(name))]
            asked = [event for event in sources if BEFORE in event and re.match(WANTED[command], event)]
            yield from (f"FEW {event} is not in what is finished" for event in asked if event not in held)

    def _keep(self, name: StreamName, state: StreamState) -> None:
        if name == TARGET:
            self._targets[state.number] = state
        else:
            self._sources[name, state.number] = state

    def _changed(self, name: StreamName, before: StreamState | None, after: StreamState | None) -> None:
        actor = greenlet.getcurrent()
        command = self._names[actor.place] if isinstance(actor, Actor) else ""
        if name in {ONE, TWO, CLONE, TARGET} and command in VERBS:
            if name != TARGET and before != after:
                self.wrong.append(f"HARMED {command} changed a source")
            if name == TARGET and (before is None or after is None or before.number != after.number):
                self.wrong.append(f"HARMED {command} made or deleted the target")
            elif name == TARGET and before is not None and after is not None:
                same = (_is_users(before, after), before.record.sealed == after.record.sealed)
                if not all(same) or before.record.head != after.record.head:
                    self.wrong.append(f"HARMED {command} changed the target")
        elif name == TARGET and after is not None and (before is None or before.record.epochs != after.record.epochs):
            self._ranges = _ranges(after)
        if name == JOINED and command in VERBS:
            self.wrong += self._joined_changed(command, before, after)
        if name in {ONE, TWO, CLONE, TARGET} and after is not None:
            self._keep(name, after)
            if name == TARGET:
                self.wrong += self._half(after)

    def _half(self, target: StreamState) -> Iterator[str]:
        """Each source's first events appear together."""
        seen: Collection[str] = [event for event in _events(target) if event.startswith(BEFORE)]
        if self._has_clone:
            seen = set(seen)
        for name in (ONE, TWO):
            sources = [s for (one, _), s in self._sources.items() if one == name]
            counts = {sum(event.startswith(BEFORE) for event in _events(source)) for source in sources}
            count = sum(f" {name.stream} " in event for event in seen)
            # appended by two appends with other ledgers, they are there twice; truncated ones need not be there
            if count and "retain" not in self._names and not any(n and count % n == 0 for n in counts):
                yield f"HALF {count} of {counts} events of {name.stream}"

    def judge(self, done: Collection[str], *, foreign: bool) -> list[str]:
        """Judge the targets as they are at the end.

        Args:
            done: the verbs that have done what they are for.
            foreign: whether something happened after which events may be missing.
        """
        wrong = list(self.wrong)
        self._wants_clone = bool({"append-distinct", "join-distinct"} & set(done))
        if WANTED.keys() & set(self._names):
            wanted = [WANTED[name] for name in done if name in WANTED]
            wrong += self._judge(JOINED, wanted, foreign=foreign or "append" in self._names)
        if set(self._names) & VERBS.keys() - WANTED.keys() - {"append-joined"}:
            wrong += self._judge(TARGET, [""], foreign=foreign)
            if "target-seal" not in self._names:
                wrong += self._not_as_before()
        return wrong

    def _not_as_before(self) -> Iterator[str]:
        """The target has the key ranges and the policy that it had, or that its user has made since."""
        target = self._cluster.find(TARGET)
        if users_configuration(target.record.configuration) != target.record.configuration:
            yield "POLICY of the target is that of an append"
        # who replaces the configuration of a stream removes the note of an append that was killed
        if _ranges(target) != self._ranges and "target-configure" not in self._names:
            yield f"RANGES of the target are {_ranges(target)}, not {self._ranges}"

    def _judge(self, name: StreamName, wanted: Sequence[str], *, foreign: bool) -> Iterator[str]:
        # a stream that was created again is another source, and its former cuts are no longer possible
        impossible = name == JOINED and "remake" in self._names and "join-archive" not in self._names
        try:
            target = self._cluster.find(name)
        except NoSuchStream:
            if not impossible:
                yield f"LOST {name}"
            return
        if name == JOINED and (is_ours(target) or any(event.startswith("mine") for event in _events(target))):
            if is_ours(target) and not impossible:
                yield "UNFINISHED what is joined"
            return
        places: dict[str, tuple[int, SegmentId]] = {}
        for place, (segment, event) in enumerate(ordered(target)):
            if event in places and not self._twice(event):
                yield f"DOUBLED {event}"
            places[event] = place, segment
        first = [event for event in places if event.startswith(BEFORE)]
        yield from (f"EXTRA {e}" for e in first if not all(re.match(pattern, e) for pattern in wanted))
        known = {event for source in self._sources.values() for event in _events(source)}
        yield from (f"DAMAGED {e}" for e in places if e not in known and f" {name.stream} " not in e)
        mine = self._targets.get(target.number)
        yield from (f"LOST {e}" for e in (_events(mine) if mine else ()) if " target " in e and e not in places)
        for (source_name, _), source in self._sources.items():
            # of the clone, what the source has truncated is not left out, and comes behind the source's later events
            is_behind = source_name == ONE and self._has_clone and "retain" in self._names
            if not is_behind and (source_name != CLONE or self._has_clone):
                yield from self._misplaced(source, target, places)
        yield from (f"MISSING {e}" for e in self._expected(name, wanted, foreign=foreign) if e not in places)

    def _expected(self, name: StreamName, wanted: Sequence[str], *, foreign: bool) -> Iterator[str]:
        """The events of the sources that a target must have."""
        # a join that is finished gets nothing more, and an archive has only what was exported
        is_fixed = self._has_archive or (name == JOINED and "append-joined" not in self._names)
        for source_name, number in self._sources:
            now = self._cluster.find(source_name)
            if self._has_archive and source_name == ONE:  # it has what the stream perhaps has not any more
                yield from _events(_scene().cluster(CLUSTER).find(ONE))
            elif (source_name == CLONE and not self._wants_clone) or number != now.number or foreign:
                continue
            elif not (is_fixed and "remake" in self._names):
                held = [e for e in _events(now, readable=True) if any(re.match(pattern, e) for pattern in wanted)]
                yield from (e for e in held if BEFORE in e or not is_fixed)

    def _twice(self, event: str) -> bool:
        """Whether two commands with other ledgers append it, or it is in two segments that are not equal any more."""
        if self._has_clone and event.startswith(f"{BEFORE}2") and {"write", "clone-write"} & set(self._names):
            return True
        return {"append", "append-own", "append-distinct"} & set(self._names) != set() and (
            "append-one" in self._names and f" {ONE.stream} " in event
        )

    @property
    def _has_archive(self) -> bool:
        return bool({"append-archive", "join-archive"} & set(self._names))

    @property
    def _has_clone(self) -> bool:
        return bool({"append-distinct", "join-distinct"} & set(self._names))

    def _misplaced(
        self, source: StreamState, target: StreamState, places: dict[str, tuple[int, SegmentId]]
    ) -> Iterator[str]:
        ranges, held = source.describe().ranges(), target.describe().ranges()
        before: list[tuple[int, KeyRange, str]] = []
        for segment, event in ordered(source):
            if event not in places or self._twice(event):
                continue
            place, landed = places[event]
            keys, there = ranges[segment], held[landed]
            if keys.low < there.low or there.high < keys.high:
                yield f"KEYS {event} is in {landed}, which has not all of its keys"
            yield from (
                f"ORDER {event} is before {other}" for at, k, other in before if k.overlaps(keys) and at > place
            )
            before.append((place, keys, event))


def _is_users(before: StreamState, after: StreamState) -> bool:
    """Whether the configuration is still the user's: below the open segments, Pravega would merge them."""
    was, now = (users_configuration(state.record.configuration) for state in (before, after))
    least = max(was.scaling.min_segments, len(_ranges(after)))
    fitting = replace(was, scaling=replace(was.scaling, min_segments=least))
    return now == was or (was.scaling.kind is ScaleKind.FIXED and now == fitting)


def _ranges(state: StreamState) -> list[KeyRange]:
    return list(state.record.current.segments.values())


def users_part(state: StreamState | None) -> object:
    """What a user sees of a stream: transactions that were not committed are not part of it."""
    return state and (state.number, state.data, replace(state.record, transactions=type(state.record.transactions)()))


def is_ours(state: StreamState | None) -> bool:
    return state is not None and is_own(state.record.configuration)


def ordered(state: StreamState, *, readable: bool = False) -> Iterator[tuple[SegmentId, str]]:
    starts = state.readable()
    for segment, data in sorted(state.data.items()):
        at = 0
        while at < len(data):
            end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
            if not readable or at >= starts.get(segment, len(data)):
                yield segment, data[at + 8 : end].decode()
            at = end


def _events(state: StreamState, *, readable: bool = False) -> list[str]:
    return [event for _, event in ordered(state, readable=readable)]


def bugs(names: Sequence[str], actors: Sequence[Actor]) -> Iterator[str]:
    """How commands ended that must end well, with one clear line, or killed."""
    for name, actor in zip(names, actors, strict=True):
        if actor.error is not None and not isinstance(actor.error, (Problem, Killed)):
            yield f"BUG {name} ended with {type(actor.error).__name__}: {actor.error}"


def run(schedule: Schedule) -> tuple[list[str], list[Actor]]:
    """Run a schedule and judge its result; return what was wrong, and its actors."""
    world, names = _scene().copy(), list(schedule.commands)
    with in_memory(world):
        watch, damage = Watch(world, names), Damage(world)
        works = {name: partial(work, world) for name, work in {**VERBS, **OF_ARCHIVES, **OUTSIDE}.items()}
        works |= {name: partial(work, damage) for name, work in DAMAGE.items()}
        actors = [Actor(place, works[name]) for place, name in enumerate(names)]
        perform(schedule, actors)
        world.settle()
        damage.put_back()
        watch.wrong += bugs(names, actors)
        sealed = "target-seal" in names
        ended = _repeat(names, world)
        done = [name for name, error in ended.items() if error is None]
        taken = TAKEN & set(names) or WANTED.keys() & set(done)
        for name, error in ended.items():
            refused = sealed or ("remake" in names and isinstance(error, AnotherSource))
            if error is not None and not refused and not (name in WANTED and taken):
                watch.wrong.append(f"STUCK {name}: {type(error).__name__}: {error}")
        return watch.judge(
            done, foreign=sealed or any(isinstance(error, AnotherSource) for error in ended.values())
        ), actors


def _repeat(names: list[str], world: World) -> dict[str, BaseException | None]:
    """Run each verb twice, as the first time may only finish what was begun; return how each ended."""
    ended: dict[str, BaseException | None] = {}
    for name in dict.fromkeys(one for one in names if one in VERBS):
        for _ in range(2):
            names.append(name)
            again = Actor(len(names) - 1, partial(VERBS[name], world))
            again.go_on()
            ended[name] = ended.get(name) or again.error
    return ended
