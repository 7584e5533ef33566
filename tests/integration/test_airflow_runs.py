"""Which runs of the DAGs a real Airflow accepts, and which it rejects. No other servers: streams are embedded."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from moto.moto_api import state_manager

from streamvault import check_archive, export_stream, import_stream, list_archives, replicate_stream
from streamvault.airflow import operators
from streamvault.objectstore.store import InArchiveClass
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.servers.airflow import AirflowServer
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault
from testkit.streams import append_events, append_more, digest_of, make_stream
from tests.integration.test_warm import freeze

pytestmark = [pytest.mark.late, pytest.mark.timeout(1800)]


DAGS = ("archive_rotation", "restore_on_demand", "copy_via_file", "standby")


def make_streams(folder: Path, count: int) -> list[str]:
    """The URIs of some small streams in an embedded store."""
    names = [StreamName("shop", f"stream-{number}") for number in range(count)]
    with LocalStore(folder) as store:
        store.create_scope("shop")
        for name in names:
            store.create_stream(name, StreamConfiguration())
            append_events(store, name, SegmentId(0, 0), [b"event"] * 3)
    return [f"local://{folder}/{name}" for name in names]


def run(airflow: AirflowServer, dag: str, conf: dict[str, Any]) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """How a run ended, and its task instances by their tasks."""
    started, state = airflow.run(dag, conf)
    tasks: dict[str, list[dict[str, Any]]] = {}
    for task in airflow.tasks(dag, started):
        tasks.setdefault(task["task_id"], []).append(task)
    return state, tasks


@pytest.mark.parametrize("dag", DAGS)
def test_backfill_is_refused(airflow: AirflowServer, dag: str) -> None:
    """It would run one rotation now for each past interval, whatever `max_active_runs` says."""
    slots = {"from_date": "2026-01-02T00:00:00Z", "to_date": "2026-01-02T00:01:00Z"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        airflow.call("POST", "backfills", {"dag_id": dag, **slots, "reprocess_behavior": "none", "max_active_runs": 1})
    assert refused.value.code in {400, 409, 422}
    assert "does not allow backfill" in str(refused.value.__notes__)
    assert airflow.call("GET", f"dags/{dag}/dagRuns?run_type=backfill")["dag_runs"] == []


@pytest.mark.long
def test_misspelt_parameters_are_refused(airflow: AirflowServer, tmp_path: Path) -> None:
    """Airflow itself ignores them: the newest generation would be restored, or the declared streams rotated."""
    (stream,) = make_streams(tmp_path / "streams", 1)
    root = f"file://{tmp_path}/vault"
    export_stream(stream, root, master="inline")
    restore = {"archive": f"{root}/shop/stream-0", "target": f"local://{tmp_path}/streams/shop/back"}
    copy = {"stream": stream, "target": restore["target"], "via": f"file://{tmp_path}/between"}
    asked: dict[str, tuple[str, str, dict[str, Any]]] = {
        "archive_rotation": ("declared", "rotaton", {"rotaton": ["shop/orders"]}),
        "restore_on_demand": ("check_params", "generatoin", {**restore, "generatoin": 1}),
        "copy_via_file": ("choose_root", "cleanup", {**copy, "cleanup": False}),
        "standby": ("declared", "standbys", {"standbys": ["shop/orders"]}),
    }
    runs = {dag: airflow.trigger(dag, conf) for dag, (_, _, conf) in asked.items()}
    for dag in runs:
        airflow.pause(dag, paused=False)  # so they run beside each other
    for dag, run in runs.items():
        first, misspelt, _ = asked[dag]
        assert airflow.finished(dag, run)["state"] == "failed"
        airflow.pause(dag)
        tasks = airflow.tasks(dag, run)
        tried = [(task["state"], task["try_number"]) for task in tasks if task["task_id"] == first]
        assert tried == [("failed", 1)], "it is not retried"
        assert {task["state"] for task in tasks if task["task_id"] != first} <= {"upstream_failed", "skipped", None}
        assert any(f"unknown parameter {misspelt}" in log for log in airflow.logs(dag))


def test_each_of_many_streams_has_its_own_task(airflow: AirflowServer, tmp_path: Path) -> None:
    """The limit is two here. One is missing: a retry would fail in the same way, three times and five minutes apart."""
    airflow.connect("spark_default", conn_type="spark", host="inline")
    streams, root = make_streams(tmp_path / "streams", 5), f"file://{tmp_path}/vault"
    missing = f"local://{tmp_path}/streams/shop/typo"
    state, tasks = run(airflow, "archive_rotation", {"rotation": {"root": root, "streams": [*streams, missing]}})
    assert state == "failed"
    ended = {task["rendered_map_index"]: (task["state"], task["try_number"]) for task in tasks["rotate"]}
    assert ended == {**dict.fromkeys(streams, ("success", 1)), missing: ("failed", 1)}
    assert len(list(list_archives(root))) == 5


def test_task_that_is_cleared_does_not_announce_its_generation_again(airflow: AirflowServer, tmp_path: Path) -> None:
    airflow.connect("spark_default", conn_type="spark", host="inline")
    (stream,), root = make_streams(tmp_path / "streams", 1), f"file://{tmp_path}/vault"

    def told() -> list[int]:
        events = airflow.call("GET", "assets/events?order_by=timestamp&limit=100")["asset_events"]
        return [event["extra"]["generation"] for event in events if event["uri"] == f"{root}/shop/stream-0"]

    run, state = airflow.run("archive_rotation", {"rotation": {"root": root, "streams": [stream]}})
    assert (state, told()) == ("success", [1]), airflow.logs("archive_rotation")[-3:]
    assert airflow.clear("archive_rotation", run) == "success", airflow.logs("archive_rotation")[-3:]
    tries = [task["try_number"] for task in airflow.tasks("archive_rotation", run) if task["task_id"] == "rotate"]
    assert (tries, told()) == ([2], [1])


def test_consumer_has_a_run_for_each_generation(airflow: AirflowServer, tmp_path: Path) -> None:
    """Two were archived before the first run has begun: of events without a key, Airflow may make one run."""
    airflow.connect("inline", conn_type="spark", host="inline")
    _, stream = make_streams(tmp_path / "streams", 2)
    airflow.pause("on_partition", paused=False)
    created = []
    for turn in range(2):
        with LocalStore(tmp_path / "streams") as store:
            append_events(store, StreamName("shop", "stream-1"), SegmentId(0, 0), [b"more %d" % turn])
        run, state = airflow.run("export_partition", {"stream": stream})
        assert state == "success", airflow.logs("export_partition")[-1:]
        created.append(airflow.xcom("export_partition", run, "export")["created"][:19])

    def done() -> list[str] | None:
        found = airflow.call("GET", "dags/on_partition/dagRuns")["dag_runs"]
        assert "failed" not in {run["state"] for run in found}, airflow.logs("on_partition")
        keys = sorted(run["partition_key"] for run in found if run["state"] == "success")
        return keys if len(keys) == len(created) else None

    assert airflow.wait(done, timeout=300, what="a run for each generation") == created
    airflow.pause("on_partition")


@pytest.mark.long
def test_a_scope_and_a_pattern_stand_for_their_streams(airflow: AirflowServer, tmp_path: Path) -> None:
    """Each stream has a task of its own; a mistake in the list is told with the list's origin."""
    airflow.connect("spark_default", conn_type="spark", host="inline")
    streams, root = make_streams(tmp_path / "streams", 3), f"file://{tmp_path}/vault"
    shop = streams[0].rpartition("/")[0]
    rotation = {"root": root, "streams": [{"stream": f"{shop}/*-1", "layout": "chunks"}, {"stream": f"{shop}/*-2"}]}
    state, tasks = run(airflow, "archive_rotation", {"rotation": rotation})
    assert state == "success", airflow.logs("archive_rotation")[-3:]
    assert sorted(task["rendered_map_index"] for task in tasks["rotate"]) == streams[1:]
    pair = {"source": f"{shop}/", "stream": f"{shop.replace('/shop', '/dr')}/"}
    state, tasks = run(airflow, "standby", {"standby": [pair]})
    assert state == "success", airflow.logs("standby")[-3:]
    assert sorted(task["rendered_map_index"] for task in tasks["replicate"]) == streams
    with pytest.raises(urllib.error.HTTPError) as refused:
        run(airflow, "archive_rotation", {"rotation": {**rotation, "kep": 1}})
    assert "kep" in "".join(refused.value.__notes__).partition("Failed validating")[0]
    state, tasks = run(airflow, "archive_rotation", {"rotation": {**rotation, "keep": "many"}})
    assert (state, tasks["declared"][0]["state"]) == ("failed", "failed")
    said = "the list of rotations in the parameter rotation is not valid: keep"
    assert any(said in log for log in airflow.logs("archive_rotation"))


def test_each_of_many_pairs_has_its_own_task(airflow: AirflowServer, tmp_path: Path) -> None:
    """With the lag of each replica as the task's result; a replica that lags too much fails its own task alone."""
    airflow.connect("spark_default", conn_type="spark", host="inline")
    sources = make_streams(tmp_path / "streams", 3)
    replicas = [source.replace("/shop/", "/dr/") for source in sources]
    pairs = [{"source": source, "stream": replica} for source, replica in zip(sources, replicas, strict=True)]
    pairs[1]["most_lag"] = "0s"
    state, tasks = run(airflow, "standby", {"standby": {"most_lag": "1h", "streams": pairs}})
    assert state == "failed"
    ended = {task["rendered_map_index"]: (task["state"], task["try_number"]) for task in tasks["replicate"]}
    assert ended == {
        sources[0]: ("success", 1),
        sources[1]: ("failed", 1),
        sources[2]: ("success", 1),
    }, airflow.logs("standby")[-3:]
    with LocalStore(tmp_path / "streams") as store:
        for number in range(3):
            name = f"stream-{number}"
            assert digest_of(store, StreamName("dr", name)) == digest_of(store, StreamName("shop", name))
    emitted = airflow.call("GET", "assets/events?order_by=-timestamp")["asset_events"]
    lags = {event["uri"]: event["extra"]["lag_seconds"] for event in emitted if str(tmp_path) in event["uri"]}
    assert len(lags) == 2, "a failed task emits none"
    assert all(0 < lag < 3600 for lag in lags.values())


@pytest.fixture
def long_export(tmp_path: Path) -> tuple[str, str]:
    """A stream whose export takes a while, and the root for it."""
    name = StreamName("shop", "orders")
    with parse_stream(f"local://{tmp_path}/streams/{name}")[0].open() as store:
        make_stream(store, name, events=20_000, largest=2000)
    (tmp_path / "vault").mkdir()
    return f"local://{tmp_path}/streams/{name}", f"file://{tmp_path}/vault"


def frozen_driver(root: str) -> psutil.Process:
    """The process that exports to a root, halted once it has written some objects: it hears of no signal."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if sum(len(files) for _, _, files in os.walk(root.removeprefix("file://"))) > 20:
            (driver,) = (each for each in psutil.process_iter(["cmdline"]) if root in (each.info["cmdline"] or ()))
            driver.suspend()
            return driver
        time.sleep(0.02)
    raise AssertionError("the export did not begin")


def check_goes_on(stream: str, root: str, report: dict[str, Any]) -> None:
    """What was exported before the driver was stopped is in the archive, and all else."""
    assert (report["generation"], report["resumed"]) == (1, True)
    check_archive(f"{root}/shop/orders", read_data=True, master="inline")
    restored = f"{stream}-restored"
    import_stream(f"{root}/shop/orders", restored, master="inline")
    address, name = parse_stream(stream)
    with address.open() as store:
        assert digest_of(store, name) == digest_of(store, StreamName(name.scope, f"{name.stream}-restored"))


@pytest.mark.long
def test_run_that_takes_too_long_ends_and_the_next_one_goes_on(
    airflow: AirflowServer, long_export: tuple[str, str], tmp_path: Path
) -> None:
    """One of two drivers hangs and hears of no signal, so it has to be killed; the other stream is archived.

    Functions are called for the run, late and failed.
    """
    airflow.connect("spark_default", conn_type="spark", host="inline")
    stream, root = long_export
    (other,) = make_streams(tmp_path / "others", 1)
    streams = [stream, {"stream": other, "root": f"file://{tmp_path}/other"}]
    conf = {"rotation": {"root": root, "range_size": "16KiB", "streams": streams}}
    noted = Path(airflow.variables["STREAMVAULT_TEST_NOTES"])

    def wait_for_note(line: str) -> None:
        airflow.wait(
            lambda: (noted.exists() and line in noted.read_text().splitlines()) or None,
            timeout=300,
            what=f"the note {line!r}",
        )

    def states(run: str) -> dict[str, str]:
        tasks = airflow.tasks("archive_rotation", run)
        return {task["rendered_map_index"] or task["task_id"]: task["state"] for task in tasks}

    hung = airflow.trigger("archive_rotation", conf)
    airflow.pause("archive_rotation", paused=False)
    driver = frozen_driver(root)
    airflow.wait(lambda: states(hung).get(other) == "success" or None, timeout=300, what="the other's rotation")
    later = airflow.trigger("archive_rotation", conf)
    airflow.miss_deadline("archive_rotation", hung)
    wait_for_note(f"{hung} late")
    assert driver.is_running(), "a late run goes on"
    airflow.age("archive_rotation", hung)
    assert airflow.finished("archive_rotation", hung)["state"] == "failed"
    assert airflow.finished("archive_rotation", later)["state"] == "success", airflow.logs("archive_rotation")[-3:]
    airflow.pause("archive_rotation")
    ended = states(hung)
    assert (ended["declared"], ended[stream], ended[other]) == ("success", "skipped", "success")
    airflow.wait(lambda: not driver.is_running() or None, timeout=300, what="the end of the driver")
    wait_for_note(f"{hung} timed_out")
    assert f"{later} late" not in noted.read_text()
    check_goes_on(stream, root, airflow.xcom("archive_rotation", later, "rotate", index=0)["export"])


@pytest.mark.long
def test_task_that_takes_too_long_is_stopped_and_its_retry_goes_on(
    airflow: AirflowServer, long_export: tuple[str, str]
) -> None:
    """The alarm that Airflow sets for a stream's time limit rings; the driver hangs and hears of no signal."""
    airflow.connect("spark_default", conn_type="spark", host="inline")
    stream, root = long_export
    entry = {"stream": stream, "range_size": "16KiB", "stop_after": "1d"}
    run = airflow.trigger("archive_rotation", {"rotation": {"root": root, "streams": [entry]}})
    airflow.pause("archive_rotation", paused=False)
    driver = frozen_driver(root)
    task = driver.parent()
    assert task is not None
    task.send_signal(signal.SIGALRM)
    assert airflow.finished("archive_rotation", run)["state"] == "success", airflow.logs("archive_rotation")[-3:]
    airflow.pause("archive_rotation")
    assert not driver.is_running()
    tries = {task["task_id"]: task["try_number"] for task in airflow.tasks("archive_rotation", run)}
    assert tries["rotate"] == 2
    assert any("AirflowTaskTimeout" in log for log in airflow.logs("archive_rotation"))
    check_goes_on(stream, root, airflow.xcom("archive_rotation", run, "rotate", index=0)["export"])


def test_archive_written_outside_airflow_is_noticed(airflow: AirflowServer, tmp_path: Path) -> None:
    """A task that waits for it goes on, and a DAG that watches it runs: once for each generation."""
    airflow.connect("spark_default", conn_type="spark", host="inline")
    (stream,) = make_streams(tmp_path / "streams", 1)
    watched = Path(airflow.variables["STREAMVAULT_TEST_WATCHED"])
    archive = f"file://{watched}/shop/stream-0"
    airflow.pause("on_generation", paused=False)
    # a watcher is registered when the DAG's file is parsed while the DAG is switched on
    airflow.call("PUT", f"parseDagFile/{airflow.call('GET', 'dags/on_generation')['file_token']}")
    airflow.pause("wait_once", paused=False)
    waiting = airflow.trigger("wait_once", {"archive": archive})

    def deferred() -> bool | None:
        (task,) = airflow.tasks("wait_once", waiting) or [{"state": None}]
        assert task["state"] not in {"success", "failed"}, airflow.logs("wait_once")
        return (task["state"] == "deferred" and task["triggerer_job"] is not None) or None

    def checked(runs: int) -> dict[str, Any] | None:
        found = airflow.call("GET", "dags/on_generation/dagRuns?order_by=run_after")["dag_runs"]
        assert "failed" not in {run["state"] for run in found}, airflow.logs("on_generation")
        done = [run for run in found if run["state"] == "success"]
        return done[-1] if len(done) >= runs else None

    airflow.wait(deferred, timeout=300, what="the task's wait")
    # until the scheduler has seen the task pause, it would take one that goes on for one that has failed
    key = f"TaskInstanceKey(dag_id='wait_once', task_id='wait', run_id='{waiting}'"
    paused = f"Received executor event with state success for task instance {key}"
    airflow.wait(
        lambda: airflow.process.has_logged(paused) or None, timeout=300, what="the scheduler's look at the task"
    )
    export_stream(stream, f"file://{watched}", master="inline")
    assert airflow.finished("wait_once", waiting)["state"] == "success", airflow.logs("wait_once")
    assert airflow.xcom("wait_once", waiting, "wait")["generation"] == 1
    airflow.wait(lambda: checked(1), timeout=300, what="the run for generation 1")
    with LocalStore(tmp_path / "streams") as store:
        append_events(store, StreamName("shop", "stream-0"), SegmentId(0, 0), [b"more"])
    export_stream(stream, f"file://{watched}", master="inline")
    run = airflow.wait(lambda: checked(2), timeout=300, what="the run for generation 2")
    airflow.pause("on_generation")
    airflow.pause("wait_once")
    assert run["run_type"] == "asset_triggered"
    events = airflow.call("GET", "assets/events?order_by=timestamp")["asset_events"]
    told = [event["extra"]["payload"]["generation"] for event in events if event["uri"] == archive]
    assert told == [1, 2]
    links = airflow.call("GET", f"dags/on_generation/dagRuns/{run['dag_run_id']}/taskInstances/check/links")
    assert links["extra_links"]["Archive report"] == "https://reports.example.com/watched.html"
    assert "generation" in (watched / "page.html").read_text()
    assert "streamvault" in {each["package_name"] for each in airflow.call("GET", "providers")["providers"]}


# --- the operators that no other DAG has, as tasks of a real Airflow. No other servers: streams are embedded


SENSORS = {"GenerationSensor", "StreamBytesSensor"}


def test_every_operator_is_in_a_dag(airflow: AirflowServer) -> None:
    """Tests run each of these DAGs."""
    dags = [dag["dag_id"] for dag in airflow.call("GET", "dags")["dags"]]
    tasks = [task for dag in dags for task in airflow.call("GET", f"dags/{dag}/tasks")["tasks"]]
    assert {*operators.__all__, *SENSORS} - {task["class_ref"]["class_name"] for task in tasks} == set()


def test_operators_succeed_and_their_reports_are_results(airflow: AirflowServer, tmp_path: Path) -> None:
    airflow.connect("spark_default", conn_type="spark", host="inline")
    names = {name: StreamName("shop", name) for name in ("orders", "moved", "replica", "restored", "log")}
    scope, root = f"local://{tmp_path}/streams/shop", f"file://{tmp_path}/vault"
    archive, converted = f"{root}/shop/orders", f"file://{tmp_path}/other/shop/orders"
    with LocalStore(tmp_path / "streams") as store:
        make_stream(store, names["orders"], events=100, largest=2000)
        store.create_stream(names["log"], StreamConfiguration())
    export_stream(f"{scope}/orders", root, master="inline")
    append_more(f"{scope}/orders")
    export_stream(f"{scope}/orders", root, master="inline")
    replicate_stream(f"{scope}/orders", f"{scope}/replica", master="inline")

    run, state = airflow.run("every_operator", {"folder": str(tmp_path)})
    tasks = airflow.tasks("every_operator", run)
    ended = {task["task_id"]: (task["state"], task["try_number"]) for task in tasks}
    assert state == "success", [log[-2000:] for log in airflow.logs("every_operator") if "ERROR" in log]
    assert ended.pop("enough")[0] == "success"
    assert set(ended.values()) == {("success", 1)}, ended

    said: dict[str, Any] = {task: airflow.xcom("every_operator", run, task) for task in [*ended, "enough"]}
    assert [each["archive"] for each in said["list"]["archives"]] == [archive]
    assert [each["generation"] for each in said["timeline"]["entries"]] == [1, 2]
    assert (said["show"]["generation"], said["show"]["to"]) == (2, said["translate"]["positions"][0]["old"])
    assert {f"{scope}/{name}" for name in ("orders", "log")} <= {each["stream"] for each in said["streams"]["streams"]}
    assert said["plan"]["segments"] == 6
    assert said["doctor"]["passed"]
    assert [each["archive"] for each in said["status"]["statuses"]] == [archive]
    assert said["report"]["generations_read"] == 2
    assert "shop/orders" in (tmp_path / "page.html").read_text()
    for task in ("hold", "release"):
        assert (said[task]["name"], said[task]["unchanged"]) == ("audit", False)
    assert (said["handoff"]["added"], said["handoff"]["events"]) == ([2], said["plan"]["events"])
    assert said["handoff"]["location"] in said["ddl"]["ddl"]
    assert (said["convert"]["archive"], said["convert"]["converted"]) == (converted, [1, 2])
    assert [each["merged"] for each in said["compact"]["runs"]] == [2]
    assert said["delete"]["objects"] > 0
    assert said["ask"]["queue"] == said["queue"]["queue"] == f"{scope}/queue"
    assert (said["queue"]["waiting"], said["work"]["done"], said["work"]["failed"]) == (1, 1, 0)
    assert said["translate"]["stream"] == f"{scope}/restored"
    assert (said["follow"]["made"], said["follow"]["events"]) == (1, said["plan"]["events"])
    assert (said["promote"]["source"], said["promote"]["unchanged"]) == (f"{scope}/orders", False)
    assert (said["copy"]["stream"], said["move"]["stream"]) == (f"{scope}/copy", f"{scope}/moved")
    assert (said["move"]["source"], said["move"]["tombstone"]) == (f"{scope}/copy", True)
    size = said["plan"]["bytes"]
    assert (said["append"]["bytes"], said["join"]["bytes"], said["enough"]["bytes"]) == (size, 2 * size, size)
    assert said["sweep"]["scope"] == f"{scope}/"

    with LocalStore(tmp_path / "streams") as store:
        same = [names[name] for name in ("orders", "moved", "replica", "restored")]
        assert len({digest_of(store, name) for name in same}) == 1


# --- an archive in an archive class of S3 (moto): a task waits for it in the triggerer of a real Airflow


@pytest.fixture
def two_looks() -> Iterator[None]:
    """Requested objects are being restored at the first check, and readable at the next."""
    state_manager.set_transition("s3::keyrestore", {"progression": "time", "seconds": 0})
    yield
    state_manager.unset_transition("s3::keyrestore")


@pytest.mark.usefixtures("two_looks")
def test_task_waits_in_the_triggerer(
    airflow: AirflowServer, moto_s3: S3Server, use_s3: Callable[[S3Server], None], bucket_name: str, tmp_path: Path
) -> None:
    use_s3(moto_s3)
    moto_s3.make_bucket(bucket_name)
    vault = Vault(tmp_path, f"s3://{bucket_name}/vault")
    vault.make(events=20)
    vault.export("chunks")
    objects = freeze(moto_s3, vault)
    back = vault.uri(replace(NAME, stream="back"))
    with pytest.raises(InArchiveClass):
        import_stream(vault.archive, back, master="inline")
    extra = json.dumps({"endpoint_url": moto_s3.endpoint, "region_name": moto_s3.region})
    airflow.connect("cold", conn_type="aws", login=moto_s3.access_key, password=moto_s3.secret_key, extra=extra)
    airflow.pause("warm_once", paused=False)
    run = airflow.trigger("warm_once", {"archive": vault.archive})

    def deferred() -> dict[str, Any] | None:
        (task,) = airflow.tasks("warm_once", run) or [{"state": None}]
        assert task["state"] not in {"success", "failed"}, airflow.logs("warm_once")
        return task if task["state"] == "deferred" and task["triggerer_job"] else None

    waiting = airflow.wait(deferred, timeout=600, what="the task's wait")
    assert waiting["trigger"]["classpath"] == "streamvault.airflow.triggers.ArchiveReadableTrigger"
    assert airflow.finished("warm_once", run)["state"] == "success", airflow.logs("warm_once")
    (task,) = airflow.tasks("warm_once", run)
    assert (task["state"], task["try_number"]) == ("success", 1)
    logs = "".join(airflow.logs("warm_once"))
    assert f"requested {objects} objects of {vault.archive} from S3" in logs
    assert "is not readable yet; checking again in 8" in logs
    assert f"all required objects of {vault.archive} are readable" in logs
    assert moto_s3.secret_key not in "".join(airflow.logs())
    assert import_stream(vault.archive, back, master="inline").events == len(vault.events())
