"""What an operator is given when it runs, without Airflow's supervisor."""

from __future__ import annotations

from typing import Any


class Attempt:
    """A task instance.

    Attributes:
        try_number: how often it has been begun. pushed: its XComs.
    """

    dag_id, run_id, task_id, map_index = "d", "r", "t", -1

    def __init__(self, number: int = 1) -> None:
        self.try_number = number
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value
