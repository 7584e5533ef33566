"""A program that a test starts and kills: follows one stream into another (and into files) with Spark, once each.

    python -m tests.faults.spark_copy SOURCE TARGET CHECKPOINT KIND

KIND: ``stream`` writes by the streaming sink, ``batches`` by a named write in foreachBatch, ``parquet`` to files below
TARGET. Ends when all that was there at its start is copied; says a line for every batch that it has finished.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamvault.spark import register


def main(source: str, target: str, checkpoint: str, kind: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    register(spark)
    rows = (
        spark.readStream.format("pravega")
        .option("startingOffsets", "earliest")
        .option("maxBytesPerTrigger", "40KiB")
        .load(source)
    )
    events = rows.selectExpr("payload AS event", "pointer AS routing_key")
    writing: Any = (rows if kind == "parquet" else events).writeStream.option("checkpointLocation", checkpoint)
    if kind == "batches":

        def write(batch: DataFrame, number: int) -> None:
            named = batch.write.format("pravega").mode("append").option("txnAppId", checkpoint)
            named.option("txnVersion", number).save(target)

        writing = writing.foreachBatch(write)
    else:
        writing = writing.format("pravega" if kind == "stream" else "parquet").option("path", target)
    query = writing.trigger(availableNow=True).start()
    done = -1
    while not query.awaitTermination(0.05):
        for progress in query.recentProgress:
            if progress.batchId > done:
                done = progress.batchId
                print("batch", done, flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
