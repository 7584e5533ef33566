"""The contract of transaction logs, tested on those of appends and joins, of copies by events, and of Spark."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from streamvault.common.errors import Conflict, Failed
from streamvault.concat.copy_events import BatchLog, BatchRecord
from streamvault.concat.planning import StitchLog, StitchRecord
from streamvault.sources.identity import LastBytes, SourcePosition
from streamvault.spark.pravega_sink import WriteLog
from streamvault.streamstore.framing import frame
from streamvault.streamstore.ledger import Ledger, LedgerConflict, LedgerNameTaken
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.store import Transaction, TransactionState
from streamvault.streamstore.transaction_log import Entry, Stage, TransactionLog
from testkit.explorer.memory import Cluster, MemoryStreams
from testkit.streams import events_of, opened

TARGET, SEGMENT, LEASE = StreamName("scope", "target"), SegmentId(0, 1), 30.0
START = StreamCut(TARGET, {SegmentId(0, 0): 0, SEGMENT: 0})
POSITION = SourcePosition(START, "1.abc", (LastBytes(SEGMENT, 3, 4, "digest"),))
EVENT = frame(b"event")


@dataclass
class Place:
    """A stream with two segments, and the logs of writers to it."""

    kind: str
    cluster: Cluster = field(default_factory=Cluster)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.store = MemoryStreams(self.cluster, "local:///memory", clock=lambda: self.now)
        self.store.create_stream_and_scope(TARGET, StreamConfiguration(Scaling(min_segments=2)))

    def log(self) -> TransactionLog[Any]:
        stream = opened(self.store, TARGET)
        if self.kind == "stitch":
            return StitchLog(self.store, StreamName("scope", "log"), TARGET)
        return BatchLog(stream, stream.describe(), "id") if self.kind == "batch" else WriteLog(stream, "app")

    def filled(self) -> Transaction:
        """Return an open transaction with an event."""
        transaction = self.store.transactions().begin(TARGET, LEASE)
        with self.store.transactions().appender(transaction, SEGMENT) as appender:
            appender.append(EVENT)
        return transaction

    def entry(self, log: TransactionLog[Any], stage: Stage, transaction: Transaction | None) -> Any:
        if isinstance(log, WriteLog):
            made: Entry = log.prepared(7, "query", transaction or self.filled())
        elif isinstance(log, StitchLog):
            made = StitchRecord(stage=stage, parts=(), distinct=True, left_out=frozenset({(1, SEGMENT)}))
        else:
            before = START.offsets
            after, lasts = {**before, SEGMENT: len(EVENT)}, {SEGMENT: (3, "digest")}
            made = BatchRecord(
                stage=stage, head=START, begin=START, end=POSITION, before=before, after=after, lasts=lasts, copied=3
            )
        return replace(made, stage=stage, transaction=transaction)

    def begun(self, stage: Stage) -> tuple[TransactionLog[Any], Any]:
        """Return a log whose newest entry has a transaction with an event, and this entry."""
        log, transaction = self.log(), self.filled()
        log.newest(create=True)
        return log, log.record(self.entry(log, stage, transaction), None)

    def forget(self) -> None:
        """Let the store no longer know any transaction."""
        state = self.cluster.find(TARGET)
        record = replace(state.record, transactions=type(state.record.transactions)())
        self.cluster.keep(TARGET, replace(state, record=record, parts={}))

    def happens(self, what: str, transaction: Transaction) -> None:
        transactions = self.store.transactions()
        if "commit" in what:
            transactions.commit(transaction)
        if "abort" in what:
            transactions.abort(transaction)
        if "forget" in what:
            self.forget()

    @property
    def events(self) -> int:
        return len(list(events_of(self.store, TARGET)))


@pytest.fixture(params=["stitch", "batch", "write"])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(request.param)


@pytest.mark.parametrize(
    ("stage", "what", "outcome", "events"),
    [
        (Stage.PLANNED, "", Stage.PLANNED, 0),
        (Stage.FILLING, "", Stage.FILLING, 0),
        (Stage.FILLING, "abort", Stage.PLANNED, 0),
        (Stage.FILLING, "abort, forget", Stage.PLANNED, 0),
        (Stage.COMMITTING, "", Stage.COMMITTED, 1),
        (Stage.COMMITTING, "commit", Stage.COMMITTED, 1),
        (Stage.COMMITTING, "abort", Stage.PLANNED, 0),
        (Stage.COMMITTED, "commit, forget", Stage.COMMITTED, 1),
        (Stage.CLOSED, "commit, forget", Stage.CLOSED, 1),
    ],
)
def test_what_becomes_of_a_transaction_after_a_kill(
    place: Place, stage: Stage, what: str, outcome: Stage, events: int
) -> None:
    _, entry = place.begun(stage)
    place.happens(what, entry.begun)
    log = place.log()
    newest = log.newest()
    assert newest == entry
    settled = log.settle(newest)
    assert (settled.stage, place.events) == (outcome, events)
    assert settled.transaction == (entry.transaction if outcome is not Stage.PLANNED or not what else None)
    assert place.log().newest() == settled
    assert log.settle(settled) == settled


def test_forgotten_commit_is_told_by_the_stream_or_not_at_all(place: Place) -> None:
    for number, what in enumerate(("abort, forget", "commit, forget")):
        place = Place(place.kind)
        log, entry = place.begun(Stage.COMMITTING)
        place.happens(what, entry.begun)
        if place.kind == "batch":
            assert log.settle(entry).stage is (Stage.PLANNED, Stage.COMMITTED)[number]
            continue
        with pytest.raises(Failed, match="unknown whether an earlier run has"):
            log.settle(entry)
        assert place.log().newest() == entry


def test_commit_that_was_not_allowed_is_an_error(place: Place) -> None:
    log, entry = place.begun(Stage.FILLING)
    place.happens("commit", entry.begun)
    with pytest.raises(Failed, match="something else has committed the transaction"):
        log.settle(entry)


def test_late_writer_goes_no_further(place: Place) -> None:
    late, entry = place.begun(Stage.FILLING)
    other = place.log()
    planned = other.give_up(other.newest())
    assert (planned.stage, planned.transaction) == (Stage.PLANNED, None)
    for _ in range(2):  # also once it has read what the other one has recorded
        with pytest.raises(Conflict):
            late.advance(entry, Stage.COMMITTING)
        with pytest.raises(Conflict):
            late.check(entry)
    assert place.store.transactions().state(entry.begun) is TransactionState.ABORTED
    assert place.log().newest() == planned


def test_transaction_that_cannot_be_recorded_is_aborted(place: Place) -> None:
    late, other = place.log(), place.log()
    for log in (late, other):
        log.newest(create=True)
        if isinstance(log, WriteLog):
            log.newest_of("query")
    first, second = (place.entry(log, Stage.COMMITTING, place.filled()) for log in (other, late))
    assert other.commit(first, None).is_committed
    with pytest.raises(LedgerConflict, match="another process"):
        late.commit(second, None)
    assert place.store.transactions().state(second.begun) is TransactionState.ABORTED
    assert place.events == 1


def test_transaction_whose_lease_ran_out_is_not_committed(place: Place) -> None:
    log = place.log()
    log.newest(create=True)
    entry = place.entry(log, Stage.COMMITTING, place.filled())
    place.now += 10 * LEASE
    assert log.commit(entry, None).stage is Stage.PLANNED
    assert place.events == 0


def test_what_may_be_committed_is_not_given_up(place: Place) -> None:
    log, entry = place.begun(Stage.COMMITTING)
    assert log.give_up(entry).stage is Stage.COMMITTED
    assert place.events == 1


def test_transaction_is_recorded_before_it_is_filled_unless_it_does_not_fit(place: Place) -> None:
    log = place.log()
    log.newest(create=True)
    plan = log.record(place.entry(log, Stage.PLANNED, None), None)
    seen: list[Transaction] = []

    def fits(one: Transaction) -> bool:
        seen.append(one)
        return len(seen) == 2

    assert log.begin(plan, LEASE, fits) == plan
    assert place.store.transactions().state(seen[0]) is TransactionState.ABORTED
    begun = log.begin(plan, LEASE, lambda _: True)
    assert (begun.stage, place.log().newest()) == (Stage.FILLING, begun)
    with pytest.raises(Conflict):
        log.begin(plan, LEASE, fits)
    assert place.store.transactions().state(seen[1]) is TransactionState.ABORTED


def test_named_write_records_the_end_that_it_has_made() -> None:
    place = Place("write")
    log, entry = place.begun(Stage.COMMITTING)
    settled = log.settle(entry)
    assert not entry.reached.is_at(place.store.describe(TARGET).tail)
    assert settled.reached.is_at(place.store.describe(TARGET).tail)


def test_other_record_is_an_error_that_says_what_to_do(place: Place) -> None:
    log = place.log()
    ledger = Ledger(place.store, log.name, TARGET)
    ledger.newest()
    ledger.record({"stage": "committed"})
    with pytest.raises(LedgerNameTaken, match="the name of a ledger is taken"):
        log.newest()
