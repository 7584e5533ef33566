"""Transactions of the embedded store beyond the contract: leases, kills, appenders that are open, a full disk."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamvault.streamstore.errors import NoSuchSegment, OffsetConflict, StoreBusy, StoreFull, TransactionEnded
from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore, folder
from streamvault.streamstore.local import store as transactions
from streamvault.streamstore.local.segment_files import SegmentFiles
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import Transaction, TransactionState
from testkit.clock import Clock
from testkit.killed import Killed, killed
from tests.contract.transactions import payloads, write
from tests.unit.streamstore.local.test_store import in_child

NAME = StreamName("scope", "stream")
FIRST, SECOND = SegmentId(0, 0), SegmentId(0, 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(transactions, "time", made)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[LocalStore]:
    with LocalStore(root) as opened:
        opened.create_scope("scope")
        opened.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
        yield opened


def begun(store: LocalStore, *events: bytes, lease: float = 30.0) -> Transaction:
    """A transaction with events in both parts."""
    transaction = store.transactions().begin(NAME, lease)
    write(store, transaction, {FIRST: list(events), SECOND: list(events)})
    return transaction


def parts(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "scope" / "stream").iterdir() if ".part" in path.name)


def test_lease_that_ran_out_aborts(store: LocalStore, root: Path, clock: Clock) -> None:
    made = [begun(store, b"%d" % number) for number in range(3)]
    clock.now += 20
    store.transactions().ping(made[0], 30)
    appender = store.transactions().appender(made[1], FIRST)
    clock.now += 20
    assert [store.transactions().state(one) for one in made] == [
        TransactionState.OPEN,
        TransactionState.ABORTED,
        TransactionState.ABORTED,
    ]
    with pytest.raises(NoSuchSegment, match="it is aborted"):
        appender.append(frame(b"late"))
    with pytest.raises(TransactionEnded, match="aborted"):
        store.transactions().ping(made[1], 30)
    assert all(made[0].id.hex in name for name in parts(root))
    clock.now -= 40  # a clock that is set back does not open them again
    assert store.transactions().commit(made[2]) is TransactionState.ABORTED
    assert store.transactions().commit(made[0]) is TransactionState.COMMITTED
    assert payloads(store, NAME) == [(FIRST, b"0"), (SECOND, b"0")]


@pytest.mark.parametrize("late", [False, True])
def test_commit_judges_the_lease_itself(store: LocalStore, clock: Clock, late: bool) -> None:
    made = begun(store, b"a", lease=30)
    clock.now += 31 if late else 29
    assert store.transactions().commit(made) is (TransactionState.ABORTED if late else TransactionState.COMMITTED)
    assert len(payloads(store, NAME)) == (0 if late else 2)


def test_last_ended_ones_are_known(store: LocalStore, root: Path) -> None:
    made = store.transactions()
    committed = made.begin(NAME, 30)
    made.commit(committed)
    aborted = [made.begin(NAME, 30) for _ in range(258)]
    for one in aborted:
        made.abort(one)
    assert made.state(committed) is TransactionState.COMMITTED
    assert [made.state(one) for one in aborted[:3]] == [TransactionState.UNKNOWN] * 2 + [TransactionState.ABORTED]
    assert parts(root) == []


def killed_after(count: int, patch: pytest.MonkeyPatch) -> None:
    """Kill the commit after it has moved some of the parts."""
    really, done = SegmentFiles.take, []

    def take(files: SegmentFiles, source: SegmentFiles, base: int, length: int) -> None:
        if len(done) == count:
            raise Killed
        done.append(files)
        really(files, source, base, length)

    patch.setattr(SegmentFiles, "take", take)


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("moved", [0, 1, 2])
def test_killed_commit_is_finished_by_whoever_looks(store: LocalStore, root: Path, moved: int, rolls: bool) -> None:
    looks: tuple[Callable[[LocalStore], object], ...] = (
        lambda other: payloads(other, NAME),
        lambda other: other.describe(NAME),
        lambda other: other.transactions().state(made),
        lambda other: other.appender(NAME, min(other.describe(NAME).tail.offsets)).close(),
        lambda other: other.seal(NAME),
    )
    made = begun(store, b"a", b"b" * 3_000_000)
    if rolls:
        store.scale(NAME, [FIRST], [KeyRange(0.0, 0.5)])
    with pytest.MonkeyPatch.context() as patch:
        if moved < 2:
            killed_after(moved, patch)
        else:
            patch.setattr(folder, "save_record", killed)
        with pytest.raises(Killed):
            store.transactions().commit(made)
    record = root / "scope" / "stream" / "stream.json"
    assert json.loads(record.read_text())["format"] == 2  # an earlier version must not overlook it
    with LocalStore(root) as other:
        looks[(moved + 3 * rolls) % len(looks)](other)
    assert json.loads(record.read_text())["format"] == 1
    assert store.transactions().commit(made) is TransactionState.COMMITTED
    segments = [SegmentId(2, 0), SegmentId(2, 1)] if rolls else [FIRST, SECOND]
    assert payloads(store, NAME) == [(segment, event) for segment in segments for event in (b"a", b"b" * 3_000_000)]
    assert parts(root) == []


def test_writer_does_not_overwrite_what_a_killed_commit_copied(store: LocalStore, root: Path) -> None:
    """It has unacknowledged bytes, and appends more between the kill and the finish; its next flush is refused."""
    appender = store.appender(NAME, FIRST)
    appender.append(frame(b"acknowledged"))
    appender.flush()
    appender.append(frame(b"not yet acknowledged"))
    made = begun(store, b"a" * 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamvault.streamstore.local.segment_files.write_state", killed)
        with pytest.raises(Killed):
            store.transactions().commit(made)
    appender.append(frame(b"over what was copied"))
    with pytest.raises(OffsetConflict, match="ends at 1028, not 20"):
        appender.flush()
    with pytest.raises(OffsetConflict):
        appender.append(frame(b"more"))
    with LocalStore(root) as other:
        assert payloads(other, NAME) == [(FIRST, b"acknowledged"), (FIRST, b"a" * 1000), (SECOND, b"a" * 1000)]
        with pytest.raises(StoreBusy):
            other.appender(NAME, FIRST)


def test_appender_writes_nothing_behind_a_commit(store: LocalStore) -> None:
    appender = store.appender(NAME, FIRST)
    store.transactions().commit(begun(store, b"a" * 1000))
    with pytest.raises(OffsetConflict):
        appender.append(frame(b"x" * 2000))
    assert payloads(store, NAME) == [(FIRST, b"a" * 1000), (SECOND, b"a" * 1000)]


def test_full_disk_refuses_a_commit_and_keeps_the_transaction(store: LocalStore) -> None:
    """The limit on a file's size simulates a full disk."""
    made = begun(store, b"a" * 1_000_000)
    with store.appender(NAME, SECOND) as appender:
        appender.append(frame(b"b" * 500_000))

    def attempt() -> list[Any]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_200_000, resource.RLIM_INFINITY))
        with pytest.raises(StoreFull):
            store.transactions().commit(made)
        seen = [store.transactions().state(made), len(payloads(store, NAME))]
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return [*seen, store.transactions().commit(made), len(payloads(store, NAME))]

    assert in_child(attempt) == [TransactionState.OPEN, 1, TransactionState.COMMITTED, 3]


def test_parts_that_a_kill_left_are_removed(store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = begun(store, b"a")
    with monkeypatch.context() as patch:
        patch.setattr(transactions, "remove_ended", killed)
        with pytest.raises(Killed):
            store.transactions().abort(made)
    assert len(parts(root)) == 4
    store.transactions().begin(NAME, 30)
    assert parts(root) == []
