"""Streams, archives and parts of a stream that are put together in a new one."""

from __future__ import annotations

import json
import re
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
from streamvault.streamstore.model import RetentionKind, Scaling, StreamCut, StreamName
from testkit.killed import Killed, before_call, killed
from testkit.scenes import Keyed, leave_leases
from tests.commands.concat.test_append import SHAPES, check_places, make
from tests.told import Ran


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


def test_command_prints_what_it_joins(keyed: Keyed, ran: Ran) -> None:
    keyed.make("one", 2, events=30)
    command = ["join", keyed.uri("one"), "--into", keyed.uri("all"), "--master", "inline"]
    assert (json.loads(ran(*command, "--dry-run", "--json").out)["segments"], keyed.own()) == (2, [])
    with keyed.store as store:
        assert not store.exists(StreamName("scope", "all"))
    assert f"would join {keyed.uri('one')} into {keyed.uri('all')}" in ran(*command, "--dry-run").out
    assert f"joined {keyed.uri('one')} into {keyed.uri('all')}" in ran(*command).out
    assert "already joined" in ran(*command).out


def paused_in_run(keyed: Keyed, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let something happen while a join is about to append."""
    before_call(monkeypatch, Stitching, "run", meanwhile)
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


Cut = dict[str, int]


@pytest.fixture
def cuts(keyed: Keyed) -> list[Cut]:
    """The tails of a stream after its head and after each 20 events, with a scale after 40."""
    found = []
    keyed.make("one", 2)
    for bounds in ([], [], [0.25, 0.5], []):
        found.append(tail(keyed))
        if bounds:
            keyed.scale("one", bounds)
        keyed.write("one", 20)
    return [*found, tail(keyed)]


def tail(keyed: Keyed) -> Cut:
    return {segment.in_stream(StreamName("scope", "one")): offset for segment, offset in keyed.tail("one").items()}


def test_ranges_are_copied_one_behind_the_other(keyed: Keyed, cuts: list[Cut]) -> None:
    ranges = [(cuts[0], cuts[1]), (cuts[2], cuts[3])]
    report = copy_stream(keyed.uri("one"), keyed.uri("some"), ranges=ranges, master="inline[2]")
    assert keyed.by_key("some") == keyed.expected(("one", range(20)), ("one", range(40, 60)))
    assert report.bytes == report.moved_bytes == sum(place.end - place.start for place in report.places)
    assert copy_stream(keyed.uri("one"), keyed.uri("some"), ranges=ranges, master="inline").unchanged
    touching = [(cuts[1], cuts[2]), (cuts[2], cuts[4])]
    copy_stream(keyed.uri("one"), keyed.uri("all"), ranges=touching, master="inline")
    assert keyed.by_key("all") == keyed.expected(("one", range(20, 80)))


def test_what_was_truncated_is_missing(keyed: Keyed, cuts: list[Cut]) -> None:
    with keyed.store as store:
        store.truncate(StreamCut.from_json(cuts[2], StreamName("scope", "one")))
    ranges = [(cuts[0], cuts[1]), (cuts[1], cuts[3])]
    report = copy_stream(keyed.uri("one"), keyed.uri("some"), ranges=ranges, master="inline")
    assert keyed.by_key("some") == keyed.expected(("one", range(40, 60)))
    assert "truncated beyond the beginning of a range" in report.warnings[0]


ORDER = r"the ranges overlap, or are not in the stream's order: offset \d+ of scope/one/\d+\.#epoch\.\d"


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["--range", "2", "1"], 2, r"a range ends before it begins: offset \d+ of scope/one/[01]\.#epoch\.0"),
        (["--range", "3", "4", "--range", "0", "1"], 2, ORDER),
        (["--range", "0", "2", "--range", "1", "3"], 2, ORDER),
        (["--range", "0", "2", "--range", "0", "2"], 2, ORDER),
        (["--range", "0", "inside"], 2, r"inside an event.*scope/one/[01]\.#epoch\.0"),
        (["--range", "0", "other"], 2, "a stream cut of scope/one names a segment of another stream"),
        (["--range", "0", "absent.json"], 2, r"absent\.json"),
        (["--range", "0", "1", "--from", "0"], 2, "--from cannot be used with --range"),
        (["--range", "0", "1", "--method", "events"], 2, "--range"),
        (["--range", "0"], 2, "--range"),
    ],
)
def test_what_cannot_be_copied(
    keyed: Keyed, cuts: list[Cut], ran: Ran, given: list[str], code: int, message: str
) -> None:
    texts = {str(number): json.dumps(cut) for number, cut in enumerate(cuts)}
    texts["inside"] = json.dumps({name: offset + 3 for name, offset in cuts[1].items()})
    texts["other"] = json.dumps({"scope/two/0.#epoch.0": 0})
    command = ["copy", keyed.uri("one"), keyed.uri("some"), "--master", "inline"]
    error = ran(*command, *(texts.get(one, one) for one in given), code=code).err
    assert re.search(message, error), error
    with keyed.store as store:
        assert not store.exists(StreamName("scope", "some"))


def test_command_takes_pairs_of_cuts(
    keyed: Keyed, cuts: list[Cut], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.json").write_text(json.dumps(cuts[1]))
    pairs = ["--range", json.dumps(cuts[0]), str(tmp_path / "cut.json")]
    pairs += ["--range", json.dumps(cuts[3]), json.dumps(cuts[4])]
    command = ["copy", keyed.uri("one"), keyed.uri("some"), "--master", "inline", *pairs]
    assert main([*command, "--dry-run"]) == 0
    assert "would copy" in capfd.readouterr().out
    assert main(command) == 0
    assert keyed.by_key("some") == keyed.expected(("one", range(20)), ("one", range(60, 80)))
    assert "-> scope/some/" in capfd.readouterr().out
