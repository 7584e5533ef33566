"""What the DAGs that run an operator for each stream of a list have in common."""

from __future__ import annotations

import json
import os
import pkgutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Param, Variable, get_current_context, task

from streamvault.airflow.lists import ScopeStreams, StreamList, fail_if_unlisted, in_batches
from streamvault.airflow.parameters import checked_params
from streamvault.common.errors import Usage
from streamvault.common.times import parse_duration

BATCHES = 4
"""Number of lists: Airflow maps at most 1,024 tasks over one (``AIRFLOW__CORE__MAX_MAP_LENGTH``)."""

LONGEST_RUN = "1d"
"""How long a run may take unless a variable says otherwise: the next one waits for it, and resumes what it began."""


def list_dag_options(kind: type[StreamList], default_schedule: str) -> dict[str, Any]:
    """Return the arguments of ``@dag``.

    Environment variables set the schedule, pool, owner and time limit, and what is called if a run fails.

    Args:
        kind: the list that the DAG's parameter takes.
        default_schedule: schedule if no environment variable sets another one.

    Raises:
        Usage: a variable is not valid.
    """

    def setting(suffix: str, default: str = "") -> str:
        return os.environ.get(kind.environment_variable(suffix), "").strip() or default

    task_options: dict[str, Any] = {"retries": 3}
    task_options |= {name: text for name in ("pool", "owner") if (text := setting(name.upper()))}
    return {
        "schedule": _schedule(setting("SCHEDULE", default_schedule)),
        "dagrun_timeout": _timeout(kind.environment_variable("TIMEOUT"), setting("TIMEOUT", LONGEST_RUN)),
        "on_failure_callback": _function(kind.environment_variable("ON_FAILURE"), setting("ON_FAILURE")),
        "start_date": datetime(2026, 1, 1, tzinfo=UTC),
        # a backfill would run once for each past interval, all of them now
        "allowed_run_types": ["scheduled", "manual"],
        "catchup": False,
        "max_active_runs": 1,
        "default_args": task_options,
        "params": {
            kind.parameter: Param(
                None,
                **kind.schema_of_form(),
                title=f"List of {kind.what}",
                description=f"For this run, instead of the declared one. Example: {json.dumps(kind.example)}",
            )
        },
        "tags": ["streamvault", kind.parameter],
    }


def _schedule(text: str) -> str | timedelta:
    """Return a cron expression or preset as it is, and an interval such as ``15m`` as a time."""
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError:
        return text


def _timeout(variable: str, text: str) -> timedelta | None:
    """Return how long a run may take; None for any time."""
    try:
        return timedelta(seconds=parse_duration(text)) if text != "none" else None
    except ValueError as error:
        raise Usage(str(error), where=variable, todo="Give a duration such as 12h, or none.") from None


def _function(variable: str, name: str) -> Callable[[Any], Any] | None:
    """Return the function with a name; None if it is empty."""
    try:
        found = pkgutil.resolve_name(name) if name else None
    except (ValueError, ImportError, AttributeError) as error:
        raise Usage(
            f"{name!r} cannot be imported: {error}", where=variable, todo="Give PACKAGE.MODULE.FUNCTION."
        ) from None
    if name and not callable(found):
        raise Usage(f"{name!r} is not a function", where=variable)
    return found


def each_of_list(kind: type[StreamList]) -> Any:
    """Add the tasks that read a list, and return what an operator's ``expand_kwargs`` takes.

    The list comes from the run's parameter, from the Airflow variable, or from the file of the environment variable.
    """

    @task(multiple_outputs=False)
    def declared() -> dict[str, Any]:
        given, where = checked_params(get_current_context())[kind.parameter], f"the parameter {kind.parameter}"
        if given is None:
            given = Variable.get(kind.variable(), default=None, deserialize_json=True)
            where = f"the variable {kind.variable()}"
        streams = kind.read(given, os.environ.get(kind.environment_variable("FILE")), where=where)
        listed = ScopeStreams()
        return {"batches": in_batches(streams.arguments(listed), BATCHES), "failed": listed.failed}

    @task(retries=0)
    def scopes(found: dict[str, Any]) -> None:
        """Fail for the scopes that could not be listed; the other streams have tasks of their own."""
        fail_if_unlisted(found["failed"])

    @task
    def batch(number: int, found: dict[str, Any]) -> list[dict[str, Any]]:
        streams: list[dict[str, Any]] = found["batches"][number]
        return streams

    found: Any = declared()
    scopes(found)
    batches = [batch.override(task_id=f"batch_{number}")(number, found) for number in range(BATCHES)]
    return batches[0].concat(*batches[1:])
