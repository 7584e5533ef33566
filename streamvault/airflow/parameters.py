"""Validates the parameters of a DAG run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException


def checked_params(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run's parameters; reject unknown ones.

    Airflow validates only the parameters that a DAG declares and ignores the rest of a run's ``conf``. If a name were
    misspelt, its default would apply: another generation would be restored, or other streams rotated.

    Args:
        context: the task's context.

    Raises:
        AirflowFailException: the run has a parameter that the DAG does not declare.
    """
    known = context["dag"].params
    unknown = sorted(set(context["dag_run"].conf or ()) - set(known))
    if unknown:
        raise AirflowFailException(
            f"unknown parameter {', '.join(unknown)}. The parameters of {context['dag'].dag_id} are {', '.join(known)}."
        )
    params: Mapping[str, Any] = context["params"]
    return params
