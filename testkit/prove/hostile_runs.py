"""Every verb on hostile input: files, queues, an S3 server, a Pravega controller and segment store.

Whatever they say, a command ends in time and in bounded memory with one of the exit codes and with one line, writes and
deletes nothing but where it should, and nothing that it restored or printed is wrong if it says that it is done.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from unittest.mock import patch

from streamvault import export_stream
from streamvault.cli.running import EXIT_CODES
from streamvault.objectstore.folder import FolderStore
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamName
from testkit.prove.bounded import MEBIBYTES, SECONDS, BoundedRuns, Ended
from testkit.prove.hostile_files import entry_of, hostile_file
from testkit.prove.hostile_pravega import CONTROLLER, SEGMENT_STORE, HostilePravega
from testkit.prove.hostile_s3 import BODIES, LISTINGS, HostileS3, objects_below
from testkit.streams import append_more, digest_of, make_stream

NAME = StreamName("demo", "orders")
ARCHIVE = f"root/{NAME}/"
MASTER = ("--master", "inline[2]")


Held = dict[str, bytes]
"""Each file's digest, by its path."""


@dataclass(frozen=True)
class Verb:
    """A command as it is run on hostile input.

    Attributes:
        text: its name and arguments; see `Site.filled` for what stands in braces.
        writes: below which folders it may write. deletes: below which of them it may also delete or replace files.
        same: whether what it prints must be as for honest input. restores: whether it fills the target.
    """

    text: str
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    same: bool = False
    restores: bool = False

    @property
    def name(self) -> str:
        return self.text.split()[0]


_ARCHIVED = (ARCHIVE,)
_WORKED = (f"{ARCHIVE}_work/", f"{ARCHIVE}_manifest/truncations/")
OF_ARCHIVES = (
    Verb("show {A}"),
    Verb("ls {R}"),
    Verb("timeline {A}"),
    Verb("status {R}"),
    Verb("report {A} --output {O}/r.html", ("out/",)),
    Verb("check {A} --read-data {M}", (f"{ARCHIVE}_manifest/",), (f"{ARCHIVE}_manifest/",)),
    Verb("get {A} {P}", same=True),
    Verb("cat {A}", same=True),
    Verb("plan {S}"),
    Verb("convert {A} file://{O} --layout events {M}", ("out/",)),
    Verb("handoff {A} --table more --format parquet {M}", _ARCHIVED),
    Verb("handoff {A} --table plain --format parquet {M}", _ARCHIVED),
    Verb("handoff {A} --table db.ice --catalog sql:sqlite:///{W}/cat.db {M}", (*_ARCHIVED, "cat.db"), ("cat.db",)),
    Verb("ddl {A} trino --table plain"),
    Verb("compact {A} {M}", _ARCHIVED, _ARCHIVED),
    Verb("export {S} {R} {M}", _ARCHIVED, _WORKED),
    Verb("rotate {S} {R} --keep 9 {M}", _ARCHIVED, _ARCHIVED),
    Verb("follow {S} {R} --idle 1s --every 1s --retry-for 0s {M}", _ARCHIVED, _WORKED),
    Verb("hold {A} other", _ARCHIVED, (f"{ARCHIVE}_manifest/decisions/",)),
    Verb("release {A} audit", _ARCHIVED, (f"{ARCHIVE}_manifest/decisions/",)),
    Verb("delete {A}"),
    Verb("delete {A} --yes --unfinished", _ARCHIVED, _ARCHIVED),
    Verb("import {A} {T} {M}", ("out/",), restores=True),
    Verb("import {A} {T} --layout table --table plain {M}", ("out/",), restores=True),
    Verb("append {A} --into {T2} --own-segments {M}", ("streams/",), ("streams/demo/grown/", "streams/.")),
    Verb("join {A} --into {T} {M}", ("out/",)),
    Verb("replicate {A} {T} --retry-for 0s {M}", ("out/",), restores=True),
    Verb("translate {A} {S} {P}"),
    Verb("request-restore {A} {T} --queue {Q2}", ("out/",)),
    Verb("doctor {S} {R}"),
    Verb("serve {A} --listen 0 --every 0.2s --for 1s"),
)
OF_COLD = (Verb("warm {A}"),)
"""Only of buckets."""
OF_QUEUES = (
    Verb("queue show {Q}"),
    Verb("queue drop {Q} --all", ("streams/demo/queue",), ("streams/demo/queue",)),
    Verb("queue skip {Q}", ("streams/demo/queue",), ("streams/demo/queue",)),
    Verb("queue retry {Q} --all", ("streams/demo/queue",), ("streams/demo/queue",)),
    Verb(
        "work {Q} --once {M}",
        ("streams/demo/queue", "streams/.", "out/"),
        ("streams/demo/queue", "streams/."),
    ),
)

OF_STREAMS = (
    Verb("export {S} {R} {M}", _ARCHIVED, _WORKED),
    Verb("export {S} file://{O} --reader-groups --range-size 64KiB {M}", ("out/",), ("out/",)),
    Verb("rotate {S} file://{O} --truncate-source {M}", ("out/",), ("out/",)),
    Verb("follow {S} file://{O} --idle 1s --every 1s --retry-for 0s {M}", ("out/",), ("out/",)),
    Verb("plan {S}"),
    Verb("doctor {S} {R}"),
    Verb("streams {C}/demo/"),
    Verb("streams {C}"),
    Verb("sweep {C}/demo/"),
    Verb("status {C}/demo/"),
    Verb("report {S} --output {O}/r.html", ("out/",)),
    Verb("copy {S} {T} {M}", ("out/",), ("out/",)),
    Verb("copy {S} {T} --segments 2 {M}", ("out/",), ("out/",)),
    Verb("join {S} --into {T} {M}", ("out/",), ("out/",)),
    Verb("append {A} --into {S} {M}"),
    Verb("replicate {S} {T} --retry-for 0s {M}", ("out/",), ("out/",)),
    Verb("promote {S} {M}"),
    Verb("move {S} {T} {M}", ("out/",), ("out/",)),
    Verb("translate {A} {S} {P}"),
    Verb("import {A} {S} {M}"),
    Verb("import {A} {C}/demo/new {M}"),
    Verb("handoff {S} --root file://{O} --table t --format parquet {M}", ("out/",), ("out/",)),
    Verb("ddl {S} trino --table t --root file://{O}"),
    Verb("queue show {S}"),
    Verb("work {S} --once {M}"),
    Verb("request-restore {A} {C}/demo/x --queue {S}"),
)


@dataclass
class Runs:
    """What became of commands on hostile input, by kind of input.

    Attributes:
        kinds: how many. refused: how many ended with another code than 0. broken: what was wrong, after its kind.
        grown: MiB by which one grew at most. seconds: how long one took at most.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    grown: int = 0
    seconds: float = 0.0


class Site:
    """A stream, its archive with two tables and an unfinished export, a queue; and what honest commands say of them.

    Args:
        folder: where they are made, an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "site"
        self._saved = folder / "saved"
        self.folder.mkdir()
        self.runs = BoundedRuns(folder)
        self.said: dict[str, bytes] = {}

    def make(self) -> None:
        """Make it all."""
        with LocalStore(self.folder / "streams") as store:
            make_stream(store, NAME, events=150, largest=9_000)
            make_stream(store, StreamName("demo", "grown"), events=20, largest=500)
        for name in ("root", "out", "other"):
            (self.folder / name).mkdir()
        (self.folder / "other" / "precious").write_bytes(b"precious")
        stream = self.filled("{S}")[0]
        for text in (
            "export {S} {R} --layout chunks --compress zstd --range-size 64KiB {M}",
            "",
            "export {S} {R} {M}",
            "hold {A} audit",
            "release {A} audit",
            "check {A} --read-data {M}",
            "handoff {A} --table plain --format parquet {M}",
            "handoff {A} --table db.ice --catalog sql:sqlite:///{W}/cat.db {M}",
            "request-restore {A} {T} --queue {Q}",
        ):
            if text:
                ended = self.runs.run(self.filled(text))
                assert ended.code == 0, (text, ended)
            else:
                append_more(stream)
        with LocalStore(self.folder / "streams") as store:
            self._held = digest_of(store, NAME)
        append_more(stream)
        with patch.object(FolderStore, "delete"):
            export_stream(stream, str(self.folder / "root"), master="inline")
        for path in (self.folder / ARCHIVE / "_manifest").glob("0000000003.*"):
            path.unlink()
        for path in (self.folder / ARCHIVE / "_work").rglob("ended.json"):
            path.unlink()
        shutil.copytree(self.folder, self._saved)
        for verb in OF_ARCHIVES:
            ended = self.runs.run(self.filled(verb.text))
            if ended.code not in {0, 1, 4, 5} or list(self.wrong(verb, ended)):
                raise AssertionError((verb.text, ended, list(self.wrong(verb, ended))))
            self.said[verb.text] = ended.out
            self.restore()

    def restore(self) -> None:
        """Make everything as it was."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._saved, self.folder)

    def filled(self, text: str, **others: str) -> list[str]:
        """A command's words, with addresses in place of what stands in braces."""
        where = self.folder
        root = others.get("R", f"file://{where}/root")
        places = {
            "A": f"{root}/{NAME}",
            "R": root,
            "S": others.get("S", f"local://{where}/streams/{NAME}"),
            "T": f"local://{where}/out/streams/copies/copy",
            "T2": f"local://{where}/streams/demo/grown",
            "Q": f"local://{where}/streams/demo/queue",
            "Q2": f"local://{where}/out/streams/demo/queue",
            "C": others.get("C", f"local://{where}/streams"),
            "O": f"{where}/out",
            "W": str(where),
            "P": self.pointer,
        }
        words = text.replace("{M}", " ".join(MASTER)).split()
        return [word.format_map(places) for word in words]

    @property
    def pointer(self) -> str:
        """An event of the archive."""
        found = sorted((self.folder / ARCHIVE / "events").rglob("*-*"))
        if not found:
            return f"{NAME}/0.#epoch.0:0-8"
        epoch, number = found[0].parent.name.split(".")
        offset, length = found[0].name.split("-")
        return f"{NAME}/{int(number)}.#epoch.{int(epoch)}:{int(offset)}-{int(length)}"

    def wrong(self, verb: Verb, ended: Ended, before: Held | None = None, after: Held | None = None) -> Iterator[str]:
        """What is wrong with how a command ended, and what it has left behind."""
        yield from wrong_end(ended)
        before = self.files(self._saved) if before is None else before
        after = self.files() if after is None else after
        for name in sorted({*before, *after}):
            if before.get(name) == after.get(name):
                continue
            allowed = verb.deletes if name in before else verb.writes
            if not any(name.startswith(folder) for folder in allowed):
                yield f"{'changed' if name in before else 'wrote'} {name}"
        if ended.code:
            return
        if verb.same and self.said.get(verb.text, ended.out) != ended.out:
            yield f"printed {ended.out[:100]!r}"
        if verb.restores:
            with LocalStore(self.folder / "out" / "streams") as store:
                found = digest_of(store, StreamName("copies", "copy"))
            if found != self._held:
                yield f"restored {found}, not {self._held}"

    def files(self, root: Path | None = None) -> Held:
        """Each file's digest, by its path."""
        root = root or self.folder
        found = {}
        for path in root.rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_file():
                    with path.open("rb") as file:
                        found[str(path.relative_to(root))] = hashlib.file_digest(file, "sha256").digest()
        return found


def wrong_end(ended: Ended) -> Iterator[str]:
    """What is wrong with a command's exit code, its messages, its memory and its time."""
    lines = [line for line in ended.err.splitlines() if line.startswith("streamvault: ") and "warning" not in line[:24]]
    if ended.code not in EXIT_CODES:
        yield f"exit code {ended.code}: {ended.err[-300:]!r}"
    elif ended.code and not (lines or ended.out):
        yield f"exit code {ended.code} without a word"
    if "Traceback" in ended.err or "internal error" in ended.err or "panicked" in ended.err:
        yield f"internal error: {ended.err[-400:]!r}"
    if any(len(line) > 2_000 for line in ended.err.splitlines()):
        yield f"a line of {max(map(len, ended.err.splitlines()))} characters: {ended.err[:200]!r}"
    if ended.grown > MEBIBYTES or "short of memory" in ended.err:
        yield f"grew by {ended.grown} MiB: {ended.err[-200:]!r}"
    if ended.seconds > SECONDS:
        yield f"took {ended.seconds:.0f} s"


def _in_turn(verbs: Sequence[Verb], count: int, rng: random.Random) -> Iterator[Verb]:
    """So many verbs, each once before any comes again."""
    return islice(cycle(rng.sample(verbs, len(verbs))), count)


def attack_files(site: Site, count: int, rng: random.Random, found: Runs) -> None:
    """Run so many commands on an archive with one hostile file each."""
    for verb in _in_turn(OF_ARCHIVES, count, rng):
        what = hostile_file(rng, site.folder / ARCHIVE)
        _judge(site, verb, f"file {what}", "files", found)


def attack_queue(site: Site, count: int, rng: random.Random, found: Runs) -> None:
    """Run so many commands on a queue with a hostile entry."""
    for verb in _in_turn(OF_QUEUES, count, rng):
        entry, what = entry_of(rng)
        queue = StreamName("demo", "queue")
        with LocalStore(site.folder / "streams") as store, store.appender(queue, SegmentId(0, 0)) as appender:
            appender.append(entry)
            appender.flush()
        _judge(site, verb, f"entry {what}", "queue", found)


def attack_s3(site: Site, count: int, rng: random.Random, found: Runs) -> None:
    """Run so many commands on an archive behind an S3 server that lies."""
    objects = {key: data for key, data in objects_below(site.folder) if key.startswith("root/")}
    with HostileS3(objects, rng.randrange(2**32)) as server:
        for verb in _in_turn((*OF_ARCHIVES, *OF_COLD), count, rng):
            server.objects = dict(objects)
            server.how = rng.choice(LIES)
            server.after = rng.choice((0, 0, 1, 2, 4, 8, 16, 32))
            what = f"{server.how} after {server.after}"
            _judge(site, verb, what, "s3", found, server)
            if server.told:
                found.broken.append(f"{verb.text} | {what}: sent another host {server.told}")
                server.told.clear()


def attack_pravega(site: Site, count: int, rng: random.Random, found: Runs) -> None:
    """Run so many commands on a stream of a Pravega that lies."""
    with LocalStore(site.folder / "streams") as store:
        server = HostilePravega(store, store.describe(NAME), rng.random())
    with server:
        cluster = f"pravega://127.0.0.1:{server.port}"
        for verb in _in_turn(OF_STREAMS, count, rng):
            server.how = rng.choice((*CONTROLLER, *(f"wire:{one}" for one in SEGMENT_STORE)))
            server.after = rng.choice((0, 0, 1, 2, 4, 8, 16))
            what = f"{server.how} after {server.after}"
            _judge(site, verb, what, "pravega", found, C=cluster, S=f"{cluster}/{NAME}")


def _judge(
    site: Site, verb: Verb, what: str, kind: str, found: Runs, server: HostileS3 | None = None, **others: str
) -> None:
    def held() -> Held:
        stored = {} if server is None else server.objects
        return site.files() | {key: hashlib.sha256(data).digest() for key, data in stored.items()}

    before = held()
    environment = {"PRAVEGA_USERNAME": "hostile", "PRAVEGA_PASSWORD": "hostile"}  # so that there are tokens
    if server is not None:
        others["R"], environment = "s3://vault/root", server.environment
    ended = site.runs.run(site.filled(verb.text, **others), environment)
    found.kinds[kind] += 1
    found.refused[kind] += ended.code != 0
    found.grown, found.seconds = max(found.grown, ended.grown), max(found.seconds, ended.seconds)
    found.broken += [f"{kind}: {verb.text} | {what}: {text}" for text in site.wrong(verb, ended, before, held())]
    site.restore()


LIES = (*(f"list:{lie}" for lie in LISTINGS), *(f"body:{lie}" for lie in BODIES))
ATTACKS = {"files": attack_files, "queue": attack_queue, "s3": attack_s3, "pravega": attack_pravega}


def attack_commands(count: int, seed: int, only: Sequence[str] = ()) -> Runs:
    """Run so many commands on hostile input of each kind, in turn.

    Args:
        count: commands of each kind; of queues, a fifth. seed: of all chance. only: kinds, of `ATTACKS`.
    """
    found = Runs()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        site = Site(Path(folder))
        with site.runs:
            site.make()
            for name, attack in ATTACKS.items():
                if not only or name in only:
                    attack(site, count // 5 if name == "queue" else count, random.Random(f"{seed} {name}"), found)
    return found


def tried() -> set[str]:
    """The commands that are run."""
    return {verb.name for verb in (*OF_ARCHIVES, *OF_COLD, *OF_QUEUES, *OF_STREAMS)}
