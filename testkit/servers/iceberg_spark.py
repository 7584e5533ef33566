"""Spark with Iceberg's own runtime, over a catalog in SQLite: an engine that tends tables beside the product."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testkit.servers.cache import cached
from testkit.servers.java import spark_environment
from testkit.servers.listed_jars import fetch_listed
from testkit.servers.process import run_tool
from testkit.servers.s3 import S3Server

JARS = Path(__file__).parent / "iceberg-spark-jars.txt"
VERSION = "1.11.0"
OF_SPARK = "4.0.0"
"""Iceberg's runtime is made for one version of Spark, and there is none for the newest."""

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for line in sys.stdin:
    rows = spark.sql(line).collect()
    print(json.dumps([[*row] for row in rows], default=str), flush=True)
"""


def iceberg_spark_jars() -> Path:
    """The folder with the jars (3 files, 130 MB).

    Raises:
        Unavailable: they can't be fetched, or are not the ones of the list.
    """
    return cached(f"iceberg-spark-{VERSION}", lambda folder: fetch_listed(JARS, folder))


def old_pyspark(version: str = OF_SPARK) -> Path:
    """The folder with an earlier PySpark, to be put before the installed one.

    Raises:
        Unavailable: it can't be fetched.
    """

    def fetch(folder: Path) -> None:
        install = ("uv", "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder))
        run_tool((*install, f"pyspark=={version}"), timeout=600)

    return cached(f"pyspark-{version}", fetch)


class IcebergSpark:
    """A Spark that runs.

    Args:
        process: takes a statement a line, and answers with a line of rows as JSON.
        log: where it says what it does.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def query(self, sql: str) -> list[list[Any]]:
        """A statement's rows."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(sql.split()) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{sql} failed:\n{self._log.read_text()[:4000]}"
        return json.loads(answer)  # type: ignore[no-any-return]


@contextmanager
def iceberg_spark(name: str, database: Path, objects: S3Server, log: Path) -> Iterator[IcebergSpark]:
    """Spark with one catalog, stopped at the end.

    Args:
        name: the catalog's name, which the database has beside each table.
        database: SQLite's file.
        objects: the S3 server with the tables' files.
        log: where Spark says what it does.
    """
    catalog = f"spark.sql.catalog.{name}"
    setting = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.jars": ",".join(map(str, sorted(iceberg_spark_jars().glob("*.jar")))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{catalog}.uri": f"jdbc:sqlite:{database}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": "s3://nowhere",
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.s3.endpoint": objects.endpoint,
        f"{catalog}.s3.path-style-access": "true",
    }
    environment = {**os.environ, **spark_environment(), **objects.environment()}
    environment["PYTHONPATH"] = str(old_pyspark())
    with (
        log.open("w") as said,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(setting)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=environment,
        ) as process,
    ):
        try:
            yield IcebergSpark(process, log)
        finally:
            process.kill()
