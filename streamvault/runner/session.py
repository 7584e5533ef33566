"""The driver's Java process and its Spark context, which all users share; both are stopped with the last one."""

from __future__ import annotations

import io
import json
import logging
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, cloudpickle
from pyspark.core.context import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from streamvault.common import logins
from streamvault.common.processes import safe_environment
from streamvault.objectstore.s3.access import StaticKeys
from streamvault.runner.java import java_home
from streamvault.runner.runner import Master, SparkFailed, last_line
from streamvault.runner.settings import PAGES_FILE, environment_for, own_name, settings_for, ship_code
from streamvault.streamstore.pravega.connection import PravegaSettings

EXIT_SECONDS = 3.0
"""How long the Java process may take to exit when asked to."""

POLL_SECONDS = 0.02
"""How often to check whether it has started."""

_ADDRESS = struct.Struct(">ii")
"""The header Java writes: its port, and the length of the secret that follows."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Jvm:
    """A Java process started by Spark's own scripts, and the gateway to it.

    It exits with this process, as it waits for the end of its standard input. Output of Java and the Python workers
    goes to an unnamed file instead of the terminal, unless the log level is debug.

    Attributes:
        gateway: py4j's gateway, once started.
    """

    def __init__(self) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `end`)
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self.gateway: Any = None

    def start(self, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Start the process; another thread may `end` it at any time.

        Args:
            settings: Spark settings, as for ``spark-submit``.
            environment: variables to set in addition to this process's.

        Raises:
            SparkFailed: the process ended; contains its last line of output.
        """
        try:
            # under ``spark-submit`` there is a Java process already, and these variables lead to it
            found = "PYSPARK_GATEWAY_PORT" in os.environ
            with _variables({} if found else self._launch(settings, environment)):
                self.gateway = launch_gateway()  # type: ignore[no-untyped-call]
        except (Py4JError, OSError, EOFError) as error:
            raise SparkFailed("Spark's Java process did not start", where=self.last_words or str(error)) from None

    def _launch(self, settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
        """Start the process; returns the variables that lead PySpark to it.

        PySpark would do it with code of its own between fork and exec. There gRPC, which has a connection to Pravega
        by now, aborts one child in a hundred.
        """
        with tempfile.TemporaryDirectory(prefix="streamvault-java-") as folder:
            address = Path(folder, "address")
            options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
            output = 2 if _log.isEnabledFor(logging.DEBUG) else self._output
            self._process = subprocess.Popen(
                [
                    str(Path(_find_spark_home(), "bin", "spark-submit")),
                    *options,
                    *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=safe_environment(
                    {
                        **os.environ,
                        **environment,
                        "SPARK_CONNECT_MODE": "0",
                        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
                    }
                ),
                # keep Ctrl-C from Java, which exits when this process tells it to, or ends
                start_new_session=True,
            )
            # the file appears whole, by a rename
            while not address.exists():
                if self._ended:
                    os.killpg(self._process.pid, signal.SIGKILL)
                if self._process.poll() is not None:
                    raise OSError(f"it ended with {self._process.returncode}")
                time.sleep(POLL_SECONDS)
            data = address.read_bytes()
        port, size = _ADDRESS.unpack_from(data)
        secret = data[_ADDRESS.size : _ADDRESS.size + size].decode()
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}

    @property
    def is_own(self) -> bool:
        """Whether it was started here (under ``spark-submit`` it is there before this process)."""
        return self._process is not None

    @property
    def last_words(self) -> str:
        """The last line it wrote that is no stack frame."""
        if self._output.closed:
            return ""
        self._output.seek(0)
        lines = [line.strip() for line in self._output.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line and not line.startswith(("at ", "..."))), "")

    def end(self) -> None:
        """Close the gateway and end the process. Raises only if interrupted, after killing the process."""
        self._ended = True
        process = self._process
        if process is None:
            return
        try:
            # one that is still starting does not listen yet
            if self.gateway is not None:
                with suppress(Exception):
                    call_in_thread(self.gateway.shutdown, EXIT_SECONDS)
                if process.stdin is not None:
                    with suppress(OSError):
                        process.stdin.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(EXIT_SECONDS)
        finally:
            # all of its session: while it starts, the process is a shell that waits for Java
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._output.close()


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Environment variables set for a moment: Spark passes on those of this process, and takes no others."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def call_in_thread(call: Callable[[], T], seconds: float) -> T:
    """Make a call in another thread and wait for it: an interrupt of a call to Java puts the connection out of sync.

    Raises:
        TimeoutError: no result within ``seconds``; the call continues and its result is discarded.
        BaseException: any exception raised by the call.
    """
    done = Future[T]()

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001  (it is raised again where it is waited for)
            done.set_exception(error)

    threading.Thread(target=work, name="spark call", daemon=True).start()
    if not wait([done], seconds).done:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return done.result()


START_SECONDS = 180.0
"""How long a session may take to start; with a wrong standalone master Spark tries for 60 s."""

STOP_SECONDS = 5.0
"""How long Spark may take to stop before its process is killed."""

ENCRYPTION = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption", "spark.ssl.rpc.enabled")
"""Settings of Spark, any of which encrypts what is sent to executors."""


class Session:
    """A Spark context, to be started.

    Attributes:
        context: Spark's.
        start_seconds: how long it took to start; 0 if the program had started it before.
    """

    def __init__(self, master: Master, preload: Sequence[str] = ()) -> None:
        self.master = master
        self.start_seconds = 0.0
        self._has_warned = False
        self._preload = preload
        self.context: Any = SparkContext._active_spark_context  # noqa: SLF001  (there is no other way to ask)
        self._is_guest = self.context is not None
        self._jvm: Jvm | None = None
        self._stopped = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="streamvault-spark-"))

    def start(self) -> None:
        """Start Spark; another thread may `stop` it at any time. On errors it is stopped.

        Raises:
            NoJava: there is no Java runtime for Spark.
            SparkFailed: Spark did not start.
        """
        began = time.monotonic()
        try:
            if not self._is_guest:
                self.master.check_reachable()
                _silence_py4j()
            call_in_thread(self._start, START_SECONDS)
        except BaseException as error:
            reason = self._reason(error)
            self.stop()
            if isinstance(error, TimeoutError):
                raise SparkFailed(f"Spark did not start within {START_SECONDS:.0f} s", where=self.master.url) from None
            if isinstance(error, (Py4JError, OSError, EOFError)):
                _log.debug("Spark did not start", exc_info=error)
                raise SparkFailed("Spark did not start", where=f"{self.master.url}: {reason}") from None
            raise
        if not self._is_guest:
            self.start_seconds = time.monotonic() - began

    @property
    def last_words(self) -> str:
        """The last line of output of Spark's process."""
        return "" if self._jvm is None else self._jvm.last_words

    def has_no_executor(self) -> bool:
        """Return whether the cluster has not provided an executor yet."""

        def known() -> int:
            return int(self.context._jsc.sc().getExecutorMemoryStatus().size())  # noqa: SLF001

        with suppress(TimeoutError, Py4JError):
            # the driver counts as one
            return self.master.kind == "cluster" and call_in_thread(known, STOP_SECONDS) <= 1
        return False

    def warn_of_logins(self, *parts: Any) -> None:
        """Warn once if parts of a task have a key or a password, which the network to the executors does not hide."""
        master = Master.parse(self.context.master)  # a guest's may be another one
        if master.on_loopback or self._has_warned or self._is_guarded() or not has_login(parts):
            return
        self._has_warned = True
        _log.warning(
            "keys and passwords are sent unencrypted to the executors of %s; set spark.authenticate and "
            "spark.network.crypto.enabled to true, or set %s=no and give executors their own logins",
            master.url,
            logins.VARIABLE,
        )

    def _is_guarded(self) -> bool:
        conf = self.context.getConf()
        return bool(conf.get("spark.authenticate") == "true") and any(conf.get(name) == "true" for name in ENCRYPTION)

    def _start(self) -> None:
        before = list(sys.path)
        if not self._is_guest:
            self.context = self._new_context()
            self._check_registered()
            _announce(self.context)
            self.context.pythonExec = os.environ.get("PYSPARK_PYTHON") or sys.executable
            # Keep connections broken by killing Spark's process off standard error.
            self.context._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001
            # Java removes it even if this process can't.
            self.context._jvm.java.io.File(str(self._folder)).deleteOnExit()  # noqa: SLF001
        if self._is_guest or self.master.kind != "local":
            ship_code(self.context)
        if not self._is_guest and self.master.kind == "local":
            self._warm_up()
        # Spark adds folders of its own; this process imports as before.
        sys.path[:] = [entry for entry in sys.path if entry in before]
        if self._stopped.is_set():
            self.stop()  # the caller has given up

    def _new_context(self) -> Any:
        if SparkContext._gateway is None:  # noqa: SLF001
            gateway, settings = self._start_java()
            return _Context(gateway=gateway, conf=self._submitted(gateway, settings))
        conf = SparkConf()  # a Java process is there already, from a context that was stopped
        conf.setAll(list(settings_for(self.master, self._folder, self._preload).items()))
        return _Context(conf=conf)

    def _start_java(self) -> tuple[Any, Mapping[str, str]]:
        """The gateway to a new Java process, and the settings it has."""
        home = java_home()
        named = own_name(self._folder) if self.master.kind == "local" else ""
        settings = settings_for(self.master, self._folder, self._preload, named)
        self._jvm = Jvm()
        self._check_not_stopped()
        try:
            self._jvm.start(settings, environment_for(self.master, home))
        finally:
            self._check_not_stopped()
        return self._jvm.gateway, settings

    def _check_not_stopped(self) -> None:
        if self._stopped.is_set():
            if self._jvm is not None:
                self._jvm.end()
            raise SparkFailed("interrupted while Spark was starting")

    def _submitted(self, gateway: Any, settings: Mapping[str, str]) -> SparkConf:
        """Return the submitted settings, completed by ours: under ``spark-submit`` Spark has none of them."""
        conf = SparkConf(_jvm=gateway.jvm)
        for name, value in settings.items():
            conf.setIfMissing(name, value)
        found = str(conf.get("spark.master", ""))
        submitted = Master.parse(found)
        # Spark writes some URLs out in full
        same = replace(submitted, url=self.master.url) == self.master
        if not (same or (self.master.is_auto and submitted.kind == "local")):
            raise SparkFailed("submitted to another Spark master", where=found, todo=f"Use --master {found}.")
        return conf

    def _warm_up(self) -> None:
        """Run an empty job, so that Spark initializes and starts the task processes."""
        tasks = self.context.defaultParallelism
        self.context.parallelize(range(tasks), tasks).foreachPartition(deque)

    def _check_registered(self) -> None:
        """Fail if the standalone master never answered: Spark creates a context anyway and stops it later."""
        if self.master.addresses and self.context.applicationId.startswith("spark-application-"):
            raise SparkFailed("the Spark master did not accept the application", where=self.master.url)

    def stop(self) -> None:
        """Stop Spark in any state, unless the program started it, and remove its files."""
        self._stopped.set()
        try:
            if not self._is_guest:
                with suppress(TimeoutError, Py4JError, OSError):
                    call_in_thread(self._stop_context, STOP_SECONDS)
        finally:
            try:
                if self._jvm is not None:
                    self._jvm.end()
                    if self._jvm.is_own:
                        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  (for the next one)
                        SparkContext._active_spark_context = None  # noqa: SLF001
            finally:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _reason(self, error: BaseException) -> str:
        """Return Spark's message for an error, or its last line of output if the process is gone."""
        if isinstance(error, Py4JJavaError):
            with suppress(TimeoutError, Py4JError, OSError):
                return last_line(call_in_thread(lambda: str(error.java_exception.toString()), STOP_SECONDS))
        return self.last_words or str(error)

    def _stop_context(self) -> None:
        if self.context is not None:
            self.context.stop()


class _Context(SparkContext):
    """A context that several threads may stop, before or after the end of its Java process, in less than a second.

    It stops itself, too, if that process is ended while it is being made.
    """

    def stop(self) -> None:
        """See the base class, which would warn and wait."""
        with _stopping:
            if getattr(self, "_jsc", None) is not None:
                with suppress(Py4JError, OSError):
                    self._jsc.stop()
                self._jsc = None
            server, self._accumulatorServer = getattr(self, "_accumulatorServer", None), None  # type: ignore[assignment]
            if server is not None:
                threading.Thread(target=server.shutdown, name="accumulators end", daemon=True).start()
            super().stop()


def _announce(context: Any) -> None:
    """Write where Spark's pages are, if the environment names a file for that."""
    if file := os.environ.get(PAGES_FILE):
        pages = {"application": context.applicationId, "url": context.uiWebUrl}
        with suppress(OSError):  # who has asked may be gone
            Path(file).write_text(json.dumps(pages), encoding="utf-8")


def _silence_py4j() -> None:
    """Silence py4j, which logs a traceback for each connection that ends; real errors are raised anyway."""
    logger = logging.getLogger("py4j")
    if not _log.isEnabledFor(logging.DEBUG):
        logger.setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_is_not_from_py4j)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Return False for what py4j logs by the root logger: an interrupted command, a connection that is reset."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


_lock, _stopping = threading.Lock(), threading.Lock()
_users: list[Session] = []
"""The session of this process, once for each user: Spark allows one context a process."""


def acquire(master: Master, preload: Sequence[str]) -> tuple[Session, bool]:
    """Return the process's session, started if necessary, and whether this call started it.

    Raises:
        SparkFailed: Spark runs with another master, or did not start.
        NoJava: there is no Java runtime for Spark.
    """
    with _lock:
        fresh = not _users
        if fresh:
            session = Session(master, preload)
            session.start()
        else:
            session = _users[0]
        if session.master != master and not master.is_auto:
            raise SparkFailed(
                "Spark already runs in this process with another master",
                where=session.master.url,
                todo=f"Wait for it to end, or run {master.url} in another process.",
            )
        _users.append(session)
        return session, fresh


def release(session: Session) -> None:
    """Release a session; the last user stops it."""
    with _lock:
        _users.remove(session)
        if not _users:
            session.stop()


def has_login(sent: object) -> bool:
    """Return whether an object, or any that it refers to, has a key or a password."""
    looking = _Looking(io.BytesIO())  # type: ignore[no-untyped-call]
    looking.dump(sent)  # type: ignore[no-untyped-call]
    return looking.found


class _Looking(cloudpickle.Pickler):
    found = False

    def reducer_override(self, obj: Any) -> Any:
        """See the base class."""
        self.found |= isinstance(obj, StaticKeys) or (isinstance(obj, PravegaSettings) and bool(obj.password))
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
