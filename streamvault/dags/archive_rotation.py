"""Archives declared streams on a schedule, and lets old generations expire: an Airflow DAG."""

from streamvault.airflow.list_dags import list_dag
from streamvault.airflow.lists import Rotations
from streamvault.airflow.operators import RotateArchiveOperator

DAG = list_dag(
    Rotations,
    RotateArchiveOperator,
    "archive_rotation",
    alias="streamvault-archives",
    schedule="@daily",
    description="Archives declared streams, and lets old generations expire.",
)
