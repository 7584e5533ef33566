"""Spark's settings for work like ours: few small tasks that move their data themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sparkrun import daemon
from sparkrun.code import import_folders
from sparkrun.masters import Master

__all__ = ["JAVA_SETTINGS", "environment_for", "settings_for"]

LOOPBACK = "127.0.0.1"
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

TUNABLES = "GLIBC_TUNABLES"
LARGE_PAGES = "glibc.malloc.hugetlb=1"
"""For the processes of tasks: what they move lies in buffers of megabytes, and comes into being by pages of 2 MiB
instead of 4 KiB where the system lets it (https://sourceware.org/glibc/manual: Memory Allocation Tunables)."""

JAVA_SETTINGS = {
    # It schedules; it moves no data. A compiler less and one collector thread make it start sooner.
    "spark.driver.memory": "1g",
    JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""Of the driver's Java process: to be known before it starts, so also to whoever calls ``spark-submit``."""


def settings_for(master: Master, folder: Path, preload: Sequence[str] = (), java_options: str = "") -> dict[str, str]:
    """The settings with which Spark is started; a user's ``PYSPARK_SUBMIT_ARGS`` go before them.

    Args:
        master: where tasks run.
        folder: for what Spark writes on this machine.
        preload: modules that tasks import.
        java_options: more of them for the driver's Java process, with a space before each.
    """
    settings = {
        "spark.master": master.url,
        "spark.app.name": "streamvault",
        "spark.local.dir": str(folder),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What the driver remembers of finished tasks: nobody looks at it.
        "spark.ui.retainedTasks": "1000",
        **JAVA_SETTINGS,
        JAVA_OPTIONS: JAVA_SETTINGS[JAVA_OPTIONS] + java_options,
        "spark.python.worker.reuse": "true",
        # How long a cancelled task's Python may go on before it is killed.
        "spark.python.task.killTimeout": "500ms",
        "spark.task.maxFailures": "4",
    }
    if master.on_loopback:
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if master.kind == "local":
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(map(str, import_folders()))
        settings["spark.python.daemon.module"] = daemon.__name__
        settings[f"spark.executorEnv.{daemon.PRELOAD}"] = ",".join(preload)
        settings[f"spark.executorEnv.{TUNABLES}"] = ":".join(filter(None, (os.environ.get(TUNABLES), LARGE_PAGES)))
    return settings


def environment_for(master: Master, java_home: Path) -> dict[str, str]:
    """Environment variables for Spark's Java process."""
    variables = {"JAVA_HOME": str(java_home)}
    # Spark's script starts a Java process more, which only puts a command line together
    variables["SPARK_LAUNCHER_OPTS"] = os.environ.get("SPARK_LAUNCHER_OPTS", JAVA_SETTINGS[JAVA_OPTIONS])
    if master.on_loopback:
        variables["SPARK_LOCAL_IP"] = LOOPBACK
    return variables
