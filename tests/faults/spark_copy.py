"""A program that a test starts and kills: follows a stream into another one, or into files, with Spark.

    python -m tests.faults.spark_copy SOURCE TARGET CHECKPOINT KIND

KIND: ``stream`` writes by the streaming sink, ``batches`` by a named write in foreachBatch, ``parquet`` by Spark's sink
of files below TARGET, ``folders`` by replacing the folder of each batch there, in foreachBatch. Ends when all that was
there at its start is copied; says a line for every batch that it has finished, and how many rows Spark finds in files.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamvault.spark import register

FILES = ("parquet", "folders")


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
        .option("maxBytesPerTrigger", "10KiB" if kind in FILES else "40KiB")
        .load(source)
    )
    events = rows.selectExpr("payload AS event", "pointer AS routing_key")
    writing: Any = (rows if kind in FILES else events).writeStream.option("checkpointLocation", checkpoint)
    if kind == "folders":

        def replace(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(f"{target}/batch={number}")

        writing = writing.foreachBatch(replace)
    elif kind == "batches":

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
    if kind in FILES:
        print("rows", spark.read.parquet(target).count())
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
