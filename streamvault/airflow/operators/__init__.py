"""Operators: one for each command that does something, and one that waits for cold storage."""

from __future__ import annotations

try:
    from streamvault.airflow.operators.verbs import (
        AppendStreamsOperator,
        CheckArchiveOperator,
        CheckSetupOperator,
        CompactArchiveOperator,
        ConvertArchiveOperator,
        CopyStreamOperator,
        DeleteArchiveOperator,
        ExportStreamOperator,
        FollowStreamOperator,
        HandoffTableOperator,
        HoldArchiveOperator,
        ImportStreamOperator,
        JoinStreamsOperator,
        ListArchivesOperator,
        ListStreamsOperator,
        MoveStreamOperator,
        PlanArchiveOperator,
        PromoteReplicaOperator,
        ReleaseArchiveOperator,
        ReplicateStreamOperator,
        RequestRestoreOperator,
        RotateArchiveOperator,
        ShowDdlOperator,
        ShowManifestOperator,
        ShowQueueOperator,
        ShowStatusOperator,
        ShowTimelineOperator,
        SweepScopeOperator,
        TranslatePositionsOperator,
        WorkQueueOperator,
        WriteReportOperator,
    )
    from streamvault.airflow.operators.warm import WarmArchiveOperator
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("airflow"):
        raise
    # Airflow shows it as the DAG's import error
    text = f"Streamvault's operators require its extra airflow: pip install 'streamvault[airflow]' ({missing})"
    raise ImportError(text) from None

__all__ = [
    "AppendStreamsOperator",
    "CheckArchiveOperator",
    "CheckSetupOperator",
    "CompactArchiveOperator",
    "ConvertArchiveOperator",
    "CopyStreamOperator",
    "DeleteArchiveOperator",
    "ExportStreamOperator",
    "FollowStreamOperator",
    "HandoffTableOperator",
    "HoldArchiveOperator",
    "ImportStreamOperator",
    "JoinStreamsOperator",
    "ListArchivesOperator",
    "ListStreamsOperator",
    "MoveStreamOperator",
    "PlanArchiveOperator",
    "PromoteReplicaOperator",
    "ReleaseArchiveOperator",
    "ReplicateStreamOperator",
    "RequestRestoreOperator",
    "RotateArchiveOperator",
    "ShowDdlOperator",
    "ShowManifestOperator",
    "ShowQueueOperator",
    "ShowStatusOperator",
    "ShowTimelineOperator",
    "SweepScopeOperator",
    "TranslatePositionsOperator",
    "WarmArchiveOperator",
    "WorkQueueOperator",
    "WriteReportOperator",
]
