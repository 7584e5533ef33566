"""A server process with a folder of its own, both gone when it is stopped or when the process that started it ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from testkit.servers.availability import Unavailable

LOG_LINES_SHOWN = 40
# Waits for the end of its standard input, which is the end of the process that holds the other side, even by SIGKILL.
# The folder goes when nothing writes to it any more, at most five seconds later.
WATCHER = """
cat >/dev/null
tries=0
while kill -s KILL -- "-$1" 2>/dev/null && [ "$tries" -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
rm -rf -- "$2"
"""
HELD_BACK = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


def free_ports(count: int) -> list[int]:
    """Different TCP ports that are free on the loopback address right now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def accepts(port: int) -> bool:
    """Whether something on the loopback address accepts connections to `port`."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def http_answer(url: str) -> bytes | None:
    """What a server answers to a GET; None while there is no answer, or an error."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read()) if answer.status == 200 else None
    except OSError:
        return None


FOLDERS = "TESTKIT_FOLDERS"


def temporary_folder(name: str) -> Path:
    """A new folder for a server's files, below the one that `FOLDERS` names in the environment."""
    return Path(tempfile.mkdtemp(prefix=f"streamvault-{name}-", dir=os.environ.get(FOLDERS)))


def run_tool(command: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> str:
    """Run a program that fetches or builds; its standard output.

    Raises:
        Unavailable: it is missing, fails or takes longer than `timeout` seconds; with the last lines it wrote.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=env, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command[:4])} … took longer than {timeout:.0f} s") from None
    if done.returncode != 0:
        wrote = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LOG_LINES_SHOWN:])
        raise Unavailable(f"{' '.join(command[:4])} … failed with status {done.returncode}:\n{wrote}")
    return done.stdout


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Let an interrupt or a test's time limit wait until a server and its watcher are both there, or both gone."""
    if threading.current_thread() is not threading.main_thread():
        # Python handles signals in the main thread alone
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in HELD_BACK}
    handled = {number: handler for number, handler in before.items() if handler not in {None, signal.SIG_IGN}}
    for number in handled:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


class ServerProcess:
    """A running server.

    Args:
        name: how messages call it.
        command: the program and its arguments.
        folder: its working folder, removed when it stops; its output goes to ``log`` in it.
        env: its whole environment; this process's by default.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / "log"
        self._ended = False
        try:
            with self.log.open("ab") as log, _signals_held_back():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=env,
                    start_new_session=True,
                )
                self._watcher = subprocess.Popen(
                    ["/bin/sh", "-c", WATCHER, "sh", str(self.pid), str(folder)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except BaseException:
            # an interrupt that was held back
            if hasattr(self, "_watcher"):
                self.stop()
            raise

    @property
    def pid(self) -> int:
        """The server's process id, which is also its process group's."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def tail(self) -> str:
        """The last lines that the server wrote."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    def has_logged(self, text: str) -> bool:
        """Whether the server has written `text`."""
        return text in self.log.read_text(errors="replace")

    def match(self, pattern: str) -> str | None:
        """What the pattern's first group matches in the server's output, or None."""
        match = re.search(pattern, self.log.read_text(errors="replace"))
        return None if match is None else match[1]

    def wait_until(self, ready: Callable[[], bool], *, timeout: float) -> None:
        """Return once `ready` answers true.

        Raises:
            Unavailable: the server ended, or is not ready after `timeout` seconds; the server is stopped.
        """
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.is_running():
                reason = f"ended with status {self._process.returncode} while starting"
            elif time.monotonic() > deadline:
                reason = f"was not ready after {timeout:.0f} s"
            else:
                time.sleep(0.05)
                continue
            wrote = self.tail()
            self.stop()
            raise Unavailable(f"{self.name} {reason}; its last lines:\n{wrote}")

    def kill(self) -> None:
        """End the server at once, as a crash would; its folder stays. Does nothing the second time."""
        if self._ended:
            return
        with _signals_held_back():
            # the watcher first: it must not meet another process that was given the same id
            self._watcher.kill()
            self._watcher.wait()
            if self._watcher.stdin is not None:
                self._watcher.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._ended = True

    def terminate(self, *, timeout: float) -> None:
        """Have the server end in its own way; `stop` it afterwards.

        Raises:
            subprocess.TimeoutExpired: it has not ended after `timeout` seconds.
        """
        self._process.terminate()
        self._process.wait(timeout)

    def stop(self) -> None:
        """End the server at once and remove its folder. Does nothing the second time.

        The folder is out of the way at once; what it held goes beside whatever comes next: a store of a hundred
        thousand small files takes half a minute.
        """
        self.kill()
        going = self.folder.with_name(f"{self.folder.name}.{self.pid}.gone")
        with contextlib.suppress(FileNotFoundError):
            self.folder.rename(going)
            os.posix_spawnp("rm", ["rm", "-rf", "--", str(going)], os.environ, setsid=True)


class Server(ABC):
    """A server for tests. A context manager: started on entry, stopped on exit."""

    _process: ServerProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process(self) -> ServerProcess:
        """The running process (its pid, its log)."""
        if self._process is None:
            raise RuntimeError("the server is not started")
        return self._process

    @abstractmethod
    def start(self) -> None:
        """Start the server and return when it is ready.

        Raises:
            Unavailable: it can't be fetched or does not start.
        """

    def kill(self) -> None:
        """End the server as a crash would."""
        self.process.kill()

    def stop(self) -> None:
        """End the server at once and remove its files. Does nothing the second time."""
        if self._process is not None:
            self._process.stop()
            self._process = None
