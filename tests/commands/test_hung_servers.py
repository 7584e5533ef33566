"""A server that takes connections and never answers: commands say that they wait, and Ctrl-C ends them at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.small_archives import Vault

ENDS_WITHIN = 10.0
"""Far less than the 30 s for which a server may be silent, and far more than the second that it takes."""

S3 = "s3://bucket/root"
ARCHIVE = f"{S3}/scope/stream"


@pytest.fixture
def hung() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(60)
        yield server


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"one")
    return vault


def begun(arguments: list[str], hung: socket.socket) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STREAMVAULT_"))}
    environment |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{hung.getsockname()[1]}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "streamvault", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def interrupted(arguments: list[str], hung: socket.socket) -> list[str]:
    """Interrupt a command once it has asked the server something; return its lines."""
    with begun([*arguments, "--json"], hung) as command, closing(hung.accept()[0]) as connection:
        connection.settimeout(60)
        assert connection.recv(1)
        began = time.monotonic()
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
        assert time.monotonic() - began < ENDS_WITHIN, err
    assert command.returncode == 130, err
    assert json.loads(out)["error"]["exit_code"] == 130
    return err.splitlines()


S3_COMMANDS = {
    "ls": ["ls", S3],
    "status": ["status", S3],
    "show": ["show", ARCHIVE],
    "timeline": ["timeline", ARCHIVE],
    "check": ["check", ARCHIVE],
    "cat": ["cat", ARCHIVE],
    "get": ["get", ARCHIVE, "scope/stream/0.#epoch.0:0-10"],
    "hold": ["hold", ARCHIVE, "audit"],
    "warm": ["warm", ARCHIVE],
    "compact": ["compact", ARCHIVE],
    "convert": ["convert", ARCHIVE, "s3://bucket/other", "--layout", "events"],
    "import": ["import", ARCHIVE, "{stream}-restored"],
    "export": ["export", "{stream}", S3],
    "rotate": ["rotate", "{stream}", S3],
    "follow": ["follow", "{stream}", S3],
    "report": ["report", ARCHIVE, "-o", "{folder}/page.html"],
}


SOON = ("ls", "cat", "import", "follow")


@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.long) for name in S3_COMMANDS]
)
def test_ctrl_c_ends_a_command_that_waits_for_s3(name: str, vault: Vault, hung: socket.socket) -> None:
    places = {"stream": vault.uri(), "folder": str(vault.folder)}
    lines = interrupted([one.format(**places) for one in S3_COMMANDS[name]], hung)
    assert lines[-1].startswith("streamvault: interrupted")


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "{cluster}/scope/stream", "file:///tmp"],
        pytest.param(["streams", "{cluster}/scope/"], marks=pytest.mark.long),
        pytest.param(["work", "{cluster}/scope/queue"], marks=pytest.mark.long),
        pytest.param(["sweep", "{cluster}/scope/"], marks=pytest.mark.long),
    ],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_ends_a_command_that_waits_for_the_controller(arguments: list[str], hung: socket.socket) -> None:
    cluster = f"pravega://127.0.0.1:{hung.getsockname()[1]}"
    lines = interrupted([one.format(cluster=cluster) for one in arguments], hung)
    assert lines[-1].startswith("streamvault: interrupted")


@pytest.mark.long
def test_a_command_without_phases_says_which_server_it_waits_for(hung: socket.socket) -> None:
    with begun(["ls", S3, "--progress-every", "1s"], hung) as command:
        assert command.stderr is not None
        line = command.stderr.readline()
        command.kill()
    assert "waiting for S3 for" in line
