"""Airflow integration: a connection type for Pravega, and operators for DAGs.

    from streamvault.airflow.operators import CheckArchiveOperator, ExportStreamOperator, ImportStreamOperator
    from streamvault.airflow.operators import RotateArchiveOperator, WarmArchiveOperator
    from streamvault.airflow.operators import CopyStreamOperator, MoveStreamOperator
    from streamvault.airflow.operators import PromoteReplicaOperator, ReplicateStreamOperator
    from streamvault.airflow.operators import AppendStreamsOperator, HandoffTableOperator, HoldArchiveOperator  # …

An operator runs one ``streamvault`` command through ``spark-submit``. The master comes from a connection of type
``spark``, the Pravega login from one of type ``pravega`` (or two, for source and target), and the S3 credentials from
one of type ``aws``. Secrets are passed in the command's environment. DAG parsing imports nothing heavy.
"""
