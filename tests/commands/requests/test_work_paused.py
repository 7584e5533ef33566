"""A worker, or a retry of failed requests, that is paused before any of its store calls while others take over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamvault import request_restore, retry_failed, show_queue, work_queue
from streamvault.common.errors import Problem, Usage
from streamvault.requests.queue import RestoreRequest
from streamvault.streamstore import lease
from streamvault.streamstore.errors import OffsetConflict
from streamvault.streamstore.lease import LeaseHeld
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamName

ARCHIVE = "s3://vault/backups/shop/orders"
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
