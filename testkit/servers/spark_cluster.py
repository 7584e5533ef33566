"""A real Spark standalone cluster: a master and two workers, each a Java process, from the installed pyspark.

Its workers' Python has the project's dependencies but not the project, so a job runs there only if it ships its code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from pyspark import SparkContext
from pyspark.sql import SparkSession

from testkit.servers.availability import Unavailable
from testkit.servers.java import LIGHT_JAVA, java_home
from testkit.servers.process import ServerProcess, temporary_folder

HOST = "127.0.0.1"
START_TIMEOUT = 120.0
# What the workers' Python must not find.
OWN_PACKAGE = "streamvault"


class SparkCluster:
    """A running cluster. A context manager: started on entry, stopped on exit.

    Args:
        workers: how many workers, each with one core.
        worker_memory: what each worker may give to executors.

    Attributes:
        master_url: ``spark://127.0.0.1:PORT``.
        python: the Python for the workers, as ``PYSPARK_PYTHON``.
        master: the master's process.
        workers: the workers' processes; tests of faults may kill one.
    """

    def __init__(self, *, workers: int = 2, worker_memory: str = "1g") -> None:
        self.master_url = ""
        self.python = Path()
        self.master: ServerProcess | None = None
        self.workers: list[ServerProcess] = []
        self._worker_count = workers
        self._worker_memory = worker_memory
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start master and workers and return when the workers are registered.

        Raises:
            Unavailable: there is no Java or no pyspark, or they do not start.
        """
        self._folder = temporary_folder("spark")
        try:
            self.python = python_without_the_project(self._folder / "python")
            self.master = self._run("master", "--host", HOST, "--port", "0", "--webui-port", "0")
            self.master_url = _logged(self.master, r"Starting Spark master at (spark://[\d.:]+)")
            for number in range(self._worker_count):
                folder = self._folder / f"worker-{number}"
                self.workers.append(
                    self._run(
                        folder.name,
                        *("--host", HOST, "--port", "0", "--webui-port", "0"),
                        *("--cores", "1", "--memory", self._worker_memory, "--work-dir", str(folder / "work")),
                        self.master_url,
                    )
                )
            for worker in self.workers:
                _logged(worker, r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise

    def environment(self) -> dict[str, str]:
        """Variables for the program that sends jobs here."""
        return {"PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": HOST, "JAVA_HOME": str(java_home())}

    def stop(self) -> None:
        """End everything at once and remove its files. Does nothing the second time."""
        for process in (*self.workers, self.master):
            if process is not None:
                process.stop()
        self.workers, self.master = [], None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def summary(self) -> dict[str, object]:
        """What somebody needs to use the cluster, as JSON values."""
        return {
            "server": "spark",
            "master_url": self.master_url,
            "environment": self.environment(),
            "pids": [process.pid for process in (self.master, *self.workers) if process is not None],
        }

    def _run(self, name: str, *arguments: str) -> ServerProcess:
        if self._folder is None:
            raise RuntimeError("the cluster is not started")
        kind = "master.Master" if name == "master" else "worker.Worker"
        home = _spark_home()
        folder = self._folder / name
        (folder / "configuration").mkdir(parents=True)
        # it would be on a fixed port
        (folder / "configuration" / "spark-defaults.conf").write_text("spark.master.rest.enabled false\n")
        environment = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            # nothing of this machine's own Spark settings, and nothing outside the folder
            "SPARK_CONF_DIR": str(folder / "configuration"),
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            # the executors, which inherit this, start quickly, too
            "JDK_JAVA_OPTIONS": LIGHT_JAVA,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        return ServerProcess(f"Spark {name}", command, folder=folder, env=environment)


def _logged(process: ServerProcess, pattern: str) -> str:
    """What the pattern's group matched in the process's log, once it does."""
    process.wait_until(lambda: process.match(pattern) is not None, timeout=START_TIMEOUT)
    match = process.match(pattern)
    if match is None:
        raise RuntimeError(f"{process.name} has taken back what it logged")
    return match


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable("pyspark is not installed")
    return Path(spec.origin).parent


def python_without_the_project(folder: Path) -> Path:
    """An environment that sees this one's packages, but not those that a .pth file in there points to: the project's.

    Raises:
        Unavailable: it sees them all the same, as when the project is installed as a copy.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site_packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    tried = subprocess.run(
        [python, "-c", f"import pyarrow, importlib.util as u; print(u.find_spec({OWN_PACKAGE!r}))"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    if tried.returncode != 0 or tried.stdout.strip() != "None":
        raise Unavailable(f"no Python with the dependencies but not the project: {tried.stdout}{tried.stderr}")
    return python


def end_spark(spark: SparkSession) -> None:
    """End a session and its Java process, whose environment would be that of the next session's tasks."""
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
