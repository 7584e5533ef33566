"""Cut-overs: what may fail or take long comes before the source is sealed, and a replication gives way to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import streamvault.manifests.archive.rounds
from streamvault import copy_stream, promote_replica, replicate_stream
from streamvault.common.errors import Conflict, Problem
from streamvault.importer import plan
from streamvault.importer.lease import lease_stream
from streamvault.importer.replay import CannotReplay, plan_replay
from streamvault.importer.target import TargetTaken
from streamvault.importer.verify import Differs
from streamvault.mirrors import cutover
from streamvault.mirrors.replica import Replica, ReplicaPromoted
from streamvault.mirrors.source import StreamSource
from streamvault.streamstore.errors import AccessDenied, RequestFailed
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Retention, RetentionKind, StreamConfiguration, StreamDescription, StreamName
from streamvault.streamstore.own import MOST_TAGS, TARGET_LEDGER, TARGET_PROBE, stream_beside
from streamvault.streamstore.services.lease import Lease
from tests.streams import digest_of, events_of, make_stream
from tests.unit.mirrors.test_replicate import TARGET, Killed, Streams, assert_same, assert_same_events, killed
from tests.unit.small_archives import NAME

ENDS = ["promotion", "move"]


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    streams = Streams(tmp_path / "streams")
    with streams.store as store:
        make_stream(store, NAME, events=40)
    return streams


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.streamstore.services.lease.PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr("streamvault.mirrors.promote.WAIT_SECONDS", 0.1)
    monkeypatch.setattr("streamvault.mirrors.move.WAIT_SECONDS", 0.1)


def cut_over(streams: Streams, end: str, **options: Any) -> Any:
    """Promote the replica and seal its source, or move its source to it."""
    return streams.promote(seal_source=True, **options) if end == "promotion" else streams.move(**options)


def configured(streams: Streams, name: StreamName = NAME) -> StreamConfiguration:
    with streams.store as store:
        return store.describe(name).configuration


def configure(streams: Streams, **changes: Any) -> None:
    with streams.store as store:
        store.update_stream(NAME, replace(store.describe(NAME).configuration, **changes))


def assert_open(streams: Streams) -> None:
    with streams.store as store:
        assert not store.describe(NAME).sealed


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ENDS)
def test_sleeping_replication_gives_way(streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    def sleep(_: float) -> None:
        streams.add(b"while it sleeps")
        reports.append(cut_over(streams, end))

    reports: list[Any] = []
    asleep = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(streamvault.manifests.archive.rounds, "time", asleep)
    if end == "promotion":
        assert streams.replicate(follow=True, every=300).ended == "sealed"
        assert_same(streams, sealed=False)
    else:
        with pytest.raises(ReplicaPromoted):  # there is no source any more
            streams.replicate(follow=True, every=300)
    assert len(reports) == 1


@pytest.mark.parametrize("gone", ["moved", "moved without a tombstone", "promoted, the source lost"])
def test_replication_of_what_is_gone_says_that_its_replica_was_promoted(streams: Streams, gone: str) -> None:
    """Otherwise a service manager would start it again and again."""
    streams.replicate()
    if gone == "promoted, the source lost":
        streams.promote()
        with streams.store as store:
            store.delete(NAME)
    else:
        streams.move(no_tombstone=gone != "moved")
    with pytest.raises(ReplicaPromoted):
        streams.replicate(follow=True)


@pytest.mark.parametrize("end", ENDS)
def test_replica_has_caught_up_when_its_source_is_sealed(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    def seal(source: StreamSource, described: StreamDescription) -> None:
        with streams.store as store:
            assert digest_of(store, TARGET) == digest_of(store, NAME)
        really(source, described)

    really = StreamSource.seal
    streams.replicate()
    streams.add(b"not replicated yet")
    monkeypatch.setattr(StreamSource, "seal", seal)
    assert cut_over(streams, end).moved_bytes > 0


@pytest.mark.parametrize("end", ENDS)
def test_source_with_too_many_tags_is_not_sealed(streams: Streams, end: str) -> None:
    configure(streams, tags=tuple(f"tag-{number:03}" for number in range(MOST_TAGS)))
    streams.replicate()
    with pytest.raises(Conflict, match=r"has 127 tags and gets one more.*was not sealed"):
        cut_over(streams, end)
    assert_open(streams)
    configure(streams, tags=configured(streams).tags[1:])
    cut_over(streams, end)
    assert len(configured(streams, TARGET).tags) == MOST_TAGS


def test_replica_of_a_lost_source_with_too_many_tags_is_promoted(streams: Streams) -> None:
    configure(streams, tags=tuple(f"tag-{number:03}" for number in range(MOST_TAGS)))
    streams.replicate()
    streams.promote()
    assert len(configured(streams, TARGET).tags) == MOST_TAGS


@pytest.mark.parametrize("end", ENDS)
def test_source_is_not_sealed_if_its_policies_are_refused(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    def update(store: LocalStore, stream: StreamName, configuration: StreamConfiguration, **was: Any) -> None:
        if configuration.retention.kind is RetentionKind.SIZE:
            raise RequestFailed("this policy is not possible here", where=str(stream))
        really(store, stream, configuration, **was)

    configure(streams, retention=Retention(RetentionKind.SIZE, 10**6))
    streams.replicate()
    really = LocalStore.update_stream
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "update_stream", update)
        with pytest.raises(RequestFailed, match="not possible here"):
            cut_over(streams, end)
        assert_open(streams)
        assert stream_beside(TARGET, TARGET_PROBE) not in streams.own()
        assert configured(streams, TARGET).retention.kind is RetentionKind.NONE
        cut_over(streams, end, retention="off")
    assert streams.own() == []


@pytest.mark.parametrize("end", ENDS)
def test_policies_of_before_the_seal_are_set(streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Those were tried; others may be refused when the source is sealed already."""

    def seal(source: StreamSource, described: StreamDescription) -> None:
        configure(streams, tags=tuple(f"tag-{number:03}" for number in range(MOST_TAGS)))
        really(source, described)

    tags = configured(streams).tags
    streams.replicate()
    really = StreamSource.seal
    monkeypatch.setattr(StreamSource, "seal", seal)
    cut_over(streams, end)
    assert set(configured(streams, TARGET).tags).issuperset(tags)


@pytest.mark.parametrize("end", ENDS)
def test_seal_that_was_denied_leaves_no_trace(streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """The source's user may seal it later, and then the promoted stream is sealed, too."""

    def seal(store: LocalStore, stream: StreamName, **first: Any) -> None:
        if stream == NAME:
            raise AccessDenied("not allowed", where=str(stream))
        really(store, stream, **first)

    streams.replicate()
    really = LocalStore.seal
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "seal", seal)
        with pytest.raises(AccessDenied):
            cut_over(streams, end)
    streams.add(b"it is still written to")
    with streams.store as store:
        store.seal(NAME)
    streams.replicate()
    streams.promote()
    assert_same_events(streams)
    with streams.store as store:
        assert store.describe(TARGET).sealed


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", [TARGET, StreamName("scope", "another")])
def test_source_that_a_cut_over_sealed_is_not_taken_for_one_that_its_user_sealed(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str, name: StreamName
) -> None:
    """The replica is deleted after that, with all that was noted beside it; the next one may have another name."""
    streams.replicate()
    killed(monkeypatch, "update_stream", TARGET, lambda: cut_over(streams, end))
    with streams.store as store:
        assert store.describe(NAME).sealed
        for gone in (TARGET, stream_beside(TARGET, TARGET_LEDGER), lease_stream(TARGET)):
            store.delete(gone)
        uri = streams.target.replace(str(TARGET), str(name))
        replicate_stream(streams.source, uri, master="inline")
        promote_replica(uri, master="inline")
        assert not store.describe(name).sealed


def test_move_leaves_nothing_beside_its_source(streams: Streams) -> None:
    streams.move(no_tombstone=True)
    with streams.store as store:
        assert [*store.list_streams(NAME.scope, own=True)] == [TARGET]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_numbers_that_cannot_be_kept(streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str, when: str) -> None:
    """Before the seal it is an error; after it, a transaction was committed over a scale at the last moment."""

    def replay(epochs: Any, numbers: Any) -> Any:
        if numbers == "keep" and refuses:
            raise CannotReplay("a transaction was committed over a scale")
        return plan_replay(epochs, numbers)

    def seal(source: StreamSource, described: StreamDescription) -> None:
        streams.scale()
        streams.add(b"of the transaction")
        refuses.append(True)
        with streams.store as store:
            before.append(digest_of(store, NAME))
        really(source, described)

    refuses, before = [], []  # type: ignore[var-annotated]
    streams.replicate(numbers="keep")
    really = StreamSource.seal
    monkeypatch.setattr(plan, "plan_replay", replay)
    monkeypatch.setattr(StreamSource, "seal", seal)
    options = {} if end == "promotion" else {"numbers": "keep"}
    if when == "before":
        refuses.append(True)
        with pytest.raises(CannotReplay):
            cut_over(streams, end, **options)
        assert_open(streams)
    else:
        cut_over(streams, end, **options)
        with streams.store as store:
            assert digest_of(store, TARGET) == before[0]


def test_move_maps_numbers_where_needed(streams: Streams) -> None:
    """As when a stream moves back to a name that it had before."""
    with streams.store as store:
        make_stream(store, TARGET, events=3)
        store.delete(TARGET)
        before = digest_of(store, NAME)[0]
    assert streams.move().renumbered
    with streams.store as store:
        assert digest_of(store, TARGET)[0] == before


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", [*ENDS, "plain"])
@pytest.mark.parametrize("retention", ["keep", "off"])
def test_retention_of_a_replica_that_keeps_its_head(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str, retention: str
) -> None:
    def finish(**options: Any) -> Any:
        return streams.promote(**options) if end == "plain" else cut_over(streams, end, **options)

    kept = Retention(RetentionKind.TIME, 3_600_000)
    configure(streams, retention=kept)
    streams.replicate(keep_head=True)
    streams.truncate()
    streams.replicate()
    killed(monkeypatch, "update_stream", TARGET, lambda: finish(retention=retention))
    report = finish()  # what was chosen stays chosen
    assert configured(streams, TARGET).retention == (kept if retention == "keep" else Retention())
    assert [("will truncate it" in warning, "--retention off" in warning) for warning in report.warnings] == (
        [(True, True)] if retention == "keep" else []
    )


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", [*ENDS, "plain"])
def test_retention_that_is_chosen_when_a_killed_run_is_repeated(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    def finish(**options: Any) -> Any:
        return streams.promote(**options) if end == "plain" else cut_over(streams, end, **options)

    configure(streams, retention=Retention(RetentionKind.TIME, 3_600_000))
    streams.replicate()
    killed(monkeypatch, "update_stream", TARGET, finish)
    finish(retention="off")
    assert configured(streams, TARGET).retention == Retention()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", [*ENDS, "plain"])
def test_retention_is_not_chosen_after_the_policies_were_set(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    def finish(**options: Any) -> Any:
        return streams.promote(**options) if end == "plain" else cut_over(streams, end, **options)

    kept = Retention(RetentionKind.TIME, 3_600_000)
    configure(streams, retention=kept)
    streams.replicate()
    with monkeypatch.context() as patched:
        patched.setattr(Replica, "_configure", _killed_after(Replica._configure))
        patched.setattr(Lease, "release", lambda lease, **_: lease._stop.set() or lease._appender.close())
        with pytest.raises(Killed):
            finish()
    with pytest.raises(Conflict, match="has its source's retention policy already"):
        finish(retention="off")
    finish()
    assert configured(streams, TARGET).retention == kept


def _killed_after(really: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        really(*args)
        raise Killed

    return call


def test_no_advice_to_delete_what_writers_have_moved_to(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(*_: Any) -> Any:
        raise Differs("the restored bytes differ from the source's", todo="Delete it.")

    monkeypatch.setattr("streamvault.importer.run.verify_range", differ)
    with pytest.raises(Problem) as caught:
        streams.move()
    assert "Delete" not in caught.value.todo
    assert "Keep both" in caught.value.todo


def when_the_old_cluster_is_back(streams: Streams) -> None:
    streams.replicate()
    streams.promote()
    streams.add(b"written to the old stream by a writer that was late")


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda streams: streams.replicate(), "is a promoted replica of"),
        (lambda streams: streams.move(), "is a promoted replica of"),
        (lambda streams: Streams.replicate(Backwards(streams.folder)), "was a replica of"),
        (lambda streams: Streams.move(Backwards(streams.folder)), "was a replica of"),
    ],
    ids=["replicate", "move", "replicate back", "move back"],
)
def test_no_advice_to_delete_what_was_not_replicated(
    streams: Streams, act: Callable[[Streams], object], what: str
) -> None:
    when_the_old_cluster_is_back(streams)
    with pytest.raises(TargetTaken, match=what) as caught:
        act(streams)
    assert "elete" not in caught.value.todo


def test_what_was_not_replicated_is_copied_from_the_tail_in_the_report(streams: Streams) -> None:
    """As the guide says what to do when the old cluster is back."""
    streams.replicate()
    tail = streams.promote().tail
    streams.add(b"late")
    late = replace(NAME, stream="late")
    copy_stream(streams.source, f"local://{streams.folder}/{late}", from_cut=tail, master="inline")
    with streams.store as store:
        assert {payload for _, payload in events_of(store, late)} == {b"late"}
    back = replace(NAME, stream="back")
    replicate_stream(streams.target, f"local://{streams.folder}/{back}", master="inline")


class Backwards(Streams):
    """The streams with source and target swapped."""

    @property
    def source(self) -> str:
        return f"local://{self.folder}/{TARGET}"

    @property
    def target(self) -> str:
        return f"local://{self.folder}/{NAME}"


def test_rounds_before_the_seal_end_if_they_do_not_become_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([40.0, 20.0, 15.0, 14.0, 1.0])
    clock = [0.0]

    def one_round() -> Any:
        clock[0] += next(took)
        return SimpleNamespace(sealed=False)

    monkeypatch.setattr(cutover, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    cutover.catch_up(SimpleNamespace(round=one_round))  # type: ignore[arg-type]
    assert next(took) == 1.0
