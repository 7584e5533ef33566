"""Streamvault in Airflow: a connection to Pravega, and operators to build DAGs from.

    from streamvault.airflow.operators import CheckArchiveOperator, ExportStreamOperator, ImportStreamOperator
    from streamvault.airflow.operators import RotateArchiveOperator, WarmArchiveOperator

An operator runs one command of ``streamvault`` through ``spark-submit``: the master comes from a connection of type
``spark``, the login to Pravega from one of type ``pravega``, that to S3 from one of type ``aws``. What a command needs
to know in secret goes to it in its environment. Nothing heavy is imported where a DAG is parsed.
"""
