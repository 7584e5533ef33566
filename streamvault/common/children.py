"""Start Python as a child process that imports nothing from the folder it is started in.

Without ``PYTHONSAFEPATH`` Python puts that folder first on the path for modules: a file ``zstandard.py`` in a shared
folder would run with the secrets of whoever works there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

SAFE = "PYTHONSAFEPATH"
"""Environment variable: Python, and each Python that it starts, leaves the folder it is started in off the path."""

_FOLDER = "/"
"""Where children work: only the system's administrator may put files there, and nothing has to be removed."""


def safe_environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return environment variables for a child that is Python or starts some.

    An empty part of ``PYTHONPATH`` means the working folder, and is left out; a relative one is resolved.
    """
    path = [os.path.abspath(part) for part in variables.get("PYTHONPATH", "").split(os.pathsep) if part]  # noqa: PTH100
    return {**variables, SAFE: "1", "PYTHONPATH": os.pathsep.join(path)}


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this program's Python."""
    return [sys.executable, "-P", *arguments]


def start_python(command: Sequence[str], *, path: Sequence[str] = (), **options: Any) -> subprocess.Popen[Any]:
    """Start a Python in the root folder, where only the administrator may put files.

    Args:
        command: what to run, as by `python_command`.
        path: folders to import from; empty for those of ``PYTHONPATH``.
        **options: as for `subprocess.Popen`.

    Raises:
        OSError: it cannot be started.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path)} if path else os.environ
    return subprocess.Popen(command, cwd=_FOLDER, env=safe_environment(variables), **options)
