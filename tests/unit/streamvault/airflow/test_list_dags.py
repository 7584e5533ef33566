"""The DAGs over lists of streams: what one entry cannot do does not keep the others from running."""

from __future__ import annotations

import importlib
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference, SyncCallback
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from streamvault.airflow.lists import Replications, Rotations, StreamList
from streamvault.airflow.pravega import PravegaHook
from streamvault.common.errors import Usage
from streamvault.dags import archive_rotation, standby
from streamvault.streamstore.errors import NoSuchScope, StreamStoreUnavailable

SCOPES: list[Any] = [
    *("a/one", {"scope": "away"}, {"scope": "gone", "pravega_conn_id": "other"}, {"scope": "b"}),
    {"scope": "nowhere", "pravega_conn_id": "nowhere"},
]


@pytest.fixture(autouse=True)
def _clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_streams(self: PravegaHook, scope: str) -> list[str]:
        if scope == "away":
            raise StreamStoreUnavailable("nothing is listening", where="pravega://h:1")
        if scope == "gone":
            raise NoSuchScope("no such scope", where="pravega://h:1/gone")
        if scope == "nowhere":
            return [str(self.get_connection("nowhere"))]  # raises
        return ["two", "three"]

    monkeypatch.setattr(PravegaHook, "list_streams", list_streams)


@pytest.mark.parametrize(
    ("dag", "place", "name", "task"),
    [
        (archive_rotation.DAG, {"root": "s3://vault"}, "stream", "rotate"),
        (standby.DAG, {"target_conn_id": "dr"}, "source", "replicate"),
    ],
)
def test_scope_that_cannot_be_listed_fails_its_own_entry(
    dag: DAG, place: dict[str, str], name: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (parameter,) = dag.params
    given = {**place, "streams": SCOPES}
    context = {"dag": dag, "dag_run": SimpleNamespace(conf={}), "params": {parameter: given}}
    monkeypatch.setattr("streamvault.airflow.list_dags.get_current_context", lambda: context)

    def run(task_id: str, *arguments: Any) -> Any:
        return dag.get_task(task_id).python_callable(*arguments)  # type: ignore[attr-defined]

    found = run("declared")
    assert [each[name] for each in run("batch_0", 0, found)] == ["a/one", "b/two", "b/three"]
    with pytest.raises(AirflowFailException) as raised:
        run("scopes", found)
    lines = str(raised.value).splitlines()
    assert lines[:2] == [
        "scope away of connection pravega_default: nothing is listening: pravega://h:1",
        "scope gone of connection other: no such scope: pravega://h:1/gone",
    ]
    assert "nowhere" in lines[2]
    assert "scopes" not in dag.get_task(task).upstream_task_ids
    run("scopes", {"failed": []})


KINDS: Any = pytest.mark.parametrize("kind", [Rotations, Replications])


def dag_of(kind: type[StreamList]) -> Any:
    """The DAG as its file makes it now."""
    return importlib.reload(archive_rotation if kind is Rotations else standby).DAG


async def page(**_: Any) -> None:
    """Tell somebody."""


@KINDS
def test_run_that_hangs_ends_some_time(kind: type[StreamList]) -> None:
    """Runs do not overlap, so it would keep all later ones from starting."""
    dag = dag_of(kind)
    assert (dag.max_active_runs, dag.dagrun_timeout) == (1, timedelta(days=1))
    assert (dag.on_failure_callback, dag.default_args, dag.deadline) == (None, {"retries": 3}, None)


@KINDS
def test_variables_set_how_runs_are_watched(kind: type[StreamList], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is named in the DAG's documentation."""
    given = {
        "SCHEDULE": "6h",
        "TIMEOUT": "12h",
        "ON_FAILURE": "json.dumps",
        "POOL": "backups",
        "OWNER": "storage",
        "DEADLINE": "3h",
        "ON_LATE": "json.dumps",
    }
    for suffix, text in given.items():
        monkeypatch.setenv(kind.environment_variable(suffix), text)
    dag = dag_of(kind)
    assert (dag.schedule, dag.dagrun_timeout) == (timedelta(hours=6), timedelta(hours=12))
    assert dag.on_failure_callback is json.dumps
    (alert,) = dag.deadline
    assert alert == DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, timedelta(hours=3), SyncCallback(json.dumps))
    for task in dag.tasks:
        assert (task.pool, task.owner, task.retries) == ("backups", "storage", 0 if task.task_id == "scopes" else 3)
    assert all(f"`{kind.environment_variable(suffix)}`" in dag.doc_md for suffix in (*given, "FILE"))
    monkeypatch.setenv(kind.environment_variable("TIMEOUT"), "none")
    monkeypatch.setenv(kind.environment_variable("ON_LATE"), f"{__name__}.page")
    dag = dag_of(kind)
    assert (dag.dagrun_timeout, dag.deadline[0].callback) == (None, AsyncCallback(page))


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [
        ("TIMEOUT", "long", "'long' is not a duration.*: STREAMVAULT_ROTATION_TIMEOUT. Give a duration such as 12h"),
        ("ON_FAILURE", "nowhere.page", "'nowhere.page' cannot be imported: .*: STREAMVAULT_ROTATION_ON_FAILURE"),
        ("ON_FAILURE", "json.page", "'json.page' cannot be imported"),
        ("ON_FAILURE", "json", "'json' is not a function: STREAMVAULT_ROTATION_ON_FAILURE"),
        ("DEADLINE", "soon", "'soon' is not a duration.*: STREAMVAULT_ROTATION_DEADLINE"),
        ("DEADLINE", "6h", "it requires STREAMVAULT_ROTATION_ON_LATE: STREAMVAULT_ROTATION_DEADLINE"),
        ("ON_LATE", "json.dumps", "it requires STREAMVAULT_ROTATION_DEADLINE: STREAMVAULT_ROTATION_ON_LATE"),
    ],
)
def test_variable_that_is_not_valid_is_named(
    suffix: str, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow shows it as the DAG file's import error."""
    monkeypatch.setenv(Rotations.environment_variable(suffix), text)
    with pytest.raises(Usage, match=said):
        dag_of(Rotations)


@KINDS
def test_form_shows_a_list_that_is_valid(kind: type[StreamList]) -> None:
    (param,) = (dag_of(kind).params.get_param(name) for name in dag_of(kind).params)
    assert json.dumps(kind.example) in param.description
    assert param.resolve(kind.example) == kind.example
    assert len(kind.read(kind.example).arguments(lambda *_: ["one", "two"])) == 3


@KINDS
@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"streams": ["a/b"], "keeep": 1}, "'keeep' is not one of .*'aws_conn_id'"),
        (
            {"streams": ["a/b", {"scope": "c", "rooot": "x"}]},
            r"'rooot' is not one of .*'aws_conn_id'[\s\S]*\['streams'\]\[1\]",
        ),
        ([{"scope": "c", "rooot": "x"}], r"'rooot' is not one of .*'aws_conn_id'[\s\S]*\[0\]"),
        ({"streams": []}, "streams"),
        ([7], r"7 is not of type[\s\S]*\[0\]"),
        ("a/b", "'a/b' is not of type"),
    ],
)
def test_form_says_where_a_list_is_not_valid(kind: type[StreamList], given: Any, where: str) -> None:
    """Before a run begins; the task `declared` checks the values."""
    (param,) = (dag_of(kind).params.get_param(name) for name in dag_of(kind).params)
    with pytest.raises(ParamValidationError, match=where):
        param.resolve(given)
    for valid in (
        None,
        kind.example,
        kind.example["streams"],
        [{name: None for name in kind.model_fields if name != "streams"}],
    ):
        assert param.resolve(valid) == valid
