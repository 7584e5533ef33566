"""The DAGs with declared lists: what one entry cannot do does not keep the others from running."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.pravega import PravegaHook
from streamvault.airflow.replications import read_replications
from streamvault.airflow.rotations import read_rotations
from streamvault.dags import archive_rotation, standby
from streamvault.streamstore.errors import NoSuchScope, StreamStoreUnavailable

ROTATIONS = {
    "root": "s3://vault",
    "streams": ["a/one", {"scope": "away"}, {"scope": "gone", "pravega_conn_id": "other"}, {"scope": "b"}],
}
REPLICATIONS = {
    "target_conn_id": "dr",
    "streams": ["a/one", {"scope": "away"}, {"scope": "gone", "pravega_conn_id": "other"}, {"scope": "b"}],
}


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
    ("module", "dag_id", "parameter", "given", "name"),
    [
        (archive_rotation, "archive_rotation", "rotation", ROTATIONS, "stream"),
        (standby, "standby", "standby", REPLICATIONS, "source"),
    ],
)
def test_scope_that_cannot_be_listed_fails_its_own_entry(
    module: ModuleType, dag_id: str, parameter: str, given: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = getattr(module, dag_id)()
    context = {"dag": dag, "dag_run": SimpleNamespace(conf={}), "params": {parameter: given}}
    monkeypatch.setattr(module, "get_current_context", lambda: context)
    given["streams"].append({"scope": "nowhere", "pravega_conn_id": "nowhere"})
    found = dag.get_task("declared").python_callable()
    streams = dag.get_task("batch_0").python_callable(0, found)
    assert [each[name] for each in streams] == ["a/one", "b/two", "b/three"]
    with pytest.raises(AirflowFailException) as raised:
        dag.get_task("scopes").python_callable(found)
    lines = str(raised.value).splitlines()
    assert lines[:2] == [
        "scope away of connection pravega_default: nothing is listening: pravega://h:1",
        "scope gone of connection other: no such scope: pravega://h:1/gone",
    ]
    assert "nowhere" in lines[2]
    assert "scopes" not in dag.get_task("rotate" if name == "stream" else "replicate").upstream_task_ids
    dag.get_task("scopes").python_callable({"failed": []})


def test_stream_in_a_line_is_left_out_of_its_scope() -> None:
    declared = {"root": "s3://vault", "streams": [{"scope": "b"}, {"stream": "b/two", "line": "2"}]}
    found = read_rotations(declared).arguments(lambda *_: ["two", "three"])
    assert found == [
        {"stream": "b/three", "root": "s3://vault"},
        {"stream": "b/two", "root": "s3://vault", "line": "2"},
    ]


@pytest.mark.parametrize("value", ["true", 1, True, "yes", "ON", "1"])
def test_flags_of_a_list_are_those_of_an_operator(value: Any) -> None:
    rotations = read_rotations({"root": "s3://vault", "truncate_source": value, "streams": ["a/b"]})
    assert rotations.arguments(lambda *_: [])[0]["truncate_source"] is True
    replications = read_replications({"target_conn_id": "dr", "keep_head": value, "streams": ["a/b"]})
    assert replications.arguments(lambda *_: [])[0]["keep_head"] is True


@pytest.mark.parametrize("value", ["t", "flase", "y", 2, 1.0, ""])
def test_flag_of_a_list_that_is_no_boolean_is_refused(value: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"truncate_source: .* is not true, false, yes, no"):
        read_rotations({"root": "s3://vault", "truncate_source": value, "streams": ["a/b"]})
    with pytest.raises(AirflowFailException, match=r"keep_head: .* is not true, false, yes, no"):
        read_replications({"target_conn_id": "dr", "keep_head": value, "streams": ["a/b"]})


def test_invalid_line_of_a_list_is_refused() -> None:
    with pytest.raises(AirflowFailException, match="1 to 64 letters"):
        read_rotations({"root": "s3://vault", "line": "a/b", "streams": ["a/b"]})


def test_flag_of_a_connection_that_is_no_boolean_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt one was true for TLS, and for verifying the host's name."""
    monkeypatch.setenv("AIRFLOW_CONN_P", '{"conn_type": "pravega", "host": "h", "extra": {"tls": "flase"}}')
    with pytest.raises(AirflowFailException, match="tls of connection 'p': 'flase' is not true"):
        _ = PravegaHook("p").uri
