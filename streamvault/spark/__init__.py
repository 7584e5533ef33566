"""Spark data sources: ``pravega`` reads and writes streams, ``streamvault`` reads archives.

    from streamvault.spark import register

    register(spark)
    spark.read.format("streamvault").load("s3://vault/backups/shop/orders")
    spark.read.format("pravega").load("pravega://127.0.0.1:9090/shop/orders")

Works with any PySpark 4.3 session. To a cluster, the project's code is shipped with the job, but its dependencies must
be installed there.
"""

from __future__ import annotations

from streamvault.spark.registering import register

__all__ = ["register"]
