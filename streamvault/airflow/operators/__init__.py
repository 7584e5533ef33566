"""Operators: one for each command that moves or checks data, and one that waits for cold storage."""

from __future__ import annotations

from streamvault.airflow.operators.archives import (
    CheckArchiveOperator,
    ExportStreamOperator,
    ImportStreamOperator,
    RotateArchiveOperator,
)
from streamvault.airflow.operators.mirrors import (
    CopyStreamOperator,
    MoveStreamOperator,
    PromoteReplicaOperator,
    ReplicateStreamOperator,
)
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
