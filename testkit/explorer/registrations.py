"""Runs that register a table beside each other and beside its users: each generation once, in one table.

The catalog is PyIceberg's over SQLite, and the files are real. Runs stop before calls of the catalog, and before the
conditional change of its database inside a commit.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from streamvault import write_table
from streamvault.common.errors import Conflict
from streamvault.common.progress import Progress
from streamvault.common.units import now_utc
from streamvault.lake.catalogs import open_catalog, registration
from streamvault.lake.handoff import _register
from streamvault.lake.location import TablePlace
from streamvault.lake.table import find_options
from streamvault.layouts.keys import TABLE_IDENTITY, TABLE_REGISTRATION
from streamvault.manifests.archive import Archive
from streamvault.objectstore.uri import RootAddress
from testkit.explorer import world
from testkit.explorer.schedule import Schedule, Step
from testkit.explorer.world import Actor, World, perform
from testkit.killed import Killed
from testkit.small_archives import NAME, Vault

USERS = 900
"""The generation of rows that another writer appends."""
STRANGE = frozenset({"rename", "drop"})
"""Beside these, a run may be refused."""
POINTS = {"new": 13, "begun": 8}
"""How many calls an undisturbed run makes, by scene."""


class Ground:
    """A table of two generations of a stream, and a catalog that schedules begin anew.

    Args:
        folder: of the files and the catalog.
    """

    def __init__(self, folder: Path) -> None:
        objects = folder / "objects"
        objects.mkdir()
        vault = Vault(folder, f"file://{objects}")
        vault.create()
        self.rows: Counter[Any] = Counter()
        for number in (1, 2):
            vault.add(*(b"%d" % number for _ in range(3)))
            write_table(vault.uri(), table="lake.t", root=vault.root, master="inline")
        archive = Archive(RootAddress.parse(vault.root).resolve(), NAME).table_archive("t")
        options = find_options(archive)
        assert options is not None
        self.place = TablePlace("lake", options, archive)
        self.expected = Counter((1, place) for place in range(3)) + Counter((2, place) for place in range(3, 6))
        self._file = folder / "catalog.db"

    def begin(self, scene: str) -> None:
        """Empty the catalog; in the scene ``begun`` the first generation is registered."""
        self._file.unlink(missing_ok=True)
        shutil.rmtree(Path(self.place.location.removeprefix("file://")) / "metadata", ignore_errors=True)
        store, prefix = self.place.archive.store, self.place.archive.prefix
        store.delete([prefix + TABLE_REGISTRATION, prefix + TABLE_IDENTITY])
        self.catalog.create_namespace_if_not_exists("lake")
        if scene == "begun":
            open_catalog(self.uri, "iceberg").publish(self.place, self.place.archive.load(1))

    @property
    def uri(self) -> str:
        return f"sql:sqlite:///{self._file}"

    @property
    def catalog(self) -> IcebergCatalog:
        return SqlCatalog("streamvault", uri=self.uri.removeprefix("sql:"))

    def register(self) -> list[int]:
        return _register(open_catalog(self.uri, "iceberg"), self.place, Progress())

    def tables(self) -> list[Table]:
        return [self.catalog.load_table(name) for name in self.catalog.list_tables("lake")]

    def described(self) -> None:
        for table in self.tables():
            with table.transaction() as change:
                change.set_properties(note=str(now_utc()))

    def append(self) -> None:
        for table in self.tables():
            row = table.scan(limit=1).to_arrow().slice(0, 1)
            at = row.schema.get_field_index("generation")
            table.append(row.set_column(at, row.schema.field(at), pa.array([USERS], pa.int32())))

    def tidy(self) -> None:
        """Rewrite the files and let all other snapshots expire, as engines do."""
        for table in self.tables():
            table.overwrite(table.scan().to_arrow())
            table.maintenance.expire_snapshots().older_than(now_utc().replace(tzinfo=None)).commit()

    def rename(self) -> None:
        if self.catalog.table_exists(("lake", "t")) and not self.catalog.table_exists(("lake", "renamed")):
            self.catalog.rename_table(("lake", "t"), ("lake", "renamed"))

    def drop(self) -> None:
        if self.catalog.table_exists(("lake", "t")):
            self.catalog.drop_table(("lake", "t"))

    def judge(self, names: tuple[str, ...], actors: list[Actor]) -> Iterator[str]:
        """Yield what is wrong; each line begins with its kind."""
        errors = [(name, actor.error) for name, actor in zip(names, actors, strict=True) if actor.error is not None]
        refused = False
        for name, error in errors:
            refused |= isinstance(error, Conflict) and not STRANGE.isdisjoint(names)
            if not isinstance(error, Killed) and not (isinstance(error, Conflict) and refused):
                yield f"FAILED {name}: {type(error).__name__}: {error}"
        try:
            self.register()
        except Conflict as error:
            refused = True
            if STRANGE.isdisjoint(names):
                yield f"FAILED the next run: {error}"
        tables = self.tables()
        if len(tables) > 1 and not refused:
            yield f"DOUBLE {len(tables)} tables have the same files, and nobody was told"
        for table in tables:
            found = table.scan(selected_fields=("generation", "offset")).to_arrow().to_pylist()
            rows = Counter((row["generation"], row["offset"] // 9) for row in found if row["generation"] != USERS)
            if any(times > 1 for times in rows.values()):
                yield f"TWICE {table.name()}: {sorted(rows.items())}"
            if rows.keys() != self.expected.keys() and not refused:
                yield f"LOST {table.name()}: {sorted(rows)}"

    def run(self, schedule: Schedule) -> tuple[str, ...]:
        """Run a schedule and judge its result."""
        self.begin(schedule.scene)
        actors = [Actor(place, getattr(self, name)) for place, name in enumerate(schedule.commands)]
        with stopping():
            perform(schedule, actors)
            return tuple(self.judge(schedule.commands, actors))


@contextmanager
def stopping() -> Iterator[None]:
    """Within it, commands stop where a schedule says."""
    world._worlds.append(World())
    parts: list[tuple[Any, str]] = [
        (SqlCatalog, "load_table"),
        (SqlCatalog, "create_namespace"),
        (SqlCatalog, "commit_table"),
        (SqlCatalog, "_write_metadata"),  # between a commit's check of its requirements and its change of the database
        (registration, "decide_file"),
    ]
    try:
        with (
            patch.object(TablePlace, "check_readable"),  # in a process of its own
            patch("time.sleep"),
        ):
            patches = [patch.object(place, name, _stopped(getattr(place, name), name)) for place, name in parts]
            for one in patches:
                one.start()
            try:
                yield
            finally:
                for one in patches:
                    one.stop()
    finally:
        world._worlds.pop()


def _stopped(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        after = world._gate("", name, "")
        result = function(*args, **options)
        if after is not None:
            raise after
        return result

    # a static method stays one
    return staticmethod(call) if name == "_write_metadata" else call  # type: ignore[return-value]


def beside(scene: str, other: str, faults: tuple[str, ...] = ("",)) -> Iterator[Schedule]:
    """A run is stopped before each of its calls while another command runs to its end."""
    for until in range(1, POINTS[scene] + 1):
        for fault in faults:
            yield Schedule(scene, ("register", other), (Step(0, until), Step(1), Step(0, None, fault)))


def both_stopped(scene: str) -> Iterator[Schedule]:
    """Two runs are stopped; the first goes on, then the second."""
    for one in range(1, POINTS[scene] + 1):
        for two in range(1, POINTS[scene] + 1):
            yield Schedule(scene, ("register", "register"), (Step(0, one), Step(1, two), Step(0), Step(1)))


def four(seed: int) -> Iterator[Schedule]:
    """Four runs, beside users of the table at times, that are preempted and killed at random points; endless."""
    rng = random.Random(seed)
    while True:
        scene, users = rng.choice([*POINTS]), rng.choices(["described", "append", "tidy"], k=rng.randrange(3))
        names = tuple(rng.sample(["register"] * 4 + users, 4 + len(users)))
        places = rng.choices(range(len(names)), k=12)
        ours = [names[place] == "register" for place in places]
        fault = partial(rng.choice, ("", "", "", "", "!", "+!"))
        steps = [
            Step(place, rng.randrange(1, POINTS[scene] + 1) if is_ours else None, fault() if is_ours else "")
            for place, is_ours in zip(places, ours, strict=True)
        ]
        yield Schedule(scene, names, tuple(steps))
