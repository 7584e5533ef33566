"""What Spark starts on this machine to fork the tasks' processes from: its own daemon, with what tasks import loaded.

Spark's daemon loads nothing, so that every process imports the same modules anew: a second of both cores before the
first byte moves, and the memory as often as there are processes. Nothing that is loaded here may start a thread, which
would not survive the fork.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module

__all__ = ["PRELOAD"]

PRELOAD = "STREAMVAULT_PRELOAD"
"""The environment variable that names the modules, with commas."""


def _load() -> None:
    # numpy's algebra would start threads of its own
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("pyspark.worker", *filter(None, os.environ.get(PRELOAD, "").split(","))):
        with suppress(ImportError):  # the task says it better
            import_module(name)


if __name__ == "__main__":
    from pyspark.daemon import manager

    _load()
    manager()
