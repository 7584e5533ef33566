"""Copies, replicas, promotions, moves and translations that are refused: one line, exit code, nothing written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamvault.cli import main
from streamvault.importer.target import lease_stream
from streamvault.streamstore.errors import AccessDenied
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, StreamConfiguration, StreamName
from streamvault.streamstore.own import TARGET_LEDGER, stream_beside
from streamvault.streamstore.pravega.connection import PravegaSettings
from testkit.small_archives import LocalStreams
from testkit.streams import append_events, frame, make_stream
from tests.told import Ran, assert_ends

SOURCE, TARGET, OTHER = (StreamName("shop", name) for name in ("orders", "standby", "other"))
LEDGER, LEASE = stream_beside(TARGET, TARGET_LEDGER), lease_stream(TARGET)
INLINE = ("--master", "inline")
COPIES = ("copy", "replicate", "move")


class World(LocalStreams):
    """An embedded store with a stream, and a second name for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "streams")

    def uri(self, name: StreamName = TARGET, folder: str = "streams") -> str:
        return f"local://{self.folder}/{folder}/{name}"

    @property
    def source(self) -> str:
        return self.uri(SOURCE)

    @property
    def archive(self) -> str:
        return f"file://{self.folder}/vault/{SOURCE}"

    def run(self, verb: str, *options: str, source: str = "", target: StreamName = TARGET) -> None:
        """Run a command that succeeds."""
        sources = () if verb == "promote" else (source or self.source,)
        assert main([verb, *sources, self.uri(target), *INLINE, *options]) == 0

    def killed(self, verb: str, method: str, name: StreamName = TARGET, *options: str) -> None:
        """Run a command that is killed when it is about to make a change to a stream."""
        real = getattr(LocalStore, method)

        def call(store: LocalStore, stream: StreamName, *args: object, **given: object) -> object:
            if stream == name:
                raise KeyboardInterrupt
            return real(store, stream, *args, **given)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LocalStore, method, call)
            patched.setattr(Lease, "release", lambda lease, **_: lease._stop.set() or lease._appender.close())
            sources = () if verb == "promote" else (self.source,)
            assert main([verb, *sources, self.uri(), *INLINE, *options]) == 130

    def make(self, name: StreamName = TARGET, **options: Any) -> None:
        with self.store as store:
            make_stream(store, name, events=30, largest=500, **options)

    def add(self, name: StreamName = SOURCE, event: bytes = b"added") -> None:
        with self.store as store:
            for segment in store.describe(name).tail.offsets:
                append_events(store, name, segment, [event])

    def append(self, block: bytes, name: StreamName = TARGET) -> None:
        with self.store as store, store.appender(name, max(store.describe(name).tail.offsets)) as appender:
            appender.append(block)

    def truncate(self, name: StreamName = SOURCE) -> None:
        with self.store as store:
            store.truncate(store.describe(name).tail)

    def scale(self, name: StreamName = TARGET) -> None:
        with self.store as store:
            segment, held = max(store.describe(name).epochs[-1].segments.items())
            middle = (held.low + held.high) / 2
            store.scale(name, [segment], [KeyRange(a, b) for a, b in pairwise((held.low, middle, held.high))])

    def make_again(self) -> None:
        self.delete(SOURCE)
        self.make(SOURCE)

    def use_up(self) -> None:
        """Use the target's name once."""
        self.make()
        self.delete(TARGET)

    def state(self) -> Mapping[StreamName, Any]:
        """Shape, lengths and seal of every stream."""
        found = {}
        with self.store as store:
            for name in [name for scope in store.list_scopes() for name in store.list_streams(scope, own=True)]:
                described = store.describe(name)
                infos = store.segment_info(
                    name, list(dict.fromkeys([*described.head.offsets, *described.tail.offsets]))
                )
                found[name] = (described, infos)
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world").resolve())
    world.make(SOURCE)
    (world.folder / "link").symlink_to("streams")
    (world.folder / "vault").mkdir()
    return world


@pytest.fixture
def world(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    shutil.copytree(made.folder, tmp_path / "world", symlinks=True)
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    return World(tmp_path.resolve() / "world")


@dataclass(frozen=True)
class Bad:
    """A command line that cannot succeed.

    Attributes:
        name: of the case. arguments: made for a world. code: the exit code. line: what the message matches. spoil: done
        to the world before.
    """

    name: str
    arguments: Callable[[World], tuple[str, ...]]
    code: int
    line: str
    spoil: Callable[[World], object] = field(default=lambda _: None)


def command(
    verb: str, *options: str, source: StreamName | str = SOURCE, target: StreamName | str = TARGET
) -> Callable[[World], tuple[str, ...]]:
    """A verb with a source and a target, each a stream of the world or a URI."""

    def made(world: World) -> tuple[str, ...]:
        uris = [one if isinstance(one, str) else world.uri(one) for one in (source, target)]
        return (verb, *(uris[1:] if verb == "promote" else uris), *INLINE, *options)

    return made


def both(*steps: Callable[[World], object]) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        for step in steps:
            step(world)

    return spoil


def cases(
    verbs: Iterable[str] | Mapping[str, Callable[[World], object]],
    what: str,
    code: int,
    line: str,
    *spoils: Callable[[World], object],
    **places: StreamName | str,
) -> list[Bad]:
    """A case of each verb, which may have options, and for which a mapping has what makes its unfinished target."""
    first = verbs if isinstance(verbs, Mapping) else {}
    return [
        Bad(
            f"{verb}, {what}",
            command(*verb.split(), **places),
            code,
            line,
            both(*([first[verb]] if verb in first else []), *spoils),
        )
        for verb in verbs
    ]


def replicated(*options: str) -> Callable[[World], None]:
    return lambda w: w.run("replicate", *options)


def copied(world: World) -> None:
    """Leave an unfinished copy that has everything."""
    world.killed("copy", "update_stream")


def killed_import(world: World) -> None:
    with pytest.MonkeyPatch.context() as patched:

        def call(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patched.setattr(LocalStore, "update_stream", call)
        assert main(["import", world.archive, world.uri(), *INLINE]) == 130


def archived(world: World) -> None:
    assert main(["export", world.source, f"file://{world.folder}/vault", *INLINE]) == 0


def replicated_archive(world: World) -> None:
    archived(world)
    world.run("replicate", source=world.archive)


def replicated_other(world: World) -> None:
    world.make(OTHER)
    world.run("replicate", source=world.uri(OTHER))


def promotion_killed(world: World) -> None:
    world.run("replicate")
    world.killed("promote", "update_stream")


def own_stream(name: StreamName) -> Callable[[World], None]:
    def make(world: World) -> None:
        world.create_stream(name, StreamConfiguration())

    return make


HERE = r"local:///.*/streams/shop/"
STANDBY, ORDERS = HERE + "standby", HERE + "orders"
NOPE = StreamName("shop", "nope")
PROMOTE = ("promote", "promote --seal-source")
SAME = [
    *(
        Bad(
            f"{verb}, the same stream{by}",
            lambda w, verb=verb, folder=folder: (verb, w.source, w.uri(SOURCE, folder), *INLINE),  # type: ignore[misc]
            2,
            r"source and target are the same stream: local:///.*/shop/orders\. Give the target another name\.",
        )
        for verb in COPIES
        for by, folder in (("", "streams"), (" by a link", "link"))
    ),
    *(
        case
        for name, uri in (
            ("by another name", "pravega://LOCALHOST:1"),
            ("with TLS", "pravega+tls://127.0.0.1:1"),
            ("with zeros", "pravega://127.0.0.1:00001"),
        )
        for case in cases(
            COPIES,
            f"the same stream of a cluster, {name}",
            2,
            r"source and target are the same stream: pravega.*",
            source="pravega://127.0.0.1:1/shop/orders",
            target=f"{uri}/shop/orders",
        )
    ),
    Bad(
        "a scope for a stream",
        lambda w: ("copy", w.source, f"{w.source}/", *INLINE),
        2,
        r"a scope as the target requires a scope as the source: .*",
    ),
    Bad(
        "a login in the target's URI",
        command("replicate", target="pravega://me:secret@h:1/a/b"),
        2,
        r"not a stream's URI \(it must not contain credentials.*",
    ),
]

COPIED, MOVED, PROMOTED = (lambda w, verb=verb: w.run(verb) for verb in ("copy", "move", "promote"))  # type: ignore[misc]
SOURCES = [
    *cases(COPIES, "no such stream", 5, rf"no such stream: {HERE}nope", source=NOPE),
    *cases(COPIES, "no such scope", 5, r"no such scope: local.*/nope", source=StreamName("nope", "x")),
    Bad(
        "replicate, no such archive",
        lambda w: ("replicate", f"{w.archive}-2", w.uri(), *INLINE),
        5,
        r"no archive: file:///.*/vault/shop/orders-2.*",
    ),
    *cases(
        COPIES,
        "of an unfinished replica",
        4,
        rf"this is an internal stream .*: {STANDBY}\. .*",
        replicated(),
        source=TARGET,
        target=OTHER,
    ),
    *cases(
        COPIES,
        "of a stream that was moved",
        4,
        rf"the stream was moved: {ORDERS}\. It is {STANDBY} now\.",
        MOVED,
        target=OTHER,
    ),
    *cases(
        {
            "copy --numbers keep": copied,
            "replicate --numbers keep": replicated("--numbers", "keep"),
            "move --numbers keep": replicated("--numbers", "keep"),
        },
        "source made again",
        4,
        r"the source (was|has been) deleted and created again.*(shop/orders|shop/standby)\. .*",
        World.make_again,
    ),
    *cases(
        ["copy"],
        "source of a finished copy made again",
        4,
        rf"the source has been deleted and created again since it was copied: {STANDBY}\. .*",
        COPIED,
        World.make_again,
    ),
    *cases(
        ["promote --seal-source"],
        "source made again",
        4,
        rf"the source was deleted and created again, .*: {ORDERS}\. Promote {STANDBY} as it is, .*",
        replicated(),
        World.make_again,
    ),
    *cases(
        ["replicate --keep-head", "promote --seal-source", "move"],
        "source truncated past the replica",
        4,
        rf"the source was truncated beyond what the replica has, .*: {ORDERS}, head .*\. Promote {STANDBY} .*",
        replicated("--keep-head"),
        World.add,
        World.truncate,
    ),
]

REFUSING = {"copy": copied, **dict.fromkeys(("replicate", "move", "promote --seal-source"), replicated())}
"""Verbs that go on with an unfinished target, and how one is made."""
UNFINISHED_OF_ANOTHER = rf"the stream is the unfinished target of another import, copy or replication: {STANDBY}\. .*"
TARGETS = [
    *cases(COPIES, "a user's stream", 4, rf"the stream exists: {STANDBY}\. Choose .*", World.make),
    *cases(COPIES, "an unfinished import", 4, UNFINISHED_OF_ANOTHER, archived, killed_import),
    *cases(COPIES, "a replica of another stream", 4, UNFINISHED_OF_ANOTHER, replicated_other),
    *cases(["replicate", "move"], "an unfinished copy", 4, UNFINISHED_OF_ANOTHER, copied),
    *cases(["replicate", "move"], "a finished copy", 4, rf"the stream exists: {STANDBY}\. .*", COPIED),
    *(
        case
        for verb, code in (("copy", 4), ("replicate", 6), ("move", 4))
        for case in cases(
            [verb],
            "a promoted replica",
            code,
            rf"the stream (exists|is a promoted replica of {ORDERS}): {STANDBY}\. .*",
            replicated(),
            PROMOTED,
        )
    ),
    *cases(
        COPIES,
        "an internal stream",
        4,
        rf"this is an internal stream .*: {HERE}{LEDGER.stream}\. .*",
        replicated(),
        target=LEDGER,
    ),
    *cases(
        {**REFUSING, "promote": replicated()},
        "target sealed",
        4,
        rf"the unfinished stream was sealed: {STANDBY}\. (Choose another name|It can still be read).*",
        lambda w: w.seal(TARGET),
    ),
    *cases(
        REFUSING,
        "target written to",
        4,
        r"the unfinished stream was written to by another process; the source has \d+ bytes: "
        rf"{STANDBY}/\d+\.#epoch\.\d+ offset \d+\. .*",
        lambda w: w.append(frame(b"foreign")),
    ),
    *cases(
        REFUSING,
        "source and target written to",
        4,
        r"the target differs from the source, from offset \d+ on: "
        rf"{STANDBY}/\d+\.#epoch\.\d+\. Something else wrote to it.*",
        lambda w: w.append(frame(b"foreign")),
        lambda w: w.add(event=b"not that"),
    ),
    *(
        case
        for what, harm in (("scaled", World.scale), ("truncated", World.truncate))
        for case in cases(
            REFUSING,
            f"target {what}",
            4,
            rf"the unfinished stream was {what} by another process: {STANDBY}\. .*",
            lambda w, harm=harm: harm(w, TARGET),  # type: ignore[misc]
        )
    ),
    *cases(
        ["copy"],
        "a finished copy that was written to",
        4,
        rf"the copy has been written to since: {STANDBY}: .*",
        COPIED,
        lambda w: w.add(TARGET),
    ),
    *cases(
        [f"{verb} --numbers keep" for verb in COPIES],
        "a name that was used before",
        4,
        rf"the name was used before, so segments would be numbered from \d+, not 0: {STANDBY}\. .*--numbers map.*",
        World.use_up,
    ),
    *(
        case
        for what, name in (("ledger", LEDGER), ("lease", LEASE))
        for case in cases(
            [f"{verb} --offsets shift" for verb in COPIES],
            f"the {what}'s name taken",
            4,
            rf".*name.* {what}.* taken.*: {HERE}{name.stream}\. Rename or delete it.*",
            own_stream(name),
        )
    ),
]
NO_REPLICA = rf"the stream is not a replica: {STANDBY}\. 'streamvault replicate' makes one\."
OF_AN_ARCHIVE = r"--seal-source requires a replica of a stream; .*: file:///.*/orders\. Promote without --seal-source\."
NOT_ENDED = rf"a promotion of the replica has not finished: {STANDBY}\. .*"
MAY_BE_WRITTEN_TO = (
    rf"the replica was promoted without sealing the stream, which may have been written to since: {ORDERS}\. "
    rf"Run 'streamvault promote {STANDBY}', .*"
)
PROMOTIONS = [
    *cases(["promote"], "no such stream", 5, rf"no such stream: {STANDBY}"),
    *cases(PROMOTE, "a user's stream", 4, NO_REPLICA, World.make),
    *cases(PROMOTE, "an unfinished copy", 4, NO_REPLICA, copied),
    *cases(PROMOTE, "a finished copy", 4, NO_REPLICA, COPIED),
    *cases(
        PROMOTE,
        "the ledger gone",
        4,
        rf"the replica's ledger is gone: {STANDBY}\. Replicate once more, .*",
        replicated(),
        lambda w: w.delete(LEDGER),
    ),
    *cases(
        ["replicate --offsets shift"],
        "the ledger gone",
        4,
        rf"the replica's ledger, .*, is missing: {STANDBY}\. Replicate into another stream\. .*",
        replicated("--offsets", "shift"),
        lambda w: w.delete(LEDGER),
    ),
    *cases(
        ["promote"],
        "no round finished",
        1,
        rf"the replica begins with filler, .*: {STANDBY}\. Replicate once more .*",
        lambda w: w.killed("replicate", "scale"),
        lambda w: w.delete(LEASE),
    ),
    *cases(
        ["promote"],
        "half an event",
        1,
        rf"the replica ends inside an event, .*: {STANDBY}/.* offset \d+\. .*",
        replicated(),
        lambda w: w.append(frame(b"x" * 20)[:-5]),
    ),
    *cases(["promote --seal-source"], "a replica of an archive", 2, OF_AN_ARCHIVE, replicated_archive),
    *cases(
        ["promote --seal-source"], "a promoted replica of an archive", 2, OF_AN_ARCHIVE, replicated_archive, PROMOTED
    ),
    *cases(
        ["promote --seal-source"],
        "source gone",
        5,
        rf"no such stream: {ORDERS}\. Promote without --seal-source to take the replica as it is\.",
        replicated(),
        lambda w: w.delete(SOURCE),
    ),
    *cases(
        ["promote --seal-source"],
        "promoted without it",
        4,
        rf"the replica was promoted before, without sealing its source: {ORDERS}\. .*",
        replicated(),
        PROMOTED,
    ),
    *cases(
        ["promote --seal-source"],
        "a promotion without it unfinished",
        4,
        rf"a promotion of the replica without sealing its source has not finished: {STANDBY}\. .*",
        promotion_killed,
        lambda w: w.delete(SOURCE),
    ),
    *cases(["replicate"], "a promotion unfinished, source there", 6, NOT_ENDED, promotion_killed),
    *cases(
        ["replicate"],
        "a promotion unfinished, source gone",
        6,
        NOT_ENDED,
        promotion_killed,
        lambda w: w.delete(SOURCE),
    ),
    *cases(
        ["replicate"], "a promotion unfinished, source made again", 6, NOT_ENDED, promotion_killed, World.make_again
    ),
    *cases(
        ["replicate"],
        "a promotion of another stream's replica unfinished",
        4,
        NOT_ENDED,
        promotion_killed,
        source=NOPE,
    ),
    *(
        case
        for name, spoils in {
            "open": [],
            "written to": [World.add],
            "written to and sealed": [World.add, lambda w: w.seal(SOURCE)],
            "scaled and sealed": [lambda w: w.scale(SOURCE), lambda w: w.seal(SOURCE)],
        }.items()
        for case in cases(
            ["move"], f"a promotion unfinished, source {name}", 4, MAY_BE_WRITTEN_TO, promotion_killed, *spoils
        )
    ),
    *cases(
        ["move"],
        "promoted, source written to and sealed",
        4,
        rf"the stream is a promoted replica of {ORDERS}: {STANDBY}\. .*",
        replicated(),
        PROMOTED,
        World.add,
        lambda w: w.seal(SOURCE),
    ),
]
OPTIONS = [
    *cases(
        [f"replicate {option} 1s" for option in ("--every", "--idle", "--for")],
        "without --follow",
        2,
        r"--every, .* require --follow.*",
    ),
    *cases(
        [f"{verb} --filler-limit 7" for verb in COPIES],
        "more filler than allowed",
        2,
        r"keeping offsets needs \d+ bytes of filler, more than --filler-limit 7: .*Use --offsets shift.*",
    ),
    *cases(
        ["replicate --offsets shift", "replicate --numbers keep", "move --numbers keep"],
        "other options",
        4,
        rf"the replica was started with --offsets keep --numbers map: {STANDBY}\. Give these options, .*",
        replicated(),
    ),
    *cases([f"{verb} --master mesos" for verb in COPIES], "--master", 2, r"not a Spark master: 'mesos'.*"),
    *(
        Bad(
            f"copy {option}, a cut of another stream",
            command("copy", option, json.dumps({"shop/other/0.#epoch.0": 0})),
            2,
            r".*names a segment of another stream.*",
        )
        for option in ("--from", "--to")
    ),
]


def translation(
    what: str, position: str, code: int, line: str, *spoils: Callable[[World], object], source: StreamName = SOURCE
) -> Bad:
    return Bad(
        f"translate, {what}", lambda w: ("translate", w.uri(source), w.uri(), position), code, line, both(*spoils)
    )


TRANSLATIONS = [
    translation("no such stream", "shop/orders/0.#epoch.0:0-8", 5, rf"no such stream: {STANDBY}"),
    translation(
        "no such source", "shop/nope/0.#epoch.0:0-8", 5, rf"no such stream: {HERE}nope", replicated(), source=NOPE
    ),
    translation(
        "another stream's position",
        "shop/other/0.#epoch.0:0-8",
        2,
        r"the position belongs to another stream: shop/other, not shop/orders\. Give the archive or .*",
        replicated(),
    ),
    translation(
        "a segment that the source never had",
        "shop/orders/99.#epoch.9:0-8",
        1,
        rf"no segment of the stream corresponds to this one: shop/orders/99\.#epoch\.9: 0\. Check .*{STANDBY} .*",
        replicated(),
    ),
    translation(
        "beyond the end",
        "shop/orders/1.#epoch.0:1000000-8",
        1,
        rf"the position (lies beyond the end of|was truncated in) {STANDBY}/.*: shop/orders/1\.#epoch\.0: 1000000\. .*",
        replicated(),
    ),
]


@pytest.mark.parametrize(
    "bad", [*SAME, *SOURCES, *TARGETS, *PROMOTIONS, *OPTIONS, *TRANSLATIONS], ids=lambda bad: bad.name
)
def test_command_is_refused_and_has_written_nothing(world: World, bad: Bad, capfd: pytest.CaptureFixture[str]) -> None:
    bad.spoil(world)
    before = world.state()
    assert_ends(bad.arguments(world), bad.code, bad.line, capfd)
    if bad not in TRANSLATIONS:
        only_tried = "used before" in bad.name or "name taken" in bad.name
        assert main([*bad.arguments(world), "--dry-run"]) in ((0, bad.code) if only_tried else (bad.code,))
    assert world.state() == before


@contextmanager
def denied(method: str, folder: Path, name: StreamName | None = None) -> Iterator[str]:
    """Let one store deny a call, as a cluster does whose login is wrong, or has not every right; yield its message."""
    real = getattr(LocalStore, method)
    line = f"Pravega denied it: local://{folder}"

    def call(store: LocalStore, stream: StreamName, *args: object, **given: object) -> object:
        if store.uri == f"local://{folder}" and name in (None, stream):
            raise AccessDenied("Pravega denied it", where=store.uri)
        return real(store, stream, *args, **given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalStore, method, call)
        yield re.escape(line)


def without_ledgers(state: Mapping[StreamName, object]) -> Mapping[StreamName, object]:
    return {name: found for name, found in state.items() if name != LEDGER}


def test_source_that_must_not_be_sealed_stays_open(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.run("replicate")
    world.add()
    before = world.state()
    with denied("seal", world.folder / "streams", SOURCE) as line:
        assert_ends(command("promote", "--seal-source")(world), 1, line, capfd)
    assert world.state()[SOURCE] == before[SOURCE]
    world.run("replicate")
    world.run("promote")
    assert not world.describe(SOURCE).sealed
    assert not world.describe(TARGET).sealed


@pytest.mark.parametrize("method", ["seal", "delete"])
def test_move_without_every_right_goes_on_once_it_has_them(
    world: World, method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with denied(method, world.folder / "streams", SOURCE) as line:
        assert_ends(command("move")(world), 1, line, capfd)
    events = world.digest(SOURCE)
    world.run("move")
    assert world.digest(TARGET) == events
    assert world.describe(SOURCE).sealed
    assert not world.describe(TARGET).sealed
    assert world.state().keys() == {SOURCE, TARGET}


@pytest.mark.parametrize("refusing", ["streams", "standby"])
@pytest.mark.parametrize("verb", [*COPIES, "promote", "translate"])
def test_error_names_the_cluster_that_refused_the_login(
    world: World, verb: str, refusing: str, capfd: pytest.CaptureFixture[str]
) -> None:
    target = world.uri(TARGET, "standby")
    arguments = {
        "promote": ("promote", target, "--seal-source", *INLINE),
        "translate": ("translate", world.source, target, "shop/orders/0.#epoch.0:0-8"),
    }.get(verb, (verb, world.source, target, *INLINE))
    with LocalStore(world.folder / "standby") as store:
        store.create_scope("shop")
    if verb in {"promote", "translate"}:
        assert main(["replicate", world.source, target, *INLINE]) == 0
    with denied("describe", world.folder / refusing) as line, denied("exists", world.folder / refusing):
        assert_ends(arguments, 1, line, capfd)
    with LocalStore(world.folder / "standby") as store:
        made = list(store.list_streams("shop", own=True))
    assert made == ([TARGET, LEDGER] if verb in {"promote", "translate"} else [])
    assert not world.state()[SOURCE][0].sealed


def test_move_goes_on_after_a_promotion_if_nothing_was_written(world: World) -> None:
    events = world.digest(SOURCE)
    promotion_killed(world)
    world.seal(SOURCE)
    world.run("move", "--dry-run")
    world.run("move", "--no-tombstone")
    assert world.digest(TARGET) == events
    assert world.state().keys() == {TARGET}


def test_moved_replica_keeps_what_it_was_to_keep(world: World) -> None:
    events = world.digest(SOURCE)
    world.run("replicate", "--keep-head")
    world.truncate()
    world.run("move")
    assert world.digest(TARGET) == events


@pytest.mark.parametrize("options", [(), ("--offsets", "shift")])
def test_replication_killed_before_its_ledger_was_begun_is_resumed(world: World, options: tuple[str, ...]) -> None:
    world.killed("replicate", "create_stream_and_scope", LEDGER, *options)
    assert world.state().keys() == {SOURCE, TARGET, LEASE}
    world.truncate()
    world.add()
    world.run("replicate", *options)
    world.run("promote")
    copied, expected = (world.payloads(name) for name in (TARGET, SOURCE))
    assert copied == expected
    assert world.state().keys() == {SOURCE, TARGET}


def test_translate_has_a_login_for_each_cluster(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    for variable in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"PRAVEGA_{variable}", "here")
        monkeypatch.setenv(f"PRAVEGA_TARGET_{variable}", "there")
    opened = []

    def refuse(settings: PravegaSettings) -> None:
        opened.append((settings.host, settings.username, settings.password))
        if settings.host == "two":
            raise AccessDenied("denied")

    monkeypatch.setattr(
        "streamvault.streamstore.pravega.store.PravegaStore.__init__", lambda _, settings: refuse(settings)
    )
    monkeypatch.setattr("streamvault.streamstore.pravega.store.PravegaStore.close", lambda _: None)
    described = SimpleNamespace(epochs=SimpleNamespace(changes=()))
    monkeypatch.setattr("streamvault.streamstore.pravega.store.PravegaStore.describe", lambda *_: described)
    position = "shop/orders/0.#epoch.0:0-8"
    assert (
        ran("translate", "pravega://one:1/shop/orders", "pravega://two:1/shop/orders", position, code=1).err
        == "streamvault: denied\n"
    )
    assert opened == [("one", "here", "here"), ("two", "there", "there")]
