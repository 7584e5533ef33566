"""DAGs as users build them from the operators: they are triggered by an archive, export a stream, check or warm one."""

from __future__ import annotations

from airflow.sdk import Asset, Param, dag

from streamvault.airflow.operators import CheckArchiveOperator, ExportStreamOperator, WarmArchiveOperator

ORDERS = Asset("s3://airflow-vault/backups/airflow/orders")


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


follow_orders()
export_once()
check_once()
warm_once()
