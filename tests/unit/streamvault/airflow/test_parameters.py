"""Parameters of a DAG run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.parameters import checked_params


def context(conf: dict[str, Any] | None) -> dict[str, Any]:
    declared = {"archive": "A", "generation": None}
    dag = SimpleNamespace(dag_id="restore_on_demand", params=declared)
    return {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": {**declared, **(conf or {})}}


@pytest.mark.parametrize("conf", [None, {}, {"generation": 3}])
def test_declared_parameters_are_returned(conf: dict[str, Any] | None) -> None:
    assert checked_params(context(conf)) == {"archive": "A", "generation": None, **(conf or {})}


def test_undeclared_parameter_is_refused() -> None:
    """Airflow passes over it, so that the newest state would be restored instead of the one that was meant."""
    with pytest.raises(AirflowFailException, match=r"no parameter generatoin.* are archive, generation"):
        checked_params(context({"generatoin": 3}))
