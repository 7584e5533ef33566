"""The DAGs under a real Airflow's scheduler, on a real Pravega, MinIO and Spark."""

from __future__ import annotations

import itertools
import json
import threading
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psutil
import pytest

from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.pravega import PravegaSettings, PravegaStore
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.airflow import AirflowServer
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, digest_of, events_of, make_stream, payloads, shape_of

pytestmark = [
    pytest.mark.pravega,
    pytest.mark.minio,
    pytest.mark.spark,
    pytest.mark.late,
    pytest.mark.timeout(1800),
]

BUCKET = "airflow-vault"
SCOPE = "airflow"
ORDERS = StreamName(SCOPE, "orders")
ROOT = f"s3://{BUCKET}/backups"
KEPT = 2
RUNS = 3


@dataclass
class Ground:
    """The servers, and the archive that the rotations wrote."""

    airflow: AirflowServer
    pravega: PravegaServer
    other: PravegaServer
    minio: S3Server
    store: StreamStore

    def keys(self, prefix: str) -> list[str]:
        pages = self.minio.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"].removeprefix(prefix) for page in pages for entry in page.get("Contents", ())]

    def manifests(self) -> dict[int, dict[str, Any]]:
        """Generation → manifest, of the archive of the orders."""
        found = {}
        for key in self.keys(f"backups/{ORDERS}/_manifest/"):
            if key.endswith(".json") and key[:-5].isdecimal():
                client = self.minio.client()
                # a rotation may delete what was listed
                with suppress(client.exceptions.NoSuchKey):
                    body = client.get_object(Bucket=BUCKET, Key=f"backups/{ORDERS}/_manifest/{key}")["Body"]
                    found[int(key[:-5])] = json.loads(body.read())
        return found

    @contextmanager
    def open_other(self) -> Iterator[StreamStore]:
        """Open the other cluster."""
        environment = {"PRAVEGA_USERNAME": ADMIN.user, "PRAVEGA_PASSWORD": ADMIN.password}
        with PravegaStore(PravegaSettings.from_environment(self.other.uri, environment)) as store:
            yield store

    def run(self, dag: str, conf: dict[str, Any]) -> str:
        """Run a DAG until it succeeds."""
        run, state = self.airflow.run(dag, conf)
        assert state == "success", last_words(self.airflow)
        return run


@pytest.fixture(scope="module")
def ground(pravega: PravegaServer, minio: S3Server, airflow: AirflowServer) -> Iterator[Ground]:
    minio.make_bucket(BUCKET)
    connections = {
        # this cluster asks nobody; the other one would refuse this login
        "pravega_default": {
            "conn_type": "pravega",
            "host": "127.0.0.1",
            "port": pravega.controller_port,
            "login": "somebody",
            "password": "else",
        },
        "aws_default": {
            "conn_type": "aws",
            "login": minio.access_key,
            "password": minio.secret_key,
            "extra": json.dumps({"endpoint_url": minio.endpoint, "region_name": minio.region}),
        },
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
        "inline": {"conn_type": "spark", "host": "inline"},
    }
    with ThreadPoolExecutor() as pool, PravegaServer(heap="512m", cache_mib=64, accounts=(ADMIN,)) as other:
        connections["pravega_other"] = {
            "conn_type": "pravega",
            "host": "127.0.0.1",
            "port": other.controller_port,
            "login": ADMIN.user,
            "password": ADMIN.password,
        }
        list(pool.map(lambda each: airflow.connect(each[0], **each[1]), connections.items()))
        rotation = {"root": ROOT, "keep": KEPT, "range_size": "16KiB", "streams": [str(ORDERS)]}
        airflow.call("POST", "variables", {"key": "streamvault_rotation", "value": json.dumps(rotation)})
        with parse_stream(f"{pravega.uri}/{ORDERS}")[0].open() as store:
            store.create_scope(SCOPE)
            yield Ground(airflow, pravega, other, minio, store)


def last_words(airflow: AirflowServer) -> str:
    """The tasks' last log lines, to find the cause of a failure."""
    return "\n".join(airflow.logs())[-6000:]


@contextmanager
def writing(pravega: PravegaServer, stream: StreamName, segments: list[SegmentId]) -> Iterator[None]:
    """Events that are written all the time, on connections of their own."""
    enough = threading.Event()

    def write() -> None:
        with parse_stream(f"{pravega.uri}/{stream}")[0].open() as store:
            for number, segment in zip(itertools.count(), itertools.cycle(segments), strict=False):
                append_events(store, stream, segment, payloads(5, number, largest=2000))
                if enough.wait(0.3):
                    return

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        try:
            yield
        finally:
            enough.set()
        done.result()


Pointer = tuple[str, int, int]


def events(store: StreamStore, stream: StreamName) -> dict[Pointer, bytes]:
    """(segment, offset, length) → payload."""
    return {(str(at.segment), at.offset, at.length): payload for at, payload in events_of(store, stream)}


def pointer(key: str) -> Pointer:
    """Of an event's key below the archive."""
    folder, _, name = key.removeprefix("events/").partition("/")
    epoch, number = map(int, folder.split("."))
    offset, length = map(int, name.split("-"))
    return f"{number}.#epoch.{epoch}", offset, length


def between(found: dict[Pointer, bytes], start: dict[str, int], end: dict[str, int]) -> dict[Pointer, bytes]:
    """The events between two cuts, of a stream that was never scaled."""
    starts, ends = ({name.rpartition("/")[2]: offset for name, offset in cut.items()} for cut in (start, end))
    return {at: payload for at, payload in found.items() if starts[at[0]] <= at[1] < ends[at[0]]}


def test_scheduler_rotates_streams(ground: Ground) -> None:
    """Three scheduled runs while a writer appends; another DAG is triggered by the archive."""
    store, airflow = ground.store, ground.airflow
    store.create_stream(ORDERS, StreamConfiguration(scaling=Scaling(min_segments=2)))
    segments = list(store.describe(ORDERS).tail.offsets)
    for segment in segments:
        append_events(store, ORDERS, segment, payloads(40, segment.number, largest=2000))
    airflow.pause("follow_orders", paused=False)
    manifests: dict[int, dict[str, Any]] = {}
    seen: set[Pointer] = set()

    def scheduled() -> list[dict[str, Any]]:
        path = "dags/archive_rotation/dagRuns?order_by=-run_after&run_type=scheduled"
        return airflow.call("GET", path)["dag_runs"]  # type: ignore[no-any-return]

    # other tests may have had the DAG run, without the variable that says what to rotate
    before = {run["dag_run_id"] for run in scheduled()}

    def runs() -> list[dict[str, Any]]:
        return [run for run in scheduled() if run["dag_run_id"] not in before]

    def enough() -> bool | None:
        # each generation exists for some runs, and is read meanwhile
        now = ground.manifests()
        if now.keys() - manifests.keys():
            manifests.update(now)
            seen.update(pointer(key) for key in ground.keys(f"backups/{ORDERS}/") if key.startswith("events/"))
        ended = [run["state"] for run in runs() if run["state"] in {"success", "failed"}]
        assert "failed" not in ended, last_words(airflow)
        return len(ended) >= RUNS or None

    def quiet() -> bool | None:
        states = [task["state"] for run in runs() for task in airflow.tasks("archive_rotation", run["dag_run_id"])]
        return None if {"running", "queued", "restarting"} & set(states) else True

    with writing(ground.pravega, ORDERS, segments):
        airflow.follow_schedule("archive_rotation")
        airflow.pause("archive_rotation", paused=False)
        airflow.wait(enough, timeout=1200, what="three rotations")
        airflow.pause("archive_rotation")
        airflow.wait(quiet, timeout=300, what="the end of a rotation")
    enough()
    newest = max(manifests)
    assert newest >= RUNS
    assert sorted(manifests) == list(range(1, newest + 1))
    for number in range(2, newest + 1):
        assert manifests[number]["from"] == manifests[number - 1]["to"]
    source = events(store, ORDERS)
    assert seen == set(between(source, manifests[1]["from"], manifests[newest]["to"])), "every event, once"
    assert len(source) > len(seen) > 80, "the writer was at work"

    left = list(range(newest - KEPT + 1, newest + 1))
    assert sorted(ground.manifests()) == left
    there = {pointer(key) for key in ground.keys(f"backups/{ORDERS}/") if key.startswith("events/")}
    assert there == set(between(source, manifests[left[0]]["from"], manifests[newest]["to"]))

    archive = f"{ROOT}/{ORDERS}"
    told = airflow.call("GET", "assets/events?order_by=-timestamp")["asset_events"]
    assert {event["extra"]["generation"] for event in told if event["uri"] == archive} == set(manifests)

    def followed() -> dict[str, Any] | None:
        found = airflow.call("GET", "dags/follow_orders/dagRuns")["dag_runs"]
        return next((run for run in found if run["state"] in {"success", "failed"}), None)

    run = airflow.wait(followed, timeout=400, what="the DAG that follows")
    assert (run["state"], run["run_type"]) == ("success", "asset_triggered")
    airflow.pause("follow_orders")


def test_dag_restores_to_a_time(ground: Ground) -> None:
    manifests = ground.manifests()
    oldest, newest = min(manifests), max(manifests)
    at = datetime.fromisoformat(manifests[newest]["created"]) - timedelta(milliseconds=1)
    target = StreamName(SCOPE, "restored")
    asked = {"archive": f"{ROOT}/{ORDERS}", "target": str(target), "at": at.isoformat()}
    run = ground.run("restore_on_demand", asked)
    held = between(events(ground.store, ORDERS), manifests[oldest]["from"], manifests[newest]["from"])
    assert events(ground.store, target) == held
    said = ground.airflow.xcom("restore_on_demand", run, "report")
    assert f"{len(held):,} events" in said
    assert "read back" in said
    report = ground.airflow.xcom("restore_on_demand", run, "restore")
    assert (report["generation"], report["events"]) == (newest - 1, len(held))


@pytest.mark.parametrize("wrong", [{}, {"archive": "orders"}, {"generation": 0}, {"offsets": "move"}])
def test_form_refuses_invalid_parameters(ground: Ground, wrong: dict[str, Any]) -> None:
    asked = {"archive": f"{ROOT}/{ORDERS}", "target": f"{SCOPE}/other", **wrong} if wrong else {}
    with pytest.raises(urllib.error.HTTPError) as refused:
        ground.airflow.trigger("restore_on_demand", asked)
    assert refused.value.code in {400, 422}


def test_task_of_a_killed_worker_is_retried(ground: Ground) -> None:
    """kill -9 of a task and its child processes in the middle of an export; the retry resumes it."""
    name = StreamName(SCOPE, "killed")
    make_stream(ground.store, name, events=6000, largest=2000)
    uri = f"{ground.pravega.uri}/{name}"
    ground.airflow.pause("export_once", paused=False)
    run = ground.airflow.trigger("export_once", {"stream": uri})

    def half_way() -> list[psutil.Process] | None:
        if len([key for key in ground.keys(f"once/{name}/_work/") if key.count("/") > 1]) < 3:
            return None
        below = psutil.Process(ground.airflow.process.pid).children(recursive=True)
        for process in below:
            with suppress(psutil.Error):
                if uri in process.cmdline():
                    task = process.parent()
                    return [task, *task.children(recursive=True)] if task is not None else None
        return None

    for process in ground.airflow.wait(half_way, timeout=400, what="half of an export"):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    killed = ground.keys(f"once/{name}/_manifest/")
    ended = ground.airflow.finished("export_once", run)
    assert ended["state"] == "success", last_words(ground.airflow)
    assert killed == [], "it was killed before it was through"
    assert [task["try_number"] for task in ground.airflow.tasks("export_once", run)] > [1]
    report = ground.airflow.xcom("export_once", run, "export")
    assert report["resumed"]
    assert report["moved_bytes"] > 0
    found = {pointer(key) for key in ground.keys(f"once/{name}/") if key.startswith("events/")}
    assert found == set(events(ground.store, name))


def test_damage_fails_the_dag(ground: Ground) -> None:
    name = StreamName(SCOPE, "killed")
    lost = next(key for key in ground.keys(f"once/{name}/") if key.startswith("events/"))
    ground.minio.client().delete_object(Bucket=BUCKET, Key=f"once/{name}/{lost}")
    run, state = ground.airflow.run("check_once", {"archive": f"s3://{BUCKET}/once/{name}"})
    assert state == "failed"
    findings = ground.airflow.xcom("check_once", run, "check", key="report")["findings"]
    assert findings
    told = [log for log in ground.airflow.logs("check_once") if f"s3://{BUCKET}/once/{name} is damaged:" in log]
    assert len(told) == 1, "a retry would find the same, so there is none"
    assert findings[0] in told[0]


def test_dag_copies_to_another_cluster(ground: Ground) -> None:
    source, target = StreamName(SCOPE, "copied"), StreamName("elsewhere", "copy")
    make_stream(ground.store, source, events=500, largest=2000)
    asked = {"stream": str(source), "target": str(target), "via": f"s3://{BUCKET}/between"}
    ground.run("copy_via_file", {**asked, "target_pravega_conn_id": "pravega_other"})
    with ground.open_other() as other:
        assert digest_of(other, target) == digest_of(ground.store, source)
        assert shape_of(other, target) == shape_of(ground.store, source)
    assert ground.keys("between/") == []


def test_dag_keeps_a_standby_in_another_cluster(ground: Ground) -> None:
    """Each cluster gets its own login. The second run replicates what was written after the first."""
    source = StreamName(SCOPE, "stood-by")
    make_stream(ground.store, source, events=500, largest=2000)
    pair = {"source": str(source), "stream": str(source), "target_conn_id": "pravega_other"}
    for _ in range(2):
        ground.run("standby", {"standby": [pair]})
        with ground.open_other() as other:
            assert digest_of(other, source) == digest_of(ground.store, source)
        append_events(ground.store, source, max(ground.store.describe(source).tail.offsets), [b"one more"])


def test_task_logs_have_results_and_no_secret(ground: Ground) -> None:
    logs = "".join(ground.airflow.logs())
    assert "Spark-Submit cmd" in logs
    assert "INFO streamvault: wrote generation 1 of s3://" in logs
    assert ground.minio.secret_key not in logs
    assert ADMIN.password not in logs
