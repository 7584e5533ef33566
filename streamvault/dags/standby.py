"""Keeps replicas of declared streams up to date on a schedule, usually in another cluster: an Airflow DAG."""

from streamvault.airflow.list_dags import list_dag
from streamvault.airflow.lists import Replications
from streamvault.airflow.operators import ReplicateStreamOperator

DAG = list_dag(
    Replications,
    ReplicateStreamOperator,
    "standby",
    alias="streamvault-replicas",
    schedule="@hourly",
    description="Keeps replicas of declared streams up to date.",
)
