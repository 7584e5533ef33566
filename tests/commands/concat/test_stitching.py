"""An append that is interrupted at a certain step, or finds that something has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamvault import append_streams, copy_stream, export_stream, join_streams
from streamvault.common.errors import Conflict, Damaged, Failed
from streamvault.concat.planning import Stretch
from streamvault.runner.runner import TaskFailed
from streamvault.sources.identity import AnotherSource
from streamvault.streamstore.errors import RequestFailed
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.local.store import LocalAppender, LocalTransactions
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName
from streamvault.streamstore.store import TransactionState
from testkit.killed import killed
from testkit.scenes import Keyed, killed_at_stage, leave_leases
from tests.commands.concat.test_append import flip_byte

STEPS = ["planned", "filling", "committing", "committed"]


@pytest.fixture
def keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keyed:
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    keyed = Keyed(tmp_path / "streams")
    keyed.make("target", 2, events=10)
    keyed.make("one", 3, events=30)
    return keyed


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("stage", STEPS)
def test_interrupted_append_goes_on(keyed: Keyed, stage: str, *, after: bool) -> None:
    with killed_at_stage(stage, after=after):
        keyed.append("one")
    keyed.write("target", 5)
    report = keyed.append("one")
    expected = {"one": range(30), "target": range(15)}
    assert {event for events in keyed.by_key("target").values() for event in events} == {
        f"{name} {number}" for name, numbers in expected.items() for number in numbers
    }
    assert len(keyed.payloads("target")) == 45
    is_begun = (stage, after) not in {("planned", False), ("committed", True)}
    assert (report.resumed, report.unchanged) == (is_begun, (stage, after) == ("committed", True))


def test_it_is_not_appended_again_if_the_outcome_is_unknown(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_at_stage("committed", after=False):
        keyed.append("one")
    before = keyed.payloads("target")
    monkeypatch.setattr(LocalTransactions, "state", lambda *_: TransactionState.UNKNOWN)
    with pytest.raises(Failed, match="unknown whether an earlier run has appended") as caught:
        keyed.append("one")
    assert "delete the stream scope/streamvault-append-" in caught.value.todo
    assert keyed.payloads("target") == before
    assert len(before) == 40


def test_other_options_replace_a_plan_that_was_not_committed(keyed: Keyed) -> None:
    with killed_at_stage("committing", after=False):
        keyed.append("one")
    head = {f"scope/one/{segment}": 0 for segment in keyed.tail("one")}
    assert keyed.append("one", to_cut=head).unchanged
    assert len(keyed.payloads("target")) == 10
    keyed.append("one")
    assert len(keyed.payloads("target")) == 40


def test_distinct_replaces_a_plan_that_was_made_without(keyed: Keyed) -> None:
    copy_stream(keyed.uri("one"), keyed.uri("clone"), master="inline")
    with killed_at_stage("committing", after=False):
        keyed.append("one", "clone")
    assert len(keyed.append("one", "clone", distinct=True).left_out) == 3
    assert len(keyed.payloads("target")) == 40


def test_another_order_replaces_a_plan_that_was_not_committed(keyed: Keyed) -> None:
    keyed.make("two", events=30)
    with killed_at_stage("committing", after=False):
        keyed.append("one", "two")
    keyed.append("two", "one")
    assert keyed.by_key("target") == keyed.expected(("target", range(10)), ("two", range(30)), ("one", range(30)))


def test_transaction_that_ends_meanwhile_is_an_error_that_says_what_to_do(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalTransactions.ping

    def ping(self: LocalTransactions, transaction: Any, lease: float) -> None:
        self.abort(transaction)
        real(self, transaction, lease)

    monkeypatch.setattr(LocalTransactions, "ping", ping)
    with pytest.raises(Failed, match="ended the transaction before it was complete") as caught:
        keyed.append("one")
    assert "to_cut" in caught.value.todo
    monkeypatch.undo()
    keyed.append("one")
    assert len(keyed.payloads("target")) == 40


def test_target_that_is_made_again_while_it_is_appended_to_is_named(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalTransactions.ping

    def ping(self: LocalTransactions, transaction: Any, lease: float) -> None:
        with keyed.store as store:
            store.delete(StreamName("scope", "target"))
        keyed.make("target", 2)
        real(self, transaction, lease)

    with monkeypatch.context() as patched:
        patched.setattr(LocalTransactions, "ping", ping)
        with pytest.raises(Conflict, match="the stream was deleted and created again meanwhile"):
            keyed.append("one")
    assert keyed.payloads("target") == []


def test_target_that_is_sealed_meanwhile_gets_nothing(keyed: Keyed) -> None:
    with killed_at_stage("committing", after=True):
        keyed.append("one")
    with keyed.store as store:
        store.seal(StreamName("scope", "target"))
    with pytest.raises(Conflict, match="the stream is sealed"):
        keyed.append("one")
    assert len(keyed.payloads("target")) == 10


def test_ledger_that_is_deleted_meanwhile_is_not_taken_for_nothing_to_do(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Ledger.record

    def record(self: Ledger, what: Any) -> None:
        if what["stage"] == "committing":
            self.delete()
        real(self, what)

    monkeypatch.setattr(Ledger, "record", record)
    with pytest.raises(Conflict, match="the ledger that records what was appended was deleted meanwhile"):
        keyed.append("one")
    assert len(keyed.payloads("target")) == 10


def test_place_is_not_exact_if_a_later_transaction_may_have_it_as_well(keyed: Keyed) -> None:
    keyed.make("two", 3, events=30)  # as many bytes
    with killed_at_stage("committed", after=False):
        keyed.append("one")
    keyed.append("two", own_segments=True)
    report = keyed.append("one")
    assert {place.exact for place in report.places} == {False}


def test_commit_that_still_goes_on_is_waited_for(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_at_stage("committing", after=True):
        keyed.append("one")
    monkeypatch.setattr(LocalTransactions, "state", lambda *_: TransactionState.COMMITTING)
    report = keyed.append("one")
    assert all(place.exact for place in report.places)
    assert len(keyed.payloads("target")) == 40


def append(keyed: Keyed, source: str) -> object:
    return append_streams([source], keyed.uri("target"), master="inline")


def join(keyed: Keyed, source: str) -> object:
    return join_streams([source], keyed.uri("new"), master="inline")


def copy_range(keyed: Keyed, source: str, until: Mapping[SegmentId, int] | None = None) -> object:
    ends = until or keyed.tail("one")
    tail = {segment.in_stream(StreamName("scope", "one")): end for segment, end in ends.items()}
    return copy_stream(source, keyed.uri("new"), ranges=[(dict.fromkeys(tail, 0), tail)], master="inline")


def copy_events(keyed: Keyed, source: str) -> object:
    return copy_stream(source, keyed.uri("new"), method="events", master="inline")


@pytest.mark.parametrize("run", [append, join])
@pytest.mark.parametrize("still", [False, True])
def test_bytes_that_a_killed_run_had_not_compared_are_compared(
    keyed: Keyed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., object], *, still: bool
) -> None:
    """An archive is damaged, and perhaps put back after the run has appended its bytes and before it compares them."""
    monkeypatch.setattr("streamvault.streamstore.framing.MAX_BLOCK_BYTES", 16)
    keyed.make("source", events=30)
    vault = tmp_path / "vault"
    export_stream(keyed.uri("source"), f"file://{vault}", layout="chunks", master="inline")
    flip_byte(vault)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streamvault.manifests.damage.damaged_range", killed)
        leave_leases(patched)
        with pytest.raises(TaskFailed):
            run(keyed, f"file://{vault}/scope/source")
    into = "target" if run is append else "new"
    before = len(keyed.payloads(into))
    if still:
        with pytest.raises(Damaged, match="do not match the manifest"):
            run(keyed, f"file://{vault}/scope/source")
        assert len(keyed.payloads(into)) == before
    flip_byte(vault)
    run(keyed, f"file://{vault}/scope/source")
    assert keyed.by_key(into) == keyed.expected(("target", range(before)), ("source", range(30)))


@pytest.mark.parametrize("run", [append, join])
def test_transaction_with_other_bytes_is_not_gone_on_with(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch, run: Callable[..., object]
) -> None:
    """A killed run has appended what it read of a source that was damaged between its two readings."""
    monkeypatch.setattr("streamvault.streamstore.framing.MAX_BLOCK_BYTES", 16)
    real = Stretch.blocks

    def damaged(self: Stretch, window: int) -> Iterator[bytes]:
        for block in real(self, window):
            yield bytes(byte ^ 1 for byte in block)
        killed()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Stretch, "blocks", damaged)
        leave_leases(patched)
        with pytest.raises(TaskFailed):
            run(keyed, keyed.uri("one"))
    run(keyed, keyed.uri("one"))
    into, before = ("target", 10) if run is append else ("new", 0)
    assert keyed.by_key(into) == keyed.expected(("target", range(before)), ("one", range(30)))


@pytest.mark.parametrize("run", [append, join, copy_range, copy_events])
def test_transaction_that_holds_more_than_was_appended_is_not_committed(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch, run: Callable[..., object]
) -> None:
    """A block that is late arrives behind the last one."""
    real, late = LocalAppender.close, list[LocalAppender]()

    def close(self: LocalAppender) -> None:
        real(self)
        if "transaction" in self._target.where and not late:
            late.append(self)
            with LocalAppender(self._folder, self._target, 1) as again:
                again.append(b"late block")

    monkeypatch.setattr(LocalAppender, "close", close)
    with pytest.raises(RequestFailed, match="does not hold the data written to it"):
        run(keyed, keyed.uri("one"))
    assert late
    into, before = ("target", 10) if run is append else ("new", 0)
    assert len(keyed.payloads(into)) == before
    run(keyed, keyed.uri("one"))
    assert keyed.by_key(into) == keyed.expected(("target", range(before)), ("one", range(30)))


@pytest.mark.parametrize(
    ("run", "stage"),
    [(append, "committing"), *((run, stage) for run in (join, copy_range) for stage in ("committing", "closed"))],
)
def test_source_that_is_another_one_after_the_commit_is_named(
    keyed: Keyed, run: Callable[..., object], stage: str
) -> None:
    """What may be committed is finished, but is not taken for what the source has now."""
    into, before = ("target", 10) if run is append else ("new", 0)
    run = partial(run, until=keyed.tail("one")) if run is copy_range else run
    with killed_at_stage(stage, after=True):
        run(keyed, keyed.uri("one"))
    shutil.rmtree(keyed.folder / "scope" / "one")
    keyed.make("one", 3, events=90)
    with pytest.raises(AnotherSource, match="not the one that was read before") as caught:
        run(keyed, keyed.uri("one"))
    assert caught.value.todo.startswith("What was read before has been appended. ")
    for _ in range(2):
        assert into not in keyed.own()
        assert keyed.by_key(into) == keyed.expected(("target", range(before)), ("one", range(30)))
        with pytest.raises(AnotherSource):
            run(keyed, keyed.uri("one"))


@pytest.mark.parametrize("run", [append, join, copy_range])
def test_source_that_is_truncated_after_the_commit_is_no_other_one(keyed: Keyed, run: Callable[..., object]) -> None:
    into, before = ("target", 10) if run is append else ("new", 0)
    run = partial(run, until=keyed.tail("one")) if run is copy_range else run
    with killed_at_stage("committing", after=True):
        run(keyed, keyed.uri("one"))
    keyed.write("one", 5)
    with keyed.store as store:
        store.truncate(StreamCut(StreamName("scope", "one"), keyed.tail("one")))
    run(keyed, keyed.uri("one"))
    assert keyed.by_key(into) == keyed.expected(("target", range(before)), ("one", range(30)))


def test_dry_run_names_the_other_source_too(keyed: Keyed) -> None:
    with killed_at_stage("committing", after=True):
        keyed.append("one")
    assert keyed.append("one", dry_run=True).bytes
    shutil.rmtree(keyed.folder / "scope" / "one")
    keyed.make("one", 3, events=90)
    with pytest.raises(AnotherSource, match="not the one that was read before"):
        keyed.append("one", dry_run=True)
    assert len(keyed.payloads("target")) == 10
