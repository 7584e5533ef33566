"""Operators: one for each command that does something, and one that waits for cold storage."""

from __future__ import annotations

try:
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
    from streamvault.airflow.operators.queues import (
        RequestRestoreOperator,
        WorkQueueOperator,
    )
    from streamvault.airflow.operators.showing import (
        ListArchivesOperator,
        ListStreamsOperator,
        ShowDdlOperator,
        ShowManifestOperator,
        ShowQueueOperator,
        ShowTimelineOperator,
        TranslatePositionsOperator,
    )
    from streamvault.airflow.operators.stitching import (
        AppendStreamsOperator,
        JoinStreamsOperator,
    )
    from streamvault.airflow.operators.tables import (
        HandoffTableOperator,
    )
    from streamvault.airflow.operators.upkeep import (
        CheckSetupOperator,
        CompactArchiveOperator,
        ConvertArchiveOperator,
        DeleteArchiveOperator,
        FollowStreamOperator,
        HoldArchiveOperator,
        PlanArchiveOperator,
        ReleaseArchiveOperator,
        ShowStatusOperator,
        SweepScopeOperator,
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
