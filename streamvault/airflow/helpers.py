"""Parameters, archives and results of the DAGs that copy or restore a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException
from pydantic import TypeAdapter

from streamvault.airflow.aws import aws_environment
from streamvault.airflow.pravega import PravegaHook
from streamvault.common.errors import Failed, Problem
from streamvault.common.options import Options, in_keywords
from streamvault.common.processes import environment, make_folders
from streamvault.importer.reports import RestoreOptions
from streamvault.objectstore.bulk import delete_all
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.uri import parse_stream

_OURS = "copy-"


def copy_root(via: str, dag_id: str, run_id: str) -> str:
    """Return a root below `via` that is unique to this run; the same on every call. If `via` is a folder, make it.

    Raises:
        Failed: the folder cannot be made.
        Usage: `via` is not a root.
    """
    address = RootAddress.parse(via)
    if address.folder is not None:
        try:
            make_folders(address.folder)
        except OSError as error:
            raise Failed(f"the folder cannot be made ({error.strerror})", where=address.uri) from None
    # a run's id may be any text, and ids that differ only in punctuation are different runs
    name = hashlib.sha256(f"{dag_id}\n{run_id}".encode()).hexdigest()[:32]
    return f"{address.uri}/{_OURS}{name}"


def remove_copy(root: str, aws_conn_id: str | None) -> int:
    """Delete everything below such a root, manifests first, and return the number of objects. May be repeated.

    Raises:
        AirflowFailException: the root is not that of a copy.
        Problem: an object cannot be deleted.
    """
    address = RootAddress.parse(root)
    if not root.rpartition("/")[2].startswith(_OURS):
        raise AirflowFailException(f"not the root of a copy; nothing was deleted: {root}")
    variables = aws_environment(aws_conn_id) if address.name == "s3" and aws_conn_id else {}
    removed = 0
    with environment(variables):
        store = address.open()
        # without its manifests, the archive does not exist for readers
        for manifests in (True, False):
            keys = (entry.key for entry in store.list("") if not manifests or "/_manifest/" in entry.key)
            removed += delete_all(store, keys)
    return removed


def check_restore(params: Mapping[str, Any]) -> dict[str, str]:
    """Check what the form's schema cannot express.

    Args:
        params: parameters of the DAG ``restore_on_demand``.

    Returns:
        The archive and the target's URI.

    Raises:
        AirflowFailException: a parameter is not valid; the message says which and why.
    """
    try:
        with in_keywords(RestoreOptions):
            RestoreOptions(at=params["at"] or None, generation=params["generation"] or None)
        root, scope, stream = RootAddress.parse(params["archive"]).split()
        target = params["target"]
        if "://" not in target:
            target = PravegaHook(params["pravega_conn_id"]).stream_uri(target)
        parse_stream(target)
    except Problem as error:
        raise AirflowFailException(str(error)) from None
    return {"archive": f"{root.uri}/{scope}/{stream}", "target": target}


def describe_restore(report: Mapping[str, Any], *, read_back: bool) -> str:
    """Describe what was restored and verified, then, one a line, what is missing or differs."""
    proof = (
        "all restored data was read back from the stream and matches the archive's digests"
        if read_back
        else "every range matches the archive's digest (ranges appended by an earlier attempt were read back)"
    )
    restored = (
        f"{report['stream']}: {report['events']:,} events ({report['bytes']:,} bytes) "
        f"in {report['segments']:,} segments from {report['archive']}, up to generation {report['generation']}; {proof}"
    )
    return "\n".join([restored, *(f"Note: {warning}" for warning in report["warnings"])])


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
    """Return a parameter for an option that is a boolean, a number, a time or one of some texts.

    Args:
        kind: the options of the verb.
        keyword: the option's name.
        title: the parameter's title in the form.
        default: the parameter's default.
        form: how the form shows it, such as ``section``, or another description.
    """
    declared = kind.keyword_fields()[keyword]
    annotation: Any = declared.annotation
    for rule in declared.metadata:
        annotation = Annotated[annotation, rule]
    schema = TypeAdapter(annotation).json_schema()
    if kinds := schema.pop("anyOf", ()):  # for which forms have no field, but for several types
        schema |= {name: value for kind in kinds for name, value in kind.items()}
        schema["type"] = sorted({kind["type"] for kind in kinds}, key=lambda name: (name != "null", name))
    return Param(default, **{"title": title, "description": declared.description, **form, **schema})


ON_REQUEST: dict[str, Any] = {
    "schedule": None,
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "allowed_run_types": ["scheduled", "manual"],
    "default_args": {"retries": 3},
}
"""Arguments of a DAG that runs on request."""


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
    return text_param(title, f"Id of a connection of type {kind}.", default=default, section="Connections")


def text_param(title: str, description: str, **form: Any) -> Param:
    """Return a parameter for a text that is not empty; without a ``default``, it is required."""
    return Param(type="string", minLength=1, title=title, description=description, **form)
