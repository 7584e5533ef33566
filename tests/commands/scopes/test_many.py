"""Many streams are followed by one process in little memory."""

from __future__ import annotations

import json
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

MEASURED = """
import sys
from pathlib import Path
from streamvault.cli import main

code = main(sys.argv[1:])
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
sys.exit(code)
"""
"""The command, which writes its peak memory (KiB). What `wait` gives may be the peak of the process that started it."""


@pytest.mark.long
@pytest.mark.parametrize("verb", ["replicate", "follow"])
def test_two_hundred_streams_take_little_memory(tmp_path: Path, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Each has events all the time; a process for each would take 123 MiB."""
    scopes = Scopes(tmp_path, capfd)
    names = [f"s{number}" for number in range(STREAMS)]
    scopes.make(names)
    target = [scopes.uri("replicas/"), "--follow"] if verb == "replicate" else [scopes.root, "--layout", "chunks"]
    command = [sys.executable, "-c", MEASURED, verb, scopes.uri("shop/"), *target]
    with subprocess.Popen(
        [*command, "--idle", "10s", "--master", "inline", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        ended = threading.Event()

        def write() -> None:
            for name in names * PASSES:
                if not ended.is_set():
                    scopes.add(name, 60)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            out, err = process.communicate()
        finally:
            ended.set()
            writer.join()
    assert process.returncode == 0, err
    report = json.loads(out)
    assert all(each["status"] == "done" and each["result"]["rounds"] for each in report["outcomes"])
    assert len(report["outcomes"]) == STREAMS
    assert int(err.split()[-1]) * 1024 < MOST
