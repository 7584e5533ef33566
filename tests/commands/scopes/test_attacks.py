"""Scopes in adverse conditions: interrupted, worked on twice at once, with slow, many or replaced streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, export_stream, follow_stream
from streamvault.exporter import export as exporting
from streamvault.scopes import run as running
from streamvault.scopes.reports import ScopeReport
from streamvault.scopes.run import AT_ONCE
from streamvault.streamstore.errors import StreamStoreUnavailable
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamName
from testkit.scenes import ALL_DONE, NAMES, Heard, Scopes
from testkit.streams import append_events

PATIENCE = 60.0
"""How long a test waits for what must happen (seconds)."""


def statuses(report: Any) -> dict[str, str]:
    return {each.stream.rpartition("/")[2]: each.status for each in ScopeReport.of(report).outcomes}


def test_ctrl_c_ends_all_streams_and_the_same_command_goes_on(scopes: Scopes) -> None:
    with scopes.store as store:
        for name in NAMES:
            events = [os.urandom(100) for _ in range(1000)]
            append_events(store, StreamName("shop", name), SegmentId(0, 0), events)
    arguments = ["export", scopes.uri("shop/"), scopes.root]
    command = [sys.executable, "-m", "streamvault", *arguments, "--master", "inline"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while len(list(scopes.folder.glob("vault/shop/*/events"))) < AT_ONCE:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    *done, last = err.splitlines()
    assert last == "streamvault: interrupted; run the same command again to resume"
    assert all(": done (" in line for line in done)
    code, report = scopes.run(*arguments)
    assert (code, [each["status"] for each in report["outcomes"]]) == (0, ["done"] * len(NAMES))
    assert any(each["result"]["resumed"] for each in report["outcomes"])
    assert statuses(check_archive(f"{scopes.root}/shop/", read_data=True, master="inline")) == ALL_DONE


def test_four_streams_at_once_and_a_slow_one_holds_up_no_other(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    export_next = exporting.export_next
    lock, full, others_done = threading.Lock(), threading.Event(), threading.Event()
    now, most, done = set[str](), 0, set[str]()

    def observed(export: Any, *others: Any, **more: Any) -> Any:
        nonlocal most
        name = export.name.stream
        with lock:
            now.add(name)
            most = max(most, len(now))
            if most == AT_ONCE:
                full.set()
        assert full.wait(PATIENCE), "fewer at once"
        if name == "a":
            assert others_done.wait(PATIENCE), "it holds up others"
        try:
            return export_next(export, *others, **more)
        finally:
            with lock:
                now.remove(name)
                done.add(name)
                if len(done) == len(NAMES) - 1:
                    others_done.set()

    monkeypatch.setattr(exporting, "export_next", observed)
    assert statuses(export_stream(scopes.uri("shop/"), scopes.root, master="inline")) == ALL_DONE
    assert most == AT_ONCE


def test_two_commands_may_follow_a_scope_at_once(scopes: Scopes) -> None:
    found: list[Any] = []

    def follow() -> None:
        found.append(follow_stream(scopes.uri("shop/"), scopes.root, master="inline", every=0.02, idle=0.5))

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [statuses(each) for each in found] == [ALL_DONE] * 2
    checked = ScopeReport.of(check_archive(f"{scopes.root}/shop/", read_data=True, master="inline"))
    assert [each.result and (each.status, each.result.events) for each in checked.outcomes] == [
        ("done", number + 3) for number in range(len(NAMES))
    ]


def test_a_stream_that_was_created_again_fails_alone(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its archive is the old stream's, whether its end was noticed or not; the others go on."""
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.02)

    def create_again() -> None:
        scopes.delete("c")
        with scopes.store as store:
            name = StreamName("shop", "c")
            store.create_stream(name, StreamConfiguration())
            append_events(store, name, next(iter(store.describe(name).tail.offsets)), [b"another"] * 99)
        scopes.add("a", 1)

    heard = Heard(c_generation=create_again)
    report = ScopeReport.of(
        follow_stream(scopes.uri("shop/"), scopes.root, master="inline", every=0.02, idle=0.5, progress=heard)
    )
    assert statuses(report) == {**ALL_DONE, "c": "failed"}
    assert report.exit_code == 4, report.outcomes[2].failure
    assert report.outcomes[0].result is not None
    assert report.outcomes[0].result.made == 2


def test_a_store_that_is_away_for_a_while_ends_no_stream(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does a scope that cannot be listed meanwhile."""
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr("streamvault.common.waiting.MAX_PAUSE_SECONDS", 0.01)
    describe, list_streams, away = LocalStore.describe, LocalStore.list_streams, set[str]()

    def refused(what: str) -> None:
        # a stream that has not begun fails, as its command does
        begun = {text.partition(":")[0] for text in heard.heard}
        if begun.issuperset(NAMES) and len(away) < 4:
            away.add(f"{what} {len(away)}")
            raise StreamStoreUnavailable("it does not answer", where="local")

    def described(store: LocalStore, *others: Any) -> Any:
        refused("described")
        return describe(store, *others)

    def listed(store: LocalStore, *others: Any, **more: Any) -> Any:
        refused("listed")
        return list_streams(store, *others, **more)

    heard = Heard()
    monkeypatch.setattr(LocalStore, "describe", described)
    monkeypatch.setattr(LocalStore, "list_streams", listed)
    report = follow_stream(scopes.uri("shop/"), scopes.root, master="inline", every=0.02, idle=0.5, progress=heard)
    assert statuses(report) == ALL_DONE
    assert len(away) == 4


STREAMS = 200
PASSES = 15
MIB = 1024 * 1024
MOST = 256 * MIB
"""With what pyarrow keeps for each thread, `follow` would take more."""

MEASURED = """
import sys
from pathlib import Path
from streamvault.cli import main

code = main(sys.argv[1:])
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
sys.exit(code)
"""
"""The command, which writes its peak memory (KiB). What `wait` gives may be the peak of the process that started it."""


@pytest.mark.long
@pytest.mark.parametrize("verb", ["replicate", "follow"])
def test_two_hundred_streams_take_little_memory(tmp_path: Path, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Each has events all the time; a process for each would take 123 MiB."""
    scopes = Scopes(tmp_path, capfd)
    names = [f"s{number}" for number in range(STREAMS)]
    scopes.make(names)
    target = [scopes.uri("replicas/"), "--follow"] if verb == "replicate" else [scopes.root, "--layout", "chunks"]
    command = [sys.executable, "-c", MEASURED, verb, scopes.uri("shop/"), *target]
    with subprocess.Popen(
        [*command, "--idle", "10s", "--master", "inline", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        ended = threading.Event()

        def write() -> None:
            for name in names * PASSES:
                if not ended.is_set():
                    scopes.add(name, 60)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            out, err = process.communicate()
        finally:
            ended.set()
            writer.join()
    assert process.returncode == 0, err
    report = json.loads(out)
    assert all(each["status"] == "done" and each["result"]["rounds"] for each in report["outcomes"])
    assert len(report["outcomes"]) == STREAMS
    assert int(err.split()[-1]) * 1024 < MOST
