"""DAGs that run an operator for each stream of a list."""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import (  # type: ignore[attr-defined]  # its stub lacks them
    DAG,
    AssetAlias,
    AsyncCallback,
    DeadlineAlert,
    DeadlineReference,
    Param,
    SyncCallback,
    Variable,
    get_current_context,
    task,
)
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.helpers import checked_params
from streamvault.airflow.lists import ScopeStreams, StreamList, in_batches
from streamvault.airflow.operators.command import CommandOperator
from streamvault.common.errors import Usage
from streamvault.common.units import parse_duration

BATCHES = 4
"""Number of lists: Airflow maps at most 1,024 tasks over one (``AIRFLOW__CORE__MAX_MAP_LENGTH``)."""

AT_A_TIME = 4
"""Tasks of a run that work on a stream at the same time."""

DOCUMENTATION = """
The list of {what} is the run's parameter `{parameter}`, else the variable `{variable}` (JSON), else the JSON or TOML
file on the workers that `{prefix}FILE` names. Example:

```json
{example}
```

Set where DAGs are parsed:

- `{prefix}SCHEDULE`: a cron expression or preset, or an interval such as `15m` or `6h`. Default: `{schedule}`
- `{prefix}TIMEOUT`: a run that takes longer fails; the next one resumes its work. Default: `1d`. `none`: no limit
- `{prefix}ON_FAILURE`: `PACKAGE.MODULE.FUNCTION` to call if a run fails
- `{prefix}DEADLINE`: a run not finished this long after it was queued is late; it continues
- `{prefix}ON_LATE`: `PACKAGE.MODULE.FUNCTION` to call if a run is late
- `{prefix}POOL`: the tasks' pool
- `{prefix}OWNER`: the tasks' owner
"""


def list_dag(
    kind: type[StreamList],
    operator: type[CommandOperator],
    dag_id: str,
    *,
    alias: str,
    schedule: str,
    description: str,
) -> DAG:
    """Return a DAG with a task for each stream of a list.

    Environment variables say how it runs; the DAG's documentation names them.

    Args:
        kind: the list. It comes from the run's parameter, from the Airflow variable, or from a file.
        operator: the operator that runs for each stream.
        dag_id: id of the DAG.
        alias: the tasks' outlet: events of the assets that they write are also events of this alias.
        schedule: schedule if no environment variable sets another one.
        description: what the DAG does.

    Raises:
        Usage: a variable is not valid.
    """

    def setting(suffix: str, default: str = "") -> str:
        return os.environ.get(kind.environment_variable(suffix), "").strip() or default

    def duration(suffix: str, default: str = "none") -> timedelta | None:
        try:
            text = setting(suffix, default)
            return timedelta(seconds=parse_duration(text)) if text != "none" else None
        except ValueError as error:
            variable = kind.environment_variable(suffix)
            raise Usage(str(error), where=variable, todo="Give a duration such as 12h, or none.") from None

    def function(suffix: str) -> Callable[[Any], Any] | None:
        return _function(kind.environment_variable(suffix), setting(suffix))

    late, on_late = duration("DEADLINE"), function("ON_LATE")
    if (late is None) != (on_late is None):
        given, missing = ("DEADLINE", "ON_LATE") if on_late is None else ("ON_LATE", "DEADLINE")
        raise Usage(f"it requires {kind.environment_variable(missing)}", where=kind.environment_variable(given))
    task_options: dict[str, Any] = {"retries": 3}
    task_options |= {name: text for name in ("pool", "owner") if (text := setting(name.upper()))}
    documentation = DOCUMENTATION.format(
        what=kind.what,
        parameter=kind.parameter,
        variable=kind.variable(),
        prefix=kind.environment_variable(""),
        example=json.dumps(kind.example, indent=2),
        schedule=schedule,
    )
    with DAG(
        dag_id,
        description=description,
        doc_md=f"{description}\n{documentation}",
        schedule=_schedule(setting("SCHEDULE", schedule)),
        # the next run waits for it, and resumes what it began
        dagrun_timeout=duration("TIMEOUT", "1d"),
        on_failure_callback=function("ON_FAILURE"),
        deadline=_alert(late, on_late) if late is not None and on_late is not None else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        # a backfill would run once for each past interval, all of them now
        allowed_run_types=["scheduled", "manual"],  # type: ignore[list-item]  # the enumeration is not public
        catchup=False,
        max_active_runs=1,
        default_args=task_options,
        params={
            kind.parameter: Param(
                None,
                **kind.schema_of_form(),
                title=f"List of {kind.what}",
                description=f"JSON, for this run instead of the declared list. Example: {json.dumps(kind.example)}",
            )
        },
        tags=["streamvault", kind.parameter],
    ) as dag:
        operator.partial(
            task_id=operator.verb,
            outlets=[AssetAlias(alias, group="streamvault")],
            map_index_template=f"{{{{ task.{next(iter(operator.arguments))} }}}}",
            max_active_tis_per_dagrun=AT_A_TIME,
        ).expand_kwargs(_each_of_list(kind))
    return dag


def _schedule(text: str) -> str | timedelta:
    """Return a cron expression or preset as it is, and an interval such as ``15m`` as a time."""
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError:
        return text


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


def _alert(late: timedelta, function: Callable[[Any], Any]) -> DeadlineAlert:
    """Return what calls a function for a run that is not done in time: in the triggerer if it is a coroutine."""
    callback = AsyncCallback if inspect.iscoroutinefunction(function) else SyncCallback
    return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=late, callback=callback(function))


def _each_of_list(kind: type[StreamList]) -> Any:
    """Add the tasks that read a list, and return what an operator's ``expand_kwargs`` takes."""

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
        if found["failed"]:
            raise AirflowFailException("\n".join(found["failed"]))

    @task
    def batch(number: int, found: dict[str, Any]) -> list[dict[str, Any]]:
        streams: list[dict[str, Any]] = found["batches"][number]
        return streams

    found: Any = declared()
    scopes(found)
    batches = [batch.override(task_id=f"batch_{number}")(number, found) for number in range(BATCHES)]
    return batches[0].concat(*batches[1:])
