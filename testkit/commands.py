"""Command lines of streamvault in processes of their own, to be killed, interrupted and run concurrently."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

POLL = 0.04
LIMIT = 240.0


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code (negative: the signal), standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The JSON object that ``--json`` printed."""
        assert self.code == 0, self.err
        return json.loads(self.out)  # type: ignore[no-any-return]

    @property
    def error(self) -> dict[str, Any]:
        """The error that ``--json`` printed."""
        return json.loads(self.out)["error"]  # type: ignore[no-any-return]

    @property
    def lines(self) -> list[str]:
        """Standard error without warnings."""
        return [line for line in self.err.splitlines() if not line.startswith("warning: ")]


class Command:
    """A running command line, in a session of its own so that all it started can be found."""

    def __init__(self, *arguments: str, environment: Mapping[str, str], prefix: tuple[str, ...] = ()) -> None:
        # files, not pipes: the child processes that a killed command leaves would keep a pipe open
        self._folder = Path(tempfile.mkdtemp(prefix="streamvault-command-"))
        with (self._folder / "out").open("wb") as out, (self._folder / "err").open("wb") as err:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "streamvault", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **environment},
                cwd=Path(__file__).parents[1],
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the command itself."""
        return self._process.pid

    def send(self, number: signal.Signals, *, everywhere: bool = False) -> None:
        """Send a signal to the command alone, or to all of its process group as a terminal does."""
        if everywhere:
            os.killpg(self.pid, number)
        else:
            self._process.send_signal(number)

    def ended(self, limit: float = LIMIT) -> Ended:
        """Wait for the command (not for its child processes)."""
        code = self._process.wait(limit)
        return Ended(code, (self._folder / "out").read_text(), (self._folder / "err").read_text())

    def has_said(self, text: str, times: int = 1) -> bool:
        """Whether it has written a text to standard error, at least so often."""
        return (self._folder / "err").read_text().count(text) >= times

    def left(self) -> list[psutil.Process]:
        """The processes of its session that still run, without the command itself."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                mine = process.pid != self.pid and os.getsid(process.pid) == self.pid
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def close(self) -> None:
        """Kill the command and all processes that it left, each by its id."""
        if self.running:
            self._process.kill()
            self._process.wait()
        for process in self.left():
            with suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def started(*arguments: str, environment: Mapping[str, str], prefix: tuple[str, ...] = ()) -> Iterator[Command]:
    """A command that runs in the background."""
    command = Command(*arguments, environment=environment, prefix=prefix)
    try:
        yield command
    finally:
        command.close()


def run(*arguments: str, environment: Mapping[str, str], limit: float = LIMIT, prefix: tuple[str, ...] = ()) -> Ended:
    """Run a command to its end."""
    with started(*arguments, environment=environment, prefix=prefix) as command:
        return command.ended(limit)


def wait_until(happened: Callable[[], bool], command: Command, limit: float = LIMIT) -> bool:
    """Wait for something while a command runs; False if the command ended before."""
    deadline = time.monotonic() + limit
    while command.running:
        if happened():
            return True
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(POLL)
    return False
