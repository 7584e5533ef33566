"""A ledger is created when it is asked for, written by one at a time, and deleted only by who has read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamvault.streamstore.errors import StreamStoreUnavailable
from streamvault.streamstore.ledger import Ledger, LedgerConflict, LedgerNameTaken
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.store import LocalAppender
from streamvault.streamstore.model import StreamConfiguration, StreamName

NAME, ABOUT = StreamName("scope", "ledger"), StreamName("scope", "stream")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore(tmp_path / "store") as store:
        yield store


def test_reading_creates_a_ledger_only_if_asked(store: LocalStore) -> None:
    ledger = Ledger(store, NAME, ABOUT)
    assert ledger.newest(create=False) is None
    ledger.delete()
    assert not store.exists(NAME)
    assert ledger.newest() is None
    ledger.record({"n": 1})
    assert Ledger(store, NAME, ABOUT).newest(create=False) == {"n": 1}


def test_writer_goes_on_after_its_own_record(store: LocalStore) -> None:
    ledger = Ledger(store, NAME, ABOUT)
    ledger.newest()
    for number in range(3):
        ledger.record({"n": number})
    assert Ledger(store, NAME, ABOUT).newest(create=False) == {"n": 2}


def test_only_the_ledger_that_was_read_is_deleted(store: LocalStore) -> None:
    late, other = (Ledger(store, NAME, ABOUT) for _ in range(2))
    late.newest()
    store.delete(NAME)
    late.delete()
    other.newest()
    other.record({"n": 2})
    late.delete()
    with pytest.raises(LedgerConflict):
        late.record({"n": 3})
    assert other.newest() == {"n": 2}
    other.delete()
    assert not store.exists(NAME)
    with pytest.raises(LedgerConflict, match="another process is writing to the ledger"):
        other.record({"n": 4})


@pytest.mark.parametrize("create", [False, True])
def test_ledger_deleted_while_it_is_read(store: LocalStore, monkeypatch: pytest.MonkeyPatch, *, create: bool) -> None:
    ledger, really = Ledger(store, NAME, ABOUT), store.segment_info
    ledger.newest()
    turns = iter([True])

    def deleted(name: StreamName, segments: Any) -> Any:
        if next(turns, False):
            store.delete(name)
        return really(name, segments)

    monkeypatch.setattr(store, "segment_info", deleted)
    assert ledger.newest(create=create) is None
    assert store.exists(NAME) == create


def test_ledger_that_is_deleted_again_and_again_is_a_conflict(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = store.describe

    def deleted(name: StreamName) -> Any:
        store.delete(name)
        return really(name)

    monkeypatch.setattr(store, "describe", deleted)
    with pytest.raises(LedgerConflict):
        Ledger(store, NAME, ABOUT).newest()


def test_interrupted_deletion_is_finished(store: LocalStore) -> None:
    ledger = Ledger(store, NAME, ABOUT)
    ledger.newest()
    ledger.record({"n": 1})
    store.seal(NAME)
    assert Ledger(store, NAME, ABOUT).newest(create=False) is None
    assert store.exists(NAME)
    assert ledger.newest() is None
    ledger.record({"n": 2})
    assert ledger.newest() == {"n": 2}


def test_users_stream_of_the_same_name_is_not_touched(store: LocalStore) -> None:
    store.create_stream_and_scope(NAME, StreamConfiguration(tags=("mine",)))
    ledger = Ledger(store, NAME, ABOUT)
    for sealed in (False, True):
        if sealed:
            store.seal(NAME)
        for create in (False, True):
            with pytest.raises(LedgerNameTaken):
                ledger.newest(create=create)
            ledger.delete()
            assert store.exists(NAME)


@pytest.mark.parametrize("other", [False, True])
def test_own_record_without_an_answer_is_found(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, *, other: bool
) -> None:
    """The same record of another writer is not taken for it, as each has an id."""
    ledger, second = Ledger(store, NAME, ABOUT), Ledger(store, NAME, ABOUT)
    ledger.newest()
    second.newest()
    append = LocalAppender.append

    def unanswered(self: LocalAppender, block: Any) -> None:
        if not other:
            append(self, block)
            self.flush()
        raise StreamStoreUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(LocalAppender, "append", unanswered)
        with pytest.raises(StreamStoreUnavailable):
            ledger.record({"n": 1})
    if other:
        second.record({"n": 1})
        with pytest.raises(LedgerConflict):
            ledger.record({"n": 2})
    else:
        ledger.record({"n": 2})
    assert second.newest() == {"n": 1 if other else 2}
