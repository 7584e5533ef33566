"""Archives declared streams on a schedule, and lets old generations expire.

The list of streams comes from the run's parameter ``rotation``, from the variable ``streamvault_rotation`` (JSON), or
from the file on the workers that ``STREAMVAULT_ROTATION_FILE`` names. ``STREAMVAULT_ROTATION_SCHEDULE`` sets the
schedule: a cron expression or preset (default ``@daily``), or an interval such as ``90s``, ``15m``, ``6h`` or ``1d``.

A run that takes longer than ``STREAMVAULT_ROTATION_TIMEOUT`` (default ``1d``, ``none`` for any time) fails, and the
next one resumes what it began. ``STREAMVAULT_ROTATION_ON_FAILURE`` names a function that is called if a run fails,
``STREAMVAULT_ROTATION_POOL`` the tasks' pool, and ``STREAMVAULT_ROTATION_OWNER`` their owner.
"""

from __future__ import annotations

from airflow.sdk import AssetAlias, dag

from streamvault.airflow.list_dags import each_of_list, list_dag_options
from streamvault.airflow.operators import RotateArchiveOperator
from streamvault.airflow.rotations import Rotations

ARCHIVES = AssetAlias("streamvault-archives", group="streamvault")
"""Each archive with a new generation emits an event of the asset with its URI, also under this alias."""


@dag(
    **list_dag_options(Rotations, default_schedule="@daily"),
    doc_md=__doc__,
    description="Archives declared streams, and lets old generations expire.",
)
def archive_rotation() -> None:
    RotateArchiveOperator.partial(
        task_id="rotate",
        outlets=[ARCHIVES],
        map_index_template="{{ task.stream }}",
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(each_of_list(Rotations))


archive_rotation()
