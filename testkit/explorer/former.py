"""Commands of the former release beside today's, on one archive.

The former release comes from git, under another package name, so that one process has both. Its stores are today's
stores in memory: what passes between the two is rebuilt from the classes of one package as the same of the other.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import streamvault
from streamvault.common.errors import Problem
from streamvault.streamstore.model import Epochs
from streamvault.streamstore.store import SegmentAppender
from testkit.explorer import explore, world
from testkit.explorer.command import Command
from testkit.explorer.commands import COMMANDS, CONVERTED, TARGET
from testkit.explorer.families import ENDINGS
from testkit.explorer.judge import FORMER
from testkit.explorer.scenes import ROOT, Scene
from testkit.explorer.schedule import Schedule
from testkit.explorer.world import World

REVISION = "5f6694b"
"""The last commit of the former release."""

TODAY, NAME = "streamvault", "streamvault_former"
TREE = Path(__file__).parents[2]
SCENES = [f"{layout}/{base}" for layout in ("events", "chunks", "zstd") for base in ("new", "new", "new", "grown")]
"""Mostly without an archive: the former release may begin one, and says of today's that a newer one has written it."""

_IMPORT = re.compile(rf"^(\s*(?:from|import) ){TODAY}\b", re.MULTILINE)
_NAMED = re.compile(rf"(?<=[\"']){TODAY}(?=\.(?!ranges|generation|fingerprint)[a-z])")


class NoFormer(Exception):
    """The former release is not in this clone.

    Attributes:
        may_be: whether that is as it should be: the clone is shallow, or none at all.
    """

    def __init__(self, what: str, *, may_be: bool) -> None:
        super().__init__(what)
        self.may_be = may_be


@cache
def load_former() -> ModuleType:
    """Unpack the former release, import it over the stores in memory, and add its commands to `COMMANDS`.

    Raises:
        NoFormer: this is no clone, or one without the release's commit.
    """
    try:
        packed = subprocess.run(
            ["git", "archive", REVISION, TODAY], cwd=TREE, capture_output=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NoFormer(f"git has no {REVISION}: {error}", may_be=not _is_full_clone()) from error
    folder = Path(tempfile.mkdtemp(prefix="former-"))
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True, timeout=60)
    (folder / TODAY).rename(folder / NAME)
    for path in (folder / NAME).rglob("*.py"):
        path.write_text(_NAMED.sub(NAME, _IMPORT.sub(rf"\g<1>{NAME}", path.read_text())))
    sys.path.append(str(folder))
    former = import_module(NAME)
    _patch()
    commands = {f"{FORMER}{name}": _command(name, verb) for name, verb in _verbs(former).items()}
    COMMANDS.update(commands)
    explore.ALL.update(commands)
    return former


def _is_full_clone() -> bool:
    command = ["git", "rev-parse", "--is-shallow-repository"]
    try:
        return subprocess.run(command, cwd=TREE, capture_output=True, check=True, timeout=60).stdout.strip() == b"false"
    except (OSError, subprocess.SubprocessError):
        return False


class _Threads:
    """Replaces the former `objectstore.bulk._Threads`: the only thread does the work."""

    def __init__(self, flow: Any, work: Callable[[], None], *_: int) -> None:
        self._flow, self._work = flow, work

    def start(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  (raised where the items were wanted)
            self._flow.stop(error)

    def be_enough_for(self, size: int) -> None:
        pass

    def join(self) -> None:
        pass


def _module(name: str) -> Any:
    return import_module(f"{NAME}.{name}")


def _patch() -> None:
    """As `in_memory`, for good: nothing else uses the former release."""
    _module("objectstore.uri").RootAddress.open = lambda self, **_: _Foreign(world.current().open_root(self), NAME)
    _module("streamstore.uri").StoreAddress.open = lambda self: _Foreign(world.current().open_streams(self), NAME)
    _module("manifests.entries").datetime = world.Datetime
    _module("objectstore.bulk")._Threads = _Threads
    _module("objectstore.bulk").in_order = world.in_order
    _module("sparkrun.inline").InlineRunner.run = _run_inline
    _module("manifests.cold").ThreadPoolExecutor = world.Pool
    lease, threads = _module("streamstore.lease"), SimpleNamespace(Event=world.Event, Lock=world.Lock)
    _module("importer.run").threading = SimpleNamespace(Thread=world.Thread, **vars(threads))
    lease.threading = SimpleNamespace(Thread=world.NoThread, **vars(threads))
    lease._this_host = lambda: "host"
    lease._start_time = lambda _: "0"


def _run_inline(_: Any, function: Callable[[Any], Any], specs: Any) -> Iterator[tuple[int, Any]]:
    return ((index, function(spec)) for index, spec in enumerate(specs))


def _verbs(former: Any) -> dict[str, Callable[[Scene], object]]:
    """The former release's verbs, with the options of `COMMANDS`."""

    def rotate(**options: Any) -> Callable[[Scene], object]:
        return lambda scene: former.rotate_stream(scene.stream, ROOT, **scene.options, **options)

    def convert(scene: Scene) -> object:
        layout = "chunks" if scene.layout == "events" else "events"
        return former.convert_archive(scene.archive, CONVERTED, layout=layout, master="inline")

    inline = {"master": "inline"}
    return {
        "export": lambda scene: former.export_stream(scene.stream, ROOT, **scene.options),
        "rotate": rotate(truncate_source=True),
        "expire": rotate(keep=2),
        "expire-all": rotate(keep=1, truncate_source=True),
        "compact": lambda scene: former.compact_archive(scene.archive, **inline),
        "hold": lambda scene: former.hold_archive(scene.archive, "kept"),
        "release": lambda scene: former.release_archive(scene.archive, "kept"),
        "import": lambda scene: former.import_stream(scene.archive, TARGET, again=True, **inline),
        "convert": convert,
        "check": lambda scene: former.check_archive(scene.archive, read_data=True, **inline),
        "repair": lambda scene: former.check_archive(scene.archive, read_data=True, repair=True, **inline),
    }


def _command(name: str, verb: Callable[[Scene], object]) -> Command:
    problem: type[BaseException] = _module("common.errors").Problem

    def run(scene: Scene, _: World) -> object:
        try:
            return verb(scene)
        except problem as error:
            raise _translated(error, TODAY) from None

    return Command(run, keep=COMMANDS[name].keep)


class _Foreign:
    """A store of one package for the other one: whatever passes is translated.

    Args:
        own: the store. package: of who uses it.
    """

    def __init__(self, own: Any, package: str) -> None:
        self._own = own
        self._package = package

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._own.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._own, name)
        if not callable(found):
            return _translated(found, self._package)

        def call(*args: Any, **options: Any) -> Any:
            given = [_translated(arg, TODAY) for arg in args]
            named = {key: _translated(value, TODAY) for key, value in options.items()}
            try:
                return _translated(found(*given, **named), self._package)
            except Problem as error:
                raise _translated(error, self._package) from None

        return call


def _translated(value: Any, package: str) -> Any:
    """The same value of another package's classes."""
    kind = type(value)
    if isinstance(value, SegmentAppender):
        return _Foreign(value, package)
    if isinstance(value, Epochs):  # the former release has a tuple
        return tuple(_rebuilt(one, package) for one in value)
    if kind.__module__.partition(".")[0] in {TODAY, NAME}:
        return _rebuilt(value, package)
    if isinstance(value, Mapping):
        return {_translated(key, package): _translated(held, package) for key, held in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return kind(_translated(one, package) for one in value)
    return _each(value, package) if isinstance(value, Iterator) else value


def _rebuilt(value: Any, package: str) -> Any:
    kind = type(value)
    other = _counterpart(kind, package)
    if isinstance(value, tuple):
        return other(*(_translated(one, package) for one in value))
    if is_dataclass(value):
        taken = {one.name for one in fields(other) if one.init} if is_dataclass(other) else {*other._fields}
        known = taken & {one.name for one in fields(value)}
        return other(**{name: _translated(getattr(value, name), package) for name in known})
    if isinstance(value, BaseException):
        made = other.__new__(other)
        made.args = value.args
        vars(made).update({name: _translated(held, package) for name, held in vars(value).items()})
        return made
    if isinstance(value, Enum):
        return other(value.value)
    raise TypeError(f"nothing is known about {kind}")


def _counterpart(kind: type[Any], package: str) -> Any:
    """The class of the same name in a former release; where two packages have it, that of the same one."""
    own = kind.__module__.split(".")[1]
    found = [
        vars(module)[kind.__qualname__]
        for name, module in sorted(sys.modules.items())
        if name.startswith(f"{package}.") and getattr(vars(module).get(kind.__qualname__), "__module__", "") == name
    ]
    if not found:
        raise TypeError(f"{package} has no {kind.__qualname__}")
    return min(found, key=lambda one: one.__module__.split(".")[1] != own)


def _each(values: Iterator[Any], package: str) -> Iterator[Any]:
    while True:
        try:
            value = next(values, _END)
        except Problem as error:
            raise _translated(error, package) from None
        if value is _END:
            return
        yield _translated(value, package)


_END = object()


def beside_former(seed: int, part: int = 0, parts: int = 1) -> Iterator[Schedule]:
    """Random schedules of commands of both releases; endless.

    Args:
        seed: of all chance. part: which of several processes draws. parts: how many there are.
    """
    load_former()
    names = [name for name in COMMANDS if name.startswith(FORMER)]
    today = [name.removeprefix(FORMER) for name in names]
    outside = ["write", "scale", "retain", "retain-half", "hour"]
    drawn = explore.random_schedules(seed * parts + part, SCENES, (*names, *today, *today[:5], *outside), ENDINGS)
    return (one for one in drawn if {*one.commands} & {*names} and {*one.commands} & {*today})


assert streamvault.__name__ == TODAY
