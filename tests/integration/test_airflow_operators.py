"""The operators that no other DAG has, as tasks of a real Airflow. No other servers: streams are embedded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamvault import export_stream, replicate_stream
from streamvault.airflow import operators
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamConfiguration, StreamName
from testkit.servers.airflow import AirflowServer
from testkit.streams import append_more, digest_of, make_stream

pytestmark = [pytest.mark.late, pytest.mark.timeout(1200)]

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
    assert (said["handoff"]["added"], said["handoff"]["events"]) == ([1, 2], said["plan"]["events"])
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
