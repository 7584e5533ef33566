"""The expected result of a schedule: everything that was ever published, and nothing else.

The ledger notes while a schedule runs what becomes published, what is let go and what the source loses. The judge
compares that with what can be read at the end; streams in memory forget nothing, so they are the truth. Stretches of a
segment are bit masks, a bit a byte: segments here are short.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from streamvault import check_archive, delete_archive, export_stream, import_stream
from streamvault.common.errors import Conflict, Damaged, Problem, Usage
from streamvault.exporter.reports import ExportReport, RotateReport
from streamvault.layouts.keys import table_of
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.verbs.delete import NoSuchHold
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream, StreamSealed
from streamvault.streamstore.model import StreamName
from testkit.explorer.commands import COMMANDS, CONVERTED, OTHER
from testkit.explorer.memory import StreamState
from testkit.explorer.proof import Proof
from testkit.explorer.scenes import CLUSTER, NAME, ROOT, Scene
from testkit.explorer.world import Actor, World
from testkit.killed import Killed

Masks = Mapping[str, int]
FOLDER = f"{NAME}/"
_MANIFEST = re.compile(r"_manifest/[0-9]{10}(-[0-9]{10})?\.json")
_DECISION = re.compile(r"_manifest/decisions/([0-9]{10})\.json")
_DROPPED = re.compile(r"_manifest/([0-9]{10})\.dropped\.json")
_LEAVES_OUT = re.compile(r"decision ([0-9]+) of .* leaves out the hold ")
DELETE = "delete"
"""How the names of the commands begin that delete the archive."""
_PLAN = re.compile(r"_work/([0-9]{10})/(?:[0-9]{4}/)?plan\.json")
FORMER = "former-"
"""How the names of the former release's commands begin."""

COPY = StreamName("copies", "copy")


def mask(start: int, end: int) -> int:
    return ((1 << end) - 1) & ~((1 << start) - 1)


def stretches(bits: int) -> Iterator[tuple[int, int]]:
    """The runs of a mask."""
    while bits:
        start = (bits & -bits).bit_length() - 1
        rest = bits >> start
        end = start + ((rest ^ (rest + 1)).bit_length() - 1)
        yield start, end
        bits &= ~mask(start, end)


def told(masks: Masks) -> str:
    return ", ".join(
        f"{name.rpartition('/')[2]} {start} to {end}" for name, bits in masks.items() for start, end in stretches(bits)
    )


def without(some: Masks, others: Masks) -> dict[str, int]:
    left = {name: bits & ~others.get(name, 0) for name, bits in some.items()}
    return {name: bits for name, bits in left.items() if bits}


def joined(many: Sequence[Masks]) -> dict[str, int]:
    found: dict[str, int] = {}
    for masks in many:
        for name, bits in masks.items():
            found[name] = found.get(name, 0) | bits
    return found


@dataclass(frozen=True)
class Entry:
    """A manifest that was published."""

    first: int
    generation: int
    events: int
    masks: Masks


@lru_cache(maxsize=4096)
def _entry(data: bytes) -> Entry:
    value = json.loads(data)
    found: dict[str, int] = {}
    for one in value["segments"]:
        found[one["name"]] = mask(one["start"], one["end"])
    for gap in value["gaps"]:
        found[gap["segment"]] &= ~mask(gap["start"], gap["end"])
    replaces = value.get("replaces") or ()
    first = replaces[0]["generation"] if replaces else value["generation"]
    return Entry(first, value["generation"], value["events"], {name: bits for name, bits in found.items() if bits})


@dataclass
class Ledger:
    """The events of one archive and its stream while a schedule runs.

    Attributes:
        published: manifests. decided: the newest decision. dropped: up to which generation all has expired.
        held: generations on which a hold is confirmed. wrong: what was wrong at the moment it was done.
        lost: stream → what it lost that was not archived then, by no fault of the product.
        gone: streams that were deleted, as they were.
        when: when each generation's tail was taken, by a clock that does not jump: shortly before its plan was made.
        deletion: how far the archive's deletion is.
        freed: numbers of decisions that the former release has deleted. taken_again: those taken again since.
    """

    published: dict[tuple[int, int], Entry] = field(default_factory=dict)
    dropped: int = 0
    decided: int = 0
    held: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    lost: dict[tuple[str, int], Masks] = field(default_factory=dict)
    gone: dict[tuple[str, int], StreamState] = field(default_factory=dict)
    when: dict[int, float] = field(default_factory=dict)
    deletion: str = ""
    freed: set[int] = field(default_factory=set)
    taken_again: set[int] = field(default_factory=set)

    @property
    def is_deleted(self) -> bool:
        return self.deletion in {"decided", "done"}

    @classmethod
    def of(cls, world: World) -> Ledger:
        """The ledger of the current state."""
        ledger = cls()
        for key, data in sorted(world.bucket("vault").objects.items()):
            ledger.note(key, data)
        ledger.dropped = max(ledger.dropped, 0)
        return ledger

    def watch(self, world: World) -> None:
        """Record what happens from now on."""
        bucket = world.bucket("vault")
        proof = Proof(bucket.objects, lambda: _names[actor.place] if (actor := _actor()) else "nobody")
        self.when = dict.fromkeys((entry.generation for entry in self.published.values()), world.now)

        def changed(key: str, data: bytes | None) -> None:
            self._changed(key, data, world.now)
            self.wrong += proof.changed(key, data)

        bucket.changed = changed
        for place, cluster in world.clusters.items():
            cluster.lost = lambda name, before, after, place=place: self._lost(place, name, before, after)

    def note(self, key: str, data: bytes) -> int:
        """Record a manifest or a dropped mark; return the mark's generation, else 0."""
        name = key.removeprefix(FOLDER)
        mark = 0
        if _MANIFEST.fullmatch(name):
            entry = _entry(data)
            self.published.setdefault((entry.generation, entry.first), entry)
        elif (match := _DECISION.fullmatch(name)) and int(match[1]) > self.decided:
            # one that arrives late, below the newest, decides nothing
            value = json.loads(data)
            self.decided, mark, self.deletion = int(match[1]), value["dropped"], value.get("deletion", "")
        elif match := _DROPPED.fullmatch(name):
            mark = int(match[1])
        self.dropped = max(self.dropped, mark)
        return mark

    def required(self) -> dict[str, int]:
        """The data that must exist: all that was published and has not expired, unless the archive was deleted."""
        if self.is_deleted:
            return {}
        return joined([entry.masks for entry in self.published.values() if entry.first > self.dropped])

    def explains(self, error: BaseException | None) -> bool:
        """Whether an error is about a hold that the decision after it cannot have seen.

        The former release deletes all decisions before its newest one, and a hold that comes late takes such a number.
        That the next decision leaves it out is damage to whoever reads the two, as if somebody had forged it.
        """
        found = isinstance(error, Damaged) and _LEAVES_OUT.match(error.what)
        return bool(found) and int(found[1]) - 1 in self.taken_again

    def ever(self) -> dict[str, int]:
        return joined([entry.masks for entry in self.published.values()])

    def _changed(self, key: str, data: bytes | None, now: float) -> None:
        plan = None if data is None else _PLAN.fullmatch(key.removeprefix(FOLDER))
        if plan is not None and (int(plan[1]),) * 2 not in self.published:
            self.when[int(plan[1])] = now
        if decision := _DECISION.fullmatch(key.removeprefix(FOLDER)):
            actor, number = _actor(), int(decision[1])
            if data is not None and number in self.freed:
                self.taken_again.add(number)
            elif data is None and actor is not None and _names[actor.place].startswith(FORMER):
                self.freed.add(number)
        if data is None or not key.startswith(FOLDER + "_manifest/"):
            return
        before = self.dropped
        mark = self.note(key, data)
        for entry in self.published.values():
            self.when.setdefault(entry.generation, now)
        if mark > before:
            self._check_expiry(mark, before, now)

    def _check_expiry(self, mark: int, before: int, now: float) -> None:
        plain = [one for one in self.published.values() if one.first == one.generation and one.generation > before]
        left = [one for one in plain if one.generation > mark]
        actor = _actor()
        keep = COMMANDS[_names[actor.place]].keep if actor is not None else 1
        age = COMMANDS[_names[actor.place]].keep_for if actor is not None else 0.0
        if age and (
            young := [
                one.generation for one in plain if one.generation <= mark and now - self.when[one.generation] < age
            ]
        ):
            self.wrong.append(f"EXPIRED generations {young}, which are younger than {age:.0f} s")
        if len(left) < max(keep, 1):
            self.wrong.append(f"EXPIRED generation {mark} is dropped and {len(left)} stay, not {keep}")
        if sum(one.events for one in plain) and not sum(one.events for one in left):
            self.wrong.append(f"EXPIRED generation {mark} is dropped and no event is left")

    def _lost(self, place: str, name: StreamName, before: StreamState, after: StreamState | None) -> None:
        if name != NAME:
            return
        key = (place, before.number)
        if after is None:
            self.gone[key] = before
        left = {} if after is None else after.readable()
        lost = {}
        for segment, start in before.readable().items():
            end = len(before.data.get(segment, b""))
            if bits := mask(start, max(start, min(left.get(segment, end), end))):
                lost[segment.in_stream(name)] = bits
        actor = _actor()
        if actor is not None and COMMANDS[_names[actor.place]].outside:
            self.lost[key] = joined([self.lost.get(key, {}), without(lost, self.required())])
        elif missing := without(lost, {} if self.is_deleted and "delete" in _names else self.ever()):
            # a user who deletes what is unfinished has said that no rotation truncates any more
            self.wrong.append(f"TRUNCATED what is not archived: {told(missing)}")


_names: Sequence[str] = ()


def _actor() -> Actor | None:
    import greenlet  # noqa: PLC0415

    found = greenlet.getcurrent()
    return found if isinstance(found, Actor) else None


@dataclass(frozen=True)
class Scan:
    """What readers get.

    Attributes:
        problem: why they do not. held: segment → where a range begins → its bytes. gaps: as manifests say.
    """

    problem: str = ""
    held: Mapping[str, Mapping[int, bytes]] = field(default_factory=dict)
    gaps: Masks = field(default_factory=dict)
    doubled: str = ""

    def masks(self) -> dict[str, int]:
        return {
            name: joined([{"": mask(at, at + len(data))} for at, data in ranges.items()])[""]
            for name, ranges in self.held.items()
            if ranges
        }


_scans: dict[int, Scan] = {}


def scan(world: World) -> Scan:
    """Read everything in force."""
    state = hash(frozenset(world.bucket("vault").objects.items()))
    found = _scans.get(state)
    if found is None:
        if len(_scans) > 200_000:
            _scans.clear()
        found = _scans[state] = _scan()
    return found


def _scan() -> Scan:
    archive = Archive(RootAddress.parse(ROOT), NAME)
    held: dict[str, dict[int, bytes]] = {}
    seen: dict[str, int] = {}
    doubled: list[str] = []
    try:
        history = archive.history()
        for generation in history.generations:
            for segment, rows in generation.rows.items():
                name = segment.in_stream(NAME)
                for row in rows:
                    blocks = open_layout(generation.layout, generation.manifest.compression).read_range(
                        archive.place, row, row.start, row.end
                    )
                    if seen.get(name, 0) & mask(row.start, row.end):
                        doubled.append(f"{name}:{row.start}")
                    seen[name] = seen.get(name, 0) | mask(row.start, row.end)
                    held.setdefault(name, {})[row.start] = data = b"".join(map(bytes, blocks))
                    if len(data) != row.end - row.start:
                        return Scan(problem=f"range {name}:{row.start} has {len(data)} bytes")
        gaps = joined([{gap.segment: mask(gap.start, gap.end)} for g in history.generations for gap in g.manifest.gaps])
    except NoSuchArchive as problem:
        return Scan() if not world_has_manifests() else Scan(problem=str(problem))
    except Problem as problem:
        return Scan(problem=str(problem))
    return Scan(held=held, gaps=gaps, doubled=", ".join(doubled))


def world_has_manifests() -> bool:
    store = RootAddress.parse(ROOT).open()
    return any(_MANIFEST.fullmatch(one.key.removeprefix(FOLDER)) for one in store.list(FOLDER + "_manifest/"))


_rests: dict[int, tuple[str, ...]] = {}


def judge(scene: Scene, world: World, ledger: Ledger, names: Sequence[str], actors: Sequence[Actor]) -> tuple[str, ...]:
    """The failures of a schedule; empty if there are none."""
    if any(name.startswith(DELETE) for name in names):
        world.settle()
    wrong = list(_at_once(world, ledger, names, actors))
    if wrong or ledger.deletion:
        return tuple(wrong or _deleted(scene, world, ledger))
    again = tuple(
        name
        for name, actor in zip(names, actors, strict=True)
        if not COMMANDS[name].outside and not name.startswith(DELETE) and not (name == "import" and actor.error is None)
    )
    foreign = bool({"remake", "other"} & {*names})
    noted = repr((ledger.lost, sorted(ledger.published), sorted(ledger.taken_again)))
    key = hash((scene.name, again, foreign, world.state(), ledger.dropped, noted))
    found = None if world.late else _rests.get(key)
    if world.late:
        found = tuple(_rest(scene, world, ledger, again, foreign=foreign, names=names))
    if found is None:
        if len(_rests) > 500_000:
            _rests.clear()
        found = _rests[key] = tuple(_rest(scene, world, ledger, again, foreign=foreign))
    return found


def _at_once(world: World, ledger: Ledger, names: Sequence[str], actors: Sequence[Actor]) -> Iterator[str]:
    """What is wrong before anything is repeated."""
    yield from ledger.wrong
    ledger.wrong.clear()
    for name, actor in zip(names, actors, strict=True):
        if actor.error is not None and not isinstance(actor.error, (Problem, Killed)):
            yield f"BUG {name} ended with {type(actor.error).__name__}: {actor.error}"
    wrong = [*_compare(world, ledger), *_mixed(world, ledger, names, actors)]
    yield from wrong
    gone = [one for one in ledger.held if one <= ledger.dropped or ledger.is_deleted]
    if gone and "release" not in names:
        yield f"HELD generations {gone} have expired or were deleted, and holds on them were confirmed"
    if ledger.is_deleted:
        yield from _unseen(names, actors)
    for name, actor in zip(names, actors, strict=True):
        explained = wrong or _is_too_new(name, actor.error) or ledger.explains(actor.error)
        if isinstance(actor.error, Damaged) and not explained:
            yield f"MISLED {name} said {actor.error}, and all is there, or was deleted"


def _deleted(scene: Scene, world: World, ledger: Ledger) -> Iterator[str]:
    """Finish the deletion of an archive; what is wrong then."""
    for _ in range(2):
        last = Actor(0, lambda: delete_archive(scene.archive, yes=True, unfinished=True))
        last.go_on()
        if isinstance(last.error, Conflict) and ledger.deletion == "":
            return  # a hold keeps it; so the archive is in force again
        if last.error is not None:
            yield f"STUCK delete again: {type(last.error).__name__}: {last.error}"
        world.settle()
    keys = [key.removeprefix(FOLDER) for key in world.bucket("vault").objects]
    if left := [key for key in keys if not _DECISION.fullmatch(key) and not table_of(key)]:
        yield f"LEFT {len(left)} objects, the first: {left[0]}"
    yield from _compare(world, ledger)
    again = Actor(0, lambda: export_stream(scene.stream, ROOT, same_stream=True, **scene.options))
    again.go_on()
    if not isinstance(again.error, Conflict):
        yield f"REUSED export to the address of a deleted archive ends with {again.error or 'success'}"


def _unseen(names: Sequence[str], actors: Sequence[Actor]) -> Iterator[str]:
    """What runs say is archived, and no deletion has seen before it deleted it."""
    deletions = [actor for name, actor in zip(names, actors, strict=True) if name.startswith(DELETE)]
    if any(type(actor.error) not in {type(None), Conflict, NoSuchArchive} for actor in deletions):
        return  # what one that was interrupted saw is not known
    reports: list[Any] = [actor.result for actor in deletions if actor.error is None]
    seen = max((number for report in reports for number in report.generations), default=0)
    for name, actor in zip(names, actors, strict=True):
        if isinstance(actor.result, (ExportReport, RotateReport)) and actor.result.generation > seen:
            yield f"UNSEEN {name} says that generation {actor.result.generation} is archived; a deletion did not see it"


def streams(world: World, ledger: Ledger) -> dict[tuple[str, int], StreamState]:
    """Every stream that ever had the name."""
    found = dict(ledger.gone)
    for place in (CLUSTER, OTHER):
        with suppress(Problem):
            state = world.cluster(place).find(NAME)
            found[place, state.number] = state
    return found


def _compare(world: World, ledger: Ledger) -> list[str]:
    seen = scan(world)
    if ledger.is_deleted:
        return ["KEPT what was deleted can be read"] if seen.held else []
    if seen.problem:
        return [f"LOST an archive that can be read: {seen.problem}"]
    if seen.doubled:
        return [f"DOUBLED {seen.doubled}"]
    if missing := without(ledger.required(), seen.masks()):
        return [f"LOST what was published: {told(missing)}"]
    if not seen.held and not seen.gaps:
        return []
    best: list[str] | None = None
    for key, state in streams(world, ledger).items():
        wrong = _differences(seen, state)
        if not wrong and (false := without(seen.gaps, ledger.lost.get(key, {}))):
            wrong = [f"GAP that is none: {told(false)}"]
        if best is None or len(wrong) < len(best):
            best = wrong
    return best or []


def _differences(seen: Scan, state: StreamState) -> list[str]:
    truth = {segment.in_stream(NAME): data for segment, data in state.data.items()}
    return [
        f"WRONG bytes of {name}:{at}"
        for name, ranges in seen.held.items()
        for at, data in ranges.items()
        if truth.get(name, b"")[at : at + len(data)] != data
    ]


def _owner(world: World, ledger: Ledger) -> tuple[str, int] | None:
    """The stream to which this archive belongs."""
    seen = scan(world)
    if not seen.held:
        return None
    return next((key for key, state in streams(world, ledger).items() if not _differences(seen, state)), None)


def _mixed(world: World, ledger: Ledger, names: Sequence[str], actors: Sequence[Actor]) -> Iterator[str]:
    """Exports that report success for another stream than the existing one."""
    owner = _owner(world, ledger)
    if owner is None:
        return
    for name, actor in zip(names, actors, strict=True):
        if name == "other" and actor.error is None and actor.ended and owner[0] != OTHER:
            yield "MIXED the other cluster's stream is said to be archived"
        if owner[0] == OTHER and actor.error is None and actor.ended and name in {"export", "rotate", "follow"}:
            yield f"MIXED {name} says the stream is archived, and it is the other cluster's"


def _rest(
    scene: Scene, world: World, ledger: Ledger, again: Sequence[str], *, foreign: bool, names: Sequence[str] = ()
) -> Iterator[str]:
    """Repeating the same commands must lead to a stable state, even if requests of the first ones arrive after that.

    Args:
        scene, world, ledger: as for `judge`.
        again: the commands to repeat.
        foreign: whether another stream had the name, too.
        names: the commands that have sent the pending requests.
    """
    global _names  # noqa: PLW0603  (who runs now)
    stuck = False

    def may_fail(name: str, error: BaseException) -> bool:
        return ledger.explains(error) or _may_fail(world, name, error, foreign=foreign, expired=ledger.dropped > 0)

    for name in again:
        command = COMMANDS[name]
        _names = (name,)
        actor = Actor(0, lambda command=command: (command.again or command.run)(scene, world))
        actor.go_on()
        if actor.error is not None and not may_fail(name, actor.error):
            stuck = True
            yield f"STUCK {name} again: {type(actor.error).__name__}: {actor.error}"
    _names = names
    world.settle()
    yield from _converted(again)
    _names = ("export",)
    last = Actor(0, lambda: export_stream(scene.stream, ROOT, same_stream=True, **scene.options))
    last.go_on()
    if _has_other_options(last.error):  # what another command has begun is resumed without options
        last = Actor(0, lambda: export_stream(scene.stream, ROOT, same_stream=True, master="inline"))
        last.go_on()
    if last.error is not None and not may_fail("export", last.error):
        stuck = True
        yield f"STUCK export: {type(last.error).__name__}: {last.error}"
    yield from ledger.wrong
    ledger.wrong.clear()
    if wrong := _compare(world, ledger):
        yield from wrong
        return
    owner = _owner(world, ledger)
    if last.error is None and not stuck and "export-from" not in again:
        yield from _uncovered(world, ledger, owner)
    if stuck or owner is None:
        return
    yield from _checked(scene, ledger)
    yield from _restored(scene, world)


def _checked(scene: Scene, ledger: Ledger) -> Iterator[str]:
    try:
        report = check_archive(scene.archive, read_data=True, master="inline")
    except Damaged as damaged:
        if not ledger.explains(damaged):
            raise
        return
    if not report.ok:
        yield f"CHECK finds damage: {report.findings[0]}"


def _converted(again: Sequence[str]) -> Iterator[str]:
    is_there = not {"convert", "convert-restart"}.isdisjoint(again)
    if is_there and Archive(RootAddress.parse(CONVERTED), NAME).listing().spans:
        report = check_archive(f"{CONVERTED}/{NAME}", read_data=True, master="inline")
        if not report.ok:
            yield f"COPY {report.findings[0]}"


def _has_other_options(error: BaseException | None) -> bool:
    return isinstance(error, Usage) and error.what.startswith("an unfinished run has other options")


def _is_too_new(name: str, error: BaseException | None) -> bool:
    """Whether the former release says that a newer one has written what it reads."""
    return name.startswith(FORMER) and isinstance(error, Damaged) and "Use a newer release" in error.todo


def _may_fail(world: World, name: str, error: BaseException, *, foreign: bool, expired: bool) -> bool:
    """Whether a command may end so without a bug: it is another stream, or what it reads is gone, expired or sealed."""
    if isinstance(error, NoSuchStream):
        gone = NAME.stream not in world.cluster(CLUSTER).scopes[NAME.scope]
        # a rotation was killed when it had created only the scope of its queue
        return gone or (name.removeprefix(FORMER) == "work" and not world.cluster(CLUSTER).scopes.get("ops"))
    if isinstance(error, StreamSealed):  # what is sealed cannot be truncated
        return world.cluster(CLUSTER).find(NAME).record.sealed
    if _has_other_options(error) or _is_too_new(name, error):
        return True
    if isinstance(error, Conflict) and error.what.startswith("the stream has events before the archive's beginning"):
        return any("--from" in one or "export-from" in one for one in _names) or name.startswith(
            ("rotate", "expire-all")
        )
    name = name.removeprefix(FORMER)
    ends = foreign or name in {"import", "handoff"} or (name.startswith("convert") and expired)
    is_there = not (name == "work" and isinstance(error, NoSuchScope))  # no request was added to the queue
    return not is_there or isinstance(error, (NoSuchHold, NoSuchArchive)) or (ends and isinstance(error, Conflict))


def _uncovered(world: World, ledger: Ledger, owner: tuple[str, int] | None) -> Iterator[str]:
    state = world.cluster(CLUSTER).find(NAME)
    if owner not in {None, (CLUSTER, state.number)}:
        yield "MIXED export ends well, and the archive is another stream's"
        return
    readable = {
        segment.in_stream(NAME): mask(start, len(state.data.get(segment, b"")))
        for segment, start in state.readable().items()
    }
    if missing := without(readable, joined([ledger.ever(), scan(world).masks()])):
        yield f"UNARCHIVED though export ends well: {told(missing)}"


def _restored(scene: Scene, world: World) -> Iterator[str]:
    try:
        import_stream(scene.archive, f"local:///copies/{COPY}", master="inline")
    except Problem as problem:
        yield f"RESTORE {type(problem).__name__}: {problem}"
        return
    copy = world.cluster("/copies").find(COPY)
    for name, ranges in scan(world).held.items():
        restored = next((data for segment, data in copy.data.items() if name.endswith(f"/{segment}")), b"")
        for at, data in ranges.items():
            if restored[at : at + len(data)] != data:
                yield f"RESTORE gives other bytes at {name}:{at}"
                return


def run_as(names: Sequence[str]) -> None:
    """Select which commands run now."""
    global _names  # noqa: PLW0603  (as above)
    _names = names
