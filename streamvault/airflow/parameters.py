"""The parameters of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

__all__ = ["checked_params"]


def checked_params(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of a run, none of which is misspelt.

    Airflow validates the parameters that a DAG declares and passes over the rest of a run's ``conf``. A misspelt one
    would leave its default in force: another generation would be restored, other streams rotated.

    Args:
        context: the task's.

    Raises:
        AirflowFailException: the run was given a parameter that the DAG does not have.
    """
    known = context["dag"].params
    unknown = sorted(set(context["dag_run"].conf or ()) - set(known))
    if unknown:
        raise AirflowFailException(
            f"there is no parameter {', '.join(unknown)}. The parameters of {context['dag'].dag_id} are "
            f"{', '.join(known)}."
        )
    params: Mapping[str, Any] = context["params"]
    return params
