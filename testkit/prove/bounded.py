"""Runs commands with bounded memory and time, each in a fork of one process that has imported them all."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import importlib
import json
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

SECONDS = 120.0
MEBIBYTES = 400
"""By how much a command may grow; all commands are imported before."""
_ADDRESSES = 6 << 30
"""How much address space it gets, with that of its threads: a last resort, for the machine's sake."""
_FILE = 1 << 30
_LEFT_OUT = ("airflow", "dags", "spark", "demo", "__main__")


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; minus the signal that ended it. grown: MiB by which it, or a child of it, grew.
        seconds: how long it took. out, err: what it has written.
    """

    code: int
    grown: int
    seconds: float
    out: bytes
    err: str


class BoundedRuns:
    """Runs commands one after the other. A context manager.

    Args:
        folder: where they run, with a home and a temporary folder of their own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("home", "tmp"):
            (folder / name).mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STREAMVAULT_"))}
        there = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=kept | there | {"PYTHONPATH": str(Path(__file__).parents[2])},
            cwd=folder,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Ended:
        """Run a command, given its name and arguments."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([list(arguments), dict(environment or {})]), file=self._process.stdin, flush=True)
        code, grown, seconds = json.loads(self._process.stdout.readline())
        out, err = (self._folder / "home" / name for name in ("out", "err"))
        ended = Ended(code, grown, seconds, out.read_bytes(), err.read_text(errors="replace"))
        out.unlink()
        err.unlink()
        return ended


def _import_all() -> None:
    package = importlib.import_module("streamvault")
    for module in pkgutil.walk_packages(package.__path__, "streamvault."):
        if module.name.split(".")[1] not in _LEFT_OUT:
            importlib.import_module(module.name)


def _lose_patience() -> None:
    """Shorten how long commands wait for servers; what they do then is the same."""
    for name, changed in {
        "streamvault.streamstore.pravega.store": {"MAKING_SECONDS": 2.0, "CHANGE_SECONDS": 2.0, "SCALE_SECONDS": 2.0},
        "streamvault.streamstore.pravega.controller": {"WORKFLOW_SECONDS": 3.0},
    }.items():
        for constant, value in changed.items():
            setattr(importlib.import_module(name), constant, value)
    settings: Any = importlib.import_module("streamvault.streamstore.pravega.connection").PravegaSettings
    settings.__init__.__defaults__ = (*settings.__init__.__defaults__[:-1], 1.5)
    uri = importlib.import_module("streamvault.objectstore.uri")
    opened = uri._open
    uri._open = lambda address, _retry, _timeout, process: opened(address, 1.5, 3.0, process)


def _main() -> None:
    _import_all()
    _lose_patience()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for line in sys.stdin:
        arguments, environment = json.loads(line)
        began = time.monotonic()
        child = os.fork()
        if not child:
            _become(arguments, environment)
        done, status, usage = 0, 0, None
        while not done:
            done, status, usage = os.wait4(child, os.WNOHANG)
            if not done and time.monotonic() - began > SECONDS:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it has left behind
        grown = max(usage.ru_maxrss - before, 0) // 1024 if usage else 0
        print(json.dumps([os.waitstatus_to_exitcode(status), grown, time.monotonic() - began]), flush=True)


def _become(arguments: list[str], environment: dict[str, str]) -> None:
    """Be the command."""
    code = 70
    try:
        os.setsid()
        home = os.environ["HOME"]
        for number, path in ((0, os.devnull), (1, f"{home}/out"), (2, f"{home}/err")):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESSES,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE,) * 2)
        faulthandler.dump_traceback_later(SECONDS - 2)
        from streamvault.cli import main  # noqa: PLC0415

        code = main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  (a traceback is what is looked for)
        importlib.import_module("traceback").print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _main()
