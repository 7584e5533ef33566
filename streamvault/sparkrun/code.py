"""Packs `streamvault` into one file that executors can import from; its dependencies must be installed there."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_NAME = "streamvault-code-"
_shipping = threading.Lock()


def import_folder() -> Path:
    """Return the folder this process imports `streamvault` from: a source tree, or site-packages."""
    return _PACKAGE.parent


def zip_code(path: Path) -> None:
    """Write the package, as imported by this process, to a zip file; output is deterministic."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for source in sorted([*_PACKAGE.rglob("*.py"), *_PACKAGE.rglob("*.pyi")]):
            name = source.relative_to(_PACKAGE.parent).as_posix()
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), source.read_bytes(), zipfile.ZIP_DEFLATED)


def ship_code(context: Any) -> None:
    """Make the package importable on all current and future executors of a Spark context; once per context.

    Spark sends the file to every executor that runs a task, for as long as the context lives. So the file is in the
    context's own folder, which Spark removes when the context stops, and its name contains a hash of its content.
    """
    with _shipping:
        if any(Path(str(url)).name.startswith(_NAME) for url in context.listFiles):
            return
        # Spark keeps its own copies at the top of this folder
        folder = tempfile.mkdtemp(prefix="code-", dir=context._jvm.org.apache.spark.SparkFiles.getRootDirectory())  # noqa: SLF001
        code = Path(folder, "code.zip")
        zip_code(code)
        digest = hashlib.sha256(code.read_bytes()).hexdigest()
        path = list(sys.path)
        context.addPyFile(str(code.rename(Path(folder, f"{_NAME}{digest[:16]}.zip"))))
        # this process already has the code
        sys.path[:] = path
