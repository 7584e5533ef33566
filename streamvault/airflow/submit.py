"""Runs one command of streamvault through Spark, as the Spark provider's hook runs an application."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from common.errors import Problem
from sparkrun.java import java_home
from sparkrun.masters import Master
from sparkrun.settings import JAVA_SETTINGS, environment_for
from streamvault.airflow import application

__all__ = ["Ended", "StreamvaultSubmitHook"]

STOP_SECONDS = 20.0
"""How long a command that is told to stop may take before it is killed."""

POLL_SECONDS = 0.1
"""How often to look whether it has stopped."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; negative or above 128 if a signal ended it.
        document: the JSON object that it printed, a report or an error; None if it came to none.
        said: the last lines of its log, if it printed no document.
    """

    code: int
    document: dict[str, Any] | None
    said: str = ""


class StreamvaultSubmitHook(SparkSubmitHook):
    """``spark-submit`` for the command line of streamvault.

    The driver runs beside the task (deploy mode client): it only hands out work, and what it knows in secret comes
    to it in its environment. A connection whose host is ``inline`` runs the work in the driver, without Spark.

    Args:
        variables: for the driver's environment, over the worker's own; an empty value unsets one.
        conf: of Spark.
        conn_id: the connection of type ``spark``.
        options: the other ones of `SparkSubmitHook`.

    Raises:
        AirflowFailException: the connection is to no Spark that this can work with.
        AirflowNotFoundException: there is no such connection.
    """

    def __init__(
        self, *, variables: Mapping[str, str], conn_id: str, conf: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.get_connection(conn_id)  # else the provider's hook would take YARN for it
        super().__init__(conn_id=conn_id, conf={**JAVA_SETTINGS, **(conf or {})}, **options)
        self._variables = dict(variables)
        if self._connection["deploy_mode"] not in {None, "", "client"}:
            raise AirflowFailException(
                f"connection {conn_id!r} asks for deploy mode {self._connection['deploy_mode']!r}. "
                "Streamvault's driver runs beside the task: set it to client."
            )
        try:
            self.master = Master.parse(self._connection["master"])
        except Problem as problem:
            raise AirflowFailException(f"connection {conn_id!r}: {problem}") from None

    def run(self, arguments: Sequence[str]) -> Ended:
        """Run a command to its end.

        Args:
            arguments: of the command line; ``--master`` and ``--json`` are added.
        """
        self._application_args = [*arguments, "--master", self.master.url, "--json"]
        with _folder() as folder:
            environment = {**self._environment(), application.FOLDER: str(folder)}
            said = ""
            try:
                self.submit(application.__file__, env=environment, process_group=0)
            except AirflowException as error:
                if self._submit_sp is None or not self._submit_sp.returncode:
                    raise
                said = str(error)
            code = self._submit_sp.returncode if self._submit_sp is not None else 1
            return Ended(code, _document(folder / application.RESULT), said)

    def on_kill(self) -> None:
        """Stop the command and all it started: first as Ctrl-C would, then for certain."""
        process = self._submit_sp
        if process is None:
            return
        self.log.info("stopping the command")
        deadline = time.monotonic() + STOP_SECONDS
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            # Java may be gone before Python has tidied up
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(POLL_SECONDS)
            os.killpg(process.pid, signal.SIGKILL)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        if self.master.kind == "inline":
            return [sys.executable, application, *(self._application_args or ())]
        return super()._build_spark_submit_command(application)

    def _environment(self) -> dict[str, str]:
        variables = {**os.environ, **self._variables}
        variables = {name: value for name, value in variables.items() if value}
        # spark-submit lies beside the interpreter, also where its folder is not on the path
        variables["PATH"] = os.pathsep.join([variables.get("PATH", os.defpath), str(Path(sys.executable).parent)])
        variables.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if self.master.kind != "inline":
            try:
                variables |= environment_for(self.master, java_home(variables))
            except Problem as problem:
                raise AirflowFailException(str(problem)) from None
        return variables


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the result, with the pipe that says how long this process lives."""
    with tempfile.TemporaryDirectory(prefix="streamvault-task-") as name:
        folder = Path(name)
        os.mkfifo(folder / application.LIFELINE, 0o600)
        lifeline = os.open(folder / application.LIFELINE, os.O_RDWR)
        try:
            yield folder
        finally:
            os.close(lifeline)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
