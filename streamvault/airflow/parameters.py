"""The parameters of a DAG run: those that are options of a verb or connections, and their validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException
from pydantic import TypeAdapter

from streamvault.common.options import Options


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


def option_param(kind: type[Options], keyword: str, title: str, default: object, **form: Any) -> Param:
    """Return a parameter for an option that is a boolean, a number or one of some texts.

    Args:
        kind: the options of the verb.
        keyword: the option's name.
        title: the parameter's title in the form.
        default: the parameter's default.
        form: how the form shows it, such as ``section``.
    """
    declared = kind.keyword_fields()[keyword]
    annotation: Any = declared.annotation
    for rule in declared.metadata:
        annotation = Annotated[annotation, rule]
    schema = TypeAdapter(annotation).json_schema()
    return Param(default, title=title, description=declared.description, **form, **schema)


def templates(*names: str) -> dict[str, Any]:
    """Return arguments of an operator that have a run's parameters of the same names."""
    return {name: f"{{{{ params.{name} }}}}" for name in names}


def connection_param(default: str, title: str, *, kind: str) -> Param:
    """Return a parameter for a connection.

    Args:
        default: id of the connection.
        title: the parameter's title in the form.
        kind: the connection's type, such as ``pravega``.
    """
    what = f"Id of a connection of type {kind}."
    return Param(default, type="string", minLength=1, title=title, description=what, section="Connections")
