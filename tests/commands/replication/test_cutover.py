"""Cut-overs: what may fail or take long comes before the source is sealed, and a replication gives way to them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streamvault.common.errors import Conflict, Problem
from streamvault.importer import plan
from streamvault.importer.fill import Differs
from streamvault.importer.plan import CannotReplay, plan_replay
from streamvault.importer.target import TargetTaken, lease_stream
from streamvault.replication import promote
from streamvault.replication.replica import ReplicaPromoted, seal_source
from streamvault.replication.replication import Replication
from streamvault.streamstore.errors import AccessDenied, RequestFailed
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Retention, RetentionKind, StreamConfiguration, StreamDescription, StreamName
from streamvault.streamstore.own import MOST_TAGS, TARGET_LEDGER, TARGET_PROBE, stream_beside
from streamvault.streamstore.uri import OpenStream
from testkit.scenes import TARGET, Streams, killed_at
from testkit.small_archives import NAME
from tests.commands.replication.test_replicate import is_replica

ENDS = ["promotion", "move"]


def cut_over(streams: Streams, end: str, **options: Any) -> Any:
    """Promote the replica and seal its source, or move its source to it; promote it alone; or replicate once more."""
    if end == "round":
        return streams.replicate(**options)
    if end == "plain":
        return streams.promote(**options)
    return streams.promote(seal_source=True, **options) if end == "promotion" else streams.move(**options)


def configure(streams: Streams, **changes: Any) -> None:
    streams.update_stream(NAME, replace(streams.configuration(), **changes))


def before_seal(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something when a cut-over is about to seal the source."""

    def seal(stream: OpenStream, described: StreamDescription) -> None:
        act()
        seal_source(stream, described)

    monkeypatch.setattr("streamvault.replication.promote.seal_source", seal)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ENDS)
def test_sleeping_replication_gives_way(streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    def sleep(_: float) -> None:
        streams.add(b"while it sleeps")
        reports.append(cut_over(streams, end))

    reports: list[Any] = []
    monkeypatch.setattr("streamvault.common.waiting.pause", sleep)
    if end == "promotion":
        assert streams.replicate(follow=True, every=300).ended == "sealed"
        assert is_replica(streams, sealed=False)
    else:
        with pytest.raises(ReplicaPromoted):  # there is no source any more
            streams.replicate(follow=True, every=300)
    assert len(reports) == 1


@pytest.mark.parametrize("end", [*ENDS, "round"])
def test_lease_that_was_just_taken_is_released_by_an_interrupt(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Otherwise its heartbeats go on, and the next run waits until they have ended."""
    hold, taken = Replication.hold, list[Lease]()

    def interrupted(replication: Replication, *wait: float) -> Any:
        taken.append(hold(replication, *wait))
        raise KeyboardInterrupt

    streams.replicate()
    before = {*threading.enumerate()}
    with monkeypatch.context() as patched:
        patched.setattr(Replication, "hold", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cut_over(streams, end)
    assert len(taken) == 1
    assert not [thread for thread in {*threading.enumerate()} - before if thread.name.startswith("lease ")]
    cut_over(streams, end)


@pytest.mark.parametrize("gone", ["moved", "moved without a tombstone", "promoted, the source lost"])
def test_replication_of_what_is_gone_says_that_its_replica_was_promoted(streams: Streams, gone: str) -> None:
    """Otherwise a service manager would start it again and again."""
    streams.replicate()
    if gone == "promoted, the source lost":
        streams.promote()
        streams.delete()
    else:
        streams.move(no_tombstone=gone != "moved")
    with pytest.raises(ReplicaPromoted):
        streams.replicate(follow=True)


@pytest.mark.parametrize("end", ENDS)
def test_replica_has_caught_up_when_its_source_is_sealed(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    even: list[bool] = []
    streams.replicate()
    streams.add(b"not replicated yet")
    before_seal(monkeypatch, lambda: even.append(streams.same_events()))
    assert cut_over(streams, end).moved_bytes > 0
    assert even == [True]


@pytest.mark.parametrize("end", ENDS)
def test_source_with_too_many_tags_is_not_sealed(streams: Streams, end: str) -> None:
    configure(streams, tags=tuple(f"tag-{number:03}" for number in range(MOST_TAGS)))
    streams.replicate()
    with pytest.raises(Conflict, match=r"has 127 tags and needs one more.*was not sealed"):
        cut_over(streams, end)
    assert not streams.is_sealed(NAME)
    configure(streams, tags=streams.configuration().tags[1:])
    cut_over(streams, end)
    assert len(streams.configuration(TARGET).tags) == MOST_TAGS


def test_replica_of_a_lost_source_with_too_many_tags_is_promoted(streams: Streams) -> None:
    configure(streams, tags=tuple(f"tag-{number:03}" for number in range(MOST_TAGS)))
    streams.replicate()
    streams.promote()
    assert len(streams.configuration(TARGET).tags) == MOST_TAGS


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
        assert not streams.is_sealed(NAME)
        assert stream_beside(TARGET, TARGET_PROBE) not in streams.own()
        assert streams.configuration(TARGET).retention.kind is RetentionKind.NONE
        cut_over(streams, end, retention="off")
    assert streams.own() == []


@pytest.mark.parametrize("end", ENDS)
def test_policies_of_before_the_seal_are_set(streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Those were tried; others may be refused when the source is sealed already."""
    before, many = streams.configuration().tags, tuple(f"tag-{number:03}" for number in range(MOST_TAGS))
    streams.replicate()
    before_seal(monkeypatch, lambda: configure(streams, tags=many))
    cut_over(streams, end)
    assert set(streams.configuration(TARGET).tags).issuperset(before)


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
    streams.seal()
    streams.replicate()
    streams.promote()
    assert streams.same_events()
    assert streams.is_sealed()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", [TARGET, StreamName("scope", "another")])
def test_source_that_a_cut_over_sealed_is_not_taken_for_one_that_its_user_sealed(
    streams: Streams, end: str, name: StreamName
) -> None:
    """The replica is deleted after that, with all that was noted beside it; the next one may have another name."""
    streams.replicate()
    with killed_at("update_stream"):
        cut_over(streams, end)
    assert streams.is_sealed(NAME)
    for gone in (TARGET, stream_beside(TARGET, TARGET_LEDGER), lease_stream(TARGET)):
        streams.delete(gone)
    again = Streams(streams.folder, target_name=name)
    again.replicate()
    again.promote()
    assert not streams.is_sealed(name)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_numbers_that_cannot_be_kept(streams: Streams, monkeypatch: pytest.MonkeyPatch, end: str, when: str) -> None:
    """Before the seal it is an error; after it, a transaction was committed over a scale at the last moment."""

    def replay(epochs: Any, numbers: Any) -> Any:
        if numbers == "keep" and refuses:
            raise CannotReplay("a transaction was committed over a scale")
        return plan_replay(epochs, numbers)

    def act() -> None:
        streams.scale()
        streams.add(b"of the transaction")
        refuses.append(True)
        before.append(streams.digest())

    refuses: list[bool] = []
    before: list[object] = []
    streams.replicate(numbers="keep")
    monkeypatch.setattr(plan, "plan_replay", replay)
    before_seal(monkeypatch, act)
    options = {} if end == "promotion" else {"numbers": "keep"}
    if when == "before":
        refuses.append(True)
        with pytest.raises(CannotReplay):
            cut_over(streams, end, **options)
        assert not streams.is_sealed(NAME)
    else:
        cut_over(streams, end, **options)
        assert streams.digest(TARGET) == before[0]


def test_move_maps_numbers_where_needed(streams: Streams) -> None:
    """As when a stream moves back to a name that it had before."""
    streams.remake(TARGET)
    streams.delete(TARGET)
    before = streams.payloads()
    assert streams.move().renumbered
    assert streams.payloads(TARGET) == before


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", [*ENDS, "plain"])
@pytest.mark.parametrize("chosen", ["", "by the first run", "by the second run"])
def test_retention_of_a_replica_that_keeps_its_head(streams: Streams, end: str, chosen: str) -> None:
    kept = Retention(RetentionKind.TIME, 3_600_000)
    configure(streams, retention=kept)
    streams.replicate(keep_head=True)
    streams.truncate()
    streams.replicate()
    with killed_at("update_stream"):
        cut_over(streams, end, retention="off" if chosen == "by the first run" else "keep")
    report = cut_over(streams, end, retention="off" if chosen == "by the second run" else "keep")
    assert streams.configuration(TARGET).retention == (Retention() if chosen else kept)
    assert [("will truncate it" in warning, "--retention off" in warning) for warning in report.warnings] == (
        [] if chosen else [(True, True)]
    )


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", [*ENDS, "plain"])
def test_retention_is_not_chosen_after_the_policies_were_set(streams: Streams, end: str) -> None:
    kept = Retention(RetentionKind.TIME, 3_600_000)
    configure(streams, retention=kept)
    streams.replicate()
    with killed_at("update_stream", after=True):
        cut_over(streams, end)
    with pytest.raises(Conflict, match="already has its source's retention policy"):
        cut_over(streams, end, retention="off")
    cut_over(streams, end)
    assert streams.configuration(TARGET).retention == kept


def test_no_advice_to_delete_what_writers_have_moved_to(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(*_: Any) -> Any:
        raise Differs("the restored bytes differ from the source's", todo="Delete it.")

    monkeypatch.setattr("streamvault.importer.run.verify_range", differ)
    with pytest.raises(Problem) as caught:
        streams.move()
    assert "Delete" not in caught.value.todo
    assert "Keep both" in caught.value.todo


@pytest.mark.parametrize("verb", [Streams.replicate, Streams.move])
@pytest.mark.parametrize(("backwards", "what"), [(False, "is a promoted replica of"), (True, "was a replica of")])
def test_no_advice_to_delete_what_was_not_replicated(
    streams: Streams, verb: Callable[[Streams], object], what: str, *, backwards: bool
) -> None:
    """The old cluster is back."""
    streams.replicate()
    streams.promote()
    streams.add(b"written to the old stream by a writer that was late")
    with pytest.raises(TargetTaken, match=what) as caught:
        verb(Streams(streams.folder, TARGET, NAME) if backwards else streams)
    assert "elete" not in caught.value.todo


def test_what_was_not_replicated_is_copied_from_the_tail_in_the_report(streams: Streams) -> None:
    """As the guide says what to do when the old cluster is back."""
    streams.replicate()
    tail = streams.promote().tail
    streams.add(b"late")
    late = replace(NAME, stream="late")
    Streams(streams.folder, NAME, late).copy(from_cut=tail)
    assert set(streams.payloads(late)) == {b"late"}
    Streams(streams.folder, TARGET, replace(NAME, stream="back")).replicate()


def test_rounds_before_the_seal_end_if_they_do_not_become_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([40.0, 20.0, 15.0, 14.0, 1.0])
    clock = [0.0]

    def one_round() -> Any:
        clock[0] += next(took)
        return SimpleNamespace(sealed=False)

    monkeypatch.setattr(promote, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    promote.catch_up(SimpleNamespace(round=one_round))  # type: ignore[arg-type]
    assert next(took) == 1.0
