"""Keeps replicas of declared streams up to date on a schedule, usually in another cluster.

The list of streams comes from the run's parameter ``standby``, from the variable ``streamvault_standby`` (JSON), or
from the file on the workers that ``STREAMVAULT_STANDBY_FILE`` names. ``STREAMVAULT_STANDBY_SCHEDULE`` sets the
schedule: a cron expression or preset (default ``@hourly``), or an interval such as ``90s``, ``15m``, ``6h`` or ``1d``.

A run that takes longer than ``STREAMVAULT_STANDBY_TIMEOUT`` (default ``1d``, ``none`` for any time) fails, and the
next one resumes what it began. ``STREAMVAULT_STANDBY_ON_FAILURE`` names a function that is called if a run fails,
``STREAMVAULT_STANDBY_POOL`` the tasks' pool, and ``STREAMVAULT_STANDBY_OWNER`` their owner.
"""

from __future__ import annotations

from airflow.sdk import AssetAlias, dag

from streamvault.airflow.list_dags import each_of_list, list_dag_options
from streamvault.airflow.operators import ReplicateStreamOperator
from streamvault.airflow.replications import Replications

REPLICAS = AssetAlias("streamvault-replicas", group="streamvault")
"""Each replica that got something new emits an event of the asset with its URI, also under this alias."""


@dag(
    **list_dag_options(Replications, default_schedule="@hourly"),
    doc_md=__doc__,
    description="Keeps replicas of declared streams up to date.",
)
def standby() -> None:
    ReplicateStreamOperator.partial(
        task_id="replicate",
        outlets=[REPLICAS],
        map_index_template="{{ task.source }}",
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(each_of_list(Replications))


standby()
