"""DAGs as users build them from the operators: they are triggered by an archive, export a stream, check or warm one.

Or they wait for an archive that is written outside Airflow.
"""

from __future__ import annotations

import os

from airflow.sdk import Asset, AssetWatcher, Param, PartitionedAssetTimetable, dag

from streamvault.airflow.operators import CheckArchiveOperator, ExportStreamOperator, WarmArchiveOperator
from streamvault.airflow.sensors import GenerationSensor
from streamvault.airflow.triggers import GenerationTrigger

ORDERS = Asset("s3://airflow-vault/backups/airflow/orders")

FOLDER = os.environ.get("STREAMVAULT_TEST_WATCHED", "/nowhere")
WATCHED = Asset(
    f"file://{FOLDER}/shop/stream-0",
    watchers=[AssetWatcher("generations", GenerationTrigger(archive=f"file://{FOLDER}/shop/stream-0", poll_seconds=1))],
)


@dag(schedule=[ORDERS], max_active_runs=1)
def follow_orders() -> None:
    CheckArchiveOperator(task_id="check", archive=ORDERS.uri, conn_id="inline")


@dag(schedule=None, params={"stream": Param(type="string")}, default_args={"retries": 1})
def export_once() -> None:
    ExportStreamOperator(
        task_id="export", stream="{{ params.stream }}", root="s3://airflow-vault/once", range_size="64KiB"
    )


@dag(schedule=None, params={"archive": Param(type="string")}, default_args={"retries": 1})
def check_once() -> None:
    CheckArchiveOperator(task_id="check", archive="{{ params.archive }}", read_data=True, conn_id="inline")


@dag(schedule=None, params={"archive": Param(type="string")})
def warm_once() -> None:
    WarmArchiveOperator(task_id="warm", archive="{{ params.archive }}", days=2, poll_seconds=8, aws_conn_id="cold")


@dag(schedule=None, params={"archive": Param(type="string")})
def wait_once() -> None:
    GenerationSensor(task_id="wait", archive="{{ params.archive }}", poke_interval=1, deferrable=True)


@dag(schedule=[WATCHED], max_active_runs=1)
def on_generation() -> None:
    CheckArchiveOperator(
        task_id="check",
        archive=WATCHED.uri,
        report_file=f"{FOLDER}/page.html",
        report_url="https://reports.example.com/watched.html",
    )


PARTITIONED = Asset(f"file://{FOLDER}/shop/stream-1")


@dag(schedule=None, params={"stream": Param(type="string")})
def export_partition() -> None:
    ExportStreamOperator(
        task_id="export",
        stream="{{ params.stream }}",
        root=f"file://{FOLDER}",
        conn_id="inline",
        outlets=[PARTITIONED],
        partitioned=True,
    )


@dag(schedule=PartitionedAssetTimetable(assets=PARTITIONED), catchup=False)
def on_partition() -> None:
    CheckArchiveOperator(task_id="check", archive=PARTITIONED.uri, conn_id="inline")


follow_orders()
export_partition()
on_partition()
export_once()
check_once()
warm_once()
wait_once()
on_generation()
