"""A real Airflow: scheduler, DAG processor, triggerer and API server, as ``airflow standalone`` starts them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import psutil

from testkit.servers.availability import Unavailable
from testkit.servers.process import Server, ServerProcess, free_ports, temporary_folder

T = TypeVar("T")

HOST = "127.0.0.1"
START_TIMEOUT = 600.0
USER = "admin"
ANSWER_TIMEOUT = 120.0
POLL = 0.5
CALLS_WHILE_LOCKED = 20
ENDED = {"success", "failed"}
# The servers for log files would listen on every address; tasks run here, so their logs are read as files. Tasks are
# forks of the scheduler and find there what DAGs import, which is three quarters of what a small one does. The DAG
# processor does not.
QUIET_AIRFLOW = """#!/bin/sh
case $1 in
scheduler) exec {python} -P -c '{main}' "$@" --skip-serve-logs ;;
triggerer) exec {airflow} "$@" --skip-serve-logs ;;
esac
exec {airflow} "$@"
"""
SCHEDULER = """\
import sys
from airflow.__main__ import main
import streamvault.airflow.list_dags, streamvault.airflow.operators, streamvault.airflow.sensors
sys.exit(main())
"""


@dataclass
class AirflowServer(Server):
    """An Airflow with a home of its own, a SQLite database and a LocalExecutor.

    Args:
        dags: folders with DAGs; there are no others.
        variables: more environment for it, so for its tasks.
    """

    dags: Sequence[Path]
    variables: Mapping[str, str] = field(default_factory=dict)

    _password: str = field(default_factory=lambda: secrets.token_hex(8), init=False, repr=False)
    _token: str = field(default="", init=False, repr=False)
    _port: int = field(default=0, init=False)

    @property
    def uri(self) -> str:
        """Where its API is."""
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Start it and return when all of it is healthy.

        Raises:
            Unavailable: it is not installed, or does not start.
        """
        program = Path(sys.executable).with_name("airflow")
        if not program.exists():
            raise Unavailable("airflow is not installed: bin/setup does it")
        self._port = free_ports(1)[0]
        folder = temporary_folder("airflow")
        try:
            (folder / "bin").mkdir()
            shim = folder / "bin" / "airflow"
            shim.write_text(QUIET_AIRFLOW.format(airflow=program, python=sys.executable, main=SCHEDULER))
            shim.chmod(0o755)
            (folder / "passwords.json").write_text(json.dumps({USER: self._password}))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._process = ServerProcess(
            "airflow", [str(program), "standalone"], folder=folder, env=self._environment(folder)
        )
        try:
            self._process.wait_until(self._is_healthy, timeout=START_TIMEOUT)
        except Unavailable:
            self._process = None
            raise

    def stop(self) -> None:
        """End it, and the tasks that run. Does nothing the second time."""
        if self._process is None:
            return
        # a task is in a process group of its own, but in the same session
        mine = [process for process in psutil.process_iter() if _session(process.pid) == self._process.pid]
        super().stop()
        for process in mine:
            with suppress(psutil.Error):
                process.kill()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call its REST API (``/api/v2``), logged in.

        Its SQLite database is locked now and then. A call that fails with a database error has changed nothing and is
        repeated. So is one that fails without a reason, unless it is a POST, which may have been carried out.

        Raises:
            urllib.error.HTTPError: it refuses, or keeps failing; the last lines of its log are added.
        """
        for repeated in range(CALLS_WHILE_LOCKED):
            try:
                return self._request(method, f"/api/v2/{path}", body, {"Authorization": f"Bearer {self._token}"})
            except urllib.error.HTTPError as error:
                again = method != "POST" or "Database error" in "".join(error.__notes__)
                if error.code != HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                if not again or repeated == CALLS_WHILE_LOCKED - 1:
                    error.add_note(f"airflow says:\n{self.process.tail()}")
                    raise
                time.sleep(POLL)
        raise AssertionError("unreachable")

    def connect(self, name: str, **fields: Any) -> None:
        """Have a connection of this name, whatever it was before."""
        with suppress(urllib.error.HTTPError):
            self.call("DELETE", f"connections/{name}")
        self.call("POST", "connections", {"connection_id": name, **fields})

    def trigger(self, dag: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run of a DAG; its id. The DAG's own schedule waits from then on: see `follow_schedule`.

        Its next run by schedule is due while nobody has run it, so would come first, and take as long again.
        """
        run = str(self.call("POST", f"dags/{dag}/dagRuns", {"logical_date": None, "conf": conf or {}})["dag_run_id"])
        self._change("UPDATE dag SET next_dagrun_create_after = NULL WHERE dag_id = ?", dag)
        return run

    def follow_schedule(self, dag: str) -> None:
        """Have a DAG's runs by schedule come again, once it is not paused."""
        self._change("UPDATE dag SET next_dagrun_create_after = next_dagrun_data_interval_end WHERE dag_id = ?", dag)

    def pause(self, dag: str, *, paused: bool = True) -> None:
        """Have a DAG's runs wait, or no longer."""
        self.call("PATCH", f"dags/{dag}", {"is_paused": paused})

    def run(self, dag: str, conf: Mapping[str, Any]) -> tuple[str, str]:
        """Run a DAG to its end: the run's id, and its state."""
        run = self.trigger(dag, conf)
        return run, self._to_end(dag, run)

    def clear(self, dag: str, run: str) -> str:
        """Clear all tasks of a finished run, as its user does, and have it run to its end again; its state."""
        cleared = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
        self.call("POST", f"dags/{dag}/clearTaskInstances", cleared)
        return self._to_end(dag, run)

    def _to_end(self, dag: str, run: str) -> str:
        self.pause(dag, paused=False)
        state: str = self.finished(dag, run)["state"]
        self.pause(dag)
        return state

    def wait(self, ready: Callable[[], T | None], *, timeout: float, what: str) -> T:
        """What `ready` answers once it answers something.

        Raises:
            AssertionError: it did not within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            answer = ready()
            if answer is not None:
                return answer
            time.sleep(POLL)
        raise AssertionError(f"{what} did not happen within {timeout:.0f} s; airflow says:\n{self.process.tail()}")

    def finished(self, dag: str, run: str, *, timeout: float = 600.0) -> dict[str, Any]:
        """A run, once it has succeeded or failed."""

        def ready() -> dict[str, Any] | None:
            # its API takes a tenth of a core to be asked this all the time
            state = self._look_up("SELECT state FROM dag_run WHERE dag_id = ? AND run_id = ?", dag, run)
            found: dict[str, Any] = self.call("GET", f"dags/{dag}/dagRuns/{run}") if state in ENDED else {}
            return found if found.get("state") in ENDED else None

        return self.wait(ready, timeout=timeout, what=f"the end of {dag} {run}")

    def tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        """The task instances of a run."""
        found: list[dict[str, Any]] = self.call("GET", f"dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return found

    def xcom(self, dag: str, run: str, task: str, *, index: int = -1, key: str = "return_value") -> Any:
        """What a task left for others."""
        path = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/{key}?map_index={index}"
        value = self.call("GET", f"{path}&deserialize=false&stringify=false")["value"]
        return json.loads(value) if isinstance(value, str) and value[:1] in "{[" else value

    def age(self, dag: str, run: str) -> None:
        """Have a run begun two days earlier, so that no time has to pass before it has taken too long."""
        runs = "WHERE dag_id = ? AND run_id = ?"
        self._change(f"UPDATE dag_run SET start_date = datetime(start_date, '-2 days') {runs}", dag, run)

    def miss_deadline(self, dag: str, run: str) -> None:
        """Have a run's deadline two days earlier."""
        ids = "SELECT id FROM dag_run WHERE dag_id = ? AND run_id = ?"
        change = "UPDATE deadline SET deadline_time = datetime(deadline_time, '-2 days')"
        self._change(f"{change} WHERE dagrun_id IN ({ids})", dag, run)

    def _change(self, statement: str, *values: str) -> None:
        with closing(sqlite3.connect(self.process.folder / "airflow.db", timeout=ANSWER_TIMEOUT)) as database, database:
            assert database.execute(statement, values).rowcount == 1, "it is not there"

    def _look_up(self, query: str, *values: str) -> Any:
        with closing(sqlite3.connect(self.process.folder / "airflow.db", timeout=ANSWER_TIMEOUT)) as database:
            [row] = database.execute(query, values)
        return row[0]

    def logs(self, dag: str = "*") -> list[str]:
        """What tasks have logged, each attempt's by itself."""
        files = sorted((self.process.folder / "logs").glob(f"dag_id={dag}/**/attempt=*.log"))
        return [file.read_text(errors="replace") for file in files]

    def summary(self) -> dict[str, object]:
        """What somebody needs to use the server, as JSON values."""
        return {"server": "airflow", "uri": self.uri, "user": USER, "password": self._password, "pid": self.process.pid}

    def _environment(self, folder: Path) -> dict[str, str]:
        bundles = [
            {
                "name": f"dags-{number}",
                "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
                "kwargs": {"path": str(path)},
            }
            for number, path in enumerate(self.dags)
        ]
        settings = {
            "CORE__LOAD_EXAMPLES": "false",
            "CORE__PARALLELISM": "4",
            "CORE__MAX_MAP_LENGTH": "2",  # so that few streams are many
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.uri}/execution/",
            "CORE__DEFAULT_TASK_RETRY_DELAY": "1",
            "CORE__FERNET_KEY": "",
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db?timeout=60",
            "DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            "API__HOST": HOST,
            "API__PORT": str(self._port),
            "API__BASE_URL": self.uri,
            "API__WORKERS": "1",
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
            # a busy machine is no reason to give up
            "CORE__DAGBAG_IMPORT_TIMEOUT": "120",
            "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # nobody changes the files
            "WORKERS__EXECUTION_API_TIMEOUT": "60",
            "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "120",
            "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "120",
            "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "600",
            "LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        return {
            **inherited,
            "AIRFLOW_HOME": str(folder),
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            # nothing for what the tests themselves are told to do
            "PATH": os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)]),
            **self.variables,
        }

    def _is_healthy(self) -> bool:
        try:
            health = self._request("GET", "/api/v2/monitor/health")
            parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
            if any(health[part]["status"] != "healthy" for part in parts):
                return False
            login = {"username": USER, "password": self._password}
            self._token = self._request("POST", "/auth/token", login)["access_token"]
        except (OSError, ValueError, KeyError):
            return False
        return True

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        request = urllib.request.Request(
            self.uri + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode(errors="replace"))
            raise
        return json.loads(text) if text else None


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def note_failure(context: Mapping[str, Any]) -> None:
    """Write why a run has failed to the file that a variable names; DAGs can call it."""
    _note(f"{context['run_id']} {context['reason']}")


def note_late(context: Mapping[str, Any]) -> None:
    """Write that a run is late to the same file."""
    _note(f"{context['dag_run']['dag_run_id']} late")


def _note(line: str) -> None:
    with Path(os.environ["STREAMVAULT_TEST_NOTES"]).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
