"""The command line: one module for each command."""

from __future__ import annotations

import atexit
import gc
import os
import sys

from streamvault.cli.start import without_collector  # first, so that it sees the start of the process

__all__ = ["INTERRUPTED", "main", "process"]

INTERRUPTED = 130
"""Exit code of a command stopped by Ctrl-C or SIGTERM."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; None takes those of the process.

    Returns:
        The exit code.
    """
    # numpy comes with pyarrow; its library for algebra, which nothing here uses, starts a thread on each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(700, 10, 50)  # a full collection goes through all of a manifest, which lives on; 10 is the default
    try:
        with without_collector():
            from streamvault.cli.app import run_app

        return run_app(arguments)
    except KeyboardInterrupt:  # while the command line itself is still being imported
        print("streamvault: interrupted", file=sys.stderr)
        return INTERRUPTED


def process(arguments: list[str] | None = None) -> int:
    """Run the command line as the whole work of this process; end the process if it was interrupted.

    Threads may then be in the middle of a transfer, and Python would wait for their locks while it shuts down.

    Args:
        arguments: as for `main`.

    Returns:
        The exit code of a command that was not interrupted.
    """
    code = main(arguments)
    if code == INTERRUPTED:
        atexit._run_exitfuncs()  # noqa: SLF001  (there is no public way to end so)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    gc.freeze()  # the collector would look once more through everything
    return code
