"""Spark's Python worker daemon with the tasks' modules preloaded; Spark forks the task processes from it.

Spark's own daemon preloads nothing, so every process imports the same modules: a second on both cores before the first
byte moves, and the memory once per process. Modules loaded here must not start threads, which do not survive the fork.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module

PRELOAD = "STREAMVAULT_PRELOAD"
"""Environment variable with the modules, separated by commas."""


def _load() -> None:
    # OpenBLAS would start threads
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("pyspark.worker", *filter(None, os.environ.get(PRELOAD, "").split(","))):
        with suppress(ImportError):  # the task reports it better
            import_module(name)


if __name__ == "__main__":
    from pyspark.daemon import manager

    _load()
    manager()
