"""Spark data sources: ``pravega`` reads and writes streams, ``streamvault`` reads archives.

    from streamvault.spark import register

    register(spark)
    spark.read.format("streamvault").load("s3://vault/backups/shop/orders")
    spark.read.format("pravega").load("pravega://127.0.0.1:9090/shop/orders")

Works with PySpark 4.3. Spark finds the formats by itself where Streamvault is installed; `register` ships
the project's code with the job to a cluster, where only its dependencies must be installed.
"""

from __future__ import annotations

from streamvault.spark.sources import register

__all__ = ["register"]
