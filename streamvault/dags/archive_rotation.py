"""Archives declared streams on a schedule, and lets old generations expire.

The list of streams comes from the run's parameter ``rotation``, from the variable ``streamvault_rotation`` (JSON), or
from the file on the workers that ``STREAMVAULT_ROTATION_FILE`` names. ``STREAMVAULT_ROTATION_SCHEDULE`` sets the
schedule: a cron expression or preset (default ``@daily``), or an interval such as ``90s``, ``15m``, ``6h`` or ``1d``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import AssetAlias, Param, Variable, dag, get_current_context, task

from streamvault.airflow.operators import RotateArchiveOperator
from streamvault.airflow.schedules import schedule_from

ARCHIVES = AssetAlias("streamvault-archives")
"""Each archive with a new generation emits an event of the asset with its URI, also under this alias."""

BATCHES = 4
"""Number of lists: Airflow maps at most 1,024 tasks over one (``AIRFLOW__CORE__MAX_MAP_LENGTH``)."""


@dag(
    schedule=schedule_from("STREAMVAULT_ROTATION_SCHEDULE", "@daily"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # a backfill would rotate once for each past interval, all of them now
    allowed_run_types=["scheduled", "manual"],  # type: ignore[list-item]  # the enumeration is not public
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3},
    params={
        "rotation": Param(
            None,
            type=["null", "object", "array"],
            description="List of rotations for this run, instead of the declared one.",
        )
    },
    tags=["streamvault"],
    doc_md=__doc__,
)
def archive_rotation() -> None:
    @task(multiple_outputs=False)
    def declared() -> dict[str, Any]:
        from streamvault.airflow.declared import ScopeStreams, in_batches  # noqa: PLC0415  (only runs need it)
        from streamvault.airflow.parameters import checked_params  # noqa: PLC0415
        from streamvault.airflow.rotations import read_rotations  # noqa: PLC0415

        given = checked_params(get_current_context())["rotation"]
        if given is None:
            given = Variable.get("streamvault_rotation", default=None, deserialize_json=True)
        rotations = read_rotations(given, os.environ.get("STREAMVAULT_ROTATION_FILE"))
        listed = ScopeStreams()
        return {"batches": in_batches(rotations.arguments(listed), BATCHES), "failed": listed.failed}

    @task(retries=0)
    def scopes(found: dict[str, Any]) -> None:
        """Fail for the scopes that could not be listed; the other streams have tasks of their own."""
        from streamvault.airflow.declared import fail_if_unlisted  # noqa: PLC0415

        fail_if_unlisted(found["failed"])

    @task
    def batch(number: int, found: dict[str, Any]) -> list[dict[str, Any]]:
        streams: list[dict[str, Any]] = found["batches"][number]
        return streams

    found: Any = declared()
    scopes(found)
    batches = [batch.override(task_id=f"batch_{number}")(number, found) for number in range(BATCHES)]
    RotateArchiveOperator.partial(
        task_id="rotate",
        outlets=[ARCHIVES],
        map_index_template="{{ task.stream }}",
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(batches[0].concat(*batches[1:]))


archive_rotation()
