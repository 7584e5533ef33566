"""Reading a stream into Spark: the data source compared with a plain read loop, in one process and on all cores."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.measuring import Arm, Measured, interleave, ratio, spread
from benchmarks.results import Results, size_text, spread_text, table
from benchmarks.setting import Setting, open_setting, parallelism
from benchmarks.workload import Workload
from streamvault.sparkrun.java import java_home
from streamvault.streamstore.model import SegmentId, StreamName

MB = 1_000_000
STREAM = 400 * MB
QUICK_STREAM = 40 * MB
LOOP = "bare read loop, one process"
COLUMNS = {"all columns, summing lengths": "", "column length alone": "length", "column payload alone": "payload"}
CONNECTOR = {100: (39, 325), 1024: (79, 358)}
"""Payload bytes → MB/s of the official connector (stream to Parquet) and of the plain loop, measured together."""


def read_stream(repeats: int, results: Results, *, quick: bool) -> None:
    """Read streams of events of each size; add one table."""
    length = QUICK_STREAM if quick else STREAM
    rows: list[tuple[str, ...]] = []
    figures: dict[str, Any] = {}
    with open_setting("minio", quick=quick) as setting, _spark() as spark:
        results.describe(setting.describe())
        for size, (mine, loop) in CONNECTOR.items():
            workload = Workload(length // (size + 8), size, parallelism())
            stream = setting.stream(f"read-{size}")
            workload.fill(setting.store, stream)
            arms = [Arm(LOOP, partial(_loop, setting, stream, workload))]
            for name, column in COLUMNS.items():
                arms.append(Arm(name, partial(_read, spark, setting.stream_uri(stream), workload, column)))
            for arm in arms[1:]:
                arm.run(0)  # warm up: start its processes and import modules
            found = interleave(arms, repeats, setting.settle)
            setting.store.delete(stream)
            for name, measured in found.items():
                speed = spread([one.megabytes_per_second for one in measured])
                share = ratio(found, name, LOOP)
                rows.append((f"{size_text(size)} events: {name}", spread_text(speed, 0), spread_text(share, 2)))
            figures[str(size)] = {name: [asdict(one) for one in measured] for name, measured in found.items()}
            name = f"{size_text(size)} events: official connector, stream → Parquet (another run)"
            rows.append((name, str(mine), f"{mine / loop:.2f} of read → put"))
    results.add("spark_read", table(("", "MB/s", "of the bare read loop"), rows), figures)


def _loop(setting: Setting, stream: StreamName, workload: Workload, _repeat: int) -> Measured:
    """Read the segments one after the other and discard the bytes."""
    began, read = time.perf_counter(), 0
    for number in range(workload.segments):
        segment = SegmentId(0, number)
        end = setting.store.segment_info(stream, [segment])[0].write_offset
        read += sum(len(block) for block in setting.store.read(stream, segment, 0, end))
    return workload.measured(workload.events, read, time.perf_counter() - began)


def _read(spark: Any, uri: str, workload: Workload, column: str, _repeat: int) -> Measured:
    """Count the events and sum their lengths with Spark's aggregates."""
    reading = spark.read.format("pravega")
    if column:
        reading = reading.option("columns", column)
    length = "octet_length(payload) + 8" if column == "payload" else "length"
    began = time.perf_counter()
    count, total = reading.load(uri).selectExpr("count(*)", f"sum({length})").first()
    return workload.measured(count, total, time.perf_counter() - began)


@contextmanager
def _spark() -> Iterator[Any]:
    """Start a session as a user would."""
    os.environ.setdefault("JAVA_HOME", str(java_home()))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession  # noqa: PLC0415  (after the environment is set)

    from streamvault.spark import register  # noqa: PLC0415

    quiet: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master(f"local[{parallelism()}]").config(map=quiet).getOrCreate()
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()
