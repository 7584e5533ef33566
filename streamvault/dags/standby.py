"""Keeps replicas of declared streams up to date on a schedule, usually in another cluster.

The list of streams comes from the run's parameter ``standby``, from the variable ``streamvault_standby`` (JSON), or
from the file on the workers that ``STREAMVAULT_STANDBY_FILE`` names. ``STREAMVAULT_STANDBY_SCHEDULE`` sets the
schedule: a cron expression or preset (default ``@hourly``), or an interval such as ``90s``, ``15m``, ``6h`` or ``1d``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import AssetAlias, Param, Variable, dag, get_current_context, task

from streamvault.airflow.operators import ReplicateStreamOperator
from streamvault.airflow.schedules import schedule_from

REPLICAS = AssetAlias("streamvault-replicas")
"""Each replica that got something new emits an event of the asset with its URI, also under this alias."""

BATCHES = 4
"""Number of lists: Airflow maps at most 1,024 tasks over one (``AIRFLOW__CORE__MAX_MAP_LENGTH``)."""


@dag(
    schedule=schedule_from("STREAMVAULT_STANDBY_SCHEDULE", "@hourly"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # a backfill would replicate once for each past interval, all of them now
    allowed_run_types=["scheduled", "manual"],  # type: ignore[list-item]  # the enumeration is not public
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3},
    params={
        "standby": Param(
            None,
            type=["null", "object", "array"],
            description="List of replications for this run, instead of the declared one.",
        )
    },
    tags=["streamvault"],
    doc_md=__doc__,
)
def standby() -> None:
    @task(multiple_outputs=False)
    def declared() -> dict[str, Any]:
        from streamvault.airflow.declared import ScopeStreams, in_batches  # noqa: PLC0415  (only runs need it)
        from streamvault.airflow.parameters import checked_params  # noqa: PLC0415
        from streamvault.airflow.replications import read_replications  # noqa: PLC0415

        given = checked_params(get_current_context())["standby"]
        if given is None:
            given = Variable.get("streamvault_standby", default=None, deserialize_json=True)
        replications = read_replications(given, os.environ.get("STREAMVAULT_STANDBY_FILE"))
        listed = ScopeStreams()
        return {"batches": in_batches(replications.arguments(listed), BATCHES), "failed": listed.failed}

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
    ReplicateStreamOperator.partial(
        task_id="replicate",
        outlets=[REPLICAS],
        map_index_template="{{ task.source }}",
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(batches[0].concat(*batches[1:]))


standby()
