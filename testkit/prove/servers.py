"""Real servers that fail, disks that fill up, clocks that jump, commands that are stopped and resumed late.

Each try has a stream, an archive and a target of its own. Something goes wrong at a random moment of one command; the
command either gets over it or ends with one line, and then the same command is given again. At the end the archive is
checked and restored, and what came back is compared byte for byte with what the source held.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import LIMIT, POLL, Command, Ended, run, started, wait_until
from testkit.servers.availability import Unavailable
from testkit.servers.minio import MinioServer
from testkit.servers.pravega import PravegaServer
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, live_segments, payloads

EVENTS = 250
"""Of each segment and round."""
SEGMENTS = 3
RANGE_SIZE = "4KiB"
AWAY = 30.0
"""Seconds for which Pravega's servers are unreachable."""
FOR_GOOD = 150.0
"""Seconds, more than any command waits for its object store."""
LATE = {0, 4}
"""The exit codes of a command that is resumed after others have done its work."""
JUMPS = (6 * 3600, -5 * 3600)

ROOM = 256 * 1024 * 1024
LOST = {1, 4, 5}
"""The exit codes of a command whose stream was deleted."""
LAST = ("--master", "inline", "--json")

Contents = dict[SegmentId, tuple[int, bytes]]
"""Of a stream: segment → its first offset, and its bytes from there on."""


Fault = tuple[AbstractContextManager[None], float]
"""A server that is unreachable while the context is open, and for how many seconds."""


class Wrong(Exception):
    """A failure: ``lost``, ``doubled`` or ``other``."""

    def __init__(self, how: str, text: str) -> None:
        super().__init__(text)
        self.how = how


@dataclass
class Tried:
    """The results, by kind.

    Attributes:
        kinds, lost, doubled, other: how many. seconds: what they took.
        failures: one text for each that went wrong. absent: kind → why it could not be tried.
        ended: how the disturbed commands ended, for whoever wants to know whether they were disturbed at all.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)


class Place:
    """A Pravega and a MinIO, each behind proxies that all commands go through. A context manager.

    Attributes:
        controller, segments, s3: the proxies. server: the MinIO itself.
        requests: command → how many requests it makes if nothing goes wrong.

    Raises:
        Unavailable: one of them can't be had.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        try:
            self.segments = self._open.enter_context(FaultProxy())
            self.pravega = self._open.enter_context(PravegaServer(proxy=self.segments))
            self.controller = self._open.enter_context(FaultProxy(self.pravega.controller_port))
            self.minio = MinioServer()
            self.server: S3Server = self._open.enter_context(self.minio)
            self.s3 = self._open.enter_context(FaultProxy(int(self.server.endpoint.rpartition(":")[2])))
        except BaseException:
            self._open.close()
            raise
        self.requests: dict[str, int] = {}
        self.ended: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def environment(self) -> dict[str, str]:
        """Of commands."""
        return {**self.server.environment(), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.s3.port}"}

    @property
    def direct(self) -> dict[str, str]:
        """Of commands that no proxy delays."""
        return self.server.environment()


class Case:
    """A stream with three segments on the real Pravega (or in a folder), and a bucket (or folder) for its archive."""

    def __init__(self, place: Place, rng: random.Random, *, root: str = "", streams: str = "") -> None:
        self.place, self.rng = place, rng
        self.name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
        self.streams = streams or f"pravega://127.0.0.1:{place.controller.port}"
        if not root:
            bucket = place.server.make_bucket(f"proof-{uuid.uuid4().hex[:10]}")
            root = f"s3://{bucket}/vault"
        self.root = root
        self.layout = rng.choice(("events", "chunks"))
        self.contents: Contents = {}
        with self.store() as store:
            store.create_scope(self.name.scope)
            store.create_stream(self.name, StreamConfiguration(scaling=Scaling(min_segments=SEGMENTS)))
        self.more()

    @property
    def source(self) -> str:
        return f"{self.streams}/{self.name}"

    @property
    def archive(self) -> str:
        return f"{self.root}/{self.name}"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--layout", self.layout, "--range-size", RANGE_SIZE, *LAST)

    @property
    def export(self) -> tuple[str, ...]:
        return ("export", self.source, self.root, *self.options)

    def restore(self, target: str) -> tuple[str, ...]:
        return ("import", self.archive, target, *LAST)

    def store(self) -> StreamStore:
        return parse_stream(f"{self.streams}/{self.name}")[0].open()

    def target(self) -> str:
        """A new one beside the source."""
        return f"{self.streams}/{self.name.scope}/target-{uuid.uuid4().hex[:10]}"

    def more(self) -> None:
        """Append more events to each segment; recorded as what a restore must contain."""
        with self.store() as store:
            for segment in sorted(store.describe(self.name).tail.offsets):
                append_events(store, self.name, segment, payloads(EVENTS, self.rng.randrange(10**9), largest=20_000))
            now = contents_of(store, self.name)
        for segment, (start, data) in now.items():
            first, had = self.contents.get(segment, (start, b""))
            self.contents[segment] = first, had[: start - first] + data

    def must(self, *command: str, environment: Mapping[str, str] | None = None) -> Ended:
        """An undisturbed command, which must succeed."""
        ended = run(*command, environment=environment or self.place.environment)
        if ended.code != 0:
            raise Wrong("other", f"{command[0]} failed with {ended.code}: {ended.err.strip()[-600:]}")
        return ended

    def disturbed(
        self, command: tuple[str, ...], disturb: Callable[[Command], None], environment: Mapping[str, str] | None = None
    ) -> Ended:
        """Run a command, stop its requests before one of them, chosen at random, and disturb it there."""
        s3, sort = self.place.s3, f"{command[0]} {self.layout}"
        s3.hold_at(s3.requests + self.rng.randint(2, max(3, round(0.95 * self.place.requests.get(sort, 60)))))
        before = s3.requests
        with started(*command, environment=environment or self.place.environment) as running:
            try:
                if wait_until(s3.held.is_set, running, LIMIT):
                    disturb(running)
                else:
                    self.place.requests[sort] = s3.requests - before
            finally:
                s3.hold_at(0)
                s3.resume()
            return running.ended()

    def gets_over(self, command: tuple[str, ...], ended: Ended, *, codes: Collection[int] = (1,)) -> None:
        """A command has succeeded, or ended with one line; then the same command succeeds."""
        self.place.ended[f"{command[0]} {ended.code}"] += 1
        if ended.code == 0:
            return
        ends_in_one_line(ended, codes)
        self.must(*command)

    def is_all_there(self, *, since: Mapping[SegmentId, int] | None = None, table: bool = False) -> None:
        """The archive is intact, and a restore of it equals the source."""
        self.is_sound()
        with tempfile.TemporaryDirectory(prefix="streamvault-proof-") as folder:
            target = f"local://{folder}/back/copy"
            self.must(*self.restore(target), *(("--layout", "table") if table else ()))
            self.is_restored(target, since=since)

    def is_sound(self) -> None:
        ended = self.must("check", self.archive, "--read-data", *LAST)
        if not ended.report["ok"]:
            raise Wrong("other", f"check finds {ended.report['findings'][:3]}")

    def is_restored(self, target: str, *, since: Mapping[SegmentId, int] | None = None) -> None:
        address, name = parse_stream(target)
        with address.open() as store:
            compare(self.contents, contents_of(store, name), since or {})


def contents_of(store: StreamStore, name: StreamName) -> Contents:
    return {
        segment: (start, b"".join(bytes(block) for block in store.read(name, segment, start, end)))
        for segment, start, end in live_segments(store.describe(name), store)
    }


def compare(wanted: Contents, found: Contents, since: Mapping[SegmentId, int]) -> None:
    """The restored stream must have all expected events, from the offsets left by expiry on, and no others."""
    if {*found} - {*wanted}:
        raise Wrong("doubled", f"segments that the source never had: {sorted({*found} - {*wanted})}")
    for segment, (first, data) in wanted.items():
        start, got = found.get(segment, (0, b""))
        needed = max(first, since.get(segment, 0))
        if segment not in found or start > needed or start + len(got) < first + len(data):
            raise Wrong("lost", f"{segment}: {start}-{start + len(got)} of {needed}-{first + len(data)} came back")
        if start + len(got) > first + len(data) or start < first:
            raise Wrong("doubled", f"{segment}: {start}-{start + len(got)}, more than {first}-{first + len(data)}")
        if got != data[start - first :]:
            raise Wrong("other", f"{segment}: other bytes came back")


def ends_in_one_line(ended: Ended, codes: Collection[int]) -> None:
    said = [line for line in ended.lines if line.startswith("streamvault: ")]
    if ended.code not in codes or len(said) != 1 or said[0] != ended.lines[-1] or "Traceback" in ended.err:
        raise Wrong("other", f"it ended with {ended.code} and said {ended.err.strip()[-600:]!r}")


# --- servers that fail


@contextmanager
def minio_killed(place: Place) -> Iterator[None]:
    place.minio.kill()
    try:
        yield
    finally:
        place.minio.restart()


@contextmanager
def gone(proxy: FaultProxy) -> Iterator[None]:
    proxy.refuse()
    proxy.cut()
    try:
        yield
    finally:
        proxy.accept()


@contextmanager
def silent(proxy: FaultProxy) -> Iterator[None]:
    proxy.silence()
    try:
        yield
    finally:
        proxy.resume()


def sleep_beside(command: Command, seconds: float) -> None:
    """So long, or until the command has ended."""
    until = time.monotonic() + seconds
    while command.running and time.monotonic() < until:
        time.sleep(POLL)


def minio_away(place: Place, rng: random.Random) -> Fault:
    return minio_killed(place), rng.choice((2.0, 10.0, FOR_GOOD))


def segment_store_away(place: Place, rng: random.Random) -> Fault:
    how = rng.randrange(3)
    return (silent if how == 2 else gone)(place.segments), AWAY if how else 0.0


def controller_away(place: Place, rng: random.Random) -> Fault:
    return rng.choice((gone, silent))(place.controller), AWAY


def away(fault: Callable[[Place, random.Random], Fault], verb: str, place: Place, rng: random.Random) -> None:
    """A server fails in the middle of an export or an import, and comes back."""
    case = Case(place, rng)
    target = case.target()
    command = case.export
    if verb == "import":
        case.must(*case.export)
        command = case.restore(target)

    def disturb(running: Command) -> None:
        broken, seconds = fault(place, rng)
        with broken:
            place.s3.resume()
            sleep_beside(running, seconds)

    case.gets_over(command, case.disturbed(command, disturb))
    case.is_all_there()
    if verb == "import":
        case.is_restored(target)


def pravega_comes_back_empty(place: Place, rng: random.Random) -> None:
    """Pravega is killed for good in the middle of a second export; the published archive is restored into a new one."""
    case = Case(place, rng)
    case.must(*case.export)
    published = dict(case.contents)
    case.more()

    def disturb(_: Command) -> None:
        place.pravega.kill()
        place.s3.resume()
        place.pravega.restart()

    ended = case.disturbed(case.export, disturb)
    place.ended[f"export {ended.code}"] += 1
    if ended.code != 0:
        ends_in_one_line(ended, LOST)
        again = run(*case.export, environment=place.environment)
        ends_in_one_line(again, LOST)
        case.contents = published
    case.is_all_there()
    target = case.target()
    case.must(*case.restore(target))
    case.is_restored(target)


# --- disks that fill up


class Disk:
    """A small file system of its own; or, where none may be mounted, a limit for the size of each file."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self._rng = folder, rng
        folder.mkdir()
        self.prefix: tuple[str, ...] = ()
        mount = ("mount", "-t", "tmpfs", "-o", f"size={ROOM}", "streamvault-proof", str(folder))
        self.is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0

    def used(self) -> int:
        found = os.statvfs(self.folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def fill(self, needed: int) -> None:
        """Leave less space than is needed."""
        if self.is_mounted:
            self._resize(self.used() + int(needed * self._rng.random()))
        else:
            self.prefix = ("prlimit", f"--fsize={self._rng.randrange(1, 16 * 1024)}")

    def empty(self) -> None:
        """Free the space."""
        self.prefix = ()
        if self.is_mounted:
            self._resize(ROOM)

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(("umount", "--lazy", str(self.folder)), check=True)

    def _resize(self, size: int) -> None:
        subprocess.run(("mount", "-o", f"remount,size={size}", str(self.folder)), check=True)


def disk_full(verb: str, place: Place, rng: random.Random) -> None:
    """The disk is full in the middle of a command; there is space when the same command is run again."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamvault-proof-")))
        disk = Disk(folder / "disk", rng)
        stack.callback(disk.close)
        vault = folder if verb == "import" else disk.folder
        streams = disk.folder if verb == "rotate" else folder
        case = Case(place, rng, root=f"file://{vault}/vault", streams=f"local://{streams}/streams")
        before = disk.used()
        target = f"local://{disk.folder}/back/copy/copy"
        if verb != "export":
            case.must(*case.export)
        if verb == "import":
            case.must(*case.restore(f"local://{disk.folder}/counted/copy/copy"))
        if verb == "export":
            case.must("export", case.source, f"file://{disk.folder}/counted", *case.options)
        needed = disk.used() - before
        shutil.rmtree(disk.folder / "counted", ignore_errors=True)
        if verb == "rotate":
            case.more()
        command = {
            "export": case.export,
            "import": case.restore(target),
            "rotate": ("rotate", case.source, case.root, "--truncate-source", *case.options),
        }[verb]
        disk.fill(needed)
        ended = run(*command, environment=place.environment, prefix=disk.prefix)
        if verb == "rotate":
            case.is_sound()
        disk.empty()
        case.gets_over(command, ended)
        case.is_all_there()
        if verb == "import":
            case.is_restored(target)


# --- clocks that jump


class Clock:
    """The clock of commands: real time and an offset that changes at any moment."""

    def __init__(self, folder: Path) -> None:
        self._file, self._library = folder / "clock", folder / "clock.so"
        build = ("cc", "-shared", "-fPIC", "-o", str(self._library), str(Path(__file__).with_name("clock.c")))
        if shutil.which("cc") is None or subprocess.run(build, capture_output=True, check=False).returncode != 0:
            raise Unavailable("no C compiler makes a clock to set")
        self.set(0)

    def set(self, seconds: int) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(str(seconds))
        draft.replace(self._file)

    def environment(self, place: Place) -> dict[str, str]:
        preloaded = {"LD_PRELOAD": str(self._library), "STREAMVAULT_CLOCK": str(self._file)}
        return {**place.environment, **preloaded}


def clock_jumps(place: Place, rng: random.Random) -> None:
    """The clock goes back by eleven hours in the middle of rotations and of a restore; all data is in folders."""
    with tempfile.TemporaryDirectory(prefix="streamvault-proof-") as folder:
        clock = Clock(Path(folder))
        environment = clock.environment(place)
        case = Case(place, rng, root=f"file://{folder}/vault", streams=f"local://{folder}/streams")

        def jumping(command: tuple[str, ...], happened: Callable[[], bool]) -> None:
            clock.set(JUMPS[0])
            with started(*command, environment=environment) as running:
                wait_until(happened, running)
                clock.set(JUMPS[1])
                ended = running.ended()
            if ended.code != 0:
                raise Wrong("other", f"{command[0]} failed with {ended.code}: {ended.err.strip()[-600:]}")

        def has_grown(where: str, share: float, size: int) -> Callable[[], bool]:
            wanted = share * size + size_below(Path(folder, where))
            return lambda: size_below(Path(folder, where)) > wanted

        clock.set(JUMPS[0])
        case.must(*case.export, environment=environment)
        once = size_below(Path(folder, "vault"))
        rotate = ("rotate", case.source, case.root, "--truncate-source", *case.options)
        for _ in range(2):
            case.more()
            jumping(rotate, has_grown("vault", rng.random(), once))
        case.more()
        case.must(*case.export, environment=environment)
        case.must("compact", case.archive, *LAST, environment=environment)
        case.more()
        case.must(*case.export)
        newest = max(case.must("check", case.archive, *LAST).report["generations"])
        if newest != 5:
            raise Wrong("lost", f"generation {newest} is the newest of 5")
        case.is_all_there()
        target = f"local://{folder}/back/copy/copy"
        jumping(case.restore(target), has_grown("back", rng.random(), 4 * once))
        case.is_restored(target)


def size_below(folder: Path) -> int:
    """The size of all files; files deleted meanwhile do not count."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            size += path.stat().st_size
    return size


def clock_jumps_at_s3(place: Place, rng: random.Random) -> None:
    """The same in the middle of an export to S3, which rejects requests with a wrong date."""
    with tempfile.TemporaryDirectory(prefix="streamvault-proof-") as folder:
        clock = Clock(Path(folder))
        case = Case(place, rng, streams=f"local://{folder}/streams")
        case.must(*case.export)
        case.more()
        ended = case.disturbed(case.export, lambda _: clock.set(JUMPS[1]), clock.environment(place))
        case.gets_over(case.export, ended)
        case.is_all_there()


# --- commands that are stopped, and resumed late


def paused(verb: str, place: Place, rng: random.Random) -> None:
    """A command is stopped; another run of it ends, the source is truncated and written to; the command resumes."""
    case = Case(place, rng)
    target = case.target()
    since: dict[SegmentId, int] = {}
    if verb != "export":
        case.must(*case.export)
    if verb in {"rotate", "compact"}:
        for _ in range(2):
            case.more()
            case.must(*case.export)
    if verb == "rotate":
        since = {segment: first + len(data) for segment, (first, data) in case.contents.items()}
        case.more()
    rotate = ("rotate", case.source, case.root, "--truncate-source", *case.options)
    command = {
        "export": case.export,
        "import": case.restore(target),
        "rotate": (*rotate, "--keep", "2"),
        "compact": ("compact", case.archive, *LAST),
        "handoff": ("handoff", case.archive, "--table", "orders", "--format", "parquet", *LAST),
    }[verb]

    def others(late: Command) -> None:
        late.send(signal.SIGSTOP)
        case.must(*command, environment=place.direct)
        if verb != "import":
            case.must(*rotate, environment=place.direct)
            case.more()
        late.send(signal.SIGCONT)

    ended = case.disturbed(command, others)
    place.ended[f"{verb} {ended.code}"] += 1
    if ended.code != 0:
        ends_in_one_line(ended, LATE)
    if verb == "import":
        case.is_restored(target)
    else:
        case.is_sound()
        case.must(*rotate)
    if verb == "handoff":
        case.must(*command)
        case.is_all_there(table=True)
    case.is_all_there(since=since)


Kind = Callable[[Place, random.Random], None]
KINDS: dict[str, Kind] = {
    **{
        f"{what} in mid-{verb}": partial(away, fault, verb)
        for what, fault in (
            ("MinIO killed", minio_away),
            ("segment store cut off", segment_store_away),
            ("controller gone", controller_away),
        )
        for verb in ("export", "import")
    },
    **{f"disk full: {verb}": partial(disk_full, verb) for verb in ("export", "import", "rotate")},
    "clock jumps back": clock_jumps,
    "clock jumps back, S3": clock_jumps_at_s3,
    **{
        f"{verb} stopped, wakes late": partial(paused, verb)
        for verb in ("export", "import", "rotate", "compact", "handoff")
    },
    "Pravega lost in mid-export": pravega_comes_back_empty,
}


def try_servers(runs: int, seed: int, seconds: float = 1e9, kinds: Mapping[str, Kind] = KINDS) -> Tried:
    """Run each kind so often, while there is time; `Tried.absent` has what could not be tested and why."""
    tried, until = Tried(), time.monotonic() + seconds
    try:
        with Place() as place:
            for number in range(runs):
                for name, kind in kinds.items():
                    if time.monotonic() < until:
                        try_kind(name, partial(kind, place), f"{seed} {name} {number}", tried)
            tried.ended = place.ended
    except Unavailable as error:
        tried.absent["servers"] = str(error)
    return tried


def try_kind(name: str, kind: Callable[[random.Random], None], seed: str, tried: Tried) -> None:
    """Run one kind once; the result goes into ``tried`` and to standard error."""
    began, wrong = time.monotonic(), len(tried.failures)
    try:
        kind(random.Random(seed))
    except Unavailable as error:
        tried.absent[name] = str(error)
        return
    except Wrong as error:
        {"lost": tried.lost, "doubled": tried.doubled, "other": tried.other}[error.how][name] += 1
        tried.failures.append(f"seed {seed}: {error.how}: {error}")
    except Exception as error:  # noqa: BLE001  (one that failed does not end the others)
        tried.other[name] += 1
        tried.failures.append(f"seed {seed}: {error!r}")
    tried.kinds[name] += 1
    tried.seconds[name] += round(time.monotonic() - began)
    said = tried.failures[wrong:] or ["survived"]
    print(f"{name}: {time.monotonic() - began:.0f} s, {said[0]}", file=sys.stderr, flush=True)
