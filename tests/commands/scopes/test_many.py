"""Many streams are followed by one process in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.commands.scopes.scopes import Scopes

STREAMS = 200
PASSES = 15
MIB = 1024 * 1024
MOST = 256 * MIB
"""With what pyarrow keeps for each thread, `follow` would take more."""


@pytest.mark.long
@pytest.mark.parametrize("verb", ["replicate", "follow"])
def test_two_hundred_streams_take_little_memory(tmp_path: Path, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Each has events all the time; a process for each would take 123 MiB."""
    scopes = Scopes(tmp_path, capfd)
    names = [f"s{number}" for number in range(STREAMS)]
    scopes.make(names)
    target = [scopes.uri("replicas/"), "--follow"] if verb == "replicate" else [scopes.root, "--layout", "chunks"]
    command = [sys.executable, "-m", "streamvault", verb, scopes.uri("shop/"), *target]
    with subprocess.Popen(
        [*command, "--idle", "10s", "--master", "inline", "--json"], stdout=subprocess.PIPE
    ) as process:
        ended = threading.Event()

        def write() -> None:
            for name in names * PASSES:
                if not ended.is_set():
                    scopes.add(name, 60)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert process.stdout is not None
            report = json.loads(process.stdout.read())
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            ended.set()
            writer.join()
    assert process.returncode == 0
    assert all(each["status"] == "done" and each["result"]["rounds"] for each in report["outcomes"])
    assert len(report["outcomes"]) == STREAMS
    assert usage.ru_maxrss * 1024 < MOST
