"""The Java process that Spark's driver runs in: started quietly, ended for certain."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from sparkrun.aside import aside
from sparkrun.errors import SparkFailed

__all__ = ["Jvm"]

EXIT_SECONDS = 3.0
"""How long the Java process may take to end by itself once it is told to."""

_log = logging.getLogger(__name__)


class Jvm:
    """A Java process started by Spark's own scripts, and the gateway to it.

    It ends with this process, however that ends: it waits for the end of its standard input. What it and Python's
    worker processes write goes to a file without a name instead of the terminal, unless debug messages are wanted.

    Args:
        settings: Spark's, as on the command line of ``spark-submit``.
        environment: variables to set for it beside this process's own.

    Attributes:
        gateway: py4j's.

    Raises:
        SparkFailed: it ended at once; with what it said last.
    """

    def __init__(self, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `end`)
        output = 2 if _log.isEnabledFor(logging.DEBUG) else self._said
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(settings.items()))
        try:
            with _variables(environment):
                self.gateway: Any = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        except (PySparkRuntimeError, OSError) as error:
            raise SparkFailed("Spark's Java process did not start", where=self.last_words or str(error)) from None
        self._process: subprocess.Popen[bytes] | None = self.gateway.proc

    @property
    def is_own(self) -> bool:
        """Whether it was started here (under ``spark-submit`` it is there before this process)."""
        return self._process is not None

    @property
    def last_words(self) -> str:
        """The last line it wrote that is no stack frame."""
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line and not line.startswith(("at ", "..."))), "")

    def end(self) -> None:
        """Close the gateway and end the process. Does not raise, except when it is interrupted; then it kills."""
        process = self._process
        if process is None:
            return
        try:
            with suppress(Exception):
                aside(self.gateway.shutdown, EXIT_SECONDS)
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(EXIT_SECONDS)
        finally:
            process.kill()
            process.wait()
            self._said.close()


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
