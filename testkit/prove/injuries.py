"""Injuries: a flipped bit, a cut, two objects swapped, one missing, one extra; each is detected or harmless."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from streamvault import check_archive, compact_archive, import_stream, write_table
from streamvault.common.errors import Problem
from streamvault.manifests.verbs.reports import CheckReport
from streamvault.streamstore.model import SegmentId, StreamName
from testkit.explorer.memory import Bucket
from testkit.explorer.scenes import scene_of
from testkit.explorer.world import World, in_memory

COPY = StreamName("copies", "copy")
PLACES = tuple(f"{layout}/{base}" for layout in ("events", "chunks", "zstd") for base in ("grown-scaled", "merged"))
_MANIFEST = re.compile(r".*/_manifest/[0-9]{10}(-[0-9]{10})?\.json")
DAY = 86400.0
Objects = dict[str, bytes]


def _bit(rng: random.Random, objects: Objects, key: str) -> bool:
    data = bytearray(objects[key])
    if not data:
        return False
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    objects[key] = bytes(data)
    return True


def _cut(rng: random.Random, objects: Objects, key: str) -> bool:
    if not objects[key]:
        return False
    objects[key] = objects[key][: rng.randrange(len(objects[key]))]
    return True


def _swap(rng: random.Random, objects: Objects, key: str) -> bool:
    folder = key.partition("/")[2].split("/")[1]
    others = [one for one in objects if one.partition("/")[2].split("/")[1] == folder and objects[one] != objects[key]]
    if not others:
        return False
    other = rng.choice(others)
    objects[key], objects[other] = objects[other], objects[key]
    return True


def _missing(_: random.Random, objects: Objects, key: str) -> bool:
    del objects[key]
    return True


def _extra(rng: random.Random, objects: Objects, key: str) -> bool:
    """A copy under a name a little further on."""
    digits = [match.start() for match in re.finditer(r"\d", key)]
    at = rng.choice(digits)
    other = f"{key[:at]}{(int(key[at]) + 1) % 10}{key[at + 1 :]}"
    if other in objects:
        return False
    objects[other] = objects[key]
    return True


INJURIES: dict[str, Callable[[random.Random, Objects, str], bool]] = {
    "bit": _bit,
    "cut": _cut,
    "swap": _swap,
    "missing": _missing,
    "extra": _extra,
}


@dataclass
class Injured:
    """The results of injuries, by kind.

    Attributes:
        kinds: how many. noticed: how many a check or a restore named. missed: each that changed what is restored, or
            what an archive says of itself, and was not.
        broken: errors that are no `Problem`.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    noticed: Counter[str] = field(default_factory=Counter)
    harmless: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def injure(count: int, seed: int) -> Injured:
    """Injure archives and tables so often, one at a time, and check them."""
    found = Injured()
    rng = random.Random(seed)
    grounds = list(_grounds())
    names = list(INJURIES)
    number = 0
    while found.kinds.total() < count:
        ground = grounds[number % len(grounds)]
        kind = names[number // len(grounds) % len(names)]
        number += 1
        world = ground.world.copy()
        objects = world.bucket("vault").objects
        mine = sorted(key for key in objects if ground.holds(key))
        if not mine:
            continue  # there is no decision
        key = rng.choice(mine)
        before = dict(objects)
        if not INJURIES[kind](rng, objects, key):
            continue
        found.kinds[kind] += 1
        what = f"{ground.name} {kind} {key}"
        if ground.table:
            _apart(partial(ground.look, world, before, what, kind), found, what)
        else:
            ground.look(world, before, what, kind, found)
    return found


def _apart(look: Callable[[Injured], None], found: Injured, what: str) -> None:
    """Check in a separate process: a third-party library may crash it."""
    said, says = os.pipe()
    child = os.fork()
    if not child:
        one = Injured()
        with suppress(BaseException):
            os.close(2)
            look(one)
            os.write(says, pickle.dumps(one))
        os._exit(0)
    os.close(says)
    with os.fdopen(said, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if not told:
        found.broken.append(f"{what}: the process ended with status {status}")
        return
    one = pickle.loads(told)
    for mine, theirs in ((found.noticed, one.noticed), (found.harmless, one.harmless)):
        mine.update(theirs)
    found.missed += one.missed
    found.broken += one.broken


@dataclass(frozen=True)
class Ground:
    """What is injured: data, manifests, indexes, or the files of a table."""

    name: str
    world: World
    archive: str
    restored: dict[SegmentId, bytes]
    holds: Callable[[str], bool]
    table: bool

    def look(self, world: World, before: Objects, what: str, kind: str, found: Injured) -> None:
        """Check the archive, restore it, and record the result."""
        with in_memory(world):
            self._look(world, before, what, kind, found)

    def _look(self, world: World, before: Objects, what: str, kind: str, found: Injured) -> None:
        objects = world.bucket("vault").objects
        try:
            noticed = not self.table and not self._check(before).ok
        except Problem:
            noticed = True
        except Exception as error:  # noqa: BLE001  (that is what is looked for)
            found.broken.append(f"{what}: check: {error!r}")
            return
        restored: object = None
        try:
            restored = _restore(world, self.archive, fingerprint(before, table=self.table), table=self.table)
        except Problem:
            noticed = True
        except Exception as error:  # noqa: BLE001  (as above)
            found.broken.append(f"{what}: import: {error!r}")
            return
        if noticed:
            found.noticed[kind] += 1
        elif restored == self.restored and (kind == "extra" or self.table or _same_records(before, objects)):
            found.harmless[kind] += 1
        else:
            found.missed.append(what)

    def _check(self, before: Objects) -> CheckReport:
        return check_archive(self.archive, read_data=True, fingerprints=[fingerprint(before)], master="inline")


def fingerprint(objects: Objects, *, table: bool = False) -> str:
    """The fingerprint that a user has recorded of the newest generation, of the archive or of its table."""
    newest = max(key for key in objects if _MANIFEST.fullmatch(key) and ("/_table/" in key) == table)
    return hashlib.sha256(objects[newest]).hexdigest()


def _same_records(before: Objects, after: Objects) -> bool:
    """Whether only marks were changed, or data: zstd ignores a few bits of what it decompresses."""
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    return all("/_manifest/" not in key or key.endswith((".checked.json", ".blocks.json")) for key in changed)


def _restore(world: World, archive: str, noted: str, *, table: bool) -> dict[SegmentId, bytes]:
    world.clusters.pop("/copies", None)
    import_stream(
        archive,
        f"local:///copies/{COPY}",
        layout="table" if table else None,
        fingerprints=[noted] if noted else [],
        master="inline",
    )
    return dict(world.cluster("/copies").find(COPY).data)


def _grounds() -> Iterator[Ground]:
    for name in PLACES:
        scene = scene_of(name)
        world = scene.world.copy()
        with in_memory(world):
            world.sleep(DAY)
            compact_archive(scene.archive, at_least=99, master="inline")  # the replaced objects are deleted
            objects = Bucket(dict(world.bucket("vault").objects))
            restored = _restore(world, scene.archive, "", table=False)
            write_table(scene.archive, table="orders", format="parquet", master="inline")
            tabled = _restore(world, scene.archive, "", table=True)
        for what, holds in (
            ("data", lambda key: "/events/" in key or "/chunks/" in key),
            ("manifest", lambda key: bool(_MANIFEST.fullmatch(key)) and "table/" not in key),
            ("index", lambda key: key.endswith(".ranges.parquet") and "table/" not in key),
            ("decision", lambda key: "/decisions/" in key and "table/" not in key),
        ):
            yield Ground(f"{name} {what}", World({"vault": objects}), scene.archive, restored, holds, table=False)
        for what, holds in (
            ("table's files", lambda key: "/table/" in key and "/generation=" in key),
            ("table's manifest", lambda key: "/_table/" in key and bool(_MANIFEST.fullmatch(key))),
            ("table's index", lambda key: "/_table/" in key and key.endswith(".ranges.parquet")),
        ):
            yield Ground(f"{name} {what}", world, scene.archive, tabled, holds, table=True)
