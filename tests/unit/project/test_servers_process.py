"""A test server never outlives the program that started it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.servers.availability import Unavailable
from testkit.servers.process import ServerProcess

pytestmark = pytest.mark.timeout(60)

REPOSITORY = Path(__file__).parents[3]
STARTER = """
import sys, time
from pathlib import Path
from testkit.servers.process import ServerProcess
server = ServerProcess("sleeper", ["sh", "-c", "sleep 1000 & sleep 1000"], folder=Path(sys.argv[1]))
print(server.pid, flush=True)
time.sleep(1000)
"""


def _is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def _eventually(answers: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if answers():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "server"
    folder.mkdir()
    return folder


@pytest.fixture
def sleeper(folder: Path) -> Iterator[ServerProcess]:
    server = ServerProcess("sleeper", ["sh", "-c", "sleep 1000 & sleep 1000"], folder=folder)
    yield server
    server.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_server_ends_with_its_folder_when_its_starter_is_killed(folder: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=REPOSITORY
    ) as starter:
        assert starter.stdout is not None
        group = int(starter.stdout.readline())
        assert not _is_gone(group)
        starter.send_signal(number)
    assert _eventually(lambda: _is_gone(group))
    assert _eventually(lambda: not folder.exists())


def test_processes_of_tests_can_be_interrupted() -> None:
    """Also if the tests themselves were started by something that ignores interrupts, such as `nohup … &`."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_stop_ends_its_children_too_and_removes_its_folder(sleeper: ServerProcess, folder: Path) -> None:
    sleeper.stop()
    assert _eventually(lambda: _is_gone(sleeper.pid))
    assert not folder.exists()
    sleeper.stop()


def test_kill_keeps_the_folder(sleeper: ServerProcess, folder: Path) -> None:
    sleeper.kill()
    assert _eventually(lambda: _is_gone(sleeper.pid))
    assert (folder / "log").exists()


def test_interrupt_while_starting_leaves_no_server_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    real = subprocess.Popen

    def interrupted(*arguments: object, **options: object) -> object:
        process = real(*arguments, **options)  # type: ignore[call-overload]  # the same arguments, whatever they are
        started.append(process.pid)
        if len(started) == 1:
            signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ServerProcess("sleeper", ["sleep", "1000"], folder=folder)
    monkeypatch.undo()
    assert len(started) == 2
    assert _eventually(lambda: _is_gone(started[0]))
    assert not folder.exists()


def test_failed_start_is_reported_with_the_servers_output(folder: Path) -> None:
    server = ServerProcess("broken", ["sh", "-c", "echo no such port; exit 3"], folder=folder)
    with pytest.raises(Unavailable, match=r"(?s)broken ended with status 3 while starting.*no such port"):
        server.wait_until(lambda: False, timeout=20)
    assert not folder.exists()


def test_server_that_is_never_ready_is_given_up(sleeper: ServerProcess) -> None:
    with pytest.raises(Unavailable, match="was not ready after 0 s"):
        sleeper.wait_until(lambda: False, timeout=0.2)
    assert not sleeper.is_running()
