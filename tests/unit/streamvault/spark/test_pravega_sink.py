"""What the driver commits, with a kill at every point: a named write takes effect once, whatever happened before.

Options of a write.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streamvault.common.errors import Conflict, Failed, Problem
from streamvault.spark.options import write_options
from streamvault.spark.pravega_sink import NamedWrite, PravegaSink, PravegaStreamSink, TaskDone, WriteLog, write_rows
from streamvault.streamstore import filling
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration
from streamvault.streamstore.routing import SegmentRouter
from streamvault.streamstore.store import TransactionState
from streamvault.streamstore.transaction_log import Stage
from testkit.spark_sinks import TARGET, Killed, Place
from testkit.streams import events_of, opened
from tests.spark_reads import schema_of


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "streams")


def kill_at_record(patch: pytest.MonkeyPatch, *, committed: bool, after: bool) -> None:
    """Killed before or after the ledger's record of the prepared, or of the committed transaction."""
    really = WriteLog.record

    def record(self: WriteLog, entry: NamedWrite, before: NamedWrite | None) -> NamedWrite:
        if entry.is_committed != committed:
            return really(self, entry, before)
        if after:
            really(self, entry, before)
        raise Killed

    patch.setattr(WriteLog, "record", record)


def test_events_appear_with_the_commit(place: Place) -> None:
    sink = PravegaSink(place.writing())
    done = [place.task(b"a", b"b"), place.task(), place.task(b"c")]
    assert place.events == []
    sink.commit(done)
    assert place.events == [b"a", b"b", b"c"]
    assert set(place.transactions.states.values()) == {TransactionState.COMMITTED, TransactionState.ABORTED}
    sink.commit([])
    sink.commit([None, place.task()])
    assert place.events == [b"a", b"b", b"c"]
    assert list(place.store.list_streams(TARGET.scope, own=True)) == [TARGET]  # a write without a name keeps no ledger


def test_aborted_events_never_appear(place: Place) -> None:
    done = [place.task(b"a"), None]
    PravegaSink(place.writing()).abort(done)
    assert place.events == []
    assert set(place.transactions.states.values()) == {TransactionState.ABORTED}


@pytest.mark.parametrize(
    "kill",
    [None, *({"committed": committed, "after": after} for committed in (False, True) for after in (False, True))],
    ids=["before the commit", "before the record", "after the record", "after the commit", "after the second record"],
)
@pytest.mark.parametrize("expired", [False, True])
def test_batch_is_written_once_whenever_the_driver_is_killed(
    place: Place, monkeypatch: pytest.MonkeyPatch, kill: dict[str, bool] | None, expired: bool
) -> None:
    sink = PravegaStreamSink(place.writing())
    sink.commit([place.task(b"0")], 0)
    with monkeypatch.context() as patch:
        if kill is None:
            patch.setattr(place.transactions, "kill_before", "commit")
        else:
            kill_at_record(patch, **kill)
        with pytest.raises(Killed):
            sink.commit([place.task(b"1"), place.task(b"2")], 1)
    if expired:  # the store aborts what was open
        for number, state in place.transactions.states.items():
            if state is TransactionState.OPEN:
                place.transactions.states[number] = TransactionState.ABORTED
    again = PravegaStreamSink(place.writing())
    again.commit([place.task(b"1"), place.task(b"2")], 1)
    again.commit([place.task(b"1"), place.task(b"2")], 1)
    again.commit([place.task(b"3")], 2)
    assert place.events == [b"0", b"1", b"2", b"3"]


def test_commit_that_arrives_late_writes_the_batch_once(place: Place) -> None:
    """A driver that paused right before its commit wakes up after another driver has written the same batch."""
    place.transactions.kill_before = "commit"
    with pytest.raises(Killed):
        PravegaStreamSink(place.writing()).commit([place.task(b"1")], 0)
    place.transactions.kill_before = ""
    noted = WriteLog(opened(place.store, TARGET), "query").newest()
    assert noted is not None
    PravegaStreamSink(place.writing()).commit([place.task(b"1")], 0)
    place.transactions.commit(noted.begun)
    assert place.events == [b"1"]


@pytest.mark.parametrize("becomes", [TransactionState.OPEN, TransactionState.ABORTED, TransactionState.UNKNOWN])
def test_version_that_was_prepared_is_not_passed_over(place: Place, becomes: TransactionState) -> None:
    """Once a later version is written, an earlier one counts as written."""
    place.transactions.kill_before = "commit"
    with pytest.raises(Killed):
        PravegaSink(place.writing("nightly", 1)).commit([place.task(b"1")])
    place.transactions.kill_before = ""
    noted = WriteLog(opened(place.store, TARGET), "nightly").newest()
    assert noted is not None
    place.transactions.states[noted.begun.id] = becomes
    if becomes is not TransactionState.OPEN:
        with pytest.raises(Failed, match=r"has not committed version 1|unknown whether an earlier run has") as caught:
            PravegaSink(place.writing("nightly", 2)).commit([place.task(b"2")])
        assert "delete the stream scope/spark-writes-" in caught.value.todo
        assert place.events == []
    if becomes is TransactionState.UNKNOWN:
        return
    for version in (1, 2, 1) if becomes is TransactionState.ABORTED else (2, 1):
        PravegaSink(place.writing("nightly", version)).commit([place.task(b"%d" % version)])
    assert place.events == [b"1", b"2"]


def test_query_that_lost_its_checkpoint_is_refused(place: Place) -> None:
    """It counts from 0 again, so its new events would be considered written."""
    sink = PravegaStreamSink(place.writing("orders-copy"))
    for number in range(3):
        sink.commit([place.task(b"%d" % number, query="before")], number)
    with pytest.raises(Conflict, match=r"query before, has written up to version 2"):
        sink.commit([place.task(b"new", query="after")], 0)
    sink.commit([place.task(b"3", query="before")], 3)
    assert place.events == [b"0", b"1", b"2", b"3"]


def test_query_with_an_older_checkpoint_is_refused(place: Place) -> None:
    """The ends of its batches were planned anew, so they differ from those that were written."""
    sink = PravegaStreamSink(place.writing())
    for number in range(3):
        sink.commit([place.task(b"%d" % number)], number)
    with pytest.raises(Conflict, match="is at batch 1, but has written batch 2 already"):
        sink.commit([place.task(b"1 and more")], 1)
    sink.commit([place.task(b"2")], 2)
    assert place.events == [b"0", b"1", b"2"]


@pytest.mark.parametrize("committed", [True, False])
def test_recreated_target_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch, committed: bool) -> None:
    """A new target with the same name lacks the events in the ledger."""
    sink = PravegaSink(place.writing("nightly", 1))
    if committed:
        sink.commit([place.task(b"job")])
    else:
        with monkeypatch.context() as patch:
            kill_at_record(patch, committed=False, after=True)
            with pytest.raises(Killed):
                sink.commit([place.task(b"job")])
    place.store.seal(TARGET)
    place.store.delete(TARGET)
    place.store.create_stream(TARGET, StreamConfiguration(scaling=Scaling(min_segments=3)))
    for version in (1, 2):
        with pytest.raises(Conflict, match=r"deleted and recreated .*Delete the stream (scope/spark-writes-\w+)"):
            PravegaSink(place.writing("nightly", version)).commit([place.task(b"again")])
    assert place.events == []
    ledger = WriteLog(opened(place.store, TARGET), "nightly").name  # the remedy in the message
    place.store.seal(ledger)
    place.store.delete(ledger)
    PravegaSink(place.writing("nightly", 1)).commit([place.task(b"again")])
    assert place.events == [b"again"]


def test_forgotten_transaction_fails_the_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = PravegaStreamSink(place.writing())
    with monkeypatch.context() as patch:
        kill_at_record(patch, committed=True, after=False)
        with pytest.raises(Killed):
            sink.commit([place.task(b"1")], 0)
    place.transactions.states.clear()
    with pytest.raises(Failed, match="Pravega no longer knows the transaction"):
        sink.commit([place.task(b"1")], 0)
    assert place.events == [b"1"]


def test_concurrent_runs_of_one_query_are_a_conflict(place: Place) -> None:
    first, second = (WriteLog(opened(place.store, TARGET), "query") for _ in range(2))
    transactions = [place.transactions.begin(TARGET, 30) for _ in range(2)]
    assert first.newest_of("query") is second.newest_of("query") is None
    first.record(first.prepared(0, "query", transactions[0]), None)
    with pytest.raises(Conflict, match="another process is writing with the same txnAppId"):
        second.record(second.prepared(0, "query", transactions[1]), None)
    newest = second.newest()
    assert newest is not None
    assert newest.transaction == transactions[0]


def test_writes_of_different_names_are_independent(place: Place) -> None:
    for app, version in itertools.product(("a", "b"), (5, 5, 6, 4)):
        PravegaSink(place.writing(app, version)).commit([place.task(f"{app}{version}".encode())])
    assert place.events == [b"a5", b"a6", b"b5", b"b6"]
    for query in ("x", "y", "x"):
        PravegaStreamSink(place.writing()).commit([place.task(query.encode(), query=query)], 0)
    assert place.events == [b"a5", b"a6", b"b5", b"b6", b"x", b"y"]
    with pytest.raises(Failed, match="passes no query id"):
        PravegaStreamSink(place.writing()).commit([place.task(b"z", query="")], 0)


def test_ledger_drops_old_records(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.streamstore.ledger.LONGEST_BYTES", 2000)
    transaction = place.transactions.begin(TARGET, 30)
    for version in range(60):
        ledger = WriteLog(opened(place.store, TARGET), "query")
        last = ledger.newest_of("")
        prepared = ledger.record(ledger.prepared(version, "", transaction), last)
        ledger.advance(prepared, Stage.COMMITTED)
    ledger = WriteLog(opened(place.store, TARGET), "query")
    newest = ledger.newest()
    assert newest is not None
    assert (newest.version, newest.is_committed) == (59, True)
    info = place.store.segment_info(ledger.name, [SegmentId(0, 0)])[0]
    assert info.write_offset - info.start_offset < 2500 < info.write_offset


def test_events_go_to_the_segments_of_their_keys_in_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_BLOCK_BYTES", (10, 100))
    keys = [None if number % 10 == 0 else f"key-{number % 7}" for number in range(2000)]
    events = [b"%s %d" % (str(key).encode(), number) for number, key in enumerate(keys)]
    rows = pa.record_batch({"event": pa.array(events, pa.binary()), "routing_key": pa.array(keys, pa.string())})
    batches = iter([rows.slice(0, 0), rows.slice(0, 700), rows.slice(700)])
    written = write_rows(place.writing(key=True), place.transactions, batches)
    assert written is not None
    PravegaSink(place.writing()).commit([TaskDone(written, "")])
    router = SegmentRouter(place.store.describe(TARGET).epochs[-1].segments)
    found: dict[str, list[bytes]] = {}
    anywhere = set()
    for pointer, payload in events_of(place.store, TARGET):
        key = payload.split()[0].decode()
        if key == "None":
            anywhere.add(pointer.segment)
            continue
        assert router.segments[router.index_of(key)] == pointer.segment
        found.setdefault(key, []).append(payload)
    for key, payloads in found.items():
        assert payloads == [event for event, its in zip(events, keys, strict=True) if its == key]
    assert len(anywhere) == 3
    assert len(place.events) == 2000


def test_strings_are_written_as_utf8(place: Place) -> None:
    rows = iter([pa.record_batch({"event": ["ünï", ""]})])
    PravegaSink(place.writing()).commit([TaskDone(write_rows(place.writing(), place.transactions, rows), "")])
    assert place.events == [b"", "ünï".encode()]


@pytest.mark.parametrize(
    ("event", "said"), [(None, "an event is null"), (bytes(8 * 1024 * 1024 + 1), "exceeds the maximum")]
)
def test_invalid_event_aborts_the_transaction(place: Place, event: bytes | None, said: str) -> None:
    rows = iter([pa.record_batch({"event": pa.array([b"good"], pa.binary())})] * 2)
    bad = pa.record_batch({"event": pa.array([event], pa.binary())})
    with pytest.raises(Problem, match=said) as caught:
        write_rows(place.writing(), place.transactions, itertools.chain(rows, [bad]))
    assert isinstance(caught.value, NotAnEvent) or caught.value.exit_code == 2
    assert set(place.transactions.states.values()) == {TransactionState.ABORTED}


def test_largest_event_is_written_in_pieces(place: Place) -> None:
    event = bytes(8 * 1024 * 1024)
    done = place.task(event, b"small")
    PravegaSink(place.writing()).commit([done])
    assert place.events == sorted([event, b"small"])
    assert max(len(part) for held in place.transactions.held.values() for parts in held.values() for part in parts) <= (
        4 * 1024 * 1024
    )


def test_transaction_is_kept_open_while_rows_come_slowly(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pinged = itertools.count()

    def slowly() -> Iterator[pa.RecordBatch]:
        row = pa.record_batch({"event": pa.array([b"x"], pa.binary())})
        yield row
        while place.transactions.pings < 3:
            assert next(pinged) < 10_000_000
        yield row

    writing = place.writing()
    object.__setattr__(writing, "lease", 0.03)
    assert write_rows(writing, place.transactions, slowly()) is not None
    assert place.transactions.pings >= 4


@pytest.mark.parametrize(
    ("options", "schema", "overwrite", "said"),
    [
        ({}, "event binary", True, "events cannot be overwritten"),
        ({}, "routing_key string", False, "the column payload is missing: routing_key"),
        ({}, "payload binary, event binary", False, "the payload is given twice: payload, event"),
        ({}, "event binary, key string", False, "unknown column: key"),
        ({}, "event int", False, "the column event is neither binary nor string: int"),
        ({}, "event binary, routing_key binary", False, "the column routing_key is not a string"),
        ({"txnAppId": "a"}, "event binary", False, "the option is missing: option txnVersion"),
        ({"txnVersion": "1"}, "event binary", False, "the option is missing: option txnAppId"),
        ({"lease": "5"}, "event binary", False, "an integer of at least 10"),
        ({"transaction_timeout_ms": "9999"}, "event binary", False, "an integer of at least 10000"),
        (
            {"lease": "20", "transaction_timeout_ms": "30000"},
            "event binary",
            False,
            "the option cannot be used with lease",
        ),
        ({"exactly_once": "false"}, "event binary", False, "a write is always one transaction: option exactly_once"),
        ({"read_after_write_consistency": "false"}, "event binary", False, "a write ends when its events can be read"),
        ({"transaction_status_poll_interval_ms": "50"}, "event binary", False, "the interval is not configurable"),
        ({"allow_create_stream": "true"}, "event binary", False, "scopes and streams are not created"),
        ({"default_num_segments": "3"}, "event binary", False, "Create the stream with its policies first"),
    ],
)
def test_invalid_write_options_are_refused(options: dict[str, str], schema: str, overwrite: bool, said: str) -> None:
    with pytest.raises(Problem, match=said):
        write_options({"path": "pravega://h:1/s/t", **options}, schema_of(schema), overwrite=overwrite)


@pytest.mark.parametrize("column", ["payload", "event"])
def test_options_and_columns_of_pravegas_own_connector_mean_the_same(column: str) -> None:
    theirs = {
        "controller": "tcp://Localhost:9090",
        "scope": "s",
        "stream": "t",
        "exactly_once": "true",
        "read_after_write_consistency": "true",
        "allow_create_scope": "false",
        "transaction_timeout_ms": "30500",
    }
    schema = schema_of(f"routing_key string, {column} binary")
    writing = write_options(theirs, schema, overwrite=False)
    assert writing == write_options({"path": "pravega://localhost:9090/s/t", "lease": "31"}, schema, overwrite=False)
    assert (writing.payload, writing.routing_key) == (1, 0)
    tls = write_options({**theirs, "controller": "tls://localhost:9090/"}, schema, overwrite=False)
    assert tls.address.uri == "pravega+tls://localhost:9090"
