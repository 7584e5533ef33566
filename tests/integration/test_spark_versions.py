"""Commands on the oldest PySpark that pyproject.toml allows (all other tests run on the newest), and Spark Connect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from testkit.servers.availability import Unavailable
from testkit.servers.iceberg_spark import old_pyspark
from testkit.servers.java import spark_environment
from tests.conftest import absent

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
EVENTS = 400

READS = """
import sys
from pyspark.sql import SparkSession
from streamvault.spark import register

archive, stream = sys.argv[1:]
spark = SparkSession.builder.REMOTE.getOrCreate()
for call in (
    lambda: register(spark),
    lambda: spark.conf.set("spark.sql.python.filterPushdown.enabled", "true"),
    lambda: spark.read.format("streamvault").load(archive).filter("segment >= 0").count(),
    lambda: spark.read.format("pravega").load(stream).filter("segment >= 0").count(),
):
    try:
        print(call())
    except Exception as error:
        print(" ".join(str(error).split()))
spark.stop()
"""
CLASSIC = 'master("local[1]").config("spark.ui.enabled", "false")'
CONNECT = 'remote("local[1]").config("spark.connect.grpc.binding.address", "127.0.0.1")'


@pytest.fixture(scope="module")
def oldest() -> Path:
    """The oldest PySpark that is allowed, to be put before the installed one."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (version,) = (match[1] for text in needed if (match := re.match(r"pyspark>=([0-9.]+)", text)))
    try:
        return old_pyspark(f"{version}.0")
    except Unavailable as error:
        absent("spark", f"PySpark {version}.0: {error}")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, oldest: Path) -> Path:
    """What the demo has made with the oldest PySpark: on Spark, it exports, imports, checks, and hands off a table."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    demo = ("demo", "--events", str(EVENTS), "--master", "local[2]", "--keep", str(folder), "--json")
    assert json.loads(run(oldest, "-m", "streamvault", *demo))["events"] == EVENTS
    return folder


def run(pyspark: Path | None, *words: str) -> str:
    python_path = os.pathsep.join(str(folder) for folder in (pyspark, ROOT) if folder is not None)
    shown = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, **spark_environment(), "PYTHONPATH": python_path},
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def test_commands_run_on_the_oldest_pyspark_and_the_data_sources_say_what_they_need(oldest: Path, kept: Path) -> None:
    archive, stream = f"file://{kept}/archive/demo/orders", f"local://{kept}/streams/demo/orders"
    version = run(oldest, "-c", "import pyspark; print(pyspark.__version__)").strip()
    asked = f"Streamvault's data sources need PySpark 4.3: PySpark {version} is installed."
    answers = run(oldest, "-c", READS.replace("REMOTE", CLASSIC), archive, stream).splitlines()
    registered, _, *reads = answers
    assert registered.startswith(asked)
    assert len(reads) == 2
    assert all(asked in answer for answer in reads)


def test_spark_connect_has_the_formats_and_register_says_so(kept: Path) -> None:
    archive, stream = f"file://{kept}/archive/demo/orders", f"local://{kept}/streams/demo/orders"
    registered, *others = run(None, "-c", READS.replace("REMOTE", CONNECT), archive, stream).splitlines()
    assert registered == (
        "Spark Connect cannot ship code. Install Streamvault for the server's Python, which then has the formats, and "
        "set spark.sql.python.filterPushdown.enabled=true."
    )
    assert others == ["None", str(EVENTS), str(EVENTS)]
