"""A lease's stream stays small, and a holder that stopped renewing is succeeded by exactly one other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault.common.errors import Conflict
from streamvault.streamstore import lease
from streamvault.streamstore.errors import (
    NoSuchStream,
    RequestFailed,
    SegmentTruncated,
    StreamStoreError,
    StreamStoreUnavailable,
)
from streamvault.streamstore.lease import RECORD_BYTES, Heartbeat, Lease, LeaseHeld, last_heartbeat
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamConfiguration, StreamCut, StreamName

NAME = StreamName("scope", "lease")
HELD = LeaseHeld("it is held", where="here")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStore]:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 3600.0)
    monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.3)
    with LocalStore(tmp_path / "store") as store:
        store.create_scope(NAME.scope)
        yield store


def size(store: LocalStore) -> int:
    (segment,) = store.describe(NAME).tail.offsets
    info = store.segment_info(NAME, [segment])[0]
    return info.write_offset - info.start_offset


def test_old_records_are_dropped_and_the_last_one_is_kept(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "KEPT_BEATS", 4)
    held = Lease.take(store, NAME, "work", held=HELD)
    for _ in range(21):
        held._beat()
        assert RECORD_BYTES <= size(store) <= 5 * RECORD_BYTES
    held.finishing("7.#epoch.0")
    held.release(remove=False)
    for last in (False, True):  # a run that dies, too, hands it on
        after = Lease.take(store, NAME, "work", held=HELD)
        assert after.former is not None
        assert (after.finished_before, after.former.about) == (True, "7.#epoch.0")
        after.release(remove=last)
    assert not store.exists(NAME)


def test_longest_record_fits() -> None:
    mine = Heartbeat("work", "run", finishing=True, host="here", pid=1, started="1")
    assert Heartbeat.decode(mine.encode()) == mine
    longest = replace(mine, work="w" * 40, run="r" * 32, host="h" * 150, pid=2**31, started="9" * 20, about="a" * 40)
    assert len(longest.encode()) == RECORD_BYTES


def test_failed_truncation_does_not_lose_the_lease(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "KEPT_BEATS", 1)

    def away(cut: StreamCut) -> None:
        raise StreamStoreUnavailable("away")

    monkeypatch.setattr(store, "truncate", away)
    held = Lease.take(store, NAME, "work", held=HELD)
    held._beat()
    held.check()
    held.release(remove=True)


def test_lease_has_one_holder(store: LocalStore, tmp_path: Path) -> None:
    held = Lease.take(store, NAME, "work", held=HELD)
    refusals = []
    with LocalStore(tmp_path / "store") as other:
        for seconds in (0.0, 0.5):
            with pytest.raises(LeaseHeld, match="it is held: here") as caught:
                Lease.take(other, NAME, "work", held=HELD, wait_seconds=seconds)
            refusals.append(caught.value)
        held.release(remove=False)
        Lease.take(other, NAME, "work", held=HELD).release(remove=True)
    assert refusals[0] is not refusals[1]
    assert HELD.__traceback__ is None


def seal_only(store: LocalStore, name: StreamName, **_: Any) -> None:
    """The state after Pravega's deletion was killed between its two steps."""
    store.seal(name)


def test_sealed_lease_can_be_taken(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Lease.take(store, NAME, "work", held=HELD)
    held.finishing()
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", seal_only)
        held.release(remove=True)
    assert store.describe(NAME).sealed
    assert last_heartbeat(store, NAME) is None
    after = Lease.take(store, NAME, "work", held=HELD)
    assert after.former is None
    after.check()
    after.release(remove=True)
    assert not store.exists(NAME)


def test_lease_sealed_while_it_is_watched_can_be_taken(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    Lease.take(store, NAME, "work", held=HELD).release(remove=False)
    monkeypatch.setattr(lease, "is_dead", lambda _: False)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.0)
    looks = iter([store.seal])
    real = store.segment_info

    def look(name: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        infos = real(name, segments)
        for seal in looks:
            seal(name)
        return infos

    monkeypatch.setattr(store, "segment_info", look)
    Lease.take(store, NAME, "work", held=HELD).release(remove=True)


def test_who_only_looks_after_a_dead_holder_keeps_its_record(store: LocalStore) -> None:
    first = Lease.take(store, NAME, "work", held=HELD)
    first.finishing("0.#epoch.0")
    first.release(remove=False)
    after = Lease.take(store, NAME, None, held=HELD)
    assert last_heartbeat(store, NAME) == after._mine
    assert (after._mine.work, after._mine.finishing, after._mine.about) == ("work", True, "0.#epoch.0")
    after.release(remove=False)


def test_late_release_leaves_a_new_lease_alone(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Lease.take(store, NAME, "work", held=HELD)
    real = store.delete
    others = []

    def paused(name: StreamName, **options: Any) -> None:
        with LocalStore(tmp_path / "store") as other:
            other.delete(name)
        others.append(Lease.take(store, NAME, "other", held=HELD))
        real(name, **options)

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", paused)
        late.release(remove=True)
    (other,) = others
    other._beat()
    other.check()
    other.release(remove=True)


@pytest.mark.parametrize(
    ("said", "ask"),
    [
        (NoSuchStream("gone"), lambda store: Lease.take(store, NAME, "work", held=HELD)),
        (SegmentTruncated("truncated"), lambda store: last_heartbeat(store, NAME)),
    ],
)
def test_store_that_loses_the_leases_stream_each_time_is_given_up(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, said: StreamStoreError, ask: Callable[[LocalStore], object]
) -> None:
    asked = iter(range(1000))

    def describe(_: StreamName) -> None:
        next(asked)
        raise said

    monkeypatch.setattr(store, "describe", describe)
    with pytest.raises(RequestFailed, match="at each request"):
        ask(store)


def test_users_stream_of_the_same_name_is_not_touched(store: LocalStore) -> None:
    store.create_stream(NAME, StreamConfiguration(tags=("mine",)))
    before = store.describe(NAME)
    with pytest.raises(
        Conflict, match=r"the name Streamvault needs for a lease is taken by another stream: local://.*/scope/lease"
    ):
        Lease.take(store, NAME, "work", held=HELD)
    assert last_heartbeat(store, NAME) is None
    assert store.describe(NAME) == before


def test_process_ids_are_compared_within_their_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Heartbeat("work", "run", finishing=False, host=lease._this_host(), pid=2**30, started="1")
    assert lease.is_dead(mine)
    monkeypatch.setattr(Path, "readlink", lambda _: Path("pid:[1]"))
    assert not lease.is_dead(mine), "another container on this machine"
