"""What ``spark-submit`` runs: the command line of streamvault, its result in a file, its life bound to the task's.

Spark mixes an application's standard output with Java's messages. So the result goes to a file, in a folder that the
task made (`FOLDER`). A named pipe lies beside it, whose other end the task holds open: if the task's process goes, even
by SIGKILL, reading the pipe ends, and so does the command.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

FOLDER = "STREAMVAULT_TASK_FOLDER"
RESULT = "result.json"
LIFELINE = "lifeline"


def main() -> int:
    """Run the command line; the exit code is its own."""
    folder = os.environ.pop(FOLDER, None)
    if folder is not None:
        threading.Thread(target=_end_with_the_task, args=(Path(folder),), daemon=True).start()
        result = os.open(Path(folder, RESULT), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(result, 1)
        os.close(result)
    from streamvault.cli import main as command_line  # noqa: PLC0415  (after the lifeline: it takes a moment)

    return command_line(sys.argv[1:])


def _end_with_the_task(folder: Path) -> None:
    # without waiting for the other end: if that is gone already, there is nothing to read, which is the end
    descriptor = os.open(folder / LIFELINE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    os.read(descriptor, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # Python has put the folder of this file first, where `pravega` would be our module and not the client library
    del sys.path[0]
    sys.exit(main())
