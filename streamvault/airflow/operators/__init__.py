"""Operators: one for each command that moves or checks data, and one that waits for cold storage."""

from __future__ import annotations

from streamvault.airflow.operators.check import CheckArchiveOperator
from streamvault.airflow.operators.copy import CopyStreamOperator
from streamvault.airflow.operators.export import ExportStreamOperator
from streamvault.airflow.operators.import_ import ImportStreamOperator
from streamvault.airflow.operators.move import MoveStreamOperator
from streamvault.airflow.operators.promote import PromoteReplicaOperator
from streamvault.airflow.operators.replicate import ReplicateStreamOperator
from streamvault.airflow.operators.rotate import RotateArchiveOperator
from streamvault.airflow.operators.warm import WarmArchiveOperator

__all__ = [
    "CheckArchiveOperator",
    "CopyStreamOperator",
    "ExportStreamOperator",
    "ImportStreamOperator",
    "MoveStreamOperator",
    "PromoteReplicaOperator",
    "ReplicateStreamOperator",
    "RotateArchiveOperator",
    "WarmArchiveOperator",
]
