"""Requests in a queue: added, processed, failed, requeued; and the commands' output.

A worker, or a retry of failed requests, that is paused before any of its store calls while others take over.
"""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamvault import drop_failed, request_restore, retry_failed, show_queue, skip_foreign, work_queue
from streamvault.cli import main
from streamvault.common.errors import Conflict, Damaged, Failed, Problem, Usage
from streamvault.common.progress import Progress
from streamvault.importer.reports import ImportOptions
from streamvault.objectstore.store import ObjectStoreUnavailable
from streamvault.requests import work as handlers
from streamvault.requests.queue import DeleteRequest, NotARequest, RestoreRequest, decode_failed, decode_request, encode
from streamvault.requests.reports import FinishedRequest, WorkReport
from streamvault.streamstore import lease
from streamvault.streamstore.errors import InvalidName, NoSuchScope, NoSuchStream, OffsetConflict
from streamvault.streamstore.framing import frame
from streamvault.streamstore.lease import LeaseHeld
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.queue import (
    MAX_ENTRY_BYTES,
    BadEntry,
    Consumer,
    ConsumerBusy,
    NotAQueue,
    Producer,
    QueueEntry,
    QueueFull,
    QueueSegment,
    outstanding_entries,
)
from streamvault.streamstore.uri import parse_stream
from testkit.killed import stopped_at
from testkit.small_archives import Vault
from tests.told import Ran

ARCHIVE = "s3://vault/backups/shop/orders"
Handler = Callable[[Any, handlers.RequestContext], dict[str, Any]]
Restoring = Callable[[Handler], None]


@pytest.fixture
def queue(tmp_path: Path) -> str:
    return f"local://{tmp_path}/queues/ops/restores"


def target(queue: str, number: int = 0) -> str:
    return f"{queue}-target-{number}"


def ask(queue: str, count: int) -> list[str]:
    return [request_restore(ARCHIVE, target(queue, number), queue=queue).id for number in range(count)]


@contextmanager
def open_segment(uri: str) -> Iterator[QueueSegment]:
    address, name = parse_stream(uri)
    with address.open() as store:
        yield QueueSegment.create(store, name)


def put(uri: str, content: bytes) -> str:
    with open_segment(uri) as segment:
        return str(Producer(segment).put(content))


def work(queue: str, **options: Any) -> tuple[WorkReport, list[FinishedRequest], list[str]]:
    finished: list[FinishedRequest] = []
    warnings: list[str] = []
    progress = Progress()
    progress.warn = warnings.append  # type: ignore[method-assign]
    options = {"idle": 0.0, "master": "inline", **options}
    return work_queue(queue, finished=finished.append, progress=progress, **options), finished, warnings


@pytest.fixture
def restoring(monkeypatch: pytest.MonkeyPatch) -> Restoring:
    """A function that replaces the handler of restores."""

    def use(handler: Handler) -> None:
        monkeypatch.setattr("streamvault.requests.work.HANDLERS", {"restore": handler})

    return use


def fine(request: RestoreRequest, _context: handlers.RequestContext) -> dict[str, Any]:
    return {"events": 1, "bytes": 2}


def failing(error: BaseException, times: float = math.inf) -> Handler:
    """A handler that fails so many times."""
    tries = count()

    def fail(request: RestoreRequest, context: handlers.RequestContext) -> dict[str, Any]:
        if next(tries) < times:
            raise error
        return fine(request, context)

    return fail


def entries_of(uri: str) -> list[QueueEntry]:
    """Take the entries out of a queue."""
    entries: list[QueueEntry] = []
    with open_segment(uri) as segment, Consumer(segment) as consumer:
        consumer.run(entries.extend, idle_seconds=0)
    return entries


# Requests as they are stored in the queue

NAMES = st.text(min_size=1, max_size=20)
RESTORES = st.builds(
    RestoreRequest,
    archive=NAMES,
    stream=NAMES,
    from_cut=st.none() | st.dictionaries(NAMES, st.integers(0, 2**63 - 1), max_size=3),
    at=st.none() | st.datetimes(timezones=st.just(UTC)),
    offsets=st.sampled_from(["keep", "shift"]),
    read_back=st.booleans(),
) | st.builds(RestoreRequest, archive=NAMES, stream=NAMES, generation=st.integers(1, 2**31), window=st.integers(2**24))
DELETES = st.builds(DeleteRequest, root=NAMES, archive=NAMES, generation=st.integers(1, 2**31))


@settings(max_examples=50)
@given(RESTORES | DELETES)
def test_requests_round_trip(request: RestoreRequest | DeleteRequest) -> None:
    assert decode_request(encode(request)) == request


def test_restore_is_written_as_before() -> None:
    request = RestoreRequest(
        archive="a", stream="b", from_cut={"a/b/0.#epoch.0": 7}, at=datetime(2026, 1, 2, 3, tzinfo=UTC), numbers="map"
    )
    assert encode(request) == (
        b'{"kind":"restore","version":1,"archive":"a","stream":"b","from_cut":{"a/b/0.#epoch.0":7},"to_cut":null,'
        b'"generation":null,"at":"2026-01-02T03:00:00Z","offsets":"keep","filler_limit":1073741824,"numbers":"map",'
        b'"retention":"keep","window":67108864,"read_back":false}'
    )
    assert b'"numbers"' not in encode(RestoreRequest(archive="a", stream="b"))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "rename"},
        {"version": 2},
        {"generation": 0},
        {"more": 1},
        {"stream": None},
        {"at": "2026-01-01T00:00:00"},
        {"at": "2026-01-01T00:00:00Z", "generation": 1},
        {"from_cut": "x"},
        {"from_cut": {"a": None}},
        {"window": 1},
        {"window": "64MiB"},
        {"read_back": "yes"},
    ],
)
def test_unknown_kind_version_or_field_is_refused(change: dict[str, Any]) -> None:
    told = json.loads(encode(RestoreRequest(archive="a", stream="b"))) | change
    with pytest.raises(NotARequest, match="not a request that this release supports"):
        decode_request(json.dumps(told).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"kind": "restore"}'])
def test_invalid_request_is_refused(content: bytes) -> None:
    with pytest.raises(NotARequest):
        decode_request(content)


@pytest.mark.parametrize("name", ["from_cut", "window", "at", "archive", "kind"])
@pytest.mark.parametrize("value", ["x" * 500_000, "9" * 4000, ["--a" * 100_000], {"'a ": "`" * 100_000}, -(10**300)])
def test_reason_does_not_repeat_what_a_foreign_entry_has(name: str, value: Any) -> None:
    told = json.loads(encode(RestoreRequest(archive="a", stream="b"))) | {name: value}
    if name == "archive" and isinstance(value, str):
        told["generation"] = 0
    with pytest.raises(NotARequest) as raised:
        decode_request(json.dumps(told).encode())
    assert len(raised.value.where) < 1000


# Adding requests


def test_request_restore_puts_a_request_into_the_queue(queue: str) -> None:
    told = request_restore(ARCHIVE, target(queue), queue=queue, at=datetime(2026, 1, 2, tzinfo=UTC), offsets="shift")
    entries = entries_of(queue)
    assert [str(entry.name) for entry in entries] == [told.id]
    request = decode_request(entries[0].content)
    assert request == RestoreRequest(
        archive=ARCHIVE, stream=target(queue), at=datetime(2026, 1, 2, tzinfo=UTC), offsets="shift"
    )
    assert told.outstanding_bytes == entries[0].end - entries[0].offset
    assert "generation" not in told.request


def test_dry_run_puts_nothing_into_the_queue(queue: str) -> None:
    assert request_restore(ARCHIVE, target(queue), queue=queue, dry_run=True).dry_run
    with pytest.raises(Problem, match="no such scope"):
        show_queue(queue)


@pytest.mark.parametrize(
    "wrong",
    [
        {"archive": "nonsense"},
        {"archive": "s3://vault/shop"},
        {"stream": "nonsense"},
        {"queue": "nonsense"},
        {"generation": 0},
        {"offsets": "move"},
        {"window": 1},
        {"generation": 1, "at": "2026-01-02T00:00:00Z"},
        {"at": "soon"},
        {"from_cut": "[]"},
        {"at": datetime(2026, 1, 2)},  # noqa: DTZ001
    ],
)
def test_request_restore_refuses_invalid_arguments(queue: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        request_restore(**{"archive": ARCHIVE, "stream": target(queue), "queue": queue, **wrong})


def test_stream_that_is_no_queue_is_refused(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(30)
    for verb in (
        lambda: request_restore(ARCHIVE, vault.uri(StreamName("scope", "x")), queue=vault.uri()),
        lambda: work_queue(vault.uri(), idle=0),
        lambda: show_queue(vault.uri()),
    ):
        with pytest.raises(NotAQueue):
            verb()


# Processing


def test_repeated_request_changes_nothing(tmp_path: Path, queue: str) -> None:
    vault = Vault(tmp_path)
    vault.make(200)
    vault.export()
    restored = vault.uri(StreamName("scope", "restored"))
    first, second = (request_restore(vault.archive, restored, queue=queue).id for _ in range(2))
    report, finished, warnings = work(queue)
    assert (report.done, report.failed, report.outstanding_bytes, warnings) == (2, 0, 0, [])
    assert [one.id for one in finished] == [first, second]
    assert [one.report["unchanged"] for one in finished if one.report] == [False, True]
    before = vault.describe(StreamName("scope", "restored"))
    vault.write(StreamName("scope", "restored"), min(before.tail.offsets), [b"new"])
    request_restore(vault.archive, restored, queue=queue)
    report, finished, _ = work(queue)
    assert (report.done, report.failed, report.failed_exit_codes) == (0, 1, (4,)), "it was written to since"
    assert finished[0].error is not None
    assert finished[0].error["what"] == "the stream has the archived segments, but has been written to since"


@pytest.mark.parametrize(
    ("error", "tries", "code"),
    [
        (Usage("no"), 1, 2),
        (Conflict("no"), 1, 4),
        (Damaged("no"), 1, 3),
        (Failed("no"), 3, 1),
        (KeyError("no"), 3, 1),
    ],
)
def test_failed_request_is_put_aside_and_the_next_is_done(
    queue: str, restoring: Restoring, error: Exception, tries: int, code: int
) -> None:
    ids = ask(queue, 2)
    restoring(failing(error, tries))
    report, finished, warnings = work(queue)
    assert [(one.id, one.ok, one.tries) for one in finished] == [(ids[0], False, tries), (ids[1], True, 1)]
    assert (report.done, report.failed, report.failed_exit_codes) == (1, 1, (code,))
    assert (report.retries, len(warnings)) == (tries - 1, tries - 1)
    shown = show_queue(queue)
    assert (shown.waiting, shown.failed) == (0, 1)
    assert shown.first_failed[0].id == ids[0]
    assert "no" in shown.first_failed[0].reason
    assert shown.first_failed[0].text == f"restore {ARCHIVE} into {target(queue, 0)}"
    # back with the same id
    shown = retry_failed(queue)
    assert (shown.waiting, shown.failed, shown.moved, shown.first_waiting[0].id) == (1, 0, 1, ids[0])
    restoring(fine)
    assert work(queue)[0].done == 1


def test_failed_requests_can_be_dropped(queue: str) -> None:
    put(queue, b"no request")
    assert work(queue)[0].failed_exit_codes == (2,)
    assert show_queue(queue).failed == 1
    assert drop_failed(queue).dropped == 1
    assert show_queue(queue).failed == 0


def test_invalid_request_is_put_aside_unchanged(queue: str) -> None:
    content = b'{"kind": "restore", "version": 9}\xff'
    name = put(queue, content)
    report, finished, _ = work(queue)
    assert (report.failed, finished[0].id, finished[0].kind) == (1, name, "")
    assert decode_failed(entries_of(f"{queue}-failed")[0].content).content == content


@pytest.mark.parametrize("error", [ObjectStoreUnavailable("away"), LeaseHeld("held")])
def test_passing_error_is_retried_until_the_request_is_done(queue: str, restoring: Restoring, error: Exception) -> None:
    ask(queue, 1)
    restoring(failing(error, 3))
    report, finished, warnings = work(queue)
    assert (report.done, report.failed, report.retries, finished[0].tries) == (1, 0, 3, 4)
    assert all("Retrying in" in warning for warning in warnings)


def test_request_is_kept_if_a_store_stays_away(queue: str, restoring: Restoring) -> None:
    (name,) = ask(queue, 1)
    restoring(failing(ObjectStoreUnavailable("away")))
    with pytest.raises(ObjectStoreUnavailable):
        work(queue, tries=2)
    report, finished, _ = work(queue, lasting=0.3)
    assert (report.done, report.failed, finished) == (0, 0, [])
    assert name in report.unfinished
    assert report.unfinished.endswith("away")
    assert [one.id for one in show_queue(queue).first_waiting] == [name]


def test_interrupted_request_is_named_and_kept(queue: str, restoring: Restoring, ran: Ran) -> None:
    (name,) = ask(queue, 1)
    restoring(failing(KeyboardInterrupt()))
    told = ran("work", queue, "--master", "inline", code=130).err.splitlines()
    assert told[0].startswith(f"warning: unfinished; stays in {queue}: restore {ARCHIVE}")
    assert name in told[0]
    assert told[1] == "streamvault: interrupted; run the same command again to resume"
    restoring(fine)
    assert work(queue)[0].done == 1


def test_at_is_passed_on_only_if_it_is_set(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[ImportOptions] = []

    class Report:
        warnings = ()

        def to_json(self) -> dict[str, Any]:
            return {}

    def with_options(archive: str, stream: str, options: ImportOptions, progress: Progress) -> Report:
        calls.append(options)
        return Report()

    when = datetime(2026, 1, 2, tzinfo=UTC)
    request_restore(ARCHIVE, target(queue, 0), queue=queue, at=when)
    request_restore(ARCHIVE, target(queue, 1), queue=queue, generation=2)
    monkeypatch.setattr(handlers, "import_stream", SimpleNamespace(with_options=with_options))
    assert work(queue)[0].done == 2
    assert [call.at for call in calls] == [when, None]
    assert [call.generation for call in calls] == [None, 2]
    assert all(call.again for call in calls), "a request may be done twice"


@pytest.mark.parametrize("fill", ["a", "\x01", "\ud800", "東"])
def test_largest_request_is_put_aside_and_back(queue: str, restoring: Restoring, fill: str) -> None:
    restoring(failing(Conflict(fill * 100_000, where=fill * 100_000, todo=fill * 100_000)))
    large = encode(RestoreRequest(archive=ARCHIVE, stream=target(queue))).ljust(MAX_ENTRY_BYTES)
    put(queue, large)
    ask(queue, 1)
    assert work(queue)[0].failed == 2
    shown = retry_failed(queue)
    assert (shown.waiting, shown.failed, shown.moved) == (2, 0, 2)
    with open_segment(queue) as segment:
        assert next(outstanding_entries(segment)).content == large


def test_request_restore_refuses_a_request_too_large_for_an_entry(queue: str) -> None:
    cut = {f"shop/orders/{number}.#epoch.0": number for number in range(40_000)}
    with pytest.raises(Usage, match="exceeds the maximum of 1048576"):
        request_restore(ARCHIVE, target(queue), queue=queue, from_cut=cut)


@pytest.mark.parametrize(
    "foreign", [b"", b"nonsense", b'{"kind": "failed", "version": 2}', b"\n", b"x" * MAX_ENTRY_BYTES]
)
def test_unreadable_failed_entry_stays_with_the_failed_ones(queue: str, restoring: Restoring, foreign: bytes) -> None:
    put(f"{queue}-failed", foreign)
    restoring(failing(Conflict("no")))
    (name,) = ask(queue, 1)
    work(queue)
    shown = retry_failed(queue)
    assert (shown.moved, shown.failed) == (1, 1)
    assert [one.id for one in shown.first_waiting] == [name]
    assert shown.first_failed[0].text == "an invalid failed request"
    assert drop_failed(queue).dropped == 1


def test_retry_into_a_full_queue_moves_nothing(queue: str, restoring: Restoring) -> None:
    restoring(failing(Conflict("no")))
    ask(queue, 1)
    work(queue)
    with stopped_at(Producer, "put", QueueFull("the queue is full")):
        retry_failed(queue)
    assert show_queue(queue).failed == 1


# Foreign bytes


def put_raw(uri: str, data: bytes) -> int:
    """Append bytes that are no entry; return where they begin."""
    with open_segment(uri) as segment:
        appender = segment.store.appender(segment.name, segment.segment, in_flight=1)
        offset = appender.offset
        appender.append(data)
        appender.flush()
        appender.close()
    return offset


@pytest.mark.parametrize(
    "data", [frame(b"not an entry"), frame(b""), b"raw bytes", b"\0" * 8 + b"x", struct.pack(">q", 1000) + b"y" * 20]
)
def test_foreign_bytes_are_shown_and_skipped(
    queue: str, restoring: Restoring, capfd: pytest.CaptureFixture[str], data: bytes
) -> None:
    restoring(fine)
    first, offset, second = ask(queue, 1), put_raw(queue, data), ask(queue, 2)
    shown = show_queue(queue)
    assert [one.id for one in shown.first_waiting] == [*first, *second]
    assert shown.foreign[0].offset == offset
    with pytest.raises(Conflict, match="begins at offset 0"):
        skip_foreign(queue, offset)
    with pytest.raises(Conflict, match="no foreign bytes"):
        skip_foreign(queue, 0)
    with pytest.raises(BadEntry, match=f"at offset {offset}"):
        work(queue)
    assert main(["queue", "show", queue]) == 0
    assert f"streamvault queue skip {queue} {offset}" in capfd.readouterr().out
    while foreign := show_queue(queue).foreign:
        assert main(["queue", "skip", queue, str(foreign[0].offset)]) == 0
    assert "skipped: " in capfd.readouterr().out
    assert skip_foreign(queue, offset).skipped_bytes == 0, "doubled"
    assert [one.id for one in show_queue(queue).first_waiting] == second
    assert work(queue)[0].done == 2
    assert skip_foreign(queue, offset).skipped_bytes == 0, "late"


def test_length_that_reaches_over_requests_takes_none_of_them(queue: str, restoring: Restoring) -> None:
    """Eight foreign bytes that read as the length of an event with two requests in it."""
    restoring(fine)
    offset, asked = put_raw(queue, struct.pack(">q", 500)), ask(queue, 2)
    assert skip_foreign(queue, offset).skipped_bytes == 8
    assert [one.id for one in show_queue(queue).first_waiting] == asked


def test_skip_is_refused_beside_a_worker(queue: str) -> None:
    ask(queue, 1)
    with open_segment(queue) as segment, Consumer(segment), pytest.raises(ConsumerBusy):
        skip_foreign(queue, 0)


def test_foreign_bytes_among_the_failed_are_skipped(queue: str) -> None:
    put(queue, b"nonsense")
    work(queue)
    offset = put_raw(f"{queue}-failed", frame(b"not an entry"))
    shown = show_queue(queue)
    assert (shown.failed, [(one.offset, one.in_failed_queue) for one in shown.foreign]) == (1, [(offset, True)])
    with pytest.raises(BadEntry):
        drop_failed(queue)
    assert skip_foreign(queue, offset, failed=True).skipped_bytes == 20
    assert drop_failed(queue).foreign == ()


# Commands


def test_commands_print_what_they_did(queue: str, restoring: Restoring, ran: Ran) -> None:
    restoring(fine)
    out, err = ran("request-restore", ARCHIVE, target(queue), "--queue", queue)
    assert err == ""
    name = next(line.split()[1] for line in out.splitlines() if line.startswith("id"))
    assert uuid.UUID(name)
    assert json.loads(ran("request-restore", ARCHIVE, target(queue), "--queue", queue, "--json").out)["id"] != name
    for arguments in (("queue", "show", queue), ("work", queue, "--dry-run")):
        out, _ = ran(*arguments)
        assert "2 requests waiting" in out
        assert name in out
    *records, end = map(json.loads, ran("work", queue, "--once", "--master", "inline", "--json").out.splitlines())
    assert [(record["ok"], record["kind"]) for record in records] == [(True, "restore")] * 2
    assert (end["done"], end["failed"]) == (2, 0)
    put(queue, b"nonsense")
    out, _ = ran("work", queue, "--idle", "0s", "--master", "inline", code=2)
    assert out.splitlines()[0].startswith("failed: an invalid request")
    assert json.loads(ran("queue", "show", queue, "--json").out)["failed"] == 1
    assert "requeued: 1 failed request" in ran("queue", "retry", queue).out
    for words in ("--once --idle 1s", "--for soon", "--master nonsense"):
        ran("work", queue, *words.split(), code=2)
    ran("queue", queue, code=2)
    ran("queue", "show", f"{queue}-other", code=5)
    out, err = ran("work", f"{queue}-other", "--once", "--master", "inline", code=5)
    assert out == ""
    assert err.startswith("streamvault: no such stream: ")


def test_second_worker_of_a_queue_is_refused(
    queue: str, restoring: Restoring, capfd: pytest.CaptureFixture[str]
) -> None:
    restoring(fine)
    ask(queue, 1)
    with open_segment(queue) as segment, Consumer(segment):
        assert main(["work", queue, "--once", "--master", "inline"]) == 4
    assert "another consumer is processing this queue" in capfd.readouterr().err
    assert work(queue)[0].done == 1


def test_queue_without_a_valid_queue_of_failed_requests_is_refused(queue: str) -> None:
    ask(queue, 1)
    address, name = parse_stream(f"{queue}-failed")
    with address.open() as store:
        store.create_stream(name, StreamConfiguration())
    with pytest.raises(NotAQueue, match="restores-failed"):
        work(queue)


def test_queue_of_failed_requests_is_refused(queue: str) -> None:
    for verb in (work_queue, show_queue, lambda failed: request_restore(ARCHIVE, target(queue), queue=failed)):
        with pytest.raises(Usage, match="queue of failed requests"):
            verb(f"{queue}-failed")


def test_invalid_or_missing_queue_is_named(queue: str) -> None:
    with pytest.raises(InvalidName):
        work_queue("nonsense")
    with pytest.raises(NoSuchScope):
        work_queue(queue, idle=0)
    ask(queue, 1)
    with pytest.raises(NoSuchStream):
        show_queue(f"{queue}-other")
    with pytest.raises(NoSuchStream):
        work_queue(f"{queue}-other", idle=0)


def test_request_that_was_put_back_is_put_aside_again_beside_its_former_entry(queue: str, restoring: Restoring) -> None:
    """A retry was killed before it removed the failed one; the second failure is another entry, with its own reason."""
    restoring(failing(Usage("no")))
    ask(queue, 1)
    with open_segment(queue) as segment:
        entry = next(iter(outstanding_entries(segment)))
        work(queue)
        Producer(segment).move(entry.content, entry.name)
    work(queue)
    shown = show_queue(queue)
    assert (shown.waiting, shown.failed) == (0, 2)


def test_worker_that_wakes_up_does_not_repeat_what_another_has_done(queue: str, restoring: Restoring) -> None:
    """Its own lease does not tell it; that the queue begins further on does."""
    tries = []

    def overtaken(request: RestoreRequest, context: handlers.RequestContext) -> dict[str, Any]:
        tries.append(request)
        with open_segment(queue) as segment:
            segment.processed(next(iter(outstanding_entries(segment))).end)
        raise Failed("no")

    restoring(overtaken)
    ask(queue, 2)
    with pytest.raises(ConsumerBusy, match="another consumer"):
        work(queue)
    assert len(tries) == 1


COUNT = 3
BAD = 1
"""The request that always fails."""


class Unlocked:
    """An appender that behaves as Pravega's: a block is stored at its expected offset or not at all."""

    def __init__(self, open_real: Callable[[], Any]) -> None:
        self._open = open_real
        with open_real() as real:
            self.offset = self.acknowledged = real.offset
        self._block = b""

    def append(self, block: bytes) -> None:
        self._block += bytes(block)

    def flush(self) -> int:
        with self._open() as real:
            if real.offset != self.offset:
                raise OffsetConflict("another writer appended", write_offset=real.offset)
            real.append(self._block)
            self.offset = self.acknowledged = real.flush()
        self._block = b""
        return self.acknowledged

    def close(self) -> None:
        self._block = b""


class Pauses:
    """Runs others before the call with a given number."""

    def __init__(self) -> None:
        self.left = -1
        self.others: Callable[[], None] = lambda: None

    def before_a_call(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.others()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 3600.0)
    monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.0)
    pauses = Pauses()

    def paused(call: Callable[..., Any]) -> Callable[..., Any]:
        def later(*arguments: Any, **options: Any) -> Any:
            pauses.before_a_call()
            return call(*arguments, **options)

        return later

    real = LocalStore.appender

    def appender(store: LocalStore, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> Unlocked:
        return Unlocked(lambda: real(store, stream, segment, in_flight=in_flight))

    calls = ("describe", "exists", "segment_info", "read", "create_stream", "truncate_segment", "truncate", "delete")
    for name in calls:
        monkeypatch.setattr(LocalStore, name, paused(getattr(LocalStore, name)))
    monkeypatch.setattr(LocalStore, "appender", paused(appender))
    monkeypatch.setattr(Unlocked, "flush", paused(Unlocked.flush))
    return pauses


class Requests:
    """A queue with requests, one of which always fails, and how often each was processed."""

    def __init__(self, folder: Path) -> None:
        self.queue = f"local://{folder}/queues/ops/restores"
        self.done: Counter[str] = Counter()
        self.streams = [f"{self.queue}-target-{number}" for number in range(COUNT)]
        for stream in self.streams:
            request_restore(ARCHIVE, stream, queue=self.queue)

    def handle(self, request: RestoreRequest, _context: object) -> dict[str, Any]:
        if request.stream == self.streams[BAD]:
            raise Usage("no")
        self.done[request.stream] += 1
        return {}

    def work(self) -> None:
        work_queue(self.queue, idle=0, master="inline")

    def retry(self) -> None:
        retry_failed(self.queue)

    def retry_and_work(self) -> None:
        self.retry()
        self.work()


LATE_AND_OTHERS = [("work", "work"), ("work", "retry_and_work"), ("retry", "work"), ("retry", "retry_and_work")]


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize(("late", "others"), LATE_AND_OTHERS)
def test_paused_worker_loses_nothing_and_puts_nothing_aside_twice(
    tmp_path: Path, pauses: Pauses, monkeypatch: pytest.MonkeyPatch, *, late: str, others: str, every: int
) -> None:
    for pause in range(1, 1000, every):
        requests = Requests(tmp_path / str(pause))
        monkeypatch.setattr("streamvault.requests.work.HANDLERS", {"restore": requests.handle})
        if late == "retry":
            requests.work()
        run: list[str] = []

        def meanwhile(requests: Requests = requests, run: list[str] = run) -> None:
            run.append(others)
            getattr(requests, others)()

        pauses.others, pauses.left = meanwhile, pause
        try:
            getattr(requests, late)()
        except LeaseHeld:
            assert run, "only one that was overtaken is refused"
        except Problem as problem:
            raise AssertionError(f"paused before call {pause}") from problem
        pauses.left = -1
        requests.work()
        shown = show_queue(requests.queue)
        assert set(requests.done) == set(requests.streams) - {requests.streams[BAD]}, pause
        assert shown.waiting == 0, pause
        # a retry of failed requests may add them twice; a worker moves each to the failed ones once
        assert shown.failed == 1 if late == others == "work" else shown.failed >= 1, pause
        assert requests.streams[BAD] in shown.first_failed[0].text
        if not run:
            assert pause > 20, "it was paused before each of its calls"
            return
