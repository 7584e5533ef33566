"""The driver of the operators as a process: its result, how it is stopped, and that it does not outlive its task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from streamvault.airflow.operators import (
    CheckArchiveOperator,
    DeleteArchiveOperator,
    ExportStreamOperator,
    HandoffTableOperator,
    HoldArchiveOperator,
    PromoteReplicaOperator,
    ReplicateStreamOperator,
)
from streamvault.airflow.operators.command import CommandOperator
from streamvault.airflow.submit import StreamvaultSubmitHook
from streamvault.runner.runner import Master
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.airflow_attempt import Attempt
from testkit.streams import append_events, digest_of, make_stream

ROOT = Path(__file__).parents[2]
HEAVY = ("pyspark", "pyarrow", "boto3", "botocore", "grpc", "obstore", "numpy", "pandas")
PARSING = f"""
import sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1], collect_dags=True)
assert not bag.import_errors, bag.import_errors
for file in bag.dagbag_stats:
    print(file.file, file.duration, file.dags)
print("heavy:", [name for name in {HEAVY} if name in sys.modules])
"""
CONNECTIONS = pytest.mark.parametrize(
    "conn_id", ["inline", pytest.param("spark", marks=[pytest.mark.long, pytest.mark.spark])]
)
EXPORTING = """
import sys
from streamvault.airflow.submit import StreamvaultSubmitHook
StreamvaultSubmitHook(variables={}, conn_id=sys.argv[1]).run(sys.argv[2:])
"""


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, host in {"inline": "inline", "spark": "local[2]"}.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "spark", "host": host}))


@pytest.fixture
def export(tmp_path: Path) -> list[str]:
    """The command that archives a stream."""
    return export_of(tmp_path, events=3000)


@pytest.fixture
def long_export(tmp_path: Path) -> list[str]:
    """One that takes seconds on the quickest machine, so that it can be stopped before its end."""
    return export_of(tmp_path, events=10_000)


def export_of(tmp_path: Path, *, events: int) -> list[str]:
    name = StreamName("scope", "stream")
    with parse_stream(f"local://{tmp_path}/streams/{name}")[0].open() as store:
        make_stream(store, name, events=events, largest=2000)
    root = tmp_path / "vault"
    root.mkdir()
    return ["export", f"local://{tmp_path}/streams/{name}", f"file://{root}", "--range-size", "16KiB"]


def objects(export: list[str]) -> int:
    # not Path.rglob, which fails if a folder is deleted meanwhile
    return sum(len(files) for _, _, files in os.walk(export[2].removeprefix("file://")))


def drivers(export: list[str]) -> list[psutil.Process]:
    """The processes that run the command."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if export[2] in process.cmdline() and process.pid != os.getpid():
                found.append(process)
    return found


def wait(condition: Iterator[bool], what: str) -> None:
    deadline = time.monotonic() + 250
    for happened in condition:
        if happened:
            return
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)


def test_dags_are_parsed_without_heavy_imports() -> None:
    """In a process of its own; the durations are kept for inspection."""
    done = subprocess.run(
        [sys.executable, "-c", PARSING, str(ROOT / "dags")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert done.stdout.splitlines()[-1] == "heavy: []"


@CONNECTIONS
def test_command_runs_as_a_task(export: list[str], conn_id: str) -> None:
    ended = StreamvaultSubmitHook(variables={}, conn_id=conn_id).run(export)
    assert ended.code == 0, ended
    assert ended.document is not None
    assert (ended.document["generation"], ended.document["unchanged"]) == (1, False)
    assert ended.document["events"] > 2000
    again = StreamvaultSubmitHook(variables={}, conn_id="inline").run(["check", f"{export[2]}/scope/other"])
    assert again.code != 0
    assert again.document is not None
    assert again.document["error"]["exit_code"] == again.code


def append(uri: str, event: bytes) -> None:
    """Write an event to each open segment of a stream."""
    address, name = parse_stream(uri)
    with address.open() as store:
        for segment in store.describe(name).tail.offsets:
            append_events(store, name, segment, [event])


def test_replica_of_tasks_is_promoted(export: list[str], tmp_path: Path) -> None:
    """Replicated, also with a limit of the lag that it cannot keep; then promoted."""
    replica = f"local://{tmp_path}/streams/scope/replica"

    def task(kind: type[CommandOperator], **arguments: Any) -> dict[str, Any]:
        operator = kind(task_id="t", conn_id="inline", **arguments)
        return operator.execute({"ti": Attempt()})

    first = task(ReplicateStreamOperator, source=export[1], stream=replica, most_lag="10m")
    assert first["ended"] == "caught up"
    assert first["behind_bytes"] == first["moved_bytes"] > 0
    assert task(ReplicateStreamOperator, source=export[1], stream=replica, most_lag="0s")["rounds"] == 0, "nothing new"
    append(export[1], b"event")
    late = ReplicateStreamOperator(task_id="t", conn_id="inline", source=export[1], stream=replica, most_lag="0s")
    attempt = Attempt()
    with pytest.raises(AirflowFailException, match=f"the lag of {replica} is .*, above most_lag"):
        late.execute({"ti": attempt})
    assert attempt.pushed["report"]["moved_bytes"] > 0, "the replica was brought up to date"
    append(export[1], b"later")
    promoted = task(PromoteReplicaOperator, stream=replica, seal_source=True)
    assert (promoted["source"], promoted["source_sealed"]) == (export[1], True)
    assert task(PromoteReplicaOperator, stream=replica)["unchanged"], "as a retry reports"
    with parse_stream(replica)[0].open() as store:
        names = [StreamName("scope", name) for name in ("replica", "stream")]
        assert list(store.list_streams("scope")) == names
        assert len({digest_of(store, name) for name in names}) == 1


def test_task_log_has_the_result_as_text(export: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    exporting = ExportStreamOperator(task_id="t", conn_id="inline", stream=export[1], root=export[2], dry_run=True)
    assert exporting.execute({"ti": Attempt()})["dry_run"]
    assert f"streamvault: would write generation 1 of {export[2]}/scope/stream" in capfd.readouterr().out
    exporting.dry_run = False
    exporting.log_level = "warning"
    assert exporting.execute({"ti": Attempt()})["generation"] == 1
    assert "wrote generation" not in capfd.readouterr().out
    exporting.log_level = "loud"
    with pytest.raises(AirflowFailException, match="'--log-level': 'loud' is not one of"):
        exporting.execute({"ti": Attempt()})


def test_operators_of_commands_without_tasks_need_no_spark(
    export: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_INLINE")
    stream, root = export[1:3]

    def task(kind: type[CommandOperator], **arguments: Any) -> dict[str, Any]:
        context = {"ti": Attempt(), "outlet_events": OutletEventAccessors()}
        return kind(task_id="t", aws_conn_id=None, **arguments).execute(context)

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "inline"}))
    table = f"file://{tmp_path}/tables"
    made = task(HandoffTableOperator, source=stream, root=table, format="parquet", outlets=[AssetAlias("tables")])
    assert made["location"].startswith(table)
    assert made["events"] > 2000
    assert task(ExportStreamOperator, stream=stream, root=root)["generation"] == 1
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    assert task(HoldArchiveOperator, archive=f"{root}/scope/stream", hold="audit", why="they ask")["name"] == "audit"
    with pytest.raises(AirflowFailException, match="audit"):
        task(DeleteArchiveOperator, archive=f"{root}/scope/stream", yes=True)


def test_operator_runs_for_a_scope(export: list[str], tmp_path: Path) -> None:
    """One stream is damaged in the archive: the task says which, and the others are checked."""
    scope = export[1].removesuffix("stream")
    with parse_stream(export[1])[0].open() as store:
        make_stream(store, StreamName("scope", "other"), events=30, largest=200)
    exporting = ExportStreamOperator(task_id="t", conn_id="inline", stream=f"{scope}*", root=export[2])
    report = exporting.execute({"ti": Attempt()})
    assert [(each["stream"], each["status"]) for each in report["outcomes"]] == [
        (f"{scope}other", "done"),
        (f"{scope}stream", "done"),
    ]
    next((tmp_path / "vault/scope/other/events").rglob("*-*")).unlink()
    checking = CheckArchiveOperator(task_id="t", conn_id="inline", archive=f"{export[2]}/scope/")
    with pytest.raises(AirflowFailException, match=f"{export[2]}/scope/other is damaged:") as raised:
        checking.execute({"ti": Attempt()})
    assert "scope/stream" not in str(raised.value)


@pytest.mark.spark
def test_driver_submitted_to_another_spark_runs(export: list[str]) -> None:
    hook = StreamvaultSubmitHook(variables={}, conn_id="spark")
    hook.master = Master.parse("yarn")
    ended = hook.run(export)
    assert ended.code == 1
    assert ended.document is not None
    assert ended.document["error"]["what"] == "submitted to another Spark master"
    assert ended.document["error"]["todo"] == "Use --master local[2]."


@CONNECTIONS
def test_stopped_task_stops_its_driver(long_export: list[str], conn_id: str) -> None:
    hook = StreamvaultSubmitHook(variables={}, conn_id=conn_id)
    codes = []
    running = threading.Thread(target=lambda: codes.append(hook.run(long_export).code))
    running.start()
    wait((objects(long_export) > 20 for _ in iter(int, 1)), "the export")
    hook.on_kill()
    running.join(60)
    assert codes
    assert codes[0] != 0
    assert drivers(long_export) == []


@CONNECTIONS
def test_driver_does_not_outlive_its_task(long_export: list[str], conn_id: str) -> None:
    """The worker's process alone is killed; the same command then resumes."""
    task = subprocess.Popen(
        [sys.executable, "-c", EXPORTING, conn_id, *long_export], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        wait((objects(long_export) > 20 or task.poll() is not None for _ in iter(int, 1)), "the export")
        task.send_signal(signal.SIGKILL)
        assert task.wait() == -signal.SIGKILL
        wait((not drivers(long_export) for _ in iter(int, 1)), "the end of the driver")
    finally:
        task.kill()
        for process in drivers(long_export):
            process.kill()
    ended = StreamvaultSubmitHook(variables={}, conn_id="inline").run(long_export)
    assert ended.document is not None
    assert ended.document["resumed"]
