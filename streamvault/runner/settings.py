"""Spark settings for few small tasks that move their data themselves, and the code that executors import."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamvault.common import processes
from streamvault.common.processes import SAFE
from streamvault.runner import daemon
from streamvault.runner.runner import Master

_PACKAGE = Path(__file__).resolve().parents[1]
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_NAME = "streamvault-code-"
_shipping = threading.Lock()


def import_folder() -> Path:
    """Return the folder this process imports `streamvault` from: a source tree, or site-packages."""
    return _PACKAGE.parent


def zip_code(path: Path) -> None:
    """Write the package, as imported by this process, to a zip file; output is deterministic."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for source in sorted([*_PACKAGE.rglob("*.py"), *_PACKAGE.rglob("*.pyi")]):
            name = source.relative_to(_PACKAGE.parent).as_posix()
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), source.read_bytes(), zipfile.ZIP_DEFLATED)


def ship_code(context: Any) -> None:
    """Make the package importable on all current and future executors of a Spark context; once per context.

    Spark sends the file to every executor that runs a task, for as long as the context lives. So the file is in the
    context's own folder, which Spark removes when the context stops, and its name contains a hash of its content.
    """
    with _shipping:
        if any(Path(str(url)).name.startswith(_NAME) for url in context.listFiles):
            return
        # Spark keeps its own copies at the top of this folder
        folder = tempfile.mkdtemp(prefix="code-", dir=context._jvm.org.apache.spark.SparkFiles.getRootDirectory())  # noqa: SLF001
        code = Path(folder, "code.zip")
        zip_code(code)
        digest = hashlib.sha256(code.read_bytes()).hexdigest()
        path = list(sys.path)
        context.addPyFile(str(code.rename(Path(folder, f"{_NAME}{digest[:16]}.zip"))))
        # this process already has the code
        sys.path[:] = path


LOOPBACK = "127.0.0.1"
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

TUNABLES = "GLIBC_TUNABLES"
LARGE_PAGES = "glibc.malloc.hugetlb=1"
"""For task processes, whose buffers are megabytes large: use pages of 2 MiB instead of 4 KiB where the system allows it
(https://sourceware.org/glibc/manual: Memory Allocation Tunables)."""

PAGES_FILE = "STREAMVAULT_SPARK_PAGES_FILE"
"""Environment variable: a file to which a new context's application id and the address of its pages are written."""

JAVA_SETTINGS = {
    # The driver only schedules. One compiler tier and a serial collector make it start faster.
    "spark.driver.memory": "1g",
    JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""For the driver's Java process; needed before it starts, so callers of ``spark-submit`` must pass them too."""


def settings_for(master: Master, folder: Path, preload: Sequence[str] = (), java_options: str = "") -> dict[str, str]:
    """Return the settings to start Spark with; a user's ``PYSPARK_SUBMIT_ARGS`` take precedence.

    ``folder`` is for Spark's local files; each of the ``java_options`` of the driver has a leading space.
    """
    settings = {
        "spark.master": master.url,
        "spark.app.name": "streamvault",
        "spark.local.dir": str(folder),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Statistics of finished tasks, which nothing uses.
        "spark.ui.retainedTasks": "1000",
        **JAVA_SETTINGS,
        JAVA_OPTIONS: JAVA_SETTINGS[JAVA_OPTIONS] + java_options,
        "spark.python.worker.reuse": "true",
        # How long a cancelled task's Python may go on before it is killed.
        "spark.python.task.killTimeout": "500ms",
        "spark.task.maxFailures": "4",
        f"spark.executorEnv.{SAFE}": "1",
    }
    if processes.VARIABLE in os.environ:
        settings[f"spark.executorEnv.{processes.VARIABLE}"] = os.environ[processes.VARIABLE]
    if master.on_loopback:
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if master.kind == "local":
        settings["spark.executorEnv.PYTHONPATH"] = str(import_folder())
        settings["spark.python.daemon.module"] = daemon.__name__
        settings[f"spark.executorEnv.{daemon.PRELOAD}"] = ",".join(preload)
        settings[f"spark.executorEnv.{TUNABLES}"] = ":".join(filter(None, (os.environ.get(TUNABLES), LARGE_PAGES)))
    return settings


def own_name(folder: Path) -> str:
    """Return a Java option, with a leading space, that makes this machine's name known; empty if it can be resolved.

    Spark looks the name up where the environment has AWS credentials, and does not start without an address. Many
    containers have a name that resolves nowhere. With the option, Java knows no other names but ``localhost``; it needs
    none, unless a user's ``PYSPARK_SUBMIT_ARGS`` have it fetch something. Tasks are Python processes, which know all.

    Args:
        folder: for the file that the option names.
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        if "PYSPARK_SUBMIT_ARGS" not in os.environ:
            hosts = folder / "hosts"
            hosts.write_text(f"{LOOPBACK} localhost\n{LOOPBACK} {name}\n")
            return f" -Djdk.net.hosts.file={hosts}"
    return ""


def environment_for(master: Master, java_home: Path) -> dict[str, str]:
    """Return the environment variables for Spark's Java process."""
    variables = {"JAVA_HOME": str(java_home)}
    # Spark's script starts another Java process, which only builds a command line
    variables["SPARK_LAUNCHER_OPTS"] = os.environ.get("SPARK_LAUNCHER_OPTS", JAVA_SETTINGS[JAVA_OPTIONS])
    if master.on_loopback:
        variables["SPARK_LOCAL_IP"] = LOOPBACK
    return variables
