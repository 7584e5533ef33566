"""Runs a streamvault command through ``spark-submit``, with the Spark provider's hook."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streamvault.airflow import application
from streamvault.common.errors import Problem
from streamvault.common.processes import changed_variables, python_command, safe_environment
from streamvault.common.waiting import pauses
from streamvault.runner.java import java_home
from streamvault.runner.runner import Master
from streamvault.runner.settings import JAVA_SETTINGS, PAGES_FILE, environment_for

STOP_SECONDS = 3.0
"""Time from SIGTERM to SIGKILL. Airflow kills the task itself 5 s after it has told it to stop its command."""

HISTORY_SERVER = "spark.yarn.historyServer.address"
"""Spark's own setting for the address of its history server."""

POLL_SECONDS = 0.1
"""Interval of checks whether the command has stopped."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a command.

    Attributes:
        code: the exit code; negative or above 128 if a signal ended the command.
        document: the JSON object that it printed, a report or an error; None if it printed none.
        log_tail: the last lines of its log, if it printed no document.
    """

    code: int
    document: dict[str, Any] | None
    log_tail: str = ""


class StreamvaultSubmitHook(SparkSubmitHook):
    """Runs the streamvault command line through ``spark-submit``.

    The driver runs on the worker (deploy mode ``client``): it only schedules tasks, and gets its secrets from its
    environment. If the connection's host is ``inline``, the work runs in the driver, without Spark.

    Args:
        variables: environment variables for the driver, in addition to the worker's own; None unsets one.
        distributed: whether the command runs tasks; if not, it needs no Spark.
        conf: Spark settings.
        conn_id: id of the connection of type ``spark``.
        options: other arguments of `SparkSubmitHook`.

    Raises:
        AirflowFailException: the connection's master or deploy mode is not supported.
        AirflowNotFoundException: the connection does not exist.
    """

    def __init__(
        self,
        *,
        variables: Mapping[str, str | None],
        conn_id: str,
        distributed: bool = True,
        conf: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._distributed = distributed
        if distributed:
            self.get_connection(conn_id)  # raises; the provider's hook would fall back to YARN
        super().__init__(conn_id=conn_id, conf={**JAVA_SETTINGS, **(conf or {})}, **options)
        self._variables = dict(variables)
        self._spark: dict[str, Any] | None = None
        self.on_spark: Callable[[str], object] | None = None
        """Called with the address of Spark's pages, if it has some, once the command has written a line after that."""
        if not distributed:
            self.master = Master.parse("inline")
            return
        if self._connection["deploy_mode"] not in {None, "", "client"}:
            raise AirflowFailException(
                f"connection {conn_id!r} has deploy mode {self._connection['deploy_mode']!r}. "
                "Streamvault's driver runs on the worker: set it to client."
            )
        try:
            self.master = Master.parse(self._connection["master"])
        except Problem as problem:
            raise AirflowFailException(f"connection {conn_id!r}: {problem}") from None

    def run(self, arguments: Sequence[str]) -> Outcome:
        """Run a command and wait for it.

        Args:
            arguments: command-line arguments; ``--master`` (if it has tasks) and ``--json`` are added.
        """
        self._application_args = [*arguments, *(["--master", self.master.url] if self._distributed else []), "--json"]
        with _folder() as folder:
            self._pages = folder / "spark.json"
            environment = {**self._environment(), application.FOLDER: str(folder), PAGES_FILE: str(self._pages)}
            log_tail = ""
            try:
                self.submit(application.__file__, env=environment, process_group=0)
            except AirflowException as error:
                if self._submit_sp is None or not self._submit_sp.returncode:
                    raise
                log_tail = str(error)
            self._look_for_spark()
            code = self._submit_sp.returncode if self._submit_sp is not None else 1
            return Outcome(code, _document(folder / application.RESULT), log_tail)

    @property
    def history_url(self) -> str:
        """The page of the ended Spark application in Spark's history server; empty if there is none."""
        server = str(self._conf.get(HISTORY_SERVER) or "")
        if not server or self._spark is None:
            return ""
        return f"{server if '://' in server else f'http://{server}'}/history/{self._spark['application']}"

    def on_kill(self) -> None:
        """Stop the command and its child processes: SIGTERM first, SIGKILL after `STOP_SECONDS`."""
        process = self._submit_sp
        if process is None:
            return
        self.log.info("stopping the command")
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            # Java may exit before Python has cleaned up
            for _ in pauses(STOP_SECONDS, first=POLL_SECONDS):
                process.poll()
                os.killpg(process.pid, 0)
            os.killpg(process.pid, signal.SIGKILL)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(line for line in itr if self._look_for_spark())

    def _look_for_spark(self) -> bool:
        """Announce Spark's pages once they are there; always True."""
        if self._spark is None and (found := _document(self._pages)) is not None:
            self._spark = found
            if found["url"] and self.on_spark is not None:
                self.on_spark(found["url"])
        return True

    def _build_spark_submit_command(self, application: str) -> list[str]:
        if self.master.kind == "inline":
            return [*python_command(application), *(self._application_args or ())]
        return super()._build_spark_submit_command(application)

    def _environment(self) -> dict[str, str]:
        variables = safe_environment(
            changed_variables({name: value for name, value in os.environ.items() if value}, self._variables)
        )
        # spark-submit is installed beside the interpreter, whose folder may not be on the path
        variables["PATH"] = os.pathsep.join([variables.get("PATH", os.defpath), str(Path(sys.executable).parent)])
        variables.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        variables.setdefault("STREAMVAULT_PROGRESS_EVERY", "1m")
        if self.master.kind != "inline":
            try:
                variables |= environment_for(self.master, java_home(variables))
            except Problem as problem:
                raise AirflowFailException(str(problem)) from None
        return variables


@contextmanager
def _folder() -> Iterator[Path]:
    """Create a temporary folder for the result, with the pipe that stays open while this process runs."""
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
        # a worker of a queue prints a line for each request before that
        document = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return document if isinstance(document, dict) else None
