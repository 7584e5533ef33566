"""The status of a scope: streams and their archives, leases, queues and replicas."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, export_stream, promote_replica, replicate_stream, request_restore, show_status
from streamvault.common.at_once import AT_ONCE
from streamvault.common.errors import Failed, Usage
from streamvault.inspect import streams as looking
from streamvault.inspect.metrics import metrics_text
from streamvault.inspect.reports import StatusReport
from streamvault.inspect.status import unarchived_bytes
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.verbs.costs import Requests
from streamvault.objectstore.store import ObjectStoreUnavailable
from streamvault.replication.replica import REPLICA
from streamvault.requests.queue import open_queue
from streamvault.scopes import looking as scope_looking
from streamvault.streamstore import lease as leases
from streamvault.streamstore.errors import AccessDenied, NoSuchScope, StreamStoreUnavailable
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamDescription, StreamName
from streamvault.streamstore.own import OWN, TARGET_LEASE, UNFINISHED, OwnSegment, stream_beside
from streamvault.streamstore.queue import Consumer, Producer
from streamvault.streamstore.uri import OpenStream, StoreAddress, parse_stream
from testkit.killed import stopped_at
from testkit.scenes import Scopes
from testkit.small_archives import a_root
from testkit.streams import append_events
from tests.counting import counted
from tests.told import Ran

HELD = LeaseHeld("held by a test")
WRITES = (
    *("create_scope", "create_stream", "create_stream_and_scope", "update_stream", "scale", "appender", "transactions"),
    *("truncate", "truncate_segment", "seal", "delete", "delete_scope", "reader_groups"),
)
"""The calls of a store that change something, or lead to such calls."""


@pytest.fixture
def scopes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Scopes:
    scopes = Scopes(tmp_path, capfd)
    scopes.make(["a", "b"])
    return scopes


def seen(scopes: Scopes, place: str = "shop/") -> StatusReport:
    (scopes.folder / "vault").mkdir(exist_ok=True)
    return show_status(scopes.uri(place), root=scopes.root)


def lease_of(scopes: Scopes, stream: str) -> StreamName:
    name = stream_beside(StreamName("shop", stream), TARGET_LEASE)
    assert str(name).startswith(f"shop/{TARGET_LEASE}")
    return name


@pytest.fixture
def _beats_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(looking, "PATIENCE_SECONDS", 3600.0)


@contextmanager
def held(scopes: Scopes, stream: str) -> Iterator[None]:
    """Hold the lease of a stream, alive."""
    with scopes.store as store:
        lease = Lease.take(store, lease_of(scopes, stream), "work", held=HELD)
        yield
        lease.release(remove=True)


def files_below(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Return each file, with its time of change and its content."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def test_a_line_for_each_stream(scopes: Scopes, ran: Ran) -> None:
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    export_stream(scopes.uri("shop/b"), scopes.root, master="inline")
    scopes.make(["c"], scope="other")
    with scopes.store as store:
        store.create_stream(StreamName("shop", "new"), StreamConfiguration())
    scopes.add("new", 2)
    scopes.add("a", 5)
    report = seen(scopes)
    found = {one.stream.rpartition("/")[2]: one for one in report.live_streams}
    size = {name: 8 + 9 * len(name) for name in found}
    assert {name: one.unarchived for name, one in found.items()} == {"a": 5 * size["a"], "b": 0, "new": 2 * size["new"]}
    assert {name: one.archive for name, one in found.items()} == {
        "a": f"{scopes.root}/shop/a",
        "b": f"{scopes.root}/shop/b",
        "new": "",
    }
    assert [one.archive for one in report.statuses] == [f"{scopes.root}/shop/a", f"{scopes.root}/shop/b"]
    scopes.delete("b")
    header, _, *lines = ran("status", scopes.uri("shop/"), "--root", scopes.root).out.splitlines()
    assert header.split("  ")[0] == "STREAM"
    cells = {line.split()[0]: line.split() for line in lines}
    assert cells["shop/a"][1] == "1"
    assert cells["shop/a"][-2:] == ["85", "B"]
    assert cells["shop/new"][1:3] == ["no", "archive"]
    assert cells["shop/b"][-2:] == ["no", "stream"]


@pytest.mark.usefixtures("_beats_often")
def test_pattern_and_stream_select(scopes: Scopes) -> None:
    for name in "ab":
        export_stream(scopes.uri(f"shop/{name}"), scopes.root, master="inline")
    with held(scopes, "a"), held(scopes, "b"):
        for place in ("shop/a", "shop/a*"):
            report = seen(scopes, place)
            assert [one.stream for one in report.live_streams] == [scopes.uri("shop/a")]
            assert [one.archive for one in report.statuses] == [f"{scopes.root}/shop/a"]
            assert [one.stream for one in report.leases] == [scopes.uri("shop/a")]


@pytest.mark.usefixtures("_beats_often")
def test_lease_that_is_held(scopes: Scopes) -> None:
    with held(scopes, "a"):
        (one,) = seen(scopes).leases
        assert (one.stream, one.purpose, one.alive) == (scopes.uri("shop/a"), "import or mirror", True)
        assert (one.host, one.pid) == (socket.gethostname(), os.getpid())
    assert seen(scopes).leases == ()


def test_lease_whose_holder_is_dead(scopes: Scopes, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this machine it is known at once; another machine's is watched."""
    with scopes.store as store:
        lease = Lease.take(store, lease_of(scopes, "a"), "work", held=HELD)
        lease.release(remove=False)
        record = leases.last_heartbeat(store, lease_of(scopes, "a"))
        assert record is not None
        for changed, patience in ((replace(record, started="1"), 3600.0), (replace(record, host="elsewhere x y"), 0.3)):
            monkeypatch.setattr(looking, "PATIENCE_SECONDS", patience)
            with OwnSegment(store, store.describe(lease_of(scopes, "a"))).appender() as appender:
                appender.append(changed.encode())
            (one,) = seen(scopes).leases
            assert (one.alive, one.host) == (False, changed.host.split()[0])
    line = ran("status", scopes.uri("shop/"), "--root", scopes.root).out.splitlines()[-1].split()
    assert (line[0], line[-1]) == ("shop/a", "dead")


@pytest.mark.parametrize("sealed", [False, True])
def test_lease_that_is_released_while_it_is_watched(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch, *, sealed: bool
) -> None:
    """Its stream is deleted, or its holder has only sealed it so far."""
    monkeypatch.setattr(leases, "BEAT_SECONDS", 3600.0)
    with scopes.store as store:
        lease = Lease.take(store, lease_of(scopes, "a"), "work", held=HELD)

        def pauses(*_: object, **__: object) -> Iterator[float]:
            lease.release(remove=not sealed)
            if sealed:
                store.seal(lease_of(scopes, "a"))
            yield 0.0

        monkeypatch.setattr(leases, "pauses", pauses)
        assert seen(scopes).leases == ()


def test_stream_that_is_deleted_meanwhile_has_no_line(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(stream: OpenStream, newest: Manifest | None, *described: StreamDescription) -> int:
        if stream.name.stream == "a":
            scopes.delete("a")
        return unarchived_bytes(stream, newest, *described)

    monkeypatch.setattr(scope_looking, "unarchived_bytes", late)
    report = seen(scopes)
    assert [one.stream for one in report.live_streams] == [scopes.uri("shop/b")]
    assert report.warnings == ()


def test_stream_that_is_archived_and_truncated_meanwhile_is_no_problem(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    scopes.add("a", 4)

    def late(stream: OpenStream, newest: Manifest | None, *described: StreamDescription) -> int:
        if newest is not None and newest.generation == 1:
            export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
            raise Failed("what follows the newest generation has been truncated in the stream")
        return unarchived_bytes(stream, newest, *described)

    monkeypatch.setattr(scope_looking, "unarchived_bytes", late)
    report = seen(scopes, "shop/a")
    assert [(one.unarchived, one.problem) for one in report.live_streams] == [(0, "")]


def test_replicas_of_a_file_are_asked_with_the_targets_login(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    replicate_stream(scopes.uri("shop/b"), scopes.uri("standby/b"), master="inline")
    file = scopes.folder / "streams.toml"
    file.write_text(f"[[streams]]\nsource = '{scopes.uri('shop/b')}'\nstream = '{scopes.uri('standby/b')}'\n")
    asked = []

    def parse(uri: str, *, target: bool = False) -> tuple[StoreAddress, StreamName]:
        asked.append((uri.rsplit("/", 2)[1], target))
        return parse_stream(uri, target=target)

    monkeypatch.setattr(scope_looking, "parse_stream", parse)
    assert len(show_status(None, config_file=file).replicas) == 1
    assert seen(scopes).replicas == ()
    assert asked == [("standby", True), ("shop", False)]


@pytest.mark.usefixtures("_beats_often")
def test_queue_says_what_waits_and_who_works(scopes: Scopes) -> None:
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    queue = scopes.uri("shop/queue")
    request_restore(f"{scopes.root}/shop/a", scopes.uri("shop/restored"), queue=queue)
    (one,) = seen(scopes).queues
    assert (one.queue, one.waiting, one.failed, one.worker, one.problem) == (queue, 1, 0, "", "")
    assert one.oldest_age is not None
    with scopes.store as store, open_queue(queue) as place:
        failed = place.create_failed()
        Producer(failed).put(b"{}")
        consumer = Consumer(place.waiting(create=False))
        with consumer:
            (one,) = seen(scopes).queues
            assert (one.waiting, one.failed, one.worker) == (1, 1, socket.gethostname())
        with OwnSegment(store, store.describe(StreamName("shop", "queue"))).appender() as appender:
            appender.append(b"foreign")
    report = seen(scopes)
    assert report.queues[0].problem.startswith("there are foreign bytes at ")
    assert [text for text in report.warnings if text.startswith(queue)]
    assert [one.stream for one in report.live_streams] == [scopes.uri("shop/a"), scopes.uri("shop/b")]


def test_replica_says_how_far_it_is(scopes: Scopes) -> None:
    source, replica = scopes.uri("shop/a"), scopes.uri("standby/a")
    replicate_stream(source, replica, master="inline")
    scopes.add("a", 4)
    (one,) = seen(scopes, "standby/").replicas
    assert (one.replica, one.source, one.state, one.lag_bytes, one.problem) == (replica, source, "replica", 68, "")
    assert one.reached
    scopes.delete("a")
    report = seen(scopes, "standby/")
    assert (report.replicas[0].lag_bytes, report.replicas[0].source) == (None, source)
    assert "no such stream" in report.replicas[0].problem
    promote_replica(replica)
    report = seen(scopes, "standby/")
    assert [(one.source, one.state, one.problem) for one in report.replicas] == [(source, "promoted", "")]
    assert [one.stream for one in report.live_streams] == [replica]


def test_file_declares_the_streams(scopes: Scopes, ran: Ran) -> None:
    """The same file as of rotate, of follow or of replicate; rotate's queue is looked at, too."""
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    replicate_stream(scopes.uri("shop/b"), scopes.uri("standby/b"), master="inline")
    request_restore(f"{scopes.root}/shop/a", scopes.uri("shop/restored"), queue=scopes.uri("other/queue"))
    request_restore(f"{scopes.root}/shop/a", scopes.uri("shop/restored"), queue=scopes.uri("shop/another"))
    file = scopes.folder / "streams.toml"
    said: dict[str, tuple[list[str], list[str]]] = {
        "keep_for = '90d'\n[[streams]]\nstream = '{a}'\ndeletions = '{queue}'\n": (["a"], ["queue"]),
        "every = '1m'\nstreams = ['{a}', '{b}']\n": (["a", "b"], []),
    }
    for text, (streams, queues) in said.items():
        names = {"a": scopes.uri("shop/a"), "b": scopes.uri("shop/b*"), "queue": scopes.uri("other/queue")}
        file.write_text(f"root = '{scopes.root}'\n{text.format(**names)}")
        report = show_status(None, config_file=file)
        assert [one.stream for one in report.live_streams] == [scopes.uri(f"shop/{name}") for name in streams]
        assert [one.queue for one in report.queues] == [scopes.uri(f"other/{name}") for name in queues]
        assert [one.archive for one in report.statuses] == [f"{scopes.root}/shop/a"]
        assert report.replicas == ()
    file.write_text(f"[[streams]]\nsource = '{scopes.uri('shop/b')}'\nstream = '{scopes.uri('standby/b')}'\n")
    found = json.loads(ran("status", "--config", str(file), "--json").out.splitlines()[-1])
    assert [one["replica"] for one in found["replicas"]] == [scopes.uri("standby/b")]
    assert (found["live_streams"], found["statuses"], found["scope"]) == ([], [], str(file))
    file.write_text(f"root = 's3://a'\nkep = 7\nstreams = ['{scopes.uri('shop/a')}']\n")
    assert f"unknown key kep: {file}:2" in ran("status", "--config", str(file), code=2).err


def test_another_stream_than_the_archived_one_is_a_problem(scopes: Scopes) -> None:
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    scopes.delete("a")
    scopes.make(["a"], scope="shop2")
    with scopes.store as store:
        store.create_stream(StreamName("shop", "a"), StreamConfiguration(scaling=Scaling(min_segments=2)))
    report = seen(scopes, "shop/a")
    (one,) = report.live_streams
    assert (one.unarchived, one.archive) == (None, f"{scopes.root}/shop/a")
    assert "not the one that was archived here" in one.problem
    assert report.warnings == (f"{one.stream}: {one.problem}",)


@pytest.mark.parametrize("events", [3, 9])
def test_stream_of_another_cluster_and_an_archive_without_data_are_problems(scopes: Scopes, events: int) -> None:
    (scopes.folder / "vault").mkdir()
    scopes.make(["c", "d"])
    export_stream(scopes.uri("shop/"), scopes.root, master="inline")
    check_archive(f"{scopes.root}/shop/", read_data=True, master="inline")
    shutil.rmtree(scopes.folder / "vault" / "shop" / "c" / "events")
    shutil.rmtree(scopes.folder / "streams")
    scopes.make(["b", "a"])
    scopes.make(["c", "d"])
    shutil.rmtree(scopes.folder / "streams" / "shop" / "a")
    with scopes.store as store:
        store.create_stream(StreamName("shop", "a"), StreamConfiguration())
        append_events(store, StreamName("shop", "a"), SegmentId(0, 0), [b"other ev"] * events)
    report = seen(scopes, "shop/")
    found = {one.stream.rpartition("/")[2]: one for one in report.live_streams}
    assert found["a"].unarchived is None
    assert "not the one that was archived here" in found["a"].problem
    assert (found["d"].unarchived, found["d"].problem) == (0, "")
    (lost,) = (one for one in report.statuses if one.stream_name == "shop/c")
    assert "the archive's data are gone" in lost.problem
    assert found["c"].unarchived is None


def test_wrong_arguments(scopes: Scopes, ran: Ran) -> None:
    for place, options in (
        (scopes.root, {"root": scopes.root}),
        (None, {}),
        (scopes.uri("shop/"), {"config_file": scopes.folder / "streams.toml"}),
    ):
        with pytest.raises(Usage):
            show_status(place, **options)
    assert ran("status", scopes.uri("nowhere/"), code=5).err.count("\n") == 1


def test_a_root_that_is_not_there_is_no_root_without_archives(scopes: Scopes, ran: Ran) -> None:
    """Its disk may not be mounted, or its name mistyped."""
    there = f"file://{scopes.folder}/not/mounted"
    for place in ("shop/", "shop/a", "shop/a*"):
        assert ran("status", scopes.uri(place), "--root", there, code=5).err == (
            f"streamvault: no such folder: {there}. Create it, or check the path.\n"
        )
    (scopes.folder / "not").mkdir()
    assert show_status(scopes.uri("shop/"), root=there).statuses == (), "the first export makes the last folder"


def test_status_writes_nothing(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a file of the store or the root changes, and no call that writes is made."""
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    replicate_stream(scopes.uri("shop/b"), scopes.uri("shop/replica"), master="inline")
    request_restore(f"{scopes.root}/shop/a", scopes.uri("shop/restored"), queue=scopes.uri("shop/queue"))
    with scopes.store as store:
        Lease.take(store, lease_of(scopes, "a"), "work", held=HELD).release(remove=False)
        unknown = StreamConfiguration(tags=(OWN, f"{UNFINISHED}{REPLICA}x"))
        store.create_stream(StreamName("shop", "replica-of-nothing"), unknown)
    monkeypatch.setattr(looking, "PATIENCE_SECONDS", 0.3)

    def refuse(name: str) -> Any:
        def refused(*_: object, **__: object) -> None:
            pytest.fail(f"it calls {name}")

        return refused

    before = files_below(scopes.folder)
    for name in WRITES:
        monkeypatch.setattr(LocalStore, name, refuse(name))
    report = seen(scopes)
    assert (len(report.queues), len(report.replicas), len(report.leases)) == (1, 2, 1)
    assert files_below(scopes.folder) == before


def test_metrics_of_a_scope(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    scopes.add("a", 1)
    replicate_stream(scopes.uri("shop/b"), scopes.uri("shop/replica"), master="inline")
    scopes.add("b", 2)
    request_restore(f"{scopes.root}/shop/a", scopes.uri("shop/restored"), queue=scopes.uri("shop/queue"))
    monkeypatch.setattr(looking, "PATIENCE_SECONDS", 0.3)
    with scopes.store as store:
        Lease.take(store, lease_of(scopes, "a"), "work", held=HELD).release(remove=False)
    text = metrics_text(seen(scopes))
    a, b, queue, replica = (scopes.uri(f"shop/{name}") for name in ("a", "b", "queue", "replica"))
    for line in (
        f'streamvault_stream_unarchived_bytes{{stream="{a}",archive="{scopes.root}/shop/a"}} 17',
        f'streamvault_stream_archived{{stream="{a}",archive="{scopes.root}/shop/a"}} 1',
        f'streamvault_stream_archived{{stream="{b}"}} 0',
        f'streamvault_queue_waiting{{queue="{queue}"}} 1',
        f'streamvault_queue_failed{{queue="{queue}"}} 0',
        f'streamvault_queue_workers{{queue="{queue}"}} 0',
        f'streamvault_replica_lag_bytes{{replica="{replica}",source="{b}"}} 34',
        f'streamvault_replica_promoted{{replica="{replica}",source="{b}"}} 0',
    ):
        assert f"\n{line}\n" in text
    (lease,) = [line for line in text.splitlines() if line.startswith("streamvault_lease_alive{")]
    assert f'stream="{a}"' in lease
    assert lease.endswith(" 0")


def declared(scopes: Scopes, *uris: str, root: str = "") -> Path:
    """Return a file of `rotate` that declares streams."""
    file = scopes.folder / "streams.toml"
    streams = "".join(f"[[streams]]\nstream = '{uri}'\n" for uri in uris)
    file.write_text(f"root = '{root or scopes.root}'\nkeep = 3\n{streams}")
    return file


def metrics_of(report: StatusReport) -> dict[str, float]:
    """Return the metrics by name, without ``streamvault_``, and the last name in the first label's value."""
    found = re.findall(r'^streamvault_(\w+)\{\w+="[^"]*?(\w+)".*\} (\S+)$', metrics_text(report), re.MULTILINE)
    return {f"{name} {last}": float(value) for name, last, value in found}


def test_scope_that_cannot_be_read_hides_nothing_else(scopes: Scopes) -> None:
    for name in "ab":
        export_stream(scopes.uri(f"shop/{name}"), scopes.root, master="inline")
    lost = f"local://{scopes.folder}/elsewhere/shop"
    report = show_status(None, config_file=declared(scopes, f"{lost}/b", f"{lost}/new", scopes.uri("shop/a")))
    found = {one.stream: (one.archive, one.is_archived, one.unarchived) for one in report.live_streams}
    assert found == {
        f"{lost}/b": (f"{scopes.root}/shop/b", True, None),
        f"{lost}/new": ("", False, None),
        scopes.uri("shop/a"): (f"{scopes.root}/shop/a", True, 0),
    }
    assert [one.archive for one in report.statuses] == [f"{scopes.root}/shop/b", f"{scopes.root}/shop/a"]
    assert {one.place: bool(one.problem) for one in report.watched_places} == {
        lost: True,
        scopes.uri("shop"): False,
        scopes.root: False,
    }
    assert report.warnings == (f"{lost} and 2 more: no such scope: {lost}",)
    assert f'streamvault_place_readable{{place="{lost}"}} 0\n' in metrics_text(report)
    found = metrics_of(report)
    assert (found["place_readable vault"], found["stream_readable b"], found["stream_readable a"]) == (1, 0, 1)
    assert not {"stream_unarchived_bytes b", "stream_unarchived_bytes new"} & found.keys()
    report = show_status(None, config_file=declared(scopes, f"{lost}/*", scopes.uri("shop/a")))
    rows = {one.stream: one.problem for one in report.live_streams}
    assert rows == {f"{lost}/{name}": f"no such scope: {lost}" for name in "ab"} | {scopes.uri("shop/a"): ""}
    (scopes.folder / "vault").rename(scopes.folder / "gone")
    (scopes.folder / "vault").mkdir()
    with pytest.raises(NoSuchScope):
        show_status(f"{lost}/", root=scopes.root)


def test_stream_that_is_named_and_not_there_is_a_problem(scopes: Scopes) -> None:
    """It was never archived, and nobody else says so; of one that is archived, the archive's line does."""
    export_stream(scopes.uri("shop/b"), scopes.root, master="inline")
    scopes.delete("b")
    file = declared(scopes, *(scopes.uri(f"shop/{name}") for name in ("a", "b", "typo")))
    report = show_status(None, config_file=file)
    assert {one.stream.rpartition("/")[2]: one.problem for one in report.live_streams} == {
        "a": "",
        "typo": "no such stream",
    }
    assert [one.archive for one in report.statuses] == [f"{scopes.root}/shop/b"]
    found = metrics_of(report)
    assert (found["stream_readable typo"], found["stream_archived typo"], found["stream_archived a"]) == (0, 0, 0)
    assert "stream_unarchived_bytes typo" not in found
    file.write_text(f"[[streams]]\nsource = '{scopes.uri('shop/a')}'\nstream = '{scopes.uri('standby/a')}'\n")
    scopes.make(["other"], scope="standby")
    (one,) = show_status(None, config_file=file).replicas
    assert (one.replica, one.state, one.problem) == (scopes.uri("standby/a"), "unknown", "no such stream")


def test_root_that_cannot_be_read_leaves_the_streams(scopes: Scopes, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is neither archived nor not archived; and a server that does not answer is asked once."""
    scopes.make(["a"], scope="other")
    asked = []

    def unavailable(place: str, _: object) -> None:
        asked.append(place)
        raise ObjectStoreUnavailable("S3 does not answer", where="vault")

    monkeypatch.setattr(scope_looking, "find_archives", unavailable)
    file = declared(scopes, scopes.uri("shop/*"), scopes.uri("other/*"))
    report = show_status(None, config_file=file)
    assert [(one.stream, one.is_archived, one.problem) for one in report.live_streams] == [
        (scopes.uri(name), None, "S3 does not answer: vault") for name in ("shop/a", "shop/b", "other/a")
    ]
    assert report.warnings == (f"{scopes.root} and 3 more: S3 does not answer: vault",)
    assert len(asked) == 1
    found = metrics_of(report)
    assert found == {
        "place_readable shop": 1, "place_readable other": 1, "place_readable vault": 0,
        "stream_readable a": 0, "stream_readable b": 0,
    } | {name: value for name, value in found.items() if name.startswith("status_")}  # fmt: skip
    lines = ran("status", "--config", str(file)).out.splitlines()[2:]
    assert [line.split() for line in lines] == [[name, "?", "?"] for name in ("shop/a", "shop/b", "other/a")]


def test_queue_that_cannot_be_read_has_no_figures(scopes: Scopes, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    request_restore(f"{scopes.root}/shop/a", scopes.uri("shop/restored"), queue=scopes.uri("shop/queue"))

    def refuse(_: str) -> None:
        raise AccessDenied("you may not")

    monkeypatch.setattr(looking, "show_queue", refuse)
    report = seen(scopes)
    assert [(one.is_readable, one.problem) for one in report.queues] == [(False, "you may not")]
    assert {name for name in metrics_of(report) if name.startswith("queue_")} == {"queue_readable queue"}
    assert ran("status", scopes.uri("shop/")).out.splitlines()[-1].split() == ["shop/queue", "?", "?", "-", "none"]


def test_stream_that_may_not_be_read_leaves_the_others(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    really = LocalStore.describe

    def describe(store: LocalStore, name: StreamName) -> Any:
        if name.stream == "a":
            raise AccessDenied("you may not")
        return really(store, name)

    monkeypatch.setattr(LocalStore, "describe", describe)
    report = seen(scopes)
    assert {one.stream: (one.unarchived is None, one.problem) for one in report.live_streams} == {
        scopes.uri("shop/a"): (True, "you may not"),
        scopes.uri("shop/b"): (False, ""),
    }


def test_server_that_stops_answering_is_not_waited_for_again(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    scopes.make([f"more{number}" for number in range(40)], scope="big")
    asked = []

    def unavailable(stream: OpenStream, _: Manifest | None) -> int:
        asked.append(stream)
        raise StreamStoreUnavailable("Pravega's segment store does not answer")

    monkeypatch.setattr(scope_looking, "unarchived_bytes", unavailable)
    report = seen(scopes, "big/")
    assert len(asked) <= AT_ONCE
    assert {one.unarchived for one in report.live_streams} == {None}
    assert len(report.live_streams) == 40
    assert len(report.warnings) == 1


def test_archive_without_a_generation_is_no_archive(scopes: Scopes) -> None:
    """A first export that never ends must not look like one that has."""
    with stopped_at(Archive, "commit"):
        export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    report = seen(scopes)
    assert [(one.generation, one.unfinished_generation) for one in report.statuses] == [(0, 1)]
    found = metrics_of(report)
    assert (found["stream_archived a"], found["stream_readable a"], found["archive_generation a"]) == (0, 1, 0)


def test_archive_that_cannot_be_read_leaves_open_what_is_archived(scopes: Scopes) -> None:
    export_stream(scopes.uri("shop/a"), scopes.root, master="inline")
    (manifest,) = (scopes.folder / "vault" / "shop" / "a" / "_manifest").glob("*.json")
    manifest.write_text("{")
    report = seen(scopes)
    assert report.statuses[0].problem
    found = metrics_of(report)
    assert (found["stream_readable a"], found["stream_readable b"]) == (0, 1)
    assert "stream_unarchived_bytes a" not in found


def test_requests_of_a_scope_are_those_of_the_streams_that_are_asked_for(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each archive a LIST and a GET, and a LIST for its data."""
    root, names = a_root(), [f"{letter}{number}" for letter in "xy" for number in range(5)]
    scopes.make(names, scope="big")
    export_stream(scopes.uri("big/"), root, master="inline")
    of_folders = 1 + 1  # the scope, and the first archive
    file = declared(scopes, *(scopes.uri(f"big/y{number}") for number in range(3)), root=root)
    for place, config, count in (
        (scopes.uri("big/"), None, 10),
        (scopes.uri("big/x*"), None, 5),
        (scopes.uri("big/x3"), None, 1),
        (None, file, 3),
    ):
        described: list[StreamName] = []
        really = LocalStore.describe

        def describe(store: LocalStore, name: StreamName, into: list[StreamName] = described) -> Any:
            into.append(name)
            return really(store, name)  # noqa: B023  (the same each time)

        with monkeypatch.context() as patch, counted(patch) as made:
            patch.setattr(LocalStore, "describe", describe)
            report = show_status(place, root=None if config else root, config_file=config)
        assert [one.unarchived for one in report.live_streams] == [0] * count
        assert made == [Requests(0, of_folders + 2 * count, count)]
        assert len(described) == 2 * count
