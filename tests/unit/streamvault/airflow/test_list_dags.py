"""The DAGs over lists of streams: what one entry cannot do does not keep the others from running."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.pravega import PravegaHook
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
        (archive_rotation.archive_rotation(), {"root": "s3://vault"}, "stream", "rotate"),
        (standby.standby(), {"target_conn_id": "dr"}, "source", "replicate"),
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
