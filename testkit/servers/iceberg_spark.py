"""Spark with Iceberg's own runtime, over a catalog: an engine that tends tables beside the product."""

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
from testkit.servers.java import LIGHT_JAVA, java_home, spark_environment
from testkit.servers.listed_jars import fetch_listed
from testkit.servers.moto import moto_server
from testkit.servers.process import run_tool
from testkit.servers.s3 import S3Server

JARS = Path(__file__).parent / "iceberg-spark-jars.txt"
VERSION = "1.11.0"
OF_SPARK = "4.0.0"
"""Iceberg's runtime is made for one version of Spark, and there is none for the newest."""

PROGRAM = """
import json, sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for line in sys.stdin:
    rows = spark.sql(line).collect()
    print(json.dumps([[*row] for row in rows], default=str), flush=True)
java = SparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait(180)
"""
USED = (
    "CREATE NAMESPACE {name}.shop",
    "CREATE TABLE {name}.shop.orders (id INT, day DATE) USING iceberg PARTITIONED BY (day) LOCATION '{place}'",
    *2 * ("INSERT INTO {name}.shop.orders VALUES (1, DATE '2026-01-01'), (2, DATE '2026-01-02')",),
    "DELETE FROM {name}.shop.orders WHERE id = 1 AND day > DATE '2026-01-01' - 1",
    "SELECT count(*) FROM {name}.shop.orders WHERE day >= TIMESTAMP '2026-01-01'",
    "CALL {name}.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))",
    "CALL {name}.system.rewrite_manifests('shop.orders')",
    "CALL {name}.system.expire_snapshots(table => 'shop.orders', retain_last => 1)",
    "SELECT date_format(day, 'yyyy-MM-dd') FROM {name}.shop.orders ORDER BY 1",
)
"""What Java loads the classes of that are archived."""


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


def iceberg_options() -> str:
    """Java's options with which this Spark and Iceberg load their classes from an archive, see `java.spark_options`.

    Raises:
        Unavailable: as `iceberg_spark_jars` and `old_pyspark`; or Spark does not start.
    """
    folder = cached(f"iceberg-spark-{VERSION}-classes-{java_home().name}", _archive)
    return f"{LIGHT_JAVA} -XX:SharedArchiveFile={folder / 'classes'} -Xlog:disable"


def _archive(folder: Path) -> None:
    options = f"{LIGHT_JAVA} -XX:ArchiveClassesAtExit={folder / 'classes'} -Xlog:disable"
    with moto_server() as server:
        place = f"s3://{server.make_bucket('used')}/used"
        with _running("used", of_glue(server.endpoint), server, folder / "log", options) as process:
            spark = IcebergSpark(process, folder / "log")
            for statement in USED:
                spark.query(statement.format(name="used", place=place))
            assert process.stdin is not None
            process.stdin.close()
            process.wait(300)


def of_sqlite(database: Path) -> dict[str, str]:
    """What Iceberg's runtime needs for a catalog in SQLite, whose name the database has beside each table."""
    setting = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "uri": f"jdbc:sqlite:{database}"}
    return {**setting, "jdbc.schema-version": "V1", "warehouse": "s3://nowhere"}


def of_rest(uri: str) -> dict[str, str]:
    """What Iceberg's runtime needs for a REST catalog."""
    return {"type": "rest", "uri": uri}


def of_glue(endpoint: str) -> dict[str, str]:
    """What Iceberg's runtime needs for Glue."""
    return {"type": "glue", "glue.endpoint": endpoint, "client.region": "us-east-1", "warehouse": "s3://nowhere"}


@contextmanager
def iceberg_spark(name: str, settings: dict[str, str], objects: S3Server, log: Path) -> Iterator[IcebergSpark]:
    """Spark with one catalog, stopped at the end.

    Args:
        name: the catalog's name.
        settings: where the catalog is: `of_sqlite`, `of_rest` or `of_glue`.
        objects: the S3 server with the tables' files.
        log: where Spark says what it does.
    """
    with _running(name, settings, objects, log, iceberg_options()) as process:
        yield IcebergSpark(process, log)


@contextmanager
def _running(
    name: str, settings: dict[str, str], objects: S3Server, log: Path, options: str
) -> Iterator[subprocess.Popen[str]]:
    jars = sorted(map(str, iceberg_spark_jars().glob("*.jar")))
    catalog = f"spark.sql.catalog.{name}"
    setting = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        # not as spark.jars: only what Java's own class loader loads can be archived
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{catalog}.{one}": value for one, value in settings.items()},
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.s3.endpoint": objects.endpoint,
        f"{catalog}.s3.path-style-access": "true",
    }
    environment = {**os.environ, **spark_environment(), **objects.environment()}
    environment |= {"PYTHONPATH": str(old_pyspark()), "SPARK_SUBMIT_OPTS": options}
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
            yield process
        finally:
            process.kill()
