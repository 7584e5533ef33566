"""Joining streams and archives of the embedded store into a new stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamvault import append_streams, copy_stream, export_stream, import_stream, join_streams
from streamvault.cli import main
from streamvault.common.errors import Conflict, Overtaken
from streamvault.concat.append import NewTarget
from streamvault.concat.stitching import Stitching, StitchTarget
from streamvault.importer.target import TargetTaken
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import RetentionKind, Scaling, StreamName
from testkit.killed import Killed, killed
from tests.commands.concat.keyed import Keyed
from tests.commands.concat.test_append import SHAPES, check_places, make
from tests.commands.replication.streams import leave_leases


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path / "streams")


def test_streams_and_an_archive_are_joined(keyed: Keyed, tmp_path: Path) -> None:
    """Their epochs share the boundary in the middle, and nothing else."""
    one, two = make(keyed, "one", (2, [[0.25, 0.5, 0.75]])), make(keyed, "two", (4, [[0.5]]))
    three = make(keyed, "three", (2, []))
    export_stream(keyed.uri("two"), f"file://{tmp_path}/vault", master="inline[2]")
    archive = f"file://{tmp_path}/vault/scope/two"
    report = join_streams([keyed.uri("one"), archive, keyed.uri("three")], keyed.uri("all"), master="inline[2]")
    assert keyed.by_key("all") == keyed.expected(("one", one), ("two", two), ("three", three))
    check_places(keyed, report)
    with keyed.store as store:
        described = store.describe(StreamName("scope", "all"))
    configuration = described.configuration
    assert [held.low for held in described.epochs[-1].segments.values()] == [0.0, 0.5]
    assert report.segments == 2
    assert (configuration.scaling, configuration.tags) == (Scaling(min_segments=2), ())
    assert configuration.retention.kind is RetentionKind.NONE


@pytest.mark.parametrize("source", SHAPES)
def test_joined_stream_has_every_event_in_order(keyed: Keyed, source: tuple[int, list[list[float]]]) -> None:
    one, two = make(keyed, "one", source), make(keyed, "two", SHAPES[2])
    join_streams([keyed.uri("two"), keyed.uri("one")], keyed.uri("all"), master="inline[2]")
    assert keyed.by_key("all") == keyed.expected(("two", two), ("one", one))


def test_repeated_join_changes_nothing_and_append_adds_what_is_new(keyed: Keyed) -> None:
    keyed.make("one", 2, events=30)
    keyed.make("two", events=10)
    uris = [keyed.uri("one"), keyed.uri("two")]
    first = join_streams(uris, keyed.uri("all"), master="inline[2]")
    keyed.write("one", 20)
    again = join_streams(uris, keyed.uri("all"), master="inline[2]")
    assert (first.unchanged, again.unchanged, again.bytes) == (False, True, 0)
    assert len(keyed.payloads("all")) == 40
    append_streams(uris, keyed.uri("all"), master="inline[2]")
    assert keyed.by_key("all") == keyed.expected(("one", range(30)), ("two", range(10)), ("one", range(30, 50)))


@pytest.mark.parametrize(("swapped", "distinct"), [(True, False), (False, True)])
@pytest.mark.parametrize("finished", [True, False])
def test_join_in_another_order_or_with_other_options_is_another_one(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch, *, swapped: bool, distinct: bool, finished: bool
) -> None:
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    keyed.make("one", events=30)
    keyed.make("two", events=30)
    uris = [keyed.uri("one"), keyed.uri("two")]
    if finished:
        join_streams(uris, keyed.uri("all"), master="inline")
    else:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Stitching, "run", killed)
            leave_leases(patched)
            with pytest.raises(Killed):
                join_streams(uris, keyed.uri("all"), master="inline")
    other = list(reversed(uris)) if swapped else uris
    said = "in another order, or with another distinct" if finished else "the unfinished target of another"
    for dry_run in (True, False):
        with pytest.raises(TargetTaken, match=said):
            join_streams(other, keyed.uri("all"), master="inline", distinct=distinct, dry_run=dry_run)
    assert join_streams(uris, keyed.uri("all"), master="inline").unchanged == finished
    assert keyed.by_key("all") == keyed.expected(("one", range(30)), ("two", range(30)))


def test_unfinished_join_is_left_alone_by_others_and_resumed(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    keyed.make("one", 2, events=30)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NewTarget, "finish", killed)
        leave_leases(patched)
        with pytest.raises(Killed):
            join_streams([keyed.uri("one")], keyed.uri("all"), master="inline[2]")
    keyed.make("two", events=5)
    for other in (
        lambda: join_streams([keyed.uri("two")], keyed.uri("all"), master="inline"),
        lambda: append_streams([keyed.uri("two")], keyed.uri("all"), master="inline"),
        lambda: copy_stream(keyed.uri("two"), keyed.uri("all"), master="inline"),
        lambda: copy_stream(keyed.uri("all"), keyed.uri("other"), master="inline"),
    ):
        with pytest.raises(Conflict):
            other()
    report = join_streams([keyed.uri("one")], keyed.uri("all"), master="inline[2]")
    assert (report.resumed, report.moved_bytes) == (True, 0)
    assert keyed.by_key("all") == keyed.expected(("one", range(30)))


def test_join_that_is_late_does_not_finish_a_stream_that_was_begun_again(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed.make("one", 2, events=30)
    uris = [keyed.uri("one")], keyed.uri("all")
    real = NewTarget.finish

    def finish(new: NewTarget, target: StitchTarget) -> None:
        with keyed.store as store:
            store.delete(StreamName("scope", "all"))
        monkeypatch.setattr(Stitching, "run", killed)
        with pytest.raises(Killed):
            join_streams(*uris, master="inline")
        monkeypatch.undo()
        real(new, target)

    monkeypatch.setattr(NewTarget, "finish", finish)
    with pytest.raises(Overtaken, match="deleted and created again"):
        join_streams(*uris, master="inline")
    assert "all" in keyed.own()
    assert join_streams(*uris, master="inline").moved_bytes
    assert keyed.by_key("all") == keyed.expected(("one", range(30)))


def test_stream_that_exists_is_not_joined_into(keyed: Keyed, tmp_path: Path) -> None:
    keyed.make("one", events=3)
    keyed.make("all", events=2)
    with pytest.raises(TargetTaken, match="the stream exists"):
        join_streams([keyed.uri("one")], keyed.uri("all"), master="inline")
    append_streams([keyed.uri("one")], keyed.uri("all"), master="inline")
    with pytest.raises(TargetTaken, match="the stream exists"):
        join_streams([keyed.uri("one")], keyed.uri("all"), master="inline")
    assert len(keyed.payloads("all")) == 5
    # a stream that is joined is like any other
    join_streams([keyed.uri("one")], keyed.uri("joined"), master="inline")
    export_stream(keyed.uri("joined"), f"file://{tmp_path}/vault", master="inline")
    import_stream(f"file://{tmp_path}/vault/scope/joined", keyed.uri("back"), master="inline")
    assert keyed.by_key("back") == keyed.by_key("one")


def test_empty_streams_are_joined(keyed: Keyed) -> None:
    keyed.make("one", 2)
    report = join_streams([keyed.uri("one")], keyed.uri("all"), master="inline")
    assert (report.bytes, report.places, report.unchanged) == (0, (), False)
    assert keyed.payloads("all") == []


def test_command_prints_what_it_joins(keyed: Keyed, capfd: pytest.CaptureFixture[str]) -> None:
    keyed.make("one", 2, events=30)
    command = ["join", keyed.uri("one"), "--into", keyed.uri("all"), "--master", "inline"]
    assert main([*command, "--dry-run", "--json"]) == 0
    assert (json.loads(capfd.readouterr().out)["segments"], keyed.own()) == (2, [])
    with keyed.store as store:
        assert not store.exists(StreamName("scope", "all"))
    assert main([*command, "--dry-run"]) == 0
    assert f"would join {keyed.uri('one')} into {keyed.uri('all')}" in capfd.readouterr().out
    assert main(command) == 0
    assert f"joined {keyed.uri('one')} into {keyed.uri('all')}" in capfd.readouterr().out
    assert main(command) == 0
    assert "already joined" in capfd.readouterr().out


def paused_in_run(keyed: Keyed, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let something happen while a join is about to append."""
    real = Stitching.run

    def run(self: Stitching, *given: Any) -> Any:
        monkeypatch.setattr(Stitching, "run", real)
        meanwhile()
        return real(self, *given)

    monkeypatch.setattr(Stitching, "run", run)
    join_streams([keyed.uri("one")], keyed.uri("all"), master="inline")


def test_late_join_appends_nothing_to_what_is_its_users(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run has finished the stream, and its user has deleted the ledger that says so."""
    keyed.make("one", events=30)

    def meanwhile() -> None:
        join_streams([keyed.uri("one")], keyed.uri("all"), master="inline")
        with keyed.store as store:
            for name in keyed.own():
                store.delete(StreamName("scope", name))

    with pytest.raises(Overtaken, match="another process has finished the stream"):
        paused_in_run(keyed, monkeypatch, meanwhile)
    assert keyed.by_key("all") == keyed.expected(("one", range(30)))


def test_late_scale_of_a_join_is_refused(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is late with its scale for two segments, when another one needs but one, and has finished the stream."""
    keyed.make("one", 2, events=30)
    real = LocalStore.scale

    def scale(self: LocalStore, stream: StreamName, *given: Any) -> Any:
        if stream.stream == "all":
            monkeypatch.setattr(LocalStore, "scale", real)
            keyed.scale("one", [])
            with keyed.store as store:
                store.truncate(store.describe(StreamName("scope", "one")).tail)
            keyed.write("one", 5)
            join_streams([keyed.uri("one")], keyed.uri("all"), master="inline")
        return real(self, stream, *given)

    monkeypatch.setattr(LocalStore, "scale", scale)
    with pytest.raises(Overtaken, match="another process has finished the stream"):
        join_streams([keyed.uri("one")], keyed.uri("all"), master="inline")
    assert len(keyed.tail("all")) == 1
    assert keyed.by_key("all") == keyed.expected(("one", range(30, 35)))
