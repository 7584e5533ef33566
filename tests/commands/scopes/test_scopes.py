"""Verbs for all streams of a scope, for those that match a pattern, or for those that a file declares."""

from __future__ import annotations

import json
import shutil
import threading
import tomllib
from contextlib import ExitStack
from typing import Any, assert_type

import jsonschema
import pyarrow as pa
import pytest

from bin.pages.reports import FOLDER
from streamvault import check_archive, delete_archive, export_stream, follow_stream, move_stream, replicate_stream
from streamvault.cli import main
from streamvault.common.errors import Damaged, Problem, Usage
from streamvault.common.waiting import JointRun
from streamvault.exporter import export as exporting
from streamvault.exporter.reports import ExportReport
from streamvault.manifests.archive import Archive
from streamvault.manifests.verbs import check as checking
from streamvault.manifests.verbs import delete as deleting
from streamvault.scopes import run as running
from streamvault.scopes.calls import ArchiveMembers, StreamMembers
from streamvault.scopes.entries import line_of
from streamvault.scopes.reports import ScopeReport, StreamOutcome
from streamvault.streamstore.errors import NoSuchStream, StreamStoreUnavailable
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import TARGET_LEASE
from testkit.killed import Killed, killed
from testkit.scenes import ALL_DONE, NAMES, Heard, Scopes
from tests.told import Ran
from tests.unit.lake.test_registry import Group


def test_a_scope_goes_through_archives_and_back(scopes: Scopes) -> None:
    shop, archives = scopes.uri("shop/"), f"{scopes.root}/shop/"
    assert scopes.outcomes("export", shop, scopes.root) == ALL_DONE
    assert scopes.outcomes("check", archives, "--read-data") == ALL_DONE
    assert scopes.outcomes("import", archives, scopes.uri("back/")) == ALL_DONE
    assert scopes.outcomes("rotate", shop, scopes.root, "--keep", "1") == ALL_DONE
    assert all(scopes.digest("back", name) == scopes.digest("shop", name) for name in NAMES)


def test_a_scope_is_copied_replicated_promoted_and_moved(scopes: Scopes) -> None:
    shop = scopes.uri("shop/")
    with scopes.store as store:
        assert scopes.outcomes("copy", shop, scopes.uri("copied/")) == ALL_DONE
        assert scopes.outcomes("replicate", shop, scopes.uri("replicas/")) == ALL_DONE
        assert list(store.list_streams("replicas")) == []
        for _ in range(2):  # the second time, all are promoted already
            assert scopes.outcomes("promote", scopes.uri("replicas/")) == ALL_DONE
        for _ in range(2):  # the second time, only tombstones have the old names
            assert scopes.outcomes("move", scopes.uri("copied/"), scopes.uri("moved/")) == ALL_DONE
        assert [list(store.list_streams(scope)) for scope in ("copied", "moved")] == [
            [],
            [StreamName("moved", name) for name in NAMES],
        ]
        for scope in ("replicas", "moved"):
            assert all(scopes.digest(scope, name) == scopes.digest("shop", name) for name in NAMES)


def test_a_pattern_takes_the_streams_that_match(scopes: Scopes) -> None:
    scopes.make(["a.b", "ab", "bab", "a-b-a"], scope="other")
    assert set(scopes.outcomes("export", scopes.uri("other/a*b"), scopes.root)) == {"a.b", "ab"}
    assert set(scopes.outcomes("check", f"{scopes.root}/other/*b")) == {"a.b", "ab"}
    assert set(scopes.outcomes("handoff", scopes.uri("other/a.*"), "--root", scopes.root, "--dry-run")) == {"a.b"}


def test_a_dry_run_writes_nothing(scopes: Scopes) -> None:
    code, report = scopes.run("export", scopes.uri("shop/"), scopes.root, "--dry-run")
    assert (code, report["dry_run"]) == (0, True)
    assert [each["result"]["bytes"] for each in report["outcomes"]] == [17 * n for n in range(3, 9)]
    assert not (scopes.folder / "vault").exists()


@pytest.mark.parametrize(
    ("line", "planned"),
    [
        ("export {shop} {root}", "{events}, {bytes} B, under 0.01 USD for requests"),
        ("rotate {shop} {root} --keep 3", "{events}, {bytes} B, under 0.01 USD for requests"),
        ("copy {shop} {other}", "{bytes} B"),
        ("replicate {shop} {other}", "{bytes} B"),
    ],
)
def test_a_dry_run_has_events_bytes_and_cost_of_each_stream_and_of_all(
    scopes: Scopes, ran: Ran, line: str, planned: str
) -> None:
    places = {"shop": scopes.uri("shop/"), "root": scopes.root, "other": scopes.uri("other/")}
    *streams, total, _ = ran(*line.format(**places).split(), "--dry-run", "--master", "inline").out.splitlines()
    for one, count in zip(streams, range(3, 9), strict=True):
        assert one.endswith(f"; {planned.format(events=f'{count} events', bytes=17 * count)}")
    assert total == f"in all: {planned.format(events='33 events', bytes=17 * 33)}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "{s}/shop/x*", "{r}"), "nothing matches: {s}/shop/x*. `streamvault streams {s}/shop/` lists "),
        (("export", "{s}/empty/", "{r}"), "nothing matches: {s}/empty/. "),
        (("export", "{s}/sh*/a", "{r}"), "only the stream's name may contain a '*': "),
        (("export", "{s}/*/*", "{r}"), "only the stream's name may contain a '*': '{s}/*/*'. Name the scope."),
        (("export", "{r}/shop/", "{r}"), "not a stream's URI: '{r}/shop/x'. "),
        (("export", "local:///", "{r}"), "not a stream's URI (SCOPE/STREAM is missing): "),
        (("check", "{s}/shop/"), "a scope of archives is required: {s}/shop/. "),
        (("check", "{r}/shop/b*"), "nothing matches: {r}/shop/b*. `streamvault ls {r}` lists what is "),
        (("check", "{r}/shop/a/"), "nothing matches: {r}/shop/a/. Omit the '/': it is an archive."),
        (("copy", "{s}/shop/", "{s}/to/x"), "the target of a scope must be a scope: '{s}/to/x'. "),
        (("copy", "{s}/shop/a", "{s}/to/"), "a scope as the target requires a scope as the source: '{s}/shop/a'. "),
        (("copy", "{s}/shop/", "{s}/to/*"), "a target must not be a pattern: '{s}/to/*'. "),
        (("promote", "{s}/shop/"), "nothing matches (6 left out: it is not a replica): {s}/shop/. "),
    ],
)
def test_errors_in_the_arguments(scopes: Scopes, arguments: tuple[str, ...], said: str, ran: Ran) -> None:
    with scopes.store as store:
        store.create_scope("empty")
    (scopes.folder / "vault/shop/a/_manifest").mkdir(parents=True)
    (scopes.folder / "vault/shop/a/_manifest/1.json").write_text("{}")
    names = {"s": scopes.uri("").rstrip("/"), "r": scopes.root}
    assert said.format(**names) in ran(*([each.format(**names) for each in arguments]), code=2).err


def test_a_failure_is_that_streams_alone(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One stream fails, one vanishes after it was listed, and one is a lease."""
    look = StreamMembers.look

    def looked(members: StreamMembers) -> Any:
        found = look(members)
        scopes.delete("c")
        return found

    assert main(["export", scopes.uri("shop/b"), scopes.root, "--content", "bytes", "--master", "inline"]) == 0
    scopes.add("b", 1)
    with scopes.store as store, ExitStack() as stack:
        held = LeaseHeld("held by a test")
        stack.callback(Lease.take(store, StreamName("shop", "lease"), "work", held=held).release, remove=True)
        monkeypatch.setattr(StreamMembers, "look", looked)
        code, report = scopes.run("export", scopes.uri("shop/"), scopes.root, "--content", "events")
        jsonschema.validate(report, json.loads((FOLDER / "reports" / "scope.json").read_text()))
        monkeypatch.setattr(StreamMembers, "look", look)
        outcomes = {each["stream"].rpartition("/")[2]: each for each in report["outcomes"]}
        assert {name: each["status"] for name, each in outcomes.items()} == {**ALL_DONE, "b": "failed", "c": "gone"}
        assert code == outcomes["b"]["exit_code"] == Usage.exit_code
        assert (outcomes["c"]["exit_code"], outcomes["c"]["failure"]) == (0, None)
        assert [(each["stream"], each["reason"]) for each in report["omitted"]] == [
            (scopes.uri("shop/lease"), "an internal stream of Streamvault (internal)")
        ]
        assert main(["export", scopes.uri("shop/"), scopes.root, "--content", "events", "--master", "inline"]) == 2
    printed = capfd.readouterr().out.splitlines()
    assert printed[0] == f"a: nothing new since generation 1 of {scopes.root}/shop/a"
    assert printed[1].startswith("b: FAILED (exit code 2): ")
    assert printed[-2] == "lease: left out: an internal stream of Streamvault (internal)"
    assert printed[-1].startswith(f"{scopes.uri('shop/')}: 4 done, 1 failed; ")


@pytest.mark.parametrize(("codes", "code"), [((0, 0), 0), ((0, 3), 3), ((3, 3), 3), ((3, 4), 1)])
def test_exit_code_is_that_of_the_failures_if_they_agree(codes: tuple[int, ...], code: int) -> None:
    outcomes = tuple(StreamOutcome(stream="s", status="failed" if each else "done", exit_code=each) for each in codes)
    assert ScopeReport(scope="s/", outcomes=outcomes).exit_code == code


def test_a_report_that_is_not_good_counts_as_a_failure(scopes: Scopes) -> None:
    assert scopes.outcomes("export", scopes.uri("shop/"), scopes.root) == ALL_DONE
    next((scopes.folder / "vault/shop/d").glob("events/**/*-*")).unlink()
    code, report = scopes.run("check", f"{scopes.root}/shop/")
    assert code == Damaged.exit_code
    assert {each["stream"][-1] for each in report["outcomes"] if each["status"] == "failed"} == {"d"}
    assert all(each["result"]["archive"] == each["stream"] for each in report["outcomes"])


def test_an_error_that_is_a_bug_is_told_and_stops_no_other(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    export_next = exporting.export_next

    def broken(export: Any, *others: Any, **more: Any) -> Any:
        if export.name.stream == "e":
            raise ZeroDivisionError("by s3://user:secret@host")
        return export_next(export, *others, **more)

    monkeypatch.setattr(exporting, "export_next", broken)
    code, report = scopes.run("export", scopes.uri("shop/"), scopes.root)
    assert code == 1
    assert [each["failure"] for each in report["outcomes"] if each["failure"]] == [
        {
            "what": "internal error: ZeroDivisionError: by s3://…@host",
            "where": "",
            "todo": "",
            "retriable": True,
        }
    ]


def test_python_functions_take_scopes(scopes: Scopes) -> None:
    heard = Heard()
    report = ScopeReport.of(export_stream(scopes.uri("shop/"), scopes.root, master="inline", progress=heard))
    assert_type(report, ScopeReport[ExportReport])
    assert [each.result and each.result.events for each in report.outcomes] == list(range(3, 9))
    assert sorted(text.partition(" (")[0] for text in heard.heard) == [f"{name}: done" for name in NAMES]
    alone = check_archive(f"{scopes.root}/shop/a", master="inline")
    assert alone.ok
    with pytest.raises(TypeError, match="CheckReport is the report of one stream"):
        ScopeReport.of(alone)
    with pytest.raises(Usage, match=r"^keep"):
        follow_stream(scopes.uri("shop/"), scopes.root, keep=0)


def test_archives_without_a_finished_generation_are_left_out(scopes: Scopes) -> None:
    assert scopes.outcomes("export", scopes.uri("shop/"), scopes.root) == ALL_DONE
    vault = scopes.folder / "vault/shop"
    (vault / "begun/_work/1").mkdir(parents=True)
    (vault / "begun/_work/1/plan.json").write_text("{}")
    (vault / "other").mkdir()
    (vault / "other/file").write_text("of somebody else")
    _, report = scopes.run("check", f"{scopes.root}/shop/")
    assert len(report["outcomes"]) == len(NAMES)
    assert [each["stream"] for each in report["omitted"]] == [f"{scopes.root}/shop/begun"]


@pytest.mark.parametrize("options", [{}, {"no_tombstone": True}])
def test_a_scopes_move_goes_on_with_a_stream_whose_old_name_is_gone(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    """It was killed right after the old stream was deleted."""
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)

    def killed(store: LocalStore, stream: StreamName, **more: Any) -> None:
        delete(store, stream, **more)
        if stream == StreamName("shop", "a"):
            raise Killed

    delete = LocalStore.delete
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "delete", killed)
        with pytest.raises(Killed):
            move_stream(scopes.uri("shop/a"), scopes.uri("moved/a"), master="inline", **options)
    report: Any = move_stream(scopes.uri("shop/"), scopes.uri("moved/"), master="inline", **options)
    assert [each.status for each in report.outcomes] == ["done"] * len(NAMES)
    with scopes.store as store:
        assert list(store.list_streams("moved")) == [StreamName("moved", name) for name in NAMES]
        assert store.exists(StreamName("shop", "a")) is not bool(options)
        assert [name for name in store.list_streams("moved", own=True) if name.stream not in NAMES] == []


@pytest.mark.parametrize("error", [StreamStoreUnavailable, NoSuchStream])
def test_a_move_that_fails_after_it_has_deleted_its_source_has_failed(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch, error: type[Problem]
) -> None:
    """The old stream is gone because the move has deleted it; whatever the error, the stream does not count as gone."""
    deleted = set[StreamName]()
    delete, create = LocalStore.delete, LocalStore.create_stream

    def noted(store: LocalStore, stream: StreamName, **more: Any) -> None:
        delete(store, stream, **more)
        deleted.add(stream)

    def failing(store: LocalStore, name: StreamName, *others: Any, **more: Any) -> None:
        if name in deleted:
            raise error("the store fails", where=str(name))
        create(store, name, *others, **more)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "delete", noted)
        patched.setattr(LocalStore, "create_stream", failing)
        code, report = scopes.run("move", scopes.uri("shop/"), scopes.uri("moved/"))
    assert deleted >= {StreamName("shop", name) for name in NAMES}
    assert [each["status"] for each in report["outcomes"]] == ["failed"] * len(NAMES)
    assert code == error.exit_code
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 1.0)  # the failed runs' leases are left
    assert scopes.outcomes("move", scopes.uri("shop/"), scopes.uri("moved/")) == ALL_DONE


def test_a_stream_that_somebody_else_deletes_before_its_move_is_gone(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = StreamMembers.look

    def looked(members: StreamMembers) -> Any:
        found = look(members)
        scopes.delete("c")
        return found

    monkeypatch.setattr(StreamMembers, "look", looked)
    code, report = scopes.run("move", scopes.uri("shop/"), scopes.uri("moved/"))
    assert {each["stream"][-1]: each["status"] for each in report["outcomes"]} == {**ALL_DONE, "c": "gone"}
    assert code == 0


def test_damage_of_an_archive_that_is_gone_is_still_damage(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found damaged may be the reason why somebody has removed it."""
    assert scopes.outcomes("export", scopes.uri("shop/"), scopes.root) == ALL_DONE
    plan = checking._plan_scope

    def found(source: Archive, *others: Any, **more: Any) -> Any:
        if source.stream.stream == "d":
            shutil.rmtree(scopes.folder / "vault/shop/d")
            raise Damaged("the bytes are others", where=source.uri)
        return plan(source, *others, **more)

    monkeypatch.setattr(checking, "_plan_scope", found)
    code, report = scopes.run("check", f"{scopes.root}/shop/")
    assert code == Damaged.exit_code
    assert {each["stream"][-1]: each["status"] for each in report["outcomes"]} == {**ALL_DONE, "d": "failed"}


@pytest.mark.parametrize("finished", [True, False])
def test_a_deleted_archive_is_left_out_and_named(
    scopes: Scopes, monkeypatch: pytest.MonkeyPatch, *, finished: bool
) -> None:
    archives = f"{scopes.root}/shop/"
    assert scopes.outcomes("export", scopes.uri("shop/"), scopes.root) == ALL_DONE
    with monkeypatch.context() as patched, ExitStack() as stack:
        if not finished:
            patched.setattr(deleting, "_delete", killed)
            stack.enter_context(pytest.raises(Killed))
        delete_archive(f"{archives}a", yes=True)
    rest = {name: "done" for name in NAMES if name != "a"}
    for arguments in (("check", archives), ("import", archives, scopes.uri("back/")), ("check", f"{archives}*")):
        code, report = scopes.run(*arguments)
        assert code == 0
        assert {each["stream"][-1]: each["status"] for each in report["outcomes"]} == rest
        assert report["omitted"] == [{"stream": f"{archives}a", "reason": "the archive was deleted"}]


def test_an_archive_that_is_deleted_meanwhile_is_gone(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    archives = f"{scopes.root}/shop/"
    assert scopes.outcomes("export", scopes.uri("shop/"), scopes.root) == ALL_DONE
    look = ArchiveMembers.look

    def looked(members: ArchiveMembers) -> Any:
        found = look(members)
        delete_archive(f"{archives}c", yes=True)
        return found

    monkeypatch.setattr(ArchiveMembers, "look", looked)
    code, report = scopes.run("check", archives)
    assert {each["stream"][-1]: each["status"] for each in report["outcomes"]} == {**ALL_DONE, "c": "gone"}
    assert code == 0


def test_following_takes_new_streams_and_tells_of_deleted_ones(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.02)

    def interrupt() -> None:
        raise KeyboardInterrupt

    heard = Heard(
        f_generation=lambda: scopes.make(["g"]),
        g_generation=lambda: scopes.delete("g"),
        g_deleted=interrupt,
    )
    with pytest.raises(KeyboardInterrupt):
        follow_stream(scopes.uri("shop/"), scopes.root, master="inline", every=0.02, progress=heard)
    assert f"g: new in {scopes.uri('shop/')}" in heard.heard
    assert sum("generation 1" in text for text in heard.heard) == len(NAMES) + 1


def test_an_interrupt_ends_every_stream_in_order(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replicas' leases are released, and no thread goes on."""
    resting, pause = threading.Semaphore(0), JointRun.pause

    def paused(joint: JointRun, seconds: float) -> None:
        resting.release()
        pause(joint, seconds)

    def interrupted(_: Any) -> None:
        for _each in NAMES:
            resting.acquire()
        raise KeyboardInterrupt

    monkeypatch.setattr(JointRun, "pause", paused)
    monkeypatch.setattr(running._ScopeRun, "_next_ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replicate_stream(scopes.uri("shop/"), scopes.uri("replicas/"), master="inline", follow=True, every=3600)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("stream ")]
    with scopes.store as store:
        own = [name.stream for name in store.list_streams("replicas", own=True)]
    assert set(NAMES) < set(own)
    assert not [name for name in own if name.startswith(TARGET_LEASE)]


def test_the_threads_of_streams_keep_no_memory(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    """glibc is told so before there are any; what pyarrow keeps for each, a mebibyte, it gives back when it rests."""
    released: list[str] = []
    monkeypatch.setattr(running, "give_back_large_buffers", lambda: released.append(threading.current_thread().name))

    class Pool:
        def release_unused(self) -> None:
            released.append(threading.current_thread().name)

    monkeypatch.setattr(pa, "default_memory_pool", Pool)
    follow_stream(scopes.uri("shop/"), scopes.root, master="inline", every=0.01, idle=0.05)
    monkeypatch.delattr(pa, "default_memory_pool")  # another stream's thread is just importing it
    running._give_back()
    assert released.pop(0) == "MainThread"
    assert set(released) == {f"stream {name}" for name in NAMES}


def test_rounds_end_for_a_scope_too(scopes: Scopes) -> None:
    report: Any = follow_stream(scopes.uri("shop/"), scopes.root, master="inline", every=0.05, idle=0.2)
    assert [(each.result.ended, each.result.made) for each in report.outcomes] == [("idle", 1)] * len(NAMES)
    report = follow_stream(scopes.uri("shop/"), scopes.root, master="inline", every=0.05, lasting=0.2)
    assert [each.result.ended for each in report.outcomes] == ["time"] * len(NAMES)


FILE = """
# what the nightly job archives
root = "{root}"
layout = "chunks"
keep = 2
pravega_conn_id = "only the DAGs use it"

[[streams]]
stream = "{shop}/[!ab]*"

[[streams]]
stream = "{shop}/a"  # kept by its age
layout = "events"
keep_for = "90d"

[[streams]]
stream = "{shop}/b*"
window = "64MiB"
"""


def declare(scopes: Scopes, text: str) -> str:
    file = scopes.folder / "streams.toml"
    text = text.replace("[!ab]*", "c*")
    file.write_text(text.replace("{root}", scopes.root).replace("{shop}", scopes.uri("shop")))
    return str(file)


def test_each_stream_has_its_own_options(scopes: Scopes) -> None:
    file = declare(scopes, FILE)
    code, report = scopes.run("rotate", "--config", file)
    assert code == 0
    assert report["scope"] == file
    assert [each["stream"] for each in report["outcomes"]] == [scopes.uri(f"shop/{name}") for name in "abc"]
    found = {each["stream"][-1]: each["result"]["archive"] for each in report["outcomes"]}
    assert found == {name: f"{scopes.root}/shop/{name}" for name in "abc"}
    layouts = {name: (scopes.folder / "vault/shop" / name / "chunks").exists() for name in "abc"}
    assert layouts == {"a": False, "b": True, "c": True}


def test_the_command_line_says_what_the_file_does_not(scopes: Scopes) -> None:
    text = 'root = "{root}"\nstreams = ["{shop}/a", "{shop}/c"]\n'
    code, report = scopes.run("export", "--config", declare(scopes, text), "--layout", "chunks", "--dry-run")
    assert (code, report["dry_run"], len(report["outcomes"])) == (0, True, 2)
    assert not (scopes.folder / "vault").exists()
    code, report = scopes.run("export", "--config", declare(scopes, text), "--layout", "chunks")
    assert all((scopes.folder / "vault/shop" / name / "chunks").exists() for name in "ac")
    archives = 'streams = ["{root}/shop/a", { archive = "{root}/shop/", subset = "100%" }]'
    code, report = scopes.run("check", "--config", declare(scopes, archives.partition(",")[0] + "]"))
    assert [each["result"]["ranges_read"] for each in report["outcomes"]] == [0]
    archives = 'streams = [{ archive = "{root}/shop/", read_data = "yes" }]'
    code, report = scopes.run("check", "--config", declare(scopes, archives))
    assert [each["result"]["ranges_read"] > 0 for each in report["outcomes"]] == [True, True]


def test_an_entry_may_name_a_schema_registry(scopes: Scopes) -> None:
    entry = '{ stream = "{shop}/b", schemas = "URL", schema_group = "group" }'
    exports = f'root = "{{root}}"\nstreams = ["{{shop}}/a", {entry}]'
    tables = 'streams = [{ source = "{root}/shop/b", decode = "registry", registry = "URL", group = "other" }]'
    with Group(1) as server:
        assert scopes.run("export", "--config", declare(scopes, exports.replace("URL", server.url)))[0] == 0
        code, report = scopes.run("handoff", "--config", declare(scopes, tables.replace("URL", server.url)))
    noted = [Archive.open(f"{scopes.root}/shop/{name}").manifest().schemas for name in "ab"]
    assert [group and group.group for group in noted] == [None, "group"]
    assert code == 4
    assert report["outcomes"][0]["failure"]["where"] == "the schema groups group and other differ"


def test_copies_are_declared_in_pairs(scopes: Scopes) -> None:
    text = """
[[streams]]
source = "{shop}/"
stream = "{shop}2/"

[[streams]]
source = "{shop}/a"
stream = "{shop}3/other"
"""
    code = main(["copy", "--config", declare(scopes, text), "--master", "inline"])
    assert code == 2  # `a` is listed twice
    scopes.make(["x"], scope="shop4")
    code, report = scopes.run("copy", "--config", declare(scopes, text.replace("{shop}/a", "{shop}4/x")))
    assert (code, len(report["outcomes"])) == (0, 7)
    assert scopes.digest("shop3", "other") == scopes.digest("shop4", "x")


def test_a_declared_stream_that_is_not_there_has_failed(scopes: Scopes) -> None:
    file = declare(scopes, 'root = "{root}"\nstreams = ["{shop}/x", "{shop}/a"]')
    code, report = scopes.run("export", "--config", file)
    assert code == 5
    assert {each["stream"][-1]: each["status"] for each in report["outcomes"]} == {"x": "failed", "a": "done"}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('root = "{root}"\nkep = 3\nstreams = ["{shop}/a"]', 2, "unknown key kep: {file}:2. Did you mean keep?"),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\n\n# x\nkeepfor = "1d"', 6, "unknown key keepfor"),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\nkeep_for = "soon"', 4, "keep_for: "),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\nkeep = 0', 4, "keep: "),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\nkeep = 1\nkeep_for = "1d"', 2, "mutually exclusive"),
        ('root = "{root}"\ndry_run = true\nstreams = ["{shop}/a"]', 2, "unknown key dry_run"),
        ('root = "{root}"\nmaster = "inline"\nstreams = ["{shop}/a"]', 2, "unknown key master"),
        ('root = "{root}"\nstop_after = "soon"\nstreams = ["{shop}/a"]', 2, "stop_after: 'soon' is not a duration"),
        ('root = 5\nstreams = ["{shop}/a"]', 1, "root: "),
        ('root = "{root}"\nstreams = []', 2, "streams: "),
        ('root = "{root}"', 1, "no streams are declared: {file}:1. Write a table [[streams]] for each, or streams ="),
        ('root = "{root}"\n[[steams]]\nstream = "{shop}/a"', 2, "unknown key steams: {file}:2. Did you mean streams?"),
        ('root = "{root}"\n[[streams]]\nstrem = "{shop}/a"', 3, "unknown key strem: {file}:3. Did you mean stream?"),
        ('[[streams]]\nstream = "{shop}/a"', 1, "root is missing"),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\n[[streams]]\nstream = "{shop}/x*"', 4, "nothing matches"),
        ('root = "{root}"\nstreams = [\n"{shop}/a",\n"{shop}/a"]', 2, "the stream is listed twice"),
        ('root = "{root}"\nstreams = ["{root}/a"]', 2, "not a stream's URI"),
        ('root = "{root}"\nstreams = ["{shop}/b b"]', 2, "invalid stream name"),
        ("root = ", 0, "the file is not TOML"),
        (f"x = {'[' * 10_000}", 0, "the file is not TOML"),
        (f"keep = {'9' * 5000}", 0, "the file is not TOML"),
    ],
)
def test_each_error_has_its_line(scopes: Scopes, text: str, line: int, said: str, ran: Ran) -> None:
    file = declare(scopes, text)
    told = ran("rotate", "--config", file, "--master", "inline", code=2).err
    assert said.replace("{file}", file) in told
    assert (f"{file}:{line}" if line else file) in told
    assert not (scopes.folder / "vault").exists()


def test_a_file_takes_the_place_of_the_arguments(scopes: Scopes, ran: Ran) -> None:
    file = declare(scopes, 'root = "{root}"\nstreams = ["{shop}/a"]')
    assert (
        "--config takes the place of the arguments" in ran("export", scopes.uri("shop/b"), "--config", file, code=2).err
    )
    assert main(["export"]) != 0
    assert "Missing argument 'ROOT'" in ran("export", scopes.uri("shop/b"), code=2).err
    assert "--config cannot be read" in ran("export", "--config", f"{file}x", code=2).err


def test_no_variable_names_the_file(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMVAULT_CONFIG", declare(scopes, FILE))
    assert main(["rotate"]) != 0
    assert set(scopes.outcomes("export", scopes.uri("shop/"), scopes.root)) == set(NAMES)


def test_lines_of_values() -> None:
    text = 'a = [\n 1,\n 2 ]\n\n# b = 3\nb = """\nb = 4\n"""\n[[s]]\nx = 1\n[[s]]\n\ny.z = 2\n'
    places: dict[tuple[str | int, ...], int] = {
        ("a",): 1,
        ("b",): 6,
        ("s", 0): 9,
        ("s", 0, "x"): 10,
        ("s", 1): 11,
        ("s", 1, "y", "z"): 13,
        ("s", 1, "none"): 11,
        ("none",): 1,
    }
    assert {path: line_of(text, path) for path in places} == places
    text = 'a = 1 # \u2028 is no end of a line\r\nb = """\r\n]\r\n"""\r\nc = { d = [\n{ e = 1 }\n] }'
    assert [line_of(text, (key,)) for key in "abc"] == [1, 2, 5]


def test_the_line_in_a_long_file_is_found_without_reading_it_for_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    really = tomllib.loads
    monkeypatch.setattr("streamvault.scopes.entries.tomllib.loads", lambda text: read.append(len(text)) or really(text))
    tables = "".join(f'[[streams]]\nstream = "local:///a/b/{number}"\n' for number in range(500)) + "unknown = 1\n"
    array = "streams = [\n" + '{ stream = "local:///a/b/c" },\n' * 1000 + "]\nunknown = 1\n"
    for text, path, line in ((tables, ("streams", 499, "unknown"), 1001), (array, ("unknown",), 1003)):
        read.clear()
        assert line_of(text, path) == line
        assert sum(read) < 20 * len(text)
