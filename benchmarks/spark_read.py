"""Reading a stream into Spark: the data source compared with a plain read loop, in one process and on all cores."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import psutil

from benchmarks.measuring import Arm, Measured, interleave, ratio, spread
from benchmarks.results import Results, size_text, spread_text, table
from benchmarks.setting import Setting, open_setting, parallelism
from benchmarks.workload import Workload
from streamvault.runner.java import java_home
from streamvault.streamstore.model import SegmentId, StreamName

MB = 1_000_000
STREAM = 1000 * MB
QUICK_STREAM = 40 * MB
LOOP = "bare read loop, one process"
ALONE = "Spark alone: all columns of rows made beforehand"
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
            workload = Workload(length // (size + 8) // parallelism() * parallelism(), size, parallelism())
            stream = setting.stream(f"read-{size}")
            workload.fill(setting.store, stream)
            arms = [Arm(LOOP, partial(_loop, setting, stream, workload))]
            for name, column in COLUMNS.items():
                reading = spark.read.format("pravega").option("path", setting.stream_uri(stream))
                if column:
                    reading = reading.option("columns", column)
                arms.append(Arm(name, partial(_read, spark, reading, workload, column)))
            made = spark.read.format("made").options(stream=str(stream), size=size, count=workload.share(0))
            arms.append(Arm(ALONE, partial(_read, spark, made.option("parts", workload.segments), workload, "")))
            for arm in arms[1:]:
                arm.run(0)  # warm up: start its processes and import modules
            found = interleave(arms, repeats, setting.settle)
            setting.store.delete(stream)
            for name, measured in found.items():
                speed = spread([one.megabytes_per_second for one in measured])
                used = spread([one.processor_seconds / one.bytes * 1e9 for one in measured])
                share = ratio(found, name, LOOP)
                cells = (spread_text(speed, 0), spread_text(share, 2), spread_text(used, 2))
                rows.append((f"{size_text(size)} events: {name}", *cells))
            figures[str(size)] = {name: [asdict(one) for one in measured] for name, measured in found.items()}
            name = f"{size_text(size)} events: official connector, stream → Parquet (another run)"
            rows.append((name, str(mine), f"{mine / loop:.2f} of read → put", ""))
    heads = (f"{length / MB:,.0f} MB", "MB/s", "of the bare read loop", "processor s/GB, without the servers")
    results.add("spark_read", table(heads, rows), figures)


def _loop(setting: Setting, stream: StreamName, workload: Workload, _repeat: int) -> Measured:
    """Read the segments one after the other and discard the bytes."""
    began, used, read = time.perf_counter(), time.process_time(), 0
    for number in range(workload.segments):
        segment = SegmentId(0, number)
        end = setting.store.segment_info(stream, [segment])[0].write_offset
        read += sum(len(block) for block in setting.store.read(stream, segment, 0, end))
    seconds = time.perf_counter() - began
    return workload.measured(workload.events, read, seconds, time.process_time() - used)


def _read(spark: Any, reading: Any, workload: Workload, column: str, _repeat: int) -> Measured:
    """Count the events and sum their lengths with Spark's aggregates."""
    length = "octet_length(payload) + 8" if column == "payload" else "length"
    began, used = time.perf_counter(), _processor_seconds(spark)
    count, total = reading.load().selectExpr("count(*)", f"sum({length})").first()
    seconds = time.perf_counter() - began
    return workload.measured(count, total, seconds, _processor_seconds(spark) - used)


def _processor_seconds(spark: Any) -> float:
    """Return the CPU time of Spark's Java and of its Python processes, the ended ones included."""
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)  # noqa: SLF001
    used = 0.0
    for process in (java, *java.children(recursive=True)):
        with suppress(psutil.Error):
            used += sum(process.cpu_times()[:4])
    return used


@contextmanager
def _spark() -> Iterator[Any]:
    """Start a session as a user would."""
    os.environ.setdefault("JAVA_HOME", str(java_home()))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession  # noqa: PLC0415  (after the environment is set)

    from benchmarks.made_rows import MadeRows  # noqa: PLC0415
    from streamvault.spark import register  # noqa: PLC0415

    quiet: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master(f"local[{parallelism()}]").config(map=quiet).getOrCreate()
    try:
        register(spark)
        spark.dataSource.register(MadeRows)
        yield spark
    finally:
        spark.stop()
