"""A rotation that queues its deletions, and the worker that processes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, rotate_stream, show_queue, work_queue
from streamvault.manifests.expiry import ExpiryRule
from streamvault.manifests.files import segment_key
from streamvault.objectstore.uri import RootAddress
from streamvault.requests.queue import request_deletions
from streamvault.requests.reports import FinishedRequest, WorkReport
from streamvault.streamstore.queue import NotAQueue
from testkit.locks import Locked
from testkit.small_archives import NAME, RANGE_SIZE, Vault, a_root, a_vault, archive_of, contents, data_keys, objects_of
from tests.told import Ran

vault = a_vault(
    events=80, largest=2000, exports=[("events", ""), ("chunks", ""), ("events", "")], between=[b"chunks", b"events"]
)


@pytest.fixture
def queue(tmp_path: Path) -> str:
    return f"local://{tmp_path}/queues/ops/deletions"


def rotate(vault: Vault, root: str = "", **options: Any) -> Any:
    return rotate_stream(vault.uri(), root or vault.root, range_size=RANGE_SIZE, master="inline", **options)


def work(queue: str) -> tuple[WorkReport, list[FinishedRequest]]:
    finished: list[FinishedRequest] = []
    return work_queue(queue, idle=0, master="inline", finished=finished.append), finished


def test_queued_deletion_deletes_what_rotate_would_at_once(vault: Vault, queue: str) -> None:
    at_once = a_root()
    for key, data in contents(vault.root).items():
        objects_of(at_once).put(key, data)
    expected = rotate(vault, at_once, keep=1)
    before = data_keys(vault.root)
    report = rotate(vault, keep=1, queue=queue)
    assert (report.expired, report.queued, report.objects_deleted) == (expected.expired, (2,), 0)
    assert data_keys(vault.root) == before, "nothing is deleted yet"
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    assert archive_of(vault.root).generations() == [3]
    again = rotate(vault, keep=1, queue=queue)
    assert (again.queued, again.expired) == ((), ()), "it waits already"
    shown = show_queue(queue)
    assert [row.text for row in shown.first_waiting] == [f"delete generation 2 of {vault.root}/{NAME}"]

    done, finished = work(queue)
    assert (done.done, done.failed) == (1, 0)
    assert finished[0].report is not None
    assert finished[0].report["objects_deleted"] == expected.objects_deleted > 0
    assert data_keys(vault.root) == data_keys(at_once)
    assert sorted(contents(vault.root)) == sorted(contents(at_once))
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    assert rotate(vault, keep=1, queue=queue).queued == ()


def test_repeated_deletion_deletes_nothing_more(vault: Vault, queue: str) -> None:
    rotate(vault, keep=2, queue=queue)
    work(queue)
    vault.add(b"more")
    rotate(vault, keep=1, queue=queue)
    work(queue)
    left = contents(vault.root)
    # the older mark is deleted by now, the newer one stays
    for number in (1, 3):
        assert request_deletions(queue, vault.root, NAME, [number], ExpiryRule(keep=1)) == (number,)
    done, finished = work(queue)
    assert (done.done, done.failed) == (2, 0)
    assert [(one.report or {})["objects_deleted"] for one in finished] == [0, 0]
    assert contents(vault.root) == left


def test_lock_stops_a_deletion_and_the_next_rotation_asks_again(
    vault: Vault, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = next(entry for entry in archive_of(vault.root).manifest(1).segments if entry.events)
    segment = segment_key(entry.name)
    place = f"/{segment.epoch:010d}.{segment.number:010d}/{entry.start:019d}-"
    locked = next(key for key in data_keys(vault.root) if place in key)
    rotate(vault, keep=2, queue=queue)
    monkeypatch.setattr(RootAddress, "open_locks", lambda _: Locked(locked))
    done, finished = work(queue)
    assert (done.done, done.failed) == (1, 0)
    assert locked in (finished[0].report or {})["stopped"]
    assert locked in contents(vault.root)
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    monkeypatch.undo()
    assert rotate(vault, keep=2, queue=queue).queued == (1,)
    assert work(queue)[0].done == 1
    assert locked not in contents(vault.root)


def test_deletion_of_a_generation_in_force_is_refused(vault: Vault, queue: str) -> None:
    before = contents(vault.root)
    request_deletions(queue, vault.root, NAME, [3], ExpiryRule(keep=1))
    done, finished = work(queue)
    assert (done.failed, done.failed_exit_codes) == (1, (2,))
    assert finished[0].error is not None
    assert finished[0].error["what"] == "this generation has not expired"
    assert contents(vault.root) == before


def test_rotation_requests_deletions_that_a_killed_one_did_not(
    vault: Vault, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamvault.exporter.rotate.request_deletions", killed)
    with pytest.raises(KeyboardInterrupt):
        rotate(vault, keep=1, queue=queue)
    monkeypatch.undo()
    assert show_queue(queue).waiting == 0
    assert rotate(vault, keep=1, queue=queue).queued == (2,)
    assert work(queue)[0].done == 1
    assert archive_of(vault.root).listing().decision.swept == 2


def test_rotate_refuses_an_invalid_queue_before_any_change(vault: Vault) -> None:
    before = contents(vault.root)
    with pytest.raises(NotAQueue):
        rotate(vault, keep=1, queue=vault.uri())
    assert contents(vault.root) == before


def test_commands_print_what_they_did(vault: Vault, queue: str, ran: Ran) -> None:
    rotated = ("rotate", vault.uri(), vault.root, "--keep", "1", "--queue", queue, "--master", "inline")
    assert "would expire" in ran(*rotated, "--dry-run").out
    assert "generation 2 and earlier ones, by a worker of the queue" in ran(*list(rotated)).out
    record = json.loads(ran("work", queue, "--once", "--master", "inline", "--json").out.splitlines()[0])
    assert (record["kind"], record["ok"]) == ("delete", True)
    assert RootAddress.parse(vault.root).uri in record["text"]
