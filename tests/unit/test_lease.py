"""A lease's stream stays small, and a holder that fell silent is followed by one other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamstore import lease
from streamstore.errors import StreamStoreUnavailable
from streamstore.lease import RECORD_BYTES, Lease, LeaseHeld
from streamstore.local import LocalStore
from streamstore.model import StreamCut, StreamName

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
    held.finishing()
    held.release(remove=False)
    after = Lease.take(store, NAME, "work", held=HELD)
    assert after.former is not None
    assert after.finished_before
    after.release(remove=True)
    assert not store.exists(NAME)


def test_a_truncation_that_fails_does_not_lose_it(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "KEPT_BEATS", 1)

    def away(cut: StreamCut) -> None:
        raise StreamStoreUnavailable("away")

    monkeypatch.setattr(store, "truncate", away)
    held = Lease.take(store, NAME, "work", held=HELD)
    held._beat()
    held.check()
    held.release(remove=True)


def test_it_is_held_by_one(store: LocalStore, tmp_path: Path) -> None:
    held = Lease.take(store, NAME, "work", held=HELD)
    with LocalStore(tmp_path / "store") as other:
        with pytest.raises(LeaseHeld, match="it is held: here"):
            Lease.take(other, NAME, "work", held=HELD)
        with pytest.raises(LeaseHeld):
            Lease.take(other, NAME, "work", held=HELD, wait_seconds=0.5)
        held.release(remove=False)
        Lease.take(other, NAME, "work", held=HELD).release(remove=True)
