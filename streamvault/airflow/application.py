"""Application for ``spark-submit``: runs the command line, writes its result to a file, and exits when the task does.

Spark mixes an application's standard output with Java's messages. The result therefore goes to a file in a folder that
the task created (`FOLDER`). The folder also has a named pipe whose other end the task holds open: when the task's
process exits, even by SIGKILL, the read from the pipe returns and the command is stopped.
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
    """Run the command line and return its exit code."""
    folder = os.environ.pop(FOLDER, None)
    if folder is not None:
        threading.Thread(target=_end_with_the_task, args=(Path(folder),), daemon=True).start()
        result = os.open(Path(folder, RESULT), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(result, 1)
        os.close(result)
    from streamvault.cli import process  # noqa: PLC0415  (slow, so only after the lifeline is watched)

    return process(sys.argv[1:])


def _end_with_the_task(folder: Path) -> None:
    # O_NONBLOCK: opening must not wait for the other end; if that is closed already, the read returns at once
    descriptor = os.open(folder / LIFELINE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    os.read(descriptor, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python has put this file's folder first on the path, where `pravega` is our module and not the client library
        del sys.path[0]
    sys.exit(main())
