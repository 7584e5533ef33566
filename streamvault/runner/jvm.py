"""The driver's Java process: started quietly, and always ended."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from streamvault.common.processes import safe_environment
from streamvault.runner.runner import SparkFailed

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
