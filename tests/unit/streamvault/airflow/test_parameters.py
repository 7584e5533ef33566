"""Parameters of a DAG run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from streamvault.airflow.helpers import checked_params, option_param
from streamvault.dags import archive_rotation, copy_via_file, restore_on_demand, standby
from streamvault.importer.options import ImportOptions
from streamvault.manifests.options import WarmOptions


def context(conf: dict[str, Any] | None) -> dict[str, Any]:
    declared = {"archive": "A", "generation": None}
    dag = SimpleNamespace(dag_id="restore_on_demand", params=declared)
    return {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": {**declared, **(conf or {})}}


@pytest.mark.parametrize("conf", [None, {}, {"generation": 3}])
def test_declared_parameters_are_returned(conf: dict[str, Any] | None) -> None:
    assert checked_params(context(conf)) == {"archive": "A", "generation": None, **(conf or {})}


def test_undeclared_parameter_is_refused() -> None:
    """Airflow ignores it, so the newest generation would be restored instead of the requested one."""
    with pytest.raises(AirflowFailException, match=r"unknown parameter generatoin.* are archive, generation"):
        checked_params(context({"generatoin": 3}))


@pytest.mark.parametrize(
    ("param", "default", "wrong"),
    [
        (option_param(ImportOptions, "offsets", "T", default="keep"), "keep", "move"),
        (option_param(ImportOptions, "read_back", "T", default=True), True, "yes"),
        (option_param(WarmOptions, "tier", "T", default="Bulk", section="S"), "Bulk", "bulk"),
        (option_param(WarmOptions, "days", "T", default=7), 7, 0),
    ],
)
def test_form_takes_what_the_option_takes(param: Any, default: object, wrong: object) -> None:
    assert param.resolve() == default
    assert param.description
    with pytest.raises(ParamValidationError):
        param.resolve(wrong)


@pytest.mark.parametrize(
    "dag",
    [
        archive_rotation.DAG,
        copy_via_file.copy_via_file(),
        restore_on_demand.restore_on_demand(),
        standby.DAG,
    ],
    ids=lambda dag: dag.dag_id,
)
def test_dag_says_what_it_is(dag: DAG) -> None:
    assert dag.description
    assert dag.doc_md
    assert "streamvault" in dag.tags
    assert len(dag.tags) == 2
    params = {name: dag.params.get_param(name) for name in dag.params}
    assert [name for name, param in params.items() if not (param.description and param.schema.get("title"))] == []
    sections = {name: param.schema.get("section") for name, param in params.items()}
    assert all(sections[name] == "Connections" for name in sections if name.endswith("conn_id"))


def test_restore_warms_as_its_form_says() -> None:
    warm_up = restore_on_demand.restore_on_demand().get_task("warm_up")
    assert (warm_up.tier, warm_up.days) == ("{{ params.tier }}", "{{ params.days }}")  # type: ignore[attr-defined]
