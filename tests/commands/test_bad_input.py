"""User errors and damage: each has its exit code, and one line that says what, where, and what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from streamvault import export_stream, show_archive
from streamvault.cli import main
from streamvault.manifests.files import seal
from streamvault.objectstore import retrying
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.pravega.connection import PravegaSettings
from testkit.commands import run
from testkit.servers.process import free_ports
from testkit.streams import append_events
from tests.told import assert_ends, assert_told

NAME = StreamName("shop", "orders")
INLINE = ("--master", "inline")
RANGE_SIZE = 256
HELD = 675
"""Bytes of each of the stream's two segments: payloads of 0 to 29 bytes. Events begin at 0, 8, 17, 27, …"""

MANIFEST = "_manifest/0000000001.json"
RANGES = "_manifest/0000000001.ranges.parquet"
SERVER_DOWN = 60.0
"""Maximum seconds until a command gives up on a server that does not answer."""


@dataclass(frozen=True)
class World:
    """An embedded stream ``shop/orders`` of two segments, its archive in a folder, and space for more."""

    folder: Path

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "streams")

    def stream(self, name: str = "shop/orders") -> str:
        return f"local://{self.folder}/streams/{name}"

    def root(self, name: str = "vault") -> str:
        return f"file://{self.folder}/{name}"

    @property
    def archive(self) -> str:
        return f"{self.root()}/{NAME}"

    @property
    def files(self) -> Path:
        """The archive's folder."""
        return self.folder / "vault" / "shop" / "orders"

    def event(self, number: int) -> Path:
        """One of the first segment's objects."""
        return sorted((self.files / "events" / "0000000000.0000000000").iterdir())[number]

    def change_manifest(self, change: Callable[[dict[str, object]], object]) -> None:
        """Rewrite the manifest."""
        file = self.files / MANIFEST
        manifest = json.loads(file.read_text())
        change(manifest)
        file.write_bytes(seal(manifest))

    def put(self, key: str, value: object) -> None:
        """Set a field of the manifest."""
        self.change_manifest(lambda manifest: manifest.update({key: value}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world").resolve())
    with world.store as store:
        store.create_scope("shop")
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
        for segment in store.describe(NAME).tail.offsets:
            assert append_events(store, NAME, segment, [b"x" * size for size in range(30)]) == HELD
    export_stream(world.stream(), world.root(), range_size=RANGE_SIZE, master="inline")
    return world


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    """A copy that a test may damage."""
    shutil.copytree(made.folder, tmp_path / "world", symlinks=True)
    return World(tmp_path.resolve() / "world")


def cut(first: object, second: object, *, stream: str = "shop/orders", other: str = "1.#epoch.0") -> str:
    return json.dumps({f"{stream}/0.#epoch.0": first, f"{stream}/{other}": second})


@dataclass(frozen=True)
class Bad:
    """A command line that cannot succeed.

    Attributes:
        name: of the case. arguments: made for a world. code: the exit code. line: what the message matches.
        spoil: done to the world before.
    """

    name: str
    arguments: Callable[[World], tuple[str, ...]]
    code: int
    line: str
    spoil: Callable[[World], object] = field(default=lambda _: None)


def exporting(*options: str, name: str = "shop/orders", root: str = "elsewhere") -> Callable[[World], tuple[str, ...]]:
    return lambda world: ("export", world.stream(name), world.root(root), *INLINE, *options)


def importing(*options: str, target: str = "shop/restored") -> Callable[[World], tuple[str, ...]]:
    return lambda world: ("import", world.archive, world.stream(target), *INLINE, *options)


NAMES_AND_PLACES = [
    Bad(
        "a stream's unknown scheme",
        lambda w: ("export", "kafka://h:1/a/b", w.root(), *INLINE),
        2,
        r"not a stream's URI: 'kafka://h:1/a/b'\. Write pravega://.*",
    ),
    Bad(
        "a root's unknown scheme",
        lambda w: ("export", w.stream(), "ftp://host/x", *INLINE),
        2,
        r"not a root URI: 'ftp://host/x'\. A root is s3://.*",
    ),
    Bad(
        "an archive's unknown scheme",
        lambda w: ("import", "ftp://host/a/b", w.stream(), *INLINE),
        2,
        r"not an archive URI: 'ftp://host/a/b'\. An archive is ROOT/SCOPE/STREAM\. A root is s3://.*",
    ),
    Bad("a root for a stream", lambda w: ("import", w.archive, "s3://b/x/y"), 2, r"not a stream's URI: 's3://b/x/y'.*"),
    Bad("a stream without scope", lambda w: ("export", "local:///x", w.root()), 2, r".*SCOPE/STREAM is missing.*"),
    Bad("a name that no stream has", exporting(name="a_b/c"), 2, r"invalid scope name: 'a_b'\. Use letters.*"),
    Bad(
        "a folder that is not absolute",
        lambda w: ("export", w.stream(), "file://vault"),
        2,
        r"not an absolute folder: 'file://vault'.*",
    ),
    Bad("a root that climbs", lambda w: ("export", w.stream(), "s3://bucket/../x"), 2, r"invalid prefix.*"),
    Bad("no such scope", exporting(name="nope/orders"), 5, r"no such scope: local:///.*/streams/nope"),
    Bad("no such stream", exporting(name="shop/nope"), 5, r"no such stream: local:///.*/streams/shop/nope"),
    Bad("no such root", exporting(root="a/b/c"), 5, r"no such folder: file:///.*/a/b/c\. Create it.*"),
    Bad(
        "no such archive to import",
        lambda w: ("import", f"{w.root()}/shop/nope", w.stream("a/b"), *INLINE),
        5,
        r"no archive: file:///.*/vault/shop/nope\. 'streamvault ls ROOT'.*",
    ),
    Bad("no such archive to show", lambda w: ("show", f"{w.root()}/shop/nope"), 5, r"no archive: file:///.*"),
    Bad("no such archive to check", lambda w: ("check", f"{w.root()}/shop/nope"), 5, r"no archive: file:///.*"),
    Bad(
        "no such generation to show",
        lambda w: ("show", w.archive, "--generation", "9"),
        5,
        r"no generation 9: .*\. Available: 1\.",
    ),
    Bad("no such generation to import", importing("--generation", "9"), 5, r"no generation 9: .*/shop/orders.*"),
    Bad("no such master", exporting("--master", "mesos"), 2, r"not a Spark master: 'mesos'\. Use auto, local\[N\].*"),
    Bad(
        "a range size of nothing",
        exporting("--range-size", "0"),
        2,
        r"--range-size must be at least 1: 0\. A size without .*",
    ),
    Bad("events compressed", exporting("--compress", "zstd"), 2, r"layout events does not support the compression: .*"),
    Bad("a window too small", exporting("--window", "1MiB"), 2, r"--window must be at least 16MiB: 1MiB"),
    Bad(
        "a target that exists",
        importing(target="shop/orders"),
        4,
        r"this is the archived stream itself, and nothing was restored into it: local://.*/shop/orders\. Give .*",
    ),
]

CUTS = [
    Bad("a cut that is no JSON", exporting("--from", "{"), 2, r"a stream cut is not JSON: --from: .*"),
    Bad("a cut that is no file", exporting("--to", "no.json"), 2, r"--to cannot be read: no\.json: No such file.*"),
    Bad("a cut of nothing", exporting("--to", "[]"), 2, r"a stream cut is a JSON object .*: --to: .*"),
    Bad("a negative offset", importing("--from", cut(0, -2)), 2, r"an offset in the stream cut is not .*: -2"),
    Bad("the end of an open segment", importing("--from", cut(0, -1)), 2, r"offset -1 in the stream cut .*open.*"),
    Bad("an offset in words", exporting("--from", cut(0, "8")), 2, r"an offset in the stream cut is not .*: '8'"),
    Bad("export, after the end", exporting("--from", cut(8, 8), "--to", cut(0, 8)), 2, r"the first cut lies after .*"),
    Bad("import, after the end", importing("--from", cut(8, 8), "--to", cut(0, 8)), 2, r"the first cut lies after .*"),
    Bad(
        "a generation that starts elsewhere",
        exporting("--from", cut(8, 8), root="vault"),
        2,
        r"--from is not where the archive ends: shop/orders, generation 1\. Omit it.*",
    ),
    Bad(
        "more filler than allowed",
        importing("--from", cut(8, 8), "--filler-limit", "7"),
        2,
        r"keeping offsets needs 8 bytes of filler, .*Use --offsets shift.*",
    ),
    *(
        Bad(f"{verb}, {option}, {name}", command(option, text), 2, line)
        for verb, command in (("export", exporting), ("import", importing))
        for option in ("--from", "--to")
        for name, text, line in (
            (
                "another stream",
                cut(0, 0, stream="shop/other"),
                r".*names a segment of another stream: shop/other/0\.#epoch\.0",
            ),
            (
                "a segment of another stream",
                cut(0, 0, other="7.#epoch.3"),
                r".*never had: offset 0 of shop/orders/7\.#epoch\.3",
            ),
            ("a half", json.dumps({"shop/orders/0.#epoch.0": 0}), r".*names no segment for the keys from 0\.5 .*"),
            ("beyond the tail", cut(0, HELD + 1), r"the stream cut lies beyond .*676 of shop/orders/1\.#epoch\.0"),
        )
    ),
    *(
        Bad(
            f"export, {option} the middle of an event",
            exporting(option, cut(8, 30)),
            2,
            r"the stream cut lies inside an event \(.*\): shop/orders/1\.#epoch\.0",
        )
        for option in ("--from", "--to")
    ),
    *(
        Bad(
            f"import, {option} the middle of an event",
            importing(option, cut(8, 30)),
            2,
            r"the stream cut lies inside an event \(of 11 bytes at 27\): offset 30 of shop/orders/1\.#epoch\.0",
        )
        for option in ("--from", "--to")
    ),
]


@pytest.mark.parametrize("bad", [*NAMES_AND_PLACES, *CUTS], ids=lambda bad: bad.name)
def test_command_names_invalid_input(made: World, bad: Bad, capfd: pytest.CaptureFixture[str]) -> None:
    assert_ends(bad.arguments(made), bad.code, bad.line, capfd)
    with made.store as store:
        assert list(store.list_streams("shop", own=True)) == [NAME], "nothing was made"
    assert not (made.folder / "elsewhere" / "shop" / "orders" / "_manifest").exists()


def test_refused_cut_inside_an_event_does_not_block_a_valid_one(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """A plan that can never be finished is abandoned, with the data written for it."""
    inside = r"the stream cut lies inside an event .*"
    assert_ends(exporting("--to", cut(HELD, 30))(world), 2, inside, capfd)
    assert main([*exporting()(world)]) == 0
    assert main(["check", f"{world.root('elsewhere')}/{NAME}", "--read-data", *INLINE]) == 0
    with world.store as store:
        for segment in store.describe(NAME).tail.offsets:
            append_events(store, NAME, segment, [b"y" * 100] * 9)
    assert_ends(exporting("--to", cut(HELD + 9 * 108, HELD + 120))(world), 2, inside, capfd)
    assert main(["check", f"{world.root('elsewhere')}/{NAME}", "--read-data", *INLINE]) == 0
    assert main([*exporting()(world)]) == 0
    assert main(["check", f"{world.root('elsewhere')}/{NAME}", "--read-data", *INLINE]) == 0
    assert show_archive(f"{world.root('elsewhere')}/{NAME}").events == 18


HOSTILE = {
    "climbing": "../../etc",
    "absolute": "/etc/passwd",
    "control characters": "or\x1b[2Jders\n",
    "a slash": "orders/../..",
    "empty": "",
    "long": "x" * 5000,
}


def shorten(file: str) -> Callable[[World], object]:
    def spoil(world: World) -> None:
        path = world.files / file
        path.write_bytes(path.read_bytes()[:-40])

    return spoil


def in_segment(world: World, key: str, value: object) -> None:
    def change(manifest: dict[str, object]) -> None:
        segments = manifest["segments"]
        assert isinstance(segments, list)
        segments[0][key] = value

    world.change_manifest(change)


def rename_segments(name: str) -> Callable[[World], object]:
    return lambda world: in_segment(world, "name", name)


MANIFESTS = [
    ("cut short", shorten(MANIFEST), r"not complete JSON \(truncated\?\): .*0000000001\.json.*"),
    ("empty", lambda w: (w.files / MANIFEST).write_bytes(b""), r"not complete JSON.*"),
    ("binary", lambda w: (w.files / MANIFEST).write_bytes(bytes(range(256))), r"not complete JSON.*"),
    ("a list", lambda w: (w.files / MANIFEST).write_bytes(b"[]"), r"not a valid file: .*"),
    ("of format 3", lambda w: w.put("format", 3), r"unsupported format version: .*Use a newer release\."),
    ("of format -1", lambda w: w.put("format", -1), r"unsupported format version: .*"),
    ("of another generation", lambda w: w.put("generation", 7), r"the manifest belongs to another .*generation 7.*"),
    ("of another stream", lambda w: w.put("stream", "other"), r"(not a valid file|the manifest is of another).*"),
    ("with a total that is wrong", lambda w: w.put("events", 61), r"not a valid file: .*totals.*"),
    ("that ends before it starts", lambda w: in_segment(w, "end", -1), r"not a valid file: .*"),
    ("with another digest", lambda w: in_segment(w, "digest", "0" * 64), r"ranges and manifest do not agree .*"),
    ("of a segment it never had", rename_segments("shop/orders/9.#epoch.9"), r"not a valid file: .*"),
    *((f"with a hostile scope: {kind}", lambda w, name=name: w.put("scope", name), r".*0000000001\.json.*")
      for kind, name in HOSTILE.items()),
    *((f"with a hostile stream: {kind}", lambda w, name=name: w.put("stream", name), r".*0000000001\.json.*")
      for kind, name in HOSTILE.items()),
    *((f"with a hostile segment: {kind}", rename_segments(f"{name}/0.#epoch.0"), r"not a valid file: .*")
      for kind, name in HOSTILE.items()),
    ("whose index is missing", lambda w: (w.files / RANGES).unlink(), r"the index of ranges is missing: .*"),
    ("whose index is cut short", shorten(RANGES), r"the index of ranges is not that of the manifest .*"),
    ("whose index is empty", lambda w: (w.files / RANGES).write_bytes(b""), r"the index of ranges is not that .*"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "line"), [case[1:] for case in MANIFESTS], ids=[case[0] for case in MANIFESTS])
def test_damaged_manifest_is_reported(
    world: World, spoil: Callable[[World], object], line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(world)
    before = sorted(str(path) for path in world.folder.parent.rglob("*"))
    assert_ends(importing()(world), 3, line, capfd)
    assert_ends(("check", world.archive, *INLINE), 3, line, capfd)
    assert sorted(str(path) for path in world.folder.parent.rglob("*")) == before, "nothing was made anywhere"


def cut_decision(world: World) -> None:
    decision = world.files / "_manifest" / "decisions" / "0000000001.json"
    decision.parent.mkdir()
    decision.write_text('{"format": 1')


@pytest.mark.parametrize("spoil", [shorten(MANIFEST), cut_decision], ids=["manifest", "decision"])
def test_damaged_file_does_not_hide_other_archives(
    world: World, spoil: Callable[[World], object], capfd: pytest.CaptureFixture[str]
) -> None:
    with world.store as store:
        store.create_stream(StreamName("shop", "other"), StreamConfiguration())
    export_stream(world.stream("shop/other"), world.root(), master="inline")
    spoil(world)
    assert main(["ls", world.root(), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)["archives"]
    assert [(each["stream_name"], "not complete JSON" in each["problem"]) for each in told] == [
        ("shop/orders", True),
        ("shop/other", False),
    ]
    assert_ends(("show", world.archive), 3, r"not complete JSON.*", capfd)


def test_missing_generation_is_reported(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with world.store as store:
            append_events(store, NAME, SegmentId(0, 0), [b"more"])
        export_stream(world.stream(), world.root(), master="inline")
    (world.files / "_manifest" / "0000000002.json").unlink()
    for arguments in (importing()(world), ("check", world.archive)):
        assert_ends(arguments, 3, r"the manifest of generation 2 is missing: .*", capfd)


def test_truncated_plan_is_reported(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    plan = world.files / "_work" / "0000000002" / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text('{"format": 1, "gen')
    assert_ends(exporting(root="vault")(world), 3, r"not complete JSON.*plan\.json.*", capfd)


def change_byte(world: World) -> str:
    file = world.event(20)
    file.write_bytes(b"y" + file.read_bytes()[1:])
    return file.name


def change_size(world: World) -> str:
    file = world.event(20)
    file.write_bytes(file.read_bytes() + b"y")
    return file.name


def remove_object(world: World) -> str:
    file = world.event(20)
    file.unlink()
    return file.name.partition("-")[0]


def remove_last(world: World) -> str:
    file = world.event(29)
    file.unlink()
    return file.name.partition("-")[0]


def add_object(world: World) -> str:
    file = world.event(20)
    offset, _, _ = file.name.partition("-")
    extra = file.with_name(f"{int(offset) + 3:019d}-0000000009")
    extra.write_bytes(b"z")
    return extra.name


def add_beyond(world: World) -> str:
    extra = world.event(20).with_name(f"{10_000:019d}-0000000009")
    extra.write_bytes(b"z")
    return extra.name


def add_foreign(world: World) -> str:
    extra = world.files / "events" / "notes.txt"
    extra.write_bytes(b"z")
    return extra.name


@pytest.mark.parametrize(
    "spoil", [remove_object, remove_last, change_size, change_byte], ids=lambda spoil: spoil.__name__
)
def test_damaged_object_is_named(
    world: World, spoil: Callable[[World], str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", world.archive, "--read-data", *INLINE]) == 0
    named = spoil(world)
    hidden = spoil is change_byte  # only reading the data detects it
    assert main(["check", world.archive, *INLINE]) == (0 if hidden else 3)
    capfd.readouterr()
    assert main(["check", world.archive, "--read-data", *INLINE, "--json"]) == 3
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert not err
    assert not report["ok"]
    assert report["findings"]
    if hidden:
        # a digest is of a range
        assert all(re.match(r"shop/orders/0\.#epoch\.0 bytes \d+ to \d+: ", line) for line in report["findings"])
    else:
        assert any(named in line for line in report["findings"]), report["findings"]
    assert_ends(importing()(world), 3, r".*", capfd)


@pytest.mark.parametrize("add", [add_object, add_beyond, add_foreign], ids=lambda add: add.__name__)
def test_stray_object_is_harmless(world: World, add: Callable[[World], str], capfd: pytest.CaptureFixture[str]) -> None:
    named = add(world)
    assert main(["check", world.archive, "--read-data", *INLINE, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["ok"], report["strays"], report["findings"]) == (True, 1, [])
    assert report["stray_keys"][0].endswith(named)
    assert main(["check", world.archive, *INLINE]) == 0
    assert "1 stray object, harmless" in capfd.readouterr().out
    assert main([*importing()(world)]) == 0
    # only objects that a published index proves to be unused are deleted
    assert main(["check", world.archive, "--repair", *INLINE, "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["removed"] == (add is add_object)


# --- full disks: a file system of 1 MiB, mounted in a namespace of the command's own


MOUNTING = 'mount -t tmpfs -o size=1m tmpfs "$0" && cp -r "$0.seed/." "$0/" && exec "$@"'


def in_namespace(small: Path) -> tuple[str, ...]:
    """The command prefix that mounts a new file system of 1 MiB at `small`, with the contents of ``small.seed``."""
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTING, str(small))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder on which a command mounts a file system of 1 MiB; needs no root if user namespaces are allowed."""
    folder = tmp_path.resolve() / "small"
    folder.mkdir()
    (tmp_path / "small.seed").mkdir()
    tried = subprocess.run([*in_namespace(folder), "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    return folder


def big_stream(world: World) -> None:
    with world.store as store:
        store.create_stream(StreamName("shop", "big"), StreamConfiguration())
        append_events(store, StreamName("shop", "big"), SegmentId(0, 0), [bytes([n]) * 50_000 for n in range(60)])


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("verb", ["export", "import"])
def test_full_disk_is_one_line(world: World, small: Path, verb: str, as_json: bool) -> None:
    big_stream(world)
    places = (world.stream("shop/big"), f"file://{small}/vault")
    line = rf"the disk is full: file://{re.escape(str(small))}/.*Free space.*"
    if verb == "import":
        export_stream(world.stream("shop/big"), world.root(), master="inline")
        places = (f"{world.root()}/shop/big", f"local://{small}/streams/shop/restored")
        line = r".*(disk is full|no room|no space).*"
    ended = run(verb, *places, *INLINE, *(["--json"] * as_json), environment={}, prefix=in_namespace(small))
    assert ended.code == 1, ended.err
    assert_told(ended.out, ended.err, 1, line, as_json=as_json)


def test_export_is_resumed_after_a_full_disk(world: World, small: Path) -> None:
    """The same folder, first on the full file system, then on a larger one."""
    big_stream(world)
    seed = small.with_name("small.seed")
    script = f'mount -t tmpfs -o size=1m tmpfs "$0" && {{ "$@"; code=$?; cp -r "$0/." "{seed}/"; exit $code; }}'
    prefix = ("unshare", "--map-root-user", "--mount", "sh", "-c", script, str(small))
    export = ("export", world.stream("shop/big"), f"file://{small}/vault", *INLINE, "--json")
    assert run(*export, environment={}, prefix=prefix).code == 1
    shutil.copytree(seed, small, dirs_exist_ok=True)
    assert list(small.rglob("plan.json"))
    report = run(*export, environment={}).report
    assert report["resumed"]
    assert main(["check", f"file://{small}/vault/shop/big", "--read-data", *INLINE]) == 0


# --- servers that are not there


def test_missing_s3_credentials_are_one_line(
    made: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert_ends(
        ("export", made.stream(), "s3://bucket/vault", *INLINE),
        1,
        r"no AWS credentials\. Set AWS_ACCESS_KEY_ID.*",
        capfd,
    )


@pytest.mark.parametrize("server", ["s3", "pravega"])
def test_missing_server_is_one_line(
    made: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], server: str
) -> None:
    port = free_ports(1)[0]
    if server == "s3":
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
            monkeypatch.setenv(f"AWS_{name}", "t")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        assert retrying.FIRST_CONTACT < SERVER_DOWN
        monkeypatch.setattr(retrying, "FIRST_CONTACT", 4.0)  # at 10 s, the progress would say that the server is silent
        arguments = ("export", made.stream(), "s3://bucket/vault")
        line = r"nothing is listening at the endpoint.*s3://bucket at http://127.*"
    else:
        usual = PravegaSettings.from_environment
        assert usual("pravega://127.0.0.1:1").timeout < SERVER_DOWN
        monkeypatch.setattr(
            PravegaSettings, "from_environment", lambda uri, **options: replace(usual(uri, **options), timeout=4.0)
        )
        arguments = ("import", made.archive, f"pravega://127.0.0.1:{port}/shop/orders")
        line = r"Pravega's controller does not answer.*127\.0\.0\.1:\d+.*"
    began = time.monotonic()
    assert main([*arguments, *INLINE]) == 1
    assert time.monotonic() - began < SERVER_DOWN
    out, err = capfd.readouterr()
    assert_told(out, err, 1, line, as_json=False)
